//! What a message costs with ever more sessions, unanswered requests and bytes that nobody looks at.

use super::big::turns;
use super::traffic::ONE;
use super::{Bench, Subject};
use crate::client::Client;
use crate::contestants::{Contestant, Edits};
use crate::metrics::{self, Metric};
use crate::settings::Settings;
use crate::statistics::quantile;
use crate::tree;
use crate::wire::Order;
use std::time::{Duration, Instant};

/// The number of proxies that edit large messages.
const EDITORS: usize = 8;

/// Sessions of the reference at most: opening more takes it minutes.
const FEWER: usize = 1_000;

pub(super) fn subjects(_: &Settings) -> Vec<Subject> {
    [
        (Contestant::Consort, 1),
        (Contestant::Reference, 1),
        (Contestant::Consort, EDITORS),
    ]
    .map(|(contestant, proxies)| Subject { contestant, proxies })
    .to_vec()
}

/// Sessions and requests with one proxy, sizes with many.
pub(super) fn run(bench: &mut Bench, subject: Subject) -> anyhow::Result<()> {
    if subject.proxies == EDITORS {
        return sizes(bench);
    }
    let most = match (bench.settings.effort.pick(10, 1_000, 10_000), subject.contestant) {
        (most, Contestant::Reference) => FEWER.min(most),
        (most, _) => most,
    };
    sessions_and_requests(bench, subject, most)
}

/// 1, 10, 100 and so on.
fn powers(most: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |number| Some(number * 10)).take_while(move |number| *number <= most)
}

fn sessions_and_requests(bench: &mut Bench, subject: Subject, most: usize) -> anyhow::Result<()> {
    let contestant = subject.contestant;
    let time = bench.settings.time();
    let mut client = bench.connect(subject, Edits::All, 1)?;
    let members = tree::members(client.id());
    for count in powers(most) {
        client.sessions(count)?;
        let cost = cost(&mut client, &members, 0..count, time)?;
        cost.add(
            bench,
            contestant,
            count,
            &metrics::GROWTH_SESSIONS,
            &metrics::GROWTH_SESSIONS_CPU,
        );
    }
    client.sessions(most + 1)?;
    let mut kept = Vec::new();
    for count in std::iter::once(0).chain(powers(most)) {
        while kept.len() < count {
            let session = kept.len();
            kept.push(client.prompt(session, Order { keep: 1, ..ONE }));
            if kept.len() % 64 == 0 {
                client.send()?;
            }
        }
        let cost = cost(&mut client, &members, most..most + 1, time)?;
        cost.add(
            bench,
            contestant,
            count,
            &metrics::GROWTH_REQUESTS,
            &metrics::GROWTH_REQUESTS_CPU,
        );
    }
    // All that was kept has to be answered as well.
    client.prompt(most, Order { keep: 2, ..ONE });
    client.finish_turns(0..most + 1, kept.len() + 1)
}

/// What a turn costs, in microseconds.
struct Cost {
    time: f64,
    cpu: f64,
}

impl Cost {
    fn add(&self, bench: &mut Bench, contestant: Contestant, at: usize, time: &Metric, cpu: &Metric) {
        bench.results.add(time, contestant, at, self.time);
        bench.results.add(cpu, contestant, at, self.cpu);
    }
}

/// Turns in one session after the other.
fn cost(
    client: &mut Client,
    members: &[u32],
    sessions: std::ops::Range<usize>,
    time: Duration,
) -> anyhow::Result<Cost> {
    // With a short time, CPU time in ticks says little: this is measured once, so it may take longer.
    let end = Instant::now() + time * 2;
    let mut times = Vec::new();
    let before = tree::cpu(members);
    let mut round = sessions.cycle();
    while times.is_empty() || Instant::now() < end {
        let Some(session) = round.next() else { break };
        let begun = Instant::now();
        client.turn(session, ONE)?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    let cpu = (tree::cpu(members) - before) / times.len() as f64;
    times.sort_by(f64::total_cmp);
    Ok(Cost {
        time: quantile(&times, 0.5),
        cpu,
    })
}

/// Prompts of ever more KiB, past no proxy and through several that add a block. Not quite 64 MiB: a longer line is refused.
fn sizes(bench: &mut Bench) -> anyhow::Result<()> {
    let most = bench.settings.effort.pick(64, 16 << 10, 63 << 10);
    for (proxies, metric) in [(0, &metrics::GROWTH_SIZE_NONE), (EDITORS, &metrics::GROWTH_SIZE_EDITED)] {
        let subject = Subject {
            contestant: Contestant::Consort,
            proxies,
        };
        let mut client = bench.connect(subject, Edits::Prompts, 1)?;
        for kib in [1, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 63 << 10] {
            if kib <= most {
                let count = if kib < 1 << 10 { 200 } else { 7 };
                let taken = turns(&mut client, kib << 10, bench.settings.effort.pick(1, count / 3, count))?;
                bench.results.add(metric, Contestant::Consort, kib as usize, taken);
            }
        }
    }
    Ok(())
}
