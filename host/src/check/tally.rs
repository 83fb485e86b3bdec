//! What is counted while a component is tried.

use crate::tap::{Hop, Kind, Place, Tap};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Methods that are told apart; a proxy can send messages of any name.
const MAX_METHODS: usize = 500;

/// Turns with one method whose times are kept.
const MAX_TURNS: usize = 10_000;

/// Something that passed between the proxy and the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Did {
    /// Whether the proxy sent it; otherwise it got it.
    pub sent: bool,
    /// Where it went, or where it came from.
    pub peer: Place,
    /// What it was.
    pub kind: Kind,
    /// The method.
    pub method: String,
    /// How often.
    pub times: u64,
}

/// How long the turns with a method took.
#[derive(Clone, Debug, Default)]
pub struct Timing {
    /// Of the first ones.
    turns: Vec<u64>,
    count: usize,
    longest: Duration,
    growth: u64,
}

impl Timing {
    /// One more turn, after which the instance had so many bytes more.
    pub(super) fn add(&mut self, time: Duration, growth: u64) {
        self.growth = self.growth.max(growth);
        if self.turns.len() < MAX_TURNS {
            self.turns.push(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        }
        self.count += 1;
        self.longest = self.longest.max(time);
    }

    /// The most bytes of memory that one of them added.
    pub fn growth(&self) -> u64 {
        self.growth
    }

    /// How many turns there were.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The time that half of them took less than.
    pub fn median(&self) -> Duration {
        let mut sorted = self.turns.clone();
        sorted.sort_unstable();
        Duration::from_nanos(sorted.get(sorted.len() / 2).copied().unwrap_or(0))
    }

    /// The longest.
    pub fn longest(&self) -> Duration {
        self.longest
    }
}

/// Counts what goes to and from the proxy.
#[derive(Default)]
pub(super) struct Tally(Mutex<BTreeMap<Key, u64>>);

type Key = (bool, Place, u8, String);

const KINDS: [Kind; 4] = [Kind::Request, Kind::Notification, Kind::Result, Kind::Error];

impl Tally {
    pub(super) fn take(&self) -> Vec<Did> {
        let counted = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        counted
            .into_iter()
            .map(|((sent, peer, kind, method), times)| Did {
                sent,
                peer,
                kind: KINDS[usize::from(kind)],
                method,
                times,
            })
            .collect()
    }
}

impl Tap for Tally {
    fn hop(&self, hop: &Hop<'_>) {
        let (sent, peer) = match (hop.from, hop.to) {
            (Place::Proxy(_), peer) => (true, peer),
            (peer, Place::Proxy(_)) => (false, peer),
            _ => return,
        };
        let kind = KINDS.iter().position(|kind| *kind == hop.kind).unwrap_or(0);
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let method = match counted.len() < MAX_METHODS {
            true => hop.method,
            false => "(others)",
        };
        let key = (sent, peer, u8::try_from(kind).unwrap_or(0), method.to_owned());
        *counted.entry(key).or_default() += 1;
    }
}
