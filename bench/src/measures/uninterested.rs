//! What proxies cost that take part in nothing of what is sent.

use super::traffic::{ONE, round_trips, updates};
use super::{Bench, Subject, subjects_with};
use crate::contestants::Edits;
use crate::metrics;
use crate::settings::Settings;
use crate::statistics::quantile;
use crate::tree;

pub(super) fn subjects(settings: &Settings) -> Vec<Subject> {
    let mut subjects = subjects_with(&settings.some_proxies(&[0, 1, 8, 16]));
    subjects.retain(|subject| subject.contestant.has_proxies());
    subjects
}

pub(super) fn run(bench: &mut Bench, subject: Subject) -> anyhow::Result<()> {
    let Subject { contestant, proxies } = subject;
    let time = bench.settings.time();
    let mut client = bench.connect(subject, Edits::Nothing, 1)?;
    let members = tree::members(client.id());
    let mut add = |metric, value| bench.results.add(metric, contestant, proxies, value);
    let times = round_trips(&mut client, time, ONE)?;
    add(&metrics::UNINTERESTED_TRIP, quantile(&times, 0.5));
    let updates = updates(&mut client, &members, time)?;
    add(&metrics::UNINTERESTED_UPDATES, updates.rate);
    add(&metrics::UNINTERESTED_CPU, updates.cpu);
    Ok(())
}
