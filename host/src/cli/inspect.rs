//! `consort inspect`: what a component is, without running it.

use super::{exit, text, wishes};
use crate::digest::sha256;
use crate::manifest::Manifest;
use crate::sandbox::describe::{Description, Item, Kind};
use crate::sandbox::{self, describe};
use anyhow::{anyhow, bail};
use clap::{Args, ValueHint};
use serde_json::{Value, json};
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

/// What stands for all interfaces of WASI that this host offers.
const WASI: &str =
    "wasi 0.2 (empty unless you grant something: no files, environment or network; clocks and random numbers)";

/// Show what a component is, without running it: world, imports, size, digest, and what it wants
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 if this Consort can run the component as a proxy, otherwise 1.

Examples:
  consort inspect redact.wasm
  consort inspect --json redact.wasm | jq -r .sha256")]
pub(super) struct Arguments {
    /// The component
    #[arg(value_name = "FILE.wasm", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let file = &arguments.file;
    let bytes = sandbox::read_component(file).map_err(|fault| anyhow!(fault.cause))?;
    let description = match describe::describe(&bytes) {
        Ok(description) => description,
        Err(reason) => bail!("{} {reason}", file.display()),
    };
    let digest = sha256([&bytes]);
    let suitable = description.check();
    let report = Report {
        arguments,
        description: &description,
        size: bytes.len() as u64,
        digest: &digest,
    };
    if arguments.json {
        let reason = suitable.as_ref().err().map(ToString::to_string);
        exit::print(&format!("{:#}\n", report.json(reason)))?;
    } else {
        let paint = text::Paint(text::colour(io::stdout().is_terminal()));
        exit::print(&report.text(paint))?;
    }
    if let Err(reason) = suitable {
        bail!("{} {reason}", file.display());
    }
    Ok(exit::SUCCESS)
}

struct Report<'a> {
    arguments: &'a Arguments,
    description: &'a Description,
    size: u64,
    digest: &'a str,
}

impl Report<'_> {
    fn manifest(&self) -> Option<(Manifest, Vec<String>)> {
        self.description.manifest.as_deref().map(Manifest::read)
    }

    fn world(&self) -> Option<String> {
        let version = self.description.world_version()?;
        Some(format!("consort:proxy@{version}"))
    }

    fn json(&self, reason: Option<String>) -> Value {
        let items = |items: &[Item]| -> Vec<Value> {
            items
                .iter()
                .map(|item| json!({"name": item.name, "kind": kind(item.kind)}))
                .collect()
        };
        json!({
            "file": self.arguments.file.to_string_lossy(),
            "world": self.world(),
            "suitable": reason.is_none(),
            "reason": reason,
            "size": self.size,
            "sha256": self.digest,
            "modules": self.description.modules,
            "manifest": self.manifest().map(|(manifest, _)| manifest.to_json()),
            "dangerous": self.manifest().map(|(manifest, _)| dangerous(&manifest)),
            "warnings": self.manifest().map(|(_, warnings)| warnings),
            "imports": items(&self.description.imports),
            "exports": items(&self.description.exports),
        })
    }

    fn text(&self, paint: text::Paint) -> String {
        let mut report = String::new();
        let mut row = |name: &str, value: &str| {
            let name = paint.text(text::Look::Bold, &format!("{name:<9}"));
            // Writing to a string cannot fail.
            let _ = writeln!(report, "{name} {value}");
        };
        row("file", &text::one_line(&self.arguments.file.to_string_lossy()));
        row(
            "world",
            &text::one_line(&self.world().unwrap_or_else(|| "another one".into())),
        );
        row(
            "size",
            &format!(
                "{} ({} bytes), core modules: {}",
                text::size(self.size),
                self.size,
                self.description.modules
            ),
        );
        row("sha256", self.digest);
        match self.manifest() {
            None => row("manifest", "none: it may do nothing but what you grant it with --grant"),
            Some((manifest, warnings)) => {
                let file = self.arguments.file.file_stem().unwrap_or_default().to_string_lossy();
                for (label, value) in wishes::rows(&manifest, Some(&text::one_line(&file)), paint) {
                    row(label, &value);
                }
                let mut label = "mistakes";
                for warning in warnings {
                    row(std::mem::take(&mut label), &text::one_line(&warning));
                }
            }
        }
        let mut list = |name: &str, items: &[&Item], wasi: bool, judged: bool| {
            let mut name = name;
            if items.is_empty() && !wasi {
                row(name, "nothing");
            }
            for item in items {
                let mut value = text::one_line(&item.name);
                if item.kind != Kind::Interface {
                    value = format!("{value} ({})", kind(item.kind));
                }
                if judged && !item.is_offered() {
                    value = paint.text(text::Look::Red, &format!("{value}  not offered"));
                }
                row(name, &value);
                name = "";
            }
            if wasi {
                row(name, WASI);
            }
        };
        // Types that are imported by themselves are only names for those of the interfaces.
        let imports = self.description.imports.iter().filter(|item| item.kind != Kind::Type);
        let (wasi, others): (Vec<&Item>, Vec<&Item>) = imports.partition(|item| item.is_offered() && item.is_wasi());
        list("imports", &others, !wasi.is_empty(), true);
        // A proxy exports functions; what some compilers add to them means nothing to a person.
        let proxy = self.description.world_version().is_some();
        let exports = self.description.exports.iter();
        let exports: Vec<&Item> = exports.filter(|item| !proxy || item.kind == Kind::Function).collect();
        list("exports", &exports, false, false);
        report
    }
}

/// The wishes that only the user can grant.
fn dangerous(manifest: &Manifest) -> Vec<String> {
    let grants = manifest.wishes.iter().flatten().map(|(grant, _)| grant);
    grants
        .filter(|grant| !grant.is_ordinary())
        .map(ToString::to_string)
        .collect()
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Function => "function",
        Kind::Interface => "interface",
        Kind::Type => "type",
        Kind::Other => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(imports: &[(&str, Kind)], exports: &[(&str, Kind)]) -> String {
        let items = |items: &[(&str, Kind)]| {
            items
                .iter()
                .map(|&(name, kind)| Item {
                    name: name.into(),
                    kind,
                })
                .collect()
        };
        let report = Report {
            arguments: &Arguments {
                file: "x.wasm".into(),
                json: false,
            },
            description: &Description {
                imports: items(imports),
                exports: items(exports),
                modules: 1,
                manifest: None,
            },
            size: 1,
            digest: "d",
        };
        report.text(text::Paint(false))
    }

    #[test]
    fn what_is_of_no_interest_is_folded_or_left_out() {
        let ours = ("consort:proxy/json@0.1.0", Kind::Interface);
        let wasi = [
            ("wasi:io/poll@0.2.6", Kind::Interface),
            ("wasi:cli/exit@0.2.6", Kind::Interface),
            ("wasi:io/poll@0.3.0", Kind::Interface),
        ];
        let start = ("start", Kind::Function);
        let shown = text(&[&[ours], &wasi[..]].concat(), &[start, ("exports", Kind::Interface)]);
        let expected = format!(
            "\
imports   consort:proxy/json@0.1.0
          wasi:io/poll@0.3.0  not offered
          {WASI}
exports   start (function)
"
        );
        assert!(shown.ends_with(&expected), "{shown}");
        let shown = text(&wasi[..1], &[("exports", Kind::Interface)]);
        assert!(
            shown.ends_with(&format!("imports   {WASI}\nexports   exports\n")),
            "{shown}"
        );
        assert!(text(&[], &[]).ends_with("imports   nothing\nexports   nothing\n"));
    }
}
