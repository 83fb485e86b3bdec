//! Many chains in one process: only a library can do that, so the reference's processes are not in it.

use super::{Bench, Subject};
use crate::chain::Process;
use crate::contestants::Contestant;
use crate::metrics;
use crate::settings::Settings;
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use serde::Deserialize;
use std::io::Read;
use std::process::Command;

/// Proxies in each chain.
const PROXIES: usize = 2;

/// How long all of it may take, in seconds.
const LONGEST: i64 = 300;

#[derive(Deserialize)]
struct Measured {
    start: f64,
    memory: f64,
    trip: f64,
    threads: f64,
}

pub(super) fn subjects(_: &Settings) -> Vec<Subject> {
    let contestant = Contestant::Consort;
    vec![Subject {
        contestant,
        proxies: PROXIES,
    }]
}

pub(super) fn run(bench: &mut Bench, subject: Subject) -> anyhow::Result<()> {
    let counts = bench.settings.effort.pick(&[3][..], &[1, 100], &[1, 100, 1_000]);
    for count in counts {
        let measured = measure(bench, *count)?;
        let mut add = |metric, value| bench.results.add(metric, subject.contestant, *count, value);
        add(&metrics::MANY_START, measured.start);
        add(&metrics::MANY_MEMORY, measured.memory);
        add(&metrics::MANY_THREADS, measured.threads);
        add(&metrics::MANY_TRIP, measured.trip);
    }
    Ok(())
}

fn measure(bench: &Bench, count: usize) -> anyhow::Result<Measured> {
    let programs = &bench.programs;
    let mut command = Command::new(&programs.many);
    programs.folders(&mut command, &programs.cache());
    command
        .arg(count.to_string())
        .arg(programs.work.join("audit-of-many.jsonl"))
        .args((1..=PROXIES).map(|number| programs.component("arrow", number)));
    let (process, _input, mut output) = Process::start(command, &programs.work.join("many.log"))?;
    let mut wait = [PollFd::new(&output, PollFlags::IN)];
    let longest = Timespec {
        tv_sec: LONGEST,
        tv_nsec: 0,
    };
    if rustix::io::retry_on_intr(|| poll(&mut wait, Some(&longest)))? == 0 {
        anyhow::bail!(
            "{count} chains in one process took more than {LONGEST} s; {}",
            process.last_words()
        );
    }
    // The line is written at the end of it all.
    let mut text = String::new();
    output.read_to_string(&mut text)?;
    serde_json::from_str(&text).with_context(|| format!("{count} chains in one process: {}", process.last_words()))
}
