//! Prompts that are large, of which no proxy looks at more than it needs.

use super::traffic::ONE;
use super::{Bench, Subject, subjects_with};
use crate::client::Client;
use crate::contestants::{Contestant, Edits};
use crate::metrics;
use crate::settings::Settings;
use crate::statistics::quantile;
use crate::wire::Order;
use std::time::Instant;

pub(super) fn subjects(settings: &Settings) -> Vec<Subject> {
    subjects_with(&settings.some_proxies(&[0, 1, 8]))
}

pub(super) fn run(bench: &mut Bench, subject: Subject) -> anyhow::Result<()> {
    let Subject { contestant, proxies } = subject;
    let metrics = [
        (Edits::Prompts, 1, &metrics::BIG_1),
        (Edits::Prompts, 16, &metrics::BIG_16),
        (Edits::Nothing, 1, &metrics::SKIPPED_1),
        (Edits::Nothing, 16, &metrics::SKIPPED_16),
    ];
    let mut client: Option<(Edits, Client)> = None;
    for (edits, mib, metric) in metrics {
        if client.as_ref().is_none_or(|(of, _)| *of != edits) {
            client = Some((edits, bench.connect(subject, edits, 1)?));
        }
        if let Some((_, client)) = &mut client {
            let slow = contestant == Contestant::Reference;
            let count = bench
                .settings
                .effort
                .pick(1, if slow { 1 } else { 5 }, if slow { 2 } else { 7 });
            let taken = turns(client, mib << 20, count)?;
            bench.results.add(metric, contestant, proxies, taken / 1e3);
        }
    }
    Ok(())
}

/// How long prompts with so many bytes of filling take, in microseconds. The first one does not count.
pub(super) fn turns(client: &mut Client, filling: u64, count: usize) -> anyhow::Result<f64> {
    let mut times = Vec::new();
    for number in 0..=count {
        client.prompt(0, Order { filling, ..ONE });
        let begun = Instant::now();
        client.finish_turn(0)?;
        if number > 0 {
            times.push(begun.elapsed().as_secs_f64() * 1e6);
        }
    }
    // The agent looks at a filling after its answer, and says what is wrong with it in the next one.
    client.turn(0, ONE)?;
    client.shrink();
    times.sort_by(f64::total_cmp);
    Ok(quantile(&times, 0.5))
}
