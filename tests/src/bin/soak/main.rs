//! A soak: mixed traffic over many sessions through a chain of guests, some of which trap now and then, for as long as you like.
//!
//!     cargo build --release -p consort-tests && target/release/soak [--minutes N] [--seed S] [--rate ACTIONS-A-SECOND]
//!
//! While it runs, both sides check that every request gets exactly one answer, that a session's messages arrive in order, undoubled
//! and complete, and that nothing is edited that should not be. Once a minute it prints what the process takes; at the end it
//! fails if anything was wrong, or if memory, descriptors or threads grew. The agent is this program too.

mod agent;
mod asks;
mod checks;
mod client;
mod process;
mod script;
mod stream;

use consort_tests::{consort_beside, guests};
use serde_json::json;
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What the command line says.
struct Options {
    length: Duration,
    seed: u64,
    /// Actions of the client a second; a prompt brings some thirty messages.
    rate: u32,
}

fn main() -> Result<ExitCode> {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if_eq("agent").is_some() {
        return agent::run().map(|()| ExitCode::SUCCESS);
    }
    let mut options = Options {
        length: Duration::from_secs(60 * 60),
        seed: 1,
        rate: 20,
    };
    while let Some(word) = words.next() {
        let value = words.next().ok_or("an option has no value")?;
        match word.as_str() {
            "--minutes" => options.length = Duration::from_secs_f64(60.0 * value.parse::<f64>()?),
            "--seed" => options.seed = value.parse()?,
            "--rate" => options.rate = value.parse::<u32>()?.max(1),
            other => return Err(format!("there is no option {other}: use --minutes, --seed and --rate").into()),
        }
    }
    let mut child = start()?;
    let faults = watch_log(child.stderr.take().ok_or("no standard error")?);
    let wrong = client::run(&mut child, &options);
    // It has ended if all went well.
    let _ = child.kill();
    child.wait()?;
    let traps = faults.join().map_err(|_| "the log cannot be read")?;
    let mut wrong = wrong.inspect_err(|_| traps.others.iter().for_each(|line| println!("{line}")))?;
    wrong.extend(traps.wrong(options.length));
    println!("{} proxy faults in the log", traps.traps);
    for sentence in &wrong {
        println!("WRONG: {sentence}");
    }
    println!("{}", if wrong.is_empty() { "sound" } else { "NOT sound" });
    Ok(match wrong.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Starts the chain. Client side first: one that looks on, one that asks the client before each prompt, one that edits under ids of
/// its own, one that dawdles, one that edits each chunk; and four that trap, each in another way.
fn start() -> Result<Child> {
    let trap = |on: &str, source: &str, when: &str, every: u64| {
        (
            "trap",
            json!({"on": on, "source": source, "when": when, "every": every}),
        )
    };
    let chain = [
        ("observer", json!({})),
        ("asker", json!({})),
        (
            "rewriter",
            json!({"method": "session/prompt", "params": [{"op": "add", "path": "/rewritten", "value": 1}],
                "result": [{"op": "add", "path": "/rewritten", "value": 1}]}),
        ),
        trap("session/prompt", "client", "after-sleep", 170),
        (
            "slow",
            json!({"milliseconds": 3, "methods": ["session/prompt", "session/request_permission"]}),
        ),
        ("arrow", json!({})),
        trap("session/update", "agent", "handler", 7_000),
        trap("fs/read_text_file", "agent", "response", 110),
        trap("session/update", "agent", "after-sleep", 5_000),
    ];
    let consort = consort_beside()?;
    let mut command = Command::new(&consort);
    command
        .args(["run", "--no-config", "--grant", "*=everything"])
        .env("XDG_CACHE_HOME", consort_tests::command::cache())
        .env("XDG_STATE_HOME", consort_tests::command::state());
    let mut traps = 0;
    for (guest, config) in chain {
        // Guests that are there several times are told apart by number.
        traps += u32::from(guest == "trap");
        let name = match (guest, traps) {
            ("trap", 2..) => format!("trap-{traps}"),
            _ => guest.to_owned(),
        };
        command
            .arg("--proxy")
            .arg(guests::guest_with(&consort, guest))
            .arg("--proxy-config")
            .arg(format!("{name}={config}"));
    }
    Ok(command
        .arg("--")
        .arg(std::env::current_exe()?)
        .arg("agent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?)
}

/// What the log said.
#[derive(Default)]
struct Faults {
    traps: u64,
    others: Vec<String>,
}

impl Faults {
    fn wrong(&self, length: Duration) -> Vec<String> {
        let mut wrong: Vec<String> = self.others.iter().map(|line| format!("the log says {line}")).collect();
        if self.traps == 0 && length >= Duration::from_secs(120) {
            wrong.push("no proxy trapped, so this soak has shown little".into());
        }
        wrong
    }
}

/// Counts faults in the log; those of another kind than a trap, and panics of the process itself, are wrong.
fn watch_log(log: ChildStderr) -> thread::JoinHandle<Faults> {
    thread::spawn(move || {
        let mut faults = Faults::default();
        for line in BufReader::new(log).split(b'\n').map_while(std::io::Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            if line.contains("` failed (trap)") {
                faults.traps += 1;
            } else if line.contains("` failed (") || line.contains("` did not start") || line.starts_with("thread '") {
                eprintln!("{line}");
                faults.others.push(line);
            }
        }
        faults
    })
}
