//! `consort demo`: the project's own proxies in front of the demo agent, and what each of them does to a prompt and to its answer.

mod difference;
mod record;
mod view;

use super::prompt::{self, Audience, Policy, Request};
use super::{chain, exit, run, text};
use crate::build::{self, Built};
use crate::config;
use crate::connection::{ConnectionOptions, ProxyOptions};
use anyhow::{Context, bail};
use clap::Args;
use record::Recorder;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, fs, process};

/// The proxies that are shown, client side first.
const PROXIES: [&str; 2] = ["context", "redact"];

/// The file that `context` finds in the demo's working directory.
const INSTRUCTIONS: &str = "# Rules of this project\nAnswer in one sentence.\nNever push to main.\n";

/// What a token of GitHub's looks like; this one has never been one, and is put together here so that nobody's scanner takes
/// this file for a leak.
const TOKEN: &str = concat!("ghp", "_", "NotARealTokenNotARealTokenNotARealTo");

/// How long the agent gets at the end; the demo agent ends at once.
const GRACE: Duration = Duration::from_secs(2);

/// Show two proxies at work: builds `context` and `redact`, puts them in front of the demo agent, and sends a prompt
#[derive(Args, Debug)]
#[command(after_help = "\
Works in the source tree that this program was built in. The first run compiles the proxies.")]
pub(super) struct Arguments {}

pub(super) fn run(_arguments: &Arguments) -> anyhow::Result<u8> {
    let started = Instant::now();
    let built = build_proxies()?;
    let building = started.elapsed();

    let directory = Directory::new()?;
    fs::write(directory.0.join("AGENTS.md"), INSTRUCTIONS).context("cannot write to the temporary directory")?;
    let recorder = Arc::new(Recorder::new());
    let options = ConnectionOptions {
        proxies: built
            .iter()
            .map(|component| ProxyOptions {
                name: component.name.clone(),
                file: component.file.clone(),
                configuration: config::NO_CONFIGURATION.to_owned(),
                memory: config::DEFAULT_MEMORY,
            })
            .collect(),
        agent: chain::demo_agent()?,
        grace: GRACE,
        tap: Some(recorder.clone()),
        progress: io::stderr().is_terminal(),
    };
    let request = Request {
        text: format!("Deploy with {TOKEN} and then show me a /secret"),
        directory: directory.0.clone(),
        audience: Audience::Nobody,
        policy: Policy::Allow,
    };
    let runtime = run::start_runtime()?;
    let status = runtime.block_on(prompt::converse(options, request));
    runtime.shutdown_timeout(run::SHUTDOWN);
    let status = status?;
    if status != exit::SUCCESS {
        return Ok(status);
    }

    let view = view::View {
        paint: text::Paint(text::colour(io::stdout().is_terminal())),
        proxies: &built,
        record: recorder.take(),
        building,
    };
    exit::print(&view.render())?;
    Ok(status)
}

/// The folder of proxies beside this package's sources.
fn build_proxies() -> anyhow::Result<Vec<Built>> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = package.parent().unwrap_or(package).join("proxies");
    let directories: Vec<PathBuf> = PROXIES.iter().map(|name| folder.join(name)).collect();
    if !directories
        .iter()
        .all(|directory| directory.join("Cargo.toml").is_file())
    {
        bail!(
            "the demo needs Consort's source tree with its proxies in {}; clone it and run `cargo run -- demo` there",
            folder.display()
        );
    }
    let built = build::build(&build::Options {
        directories,
        out: None,
        rustc: env::var_os("CONSORT_GUEST_RUSTC").map(PathBuf::from),
        progress: true,
    })
    .context("cannot build the proxies")?;
    Ok(built)
}

/// A temporary directory that is removed in the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> anyhow::Result<Self> {
        // What a killed process with the same id has left behind is not used.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let path = env::temp_dir().join(format!("consort-demo-{}-{}", process::id(), now.as_millis()));
        fs::create_dir(&path).with_context(|| format!("cannot make the directory {}", path.display()))?;
        // Agents and proxies are told real paths.
        Ok(Self(fs::canonicalize(&path).unwrap_or(path)))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!("cannot remove {}: {error}", self.0.display());
        }
    }
}
