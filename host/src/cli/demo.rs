//! `consort demo`: the project's own proxies in front of the demo agent, and what each of them does to a prompt and to its answer.

mod difference;
mod next;
mod record;
mod view;

use super::prompt::{self, Audience, Policy, Request};
use super::{agent, exit, run, text};
use crate::build::{self, Built};
use crate::config;
use crate::connection::{ConnectionOptions, DEFAULT_MAX_LINE, ProxyOptions};
use anyhow::{Context, bail};
use clap::Args;
use record::Recorder;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, fs, process, thread};

/// The proxies that are shown, client side first.
const PROXIES: [&str; 2] = ["context", "redact"];

/// The file that `context` finds in the demo's working directory.
const INSTRUCTIONS: &str = "# Rules of this project\nAnswer in one sentence.\nNever push to main.\n";

/// What a token of GitHub's looks like; this one has never been one, and is put together here so that nobody's scanner takes
/// this file for a leak.
const TOKEN: &str = concat!("ghp", "_", "NotARealTokenNotARealTokenNotARealTo");

/// Building for longer than this is told.
const SHOW_AFTER: Duration = Duration::from_secs(1);

/// How long the agent gets at the end; the demo agent ends at once.
const GRACE: Duration = Duration::from_secs(2);

/// Show two proxies at work: builds `context` and `redact`, puts them in front of the demo agent, and sends a prompt
#[derive(Args, Debug)]
#[command(after_help = "\
Works in the source tree that this program was built in. The first run compiles the proxies.")]
pub(super) struct Arguments {}

pub(super) fn run(_arguments: &Arguments) -> anyhow::Result<u8> {
    let width = text::width();
    exit::print(&view::introduction(width))?;
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
                grants: Vec::new(),
                common_grants: Vec::new(),
                limits: Vec::new(),
                on_failure: None,
            })
            .collect(),
        sandbox: None,
        agent: Some(agent::demo_agent()?),
        max_line: DEFAULT_MAX_LINE,
        grace: GRACE,
        tap: Some(recorder.clone()),
        notices: false,
        retry: None,
        audit: None,
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
        width,
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
    let options = |progress| build::Options {
        directories: directories.clone(),
        out: None,
        rustc: env::var_os("CONSORT_GUEST_RUSTC").map(PathBuf::from),
        progress,
    };
    // What has been built before is up to date as a rule, and cargo has nothing to say then. This is only a guess, since where
    // cargo puts what it builds can be configured.
    let results = folder.with_file_name("target").join("proxies");
    let before = PROXIES
        .iter()
        .all(|name| results.join(format!("{name}.wasm")).is_file());
    if before && let Ok(built) = build_quietly(&options(false)) {
        return Ok(built);
    }
    // If that failed, cargo now tells why.
    build::build(&options(true)).context("cannot build the proxies")
}

/// Builds with nothing but a line if it takes long.
fn build_quietly(options: &build::Options) -> anyhow::Result<Vec<Built>> {
    thread::scope(|scope| {
        let (done, waiting) = mpsc::sync_channel::<()>(0);
        scope.spawn(move || {
            if waiting.recv_timeout(SHOW_AFTER) == Err(RecvTimeoutError::Timeout) {
                exit::complain("building the proxies …");
            }
        });
        let built = build::build(options);
        drop(done);
        built
    })
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
