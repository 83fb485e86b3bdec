//! What is to happen later on a connection.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// What to do when a time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// Answer a proxy's sleep.
    Sleep {
        /// The proxy.
        proxy: usize,
        /// The operation.
        operation: u64,
    },
    /// Make a new instance of a proxy.
    Restart {
        /// The proxy.
        proxy: usize,
    },
    /// Count up what proxies have changed.
    Tally,
    /// Let the chain look at its own times.
    Chain,
    /// The agent with this number has had long enough for its first answer.
    Silence {
        /// How many agents were started before it, and itself.
        agent: u64,
    },
    /// What an ended agent left in its pipe was waited for long enough.
    Drained,
    /// The client's input ended long enough ago.
    Grace,
}

/// A queue of times.
#[derive(Debug, Default)]
pub(super) struct Timers {
    queue: BinaryHeap<Reverse<(Instant, Due)>>,
}

impl Timers {
    pub(super) fn add(&mut self, at: Instant, due: Due) {
        self.queue.push(Reverse((at, due)));
    }

    /// Takes out the sleep of an operation that nobody waits for any more.
    pub(super) fn forget(&mut self, forgotten: u64) {
        self.queue
            .retain(|Reverse((_, due))| !matches!(due, Due::Sleep { operation, .. } if *operation == forgotten));
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.queue.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes one that is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<Due> {
        if self.next()? > now {
            return None;
        }
        self.queue.pop().map(|Reverse((_, due))| due)
    }
}
