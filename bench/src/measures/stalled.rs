//! What a conductor keeps in memory while the client does not read what the agent writes.

use super::traffic::ONE;
use super::{Bench, Subject, subjects_with};
use crate::contestants::{Contestant, Edits};
use crate::metrics;
use crate::settings::Settings;
use crate::tree;
use crate::wire::Order;
use std::thread;
use std::time::{Duration, Instant};

/// When memory has not grown for so long, all has come that will.
const STEADY: Duration = Duration::from_millis(1500);

/// How long it may take to become steady.
const LONGEST: Duration = Duration::from_secs(20);

/// How long memory may take to be given back.
const GIVEN_BACK: Duration = Duration::from_secs(3);

const MIB: f64 = 1024.0 * 1024.0;

pub(super) fn subjects(settings: &Settings) -> Vec<Subject> {
    let mut subjects = subjects_with(&settings.some_proxies(&[0, 1]));
    subjects.retain(|subject| subject.contestant != Contestant::Direct);
    subjects
}

pub(super) fn run(bench: &mut Bench, subject: Subject) -> anyhow::Result<()> {
    let Subject { contestant, proxies } = subject;
    let mut client = bench.connect(subject, Edits::Updates, 1)?;
    let members = tree::members(client.id());
    let memory = || members.iter().map(|pid| tree::memory(*pid)).sum::<f64>();
    let updates = bench.settings.effort.pick(1_000, 100_000, 100_000);
    client.prompt(
        0,
        Order {
            updates,
            size: 1024,
            ..ONE
        },
    );
    client.send()?;
    let begun = Instant::now();
    let mut peak = memory();
    let mut grown = Instant::now();
    let steady = bench
        .settings
        .effort
        .pick(Duration::from_millis(50), STEADY / 2, STEADY);
    while grown.elapsed() < steady && begun.elapsed() < LONGEST {
        thread::sleep(Duration::from_millis(20));
        let now = memory();
        if now > peak * 1.01 {
            grown = Instant::now();
        }
        peak = peak.max(now);
    }
    client.finish_turn(0)?;
    thread::sleep(bench.settings.effort.pick(Duration::ZERO, GIVEN_BACK / 3, GIVEN_BACK));
    bench
        .results
        .add(&metrics::STALLED_PEAK, contestant, proxies, peak / MIB);
    bench
        .results
        .add(&metrics::STALLED_AFTER, contestant, proxies, memory() / MIB);
    Ok(())
}
