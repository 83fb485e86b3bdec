//! The benchmark of Consort: `cargo run --release -p consort-bench`. It measures chains next to the reference conductor with native
//! proxies, a plain relay and no conductor at all, in turn and in several rounds, and verifies whatever comes.

mod agent;
mod budget;
mod chain;
mod client;
mod components;
mod contestants;
mod expected;
mod forms;
mod lines;
mod machine;
mod measures;
mod metrics;
mod plot;
mod prepare;
mod progress;
mod prompts;
mod relay;
mod results;
mod settings;
mod statistics;
mod table;
mod tree;
mod wire;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};
use contestants::Contestant;
use machine::Machine;
use measures::Bench;
use progress::Progress;
use results::Results;
use serde_json::json;
use settings::{Effort, Settings};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measures Consort next to the reference conductor, a plain relay and no conductor at all
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true, after_help = measures())]
struct Cli {
    #[command(flatten)]
    arguments: Arguments,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Args)]
struct Arguments {
    /// Numbers of proxies [default: 0,1,2,4,8,16, with --quick 0,1,8]
    #[arg(long, value_delimiter = ',', value_name = "N")]
    proxies: Vec<usize>,
    /// Rounds [default: 5, with --quick 2]
    #[arg(long)]
    rounds: Option<usize>,
    /// Measures to take, instead of all
    #[arg(long, value_delimiter = ',', value_name = "MEASURE")]
    only: Vec<String>,
    /// Contestants, instead of all: direct, relay, consort and reference
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    contestants: Vec<String>,
    /// Less of everything: under two minutes instead of ten
    #[arg(long)]
    quick: bool,
    /// Only see whether everything works
    #[arg(long, hide = true, conflicts_with = "quick")]
    tiny: bool,
    /// Take the programs beside this one as they are
    #[arg(long, hide = true)]
    no_build: bool,
    /// Where the results go: results.json, table.md and plot.svg
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
}

/// What this program is besides.
#[derive(Subcommand)]
enum Part {
    /// The agent of all chains
    #[command(hide = true)]
    Agent,
    /// The plain relay
    #[command(hide = true)]
    Relay {
        #[arg(last = true)]
        command: Vec<OsString>,
    },
}

fn measures() -> String {
    let lines = measures::ALL
        .iter()
        .map(|measure| format!("\n  {:13} {}", measure.name, measure.about));
    format!("Measures:{}", lines.collect::<String>())
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.part {
        Some(Part::Agent) => agent::run(),
        Some(Part::Relay { command }) => relay::run(&command),
        None => bench(&cli.arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("consort-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn bench(arguments: &Arguments) -> anyhow::Result<()> {
    let settings = settings(arguments)?;
    chain::end_on_signals()?;
    let progress = Progress::new();
    let programs = prepare::prepare(&settings, &arguments.out, !arguments.no_build, &progress)?;
    let machine = Machine::new(&programs, settings.rounds);
    let mut bench = Bench {
        settings,
        programs,
        results: Results::default(),
    };
    let done = bench.run(&progress);
    drop(progress);
    // What was measured before something went wrong may say why.
    if !bench.results.is_empty() {
        report(&arguments.out, &machine, &bench.results)?;
    }
    done
}

fn settings(arguments: &Arguments) -> anyhow::Result<Settings> {
    let effort = match (arguments.tiny, arguments.quick) {
        (true, _) => Effort::Tiny,
        (_, true) => Effort::Quick,
        _ => Effort::Full,
    };
    for name in &arguments.only {
        if !measures::ALL.iter().any(|measure| measure.name == name) {
            bail!("there is no measure {name:?}; --help lists them");
        }
    }
    let mut contestants = Vec::new();
    for name in &arguments.contestants {
        contestants.push(match name.as_str() {
            "direct" => Contestant::Direct,
            "relay" => Contestant::Relay,
            "consort" => Contestant::Consort,
            "reference" => Contestant::Reference,
            _ => bail!("there is no contestant {name:?}; there are direct, relay, consort and reference"),
        });
    }
    if contestants.is_empty() {
        contestants = Contestant::ALL.to_vec();
    }
    let mut proxies = arguments.proxies.clone();
    if proxies.is_empty() {
        proxies.extend(effort.pick(&[0, 1][..], &[0, 1, 8], &[0, 1, 2, 4, 8, 16]));
    }
    proxies.sort_unstable();
    proxies.dedup();
    Ok(Settings {
        proxies,
        rounds: arguments.rounds.unwrap_or(effort.pick(1, 2, 5)).max(1),
        only: arguments.only.clone(),
        contestants,
        effort,
    })
}

fn report(out: &Path, machine: &Machine, results: &Results) -> anyhow::Result<()> {
    let budget = budget::judge(results);
    let table = table::text(machine, &budget, results);
    let json = json!({"machine": machine, "budget": budget, "measures": results.json()});
    for (name, text) in [
        ("results.json", serde_json::to_string_pretty(&json)? + "\n"),
        ("table.md", table.clone()),
        ("plot.svg", plot::svg(results)),
    ] {
        let file = out.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    println!("{table}");
    Ok(())
}
