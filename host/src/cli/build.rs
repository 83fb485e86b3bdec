//! `consort build`: proxy crates to components.

use super::{exit, text};
use crate::build::{self, Options};
use clap::{Args, ValueHint};
use std::io::{self, IsTerminal};
use std::path::PathBuf;

/// Compile proxy crates to components
#[derive(Args, Debug)]
#[command(after_help = "\
A directory is a crate, a workspace, or a folder of crates. What is up to date is not built again. The target \
wasm32-wasip2 is added with rustup if the compiler lacks it.

Examples:
  consort build                                   the crate or workspace of the current directory
  consort build proxies                           all crates in the folder
  consort build my-proxy --out ~/proxies
  consort build --manifest my.toml my.wasm        give a component in any language its manifest")]
pub(super) struct Arguments {
    /// Crates, workspaces or folders of crates; with --manifest, components
    #[arg(value_name = "DIR|FILE.wasm", default_value = ".", value_hint = ValueHint::DirPath)]
    directories: Vec<PathBuf>,
    /// Where the components go, as NAME.wasm [default: proxies in the workspace's target directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
    /// Build nothing: attach this manifest to finished components, which may be in any language. FILE.toml says what
    /// [package.metadata.consort] says in the Cargo.toml of a crate
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["out", "rustc"], value_hint = ValueHint::FilePath)]
    manifest: Option<PathBuf>,
    /// The compiler to build guests with
    #[arg(long, value_name = "FILE", env = "CONSORT_GUEST_RUSTC", value_hint = ValueHint::ExecutablePath)]
    rustc: Option<PathBuf>,
}

pub(super) fn run(arguments: Arguments) -> anyhow::Result<u8> {
    let built = match &arguments.manifest {
        Some(manifest) => arguments
            .directories
            .iter()
            .map(|component| build::attach_manifest(component, manifest))
            .collect::<anyhow::Result<_>>()?,
        None => build::build(&Options {
            directories: arguments.directories,
            out: arguments.out,
            rustc: arguments.rustc,
            progress: true,
        })?,
    };
    let paint = text::Paint(text::colour(io::stdout().is_terminal()));
    for component in built {
        let state = if component.changed {
            paint.text(text::Look::Green, "built")
        } else {
            paint.text(text::Look::Dim, "fresh")
        };
        exit::print(&format!(
            "{state}  {}  {}\n",
            text::one_line(&component.file.to_string_lossy()),
            text::size(component.size)
        ))?;
        for warning in component.warnings {
            exit::complain(&format!("the manifest of {}: {warning}", component.name));
        }
        if let Some(reason) = component.unsuitable {
            exit::complain(&format!("{} {reason}", component.file.display()));
        }
    }
    Ok(exit::SUCCESS)
}
