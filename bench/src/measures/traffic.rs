//! What a conversation costs while every proxy takes part in it.

use super::{Bench, Subject};
use crate::client::{Client, Event};
use crate::contestants::{Contestant, Edits};
use crate::metrics;
use crate::statistics::quantile;
use crate::tree;
use crate::wire::Order;
use anyhow::bail;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Round trips at most: enough for a p99.
const TRIPS: usize = 5_000;

/// Round trips at least.
const FEW: usize = 10;

/// How long a chain rests before its memory counts as idle: what its start needed for a moment is gone then.
const REST: Duration = Duration::from_millis(150);

const MIB: f64 = 1024.0 * 1024.0;

/// A prompt with one update.
pub(super) const ONE: Order = Order {
    updates: 1,
    later: 0,
    first: 0,
    size: 0,
    questions: 0,
    blocks: 0,
    filling: 0,
    keep: 0,
};

/// Chains whose proxies edit each update.
pub(super) fn edited_updates(bench: &mut Bench, subject: Subject) -> anyhow::Result<()> {
    let Subject { contestant, proxies } = subject;
    let time = bench.settings.time();
    let mut client = bench.connect(subject, Edits::Updates, 1)?;
    let mut add = |metric, value| bench.results.add(metric, contestant, proxies, value);

    let members = tree::members(client.id());
    if contestant != Contestant::Direct {
        thread::sleep(REST);
        let usage = tree::usage(&members);
        add(&metrics::MEMORY_IDLE, usage.memory / MIB);
        add(&metrics::MEMORY_RESIDENT, usage.resident / MIB);
        add(&metrics::THREADS, usage.threads);
        add(&metrics::PROCESSES, usage.processes);
    }

    let times = round_trips(&mut client, time, ONE)?;
    add(&metrics::ROUND_TRIP, quantile(&times, 0.5));
    add(&metrics::ROUND_TRIP_99, quantile(&times, 0.99));

    let updates = updates(&mut client, &members, time)?;
    add(&metrics::UPDATES, updates.rate);
    if contestant != Contestant::Direct {
        add(&metrics::CPU, updates.cpu);
    }

    for (sessions, metric) in [(64, &metrics::FLIGHT_64), (256, &metrics::FLIGHT_256)] {
        client.sessions(sessions)?;
        add(metric, in_flight(&mut client, sessions, time)?);
    }

    let turns = bench.settings.effort.pick(10, 100, 200);
    let (early, overtaken) = order(&mut client, turns)?;
    if contestant == Contestant::Consort && early + overtaken > 0 {
        bail!("of {turns} answers {early} came before their turn's update, {overtaken} behind the one after it");
    }
    let share = |count: usize| count as f64 * 1000.0 / turns as f64;
    add(&metrics::EARLY, share(early));
    add(&metrics::OVERTAKEN, share(overtaken));

    if contestant != Contestant::Direct {
        let count = (updates.rate * time.as_secs_f64()) as u64;
        let (peak, ()) = watched(&members, || client.turn(0, Order { updates: count, ..ONE }))?;
        add(&metrics::MEMORY_PEAK, peak / MIB);
    }
    Ok(())
}

/// Chains whose proxies edit whatever passes.
pub(super) fn edited_all(bench: &mut Bench, subject: Subject) -> anyhow::Result<()> {
    let Subject { contestant, proxies } = subject;
    let time = bench.settings.time();
    let mut client = bench.connect(subject, Edits::All, 1)?;
    let mut add = |metric, value| bench.results.add(metric, contestant, proxies, value);
    let times = round_trips(&mut client, time, ONE)?;
    add(&metrics::ROUND_TRIP_ALL, quantile(&times, 0.5));
    add(&metrics::ROUND_TRIP_ALL_99, quantile(&times, 0.99));
    let times = permissions(&mut client, time)?;
    add(&metrics::PERMISSION, quantile(&times, 0.5));
    add(&metrics::PERMISSION_99, quantile(&times, 0.99));
    Ok(())
}

/// How long turns take, one after the other, in microseconds, sorted.
pub(super) fn round_trips(client: &mut Client, time: Duration, order: Order) -> anyhow::Result<Vec<f64>> {
    for _ in 0..FEW {
        client.turn(0, order)?;
    }
    let end = Instant::now() + time;
    let mut times = Vec::new();
    while times.len() < FEW || times.len() < TRIPS && Instant::now() < end {
        let begun = Instant::now();
        client.turn(0, order)?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// How long a question for permission takes there and back, in microseconds, sorted. The agent asks the next one as soon as one is
/// answered, so it is the time from one to the next.
fn permissions(client: &mut Client, time: Duration) -> anyhow::Result<Vec<f64>> {
    const TURN: u64 = 20;
    let end = Instant::now() + time;
    let mut times = Vec::new();
    while times.len() < FEW || times.len() < TRIPS && Instant::now() < end {
        let id = client.prompt(0, Order { questions: TURN, ..ONE });
        let mut last = None;
        for _ in 0..TURN {
            match client.event()? {
                Event::Question => {
                    let now = Instant::now();
                    if let Some(last) = last.replace(now) {
                        times.push((now - last).as_secs_f64() * 1e6);
                    }
                }
                other => bail!("{other:?} came instead of a question"),
            }
        }
        client.rest_of_turn(0, id)?;
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Throughput of updates.
pub(super) struct Updates {
    /// Updates a second.
    pub(super) rate: f64,
    /// Microseconds of the conductor's CPU time for one.
    pub(super) cpu: f64,
}

/// How many updates get through, in a turn that lasts about as long as given.
pub(super) fn updates(client: &mut Client, members: &[u32], time: Duration) -> anyhow::Result<Updates> {
    // Grows until it lasts long enough to tell how many the measured turn has to have.
    let mut count = 100;
    let rate = loop {
        let begun = Instant::now();
        client.turn(0, Order { updates: count, ..ONE })?;
        let taken = begun.elapsed();
        if taken > time / 4 {
            break count as f64 / taken.as_secs_f64();
        }
        count *= 4;
    };
    let count = (rate * time.as_secs_f64()).max(1.0) as u64;
    let before = tree::cpu(members);
    let begun = Instant::now();
    client.turn(0, Order { updates: count, ..ONE })?;
    let taken = begun.elapsed().as_secs_f64();
    Ok(Updates {
        rate: count as f64 / taken,
        cpu: (tree::cpu(members) - before) / count as f64,
    })
}

/// Prompts a second while each of so many sessions has one under way.
fn in_flight(client: &mut Client, sessions: usize, time: Duration) -> anyhow::Result<f64> {
    let mut running: HashMap<u64, usize> = HashMap::new();
    let begun = Instant::now();
    for session in 0..sessions {
        running.insert(client.prompt(session, ONE), session);
    }
    let mut done = 0;
    while !running.is_empty() {
        match client.event()? {
            Event::Answer { id } => {
                let Some(session) = running.remove(&id) else {
                    bail!("an answer to {id} came, which was answered before or never asked");
                };
                done += 1;
                if begun.elapsed() < time {
                    running.insert(client.prompt(session, ONE), session);
                }
            }
            Event::Update { .. } => {}
            Event::Question => bail!("a question came that nobody asked for"),
        }
    }
    let rate = f64::from(done) / begun.elapsed().as_secs_f64();
    while !(0..sessions).all(|session| client.is_complete(session)) {
        client.event()?;
    }
    Ok(rate)
}

/// Of so many turns with an update before and one behind the answer, how many answers came before the first, and how many behind
/// the second.
fn order(client: &mut Client, turns: usize) -> anyhow::Result<(usize, usize)> {
    let (mut early, mut overtaken) = (0, 0);
    for _ in 0..turns {
        let before = client.came(0);
        let id = client.prompt(0, Order { later: 1, ..ONE });
        let mut answered = false;
        while !answered || !client.is_complete(0) {
            match client.event()? {
                Event::Answer { id: came } if came == id && !answered => {
                    answered = true;
                    match client.came(0) - before {
                        0 => early += 1,
                        1 => {}
                        _ => overtaken += 1,
                    }
                }
                Event::Update { session: 0 } => {}
                other => bail!("{other:?} came during turn {id}"),
            }
        }
    }
    Ok((early, overtaken))
}

/// The most memory that processes have while something is done.
pub(super) fn watched<T>(members: &[u32], done: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(f64, T)> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut peak = 0.0_f64;
            while !over.load(Ordering::Relaxed) {
                peak = peak.max(members.iter().map(|pid| tree::memory(*pid)).sum());
                thread::sleep(Duration::from_millis(10));
            }
            peak
        });
        let result = done();
        over.store(true, Ordering::Relaxed);
        let peak = watcher.join().unwrap_or_default();
        Ok((peak, result?))
    })
}
