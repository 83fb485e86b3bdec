//! The command line: what `consort` understands, where its output goes, and how it exits. Must not know how a chain works.
//!
//! Standard output carries what a command is for (in `run`: ACP and nothing else); all other text goes to standard error.

mod agent;
mod build;
mod chain;
mod check;
mod completions;
mod demo;
mod demo_agent;
mod exit;
mod inspect;
mod mcp_shim;
mod prompt;
mod proxy;
mod run;
mod stdio;
mod text;
mod wishes;

use clap::{Args, Parser, Subcommand};
use std::borrow::Cow;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

/// The sizes that help texts are wrapped to, in columns, on a terminal that is wider.
const HELP_WIDTH: usize = 100;

/// What Consort logs by itself, of its agents, and of its proxies.
const OWN_TARGETS: [&str; 3] = ["consort", "agent", "proxy"];

const EXAMPLES: &str = "\
Examples:
  consort demo                                             see two proxies at work
  consort run --proxy redact.wasm -- claude-agent-acp      what an editor starts
  consort prompt \"What does this project do?\" -- claude-agent-acp
  consort inspect redact.wasm                              look at a proxy before using it
  consort check redact.wasm                                try it out in a cage
  consort build proxies                                    compile proxy crates to components";

#[derive(Debug, Parser)]
#[command(
    name = "consort",
    version,
    about = "A conductor for the Agent Client Protocol: sandboxed WebAssembly proxies between an editor and a coding agent",
    after_help = EXAMPLES,
    max_term_width = HELP_WIDTH,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(flatten)]
    log: LogArguments,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args, Debug)]
struct LogArguments {
    /// What to log to standard error: off, error, warn, info, debug or trace for Consort, the agent and the proxies, or a list like `warn,consort=debug` [default: warn]
    #[arg(long, global = true, value_name = "LEVEL", env = "CONSORT_LOG", hide_env_values = true, value_parser = log_filter)]
    log: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Arguments),
    Proxy(proxy::Arguments),
    Prompt(prompt::Arguments),
    Inspect(inspect::Arguments),
    Check(check::Arguments),
    Build(build::Arguments),
    Demo(demo::Arguments),
    DemoAgent(demo_agent::Arguments),
    #[command(name = crate::bridge::SHIM, hide = true)]
    McpShim(mcp_shim::Arguments),
    Completions(completions::Arguments),
}

impl Command {
    /// What is logged if nothing else is asked for.
    fn default_log(&self) -> &'static str {
        match self {
            // These tell the failures of a connection themselves.
            Self::Prompt(_) | Self::Demo(_) => "warn,consort::connection=off",
            _ => "warn",
        }
    }
}

/// Checks a log filter; it is parsed again where it is used, since it cannot be cloned.
fn log_filter(text: &str) -> Result<String, String> {
    EnvFilter::builder()
        .parse(text)
        .map(|_| text.to_owned())
        .map_err(|error| error.to_string())
}

/// Runs the command that this process was started with, and says how it ended.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    start_log(cli.log.log.as_deref().unwrap_or(cli.command.default_log()));
    let outcome = match cli.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Proxy(arguments) => proxy::run(&arguments),
        Command::Prompt(arguments) => prompt::run(arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Build(arguments) => build::run(arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::DemoAgent(arguments) => demo_agent::run(&arguments),
        Command::McpShim(arguments) => mcp_shim::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
    };
    ExitCode::from(exit::report(outcome))
}

/// The filter with a bare level taken for what a person means by it: the libraries say too much at the finer ones.
fn own_level(filter: &str) -> Cow<'_, str> {
    match filter.trim().parse::<LevelFilter>() {
        Ok(level) if level > LevelFilter::WARN => {
            let own = OWN_TARGETS.map(|target| format!(",{target}={level}")).concat();
            Cow::Owned(format!("{}{own}", LevelFilter::WARN))
        }
        _ => Cow::Borrowed(filter),
    }
}

fn start_log(filter: &str) {
    let filter = EnvFilter::builder().parse_lossy(own_level(filter));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(text::colour(std::io::stderr().is_terminal()))
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_level_is_that_of_consort_alone() {
        assert_eq!(own_level("debug"), "warn,consort=debug,agent=debug,proxy=debug");
        assert_eq!(own_level(" INFO"), "warn,consort=info,agent=info,proxy=info");
        for filter in ["off", "error", "warn", "debug,wasmtime=off", "wasmtime=trace", ""] {
            assert_eq!(own_level(filter), filter);
        }
    }
}
