//! Order at one proxy in one direction: what is held keeps back what comes behind it in its lane.

use super::parcel::{Lane, Parcel};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Bytes that may be kept back at one proxy in one direction: as much as the largest line.
const MAX_KEPT: usize = 64 * 1024 * 1024;

/// The lanes of one direction at one proxy. Empty unless the proxy holds something.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    everything: Queue,
    sessions: HashMap<Arc<str>, Queue>,
    kept: usize,
}

#[derive(Debug, Default)]
struct Queue {
    holds: usize,
    waiting: VecDeque<Parcel>,
}

impl Queue {
    fn blocks(&self) -> bool {
        self.holds > 0 || !self.waiting.is_empty()
    }
}

impl Lanes {
    /// Whether `initialize` keeps everything back.
    pub(super) fn everything_blocks(&self) -> bool {
        self.everything.blocks()
    }

    /// Whether a message's session keeps it back.
    pub(super) fn session_blocks(&self, lane: &Lane) -> bool {
        match lane {
            Lane::Session(session) if !self.sessions.is_empty() => {
                self.sessions.get(session).is_some_and(Queue::blocks)
            }
            _ => false,
        }
    }

    /// Something of this lane is held now.
    pub(super) fn hold(&mut self, lane: &Lane) {
        match lane {
            Lane::All => self.everything.holds += 1,
            Lane::Session(session) => self.sessions.entry(session.clone()).or_default().holds += 1,
            Lane::Own => {}
        }
    }

    /// A hold ends; what it kept back is taken with [`Self::next`].
    pub(super) fn end_hold(&mut self, lane: &Lane) {
        let queue = match lane {
            Lane::All => Some(&mut self.everything),
            Lane::Session(session) => self.sessions.get_mut(session),
            Lane::Own => None,
        };
        if let Some(queue) = queue {
            queue.holds = queue.holds.saturating_sub(1);
        }
    }

    /// Keeps a message back, behind everything or behind its session. Gives it back if too much is kept already.
    pub(super) fn keep(&mut self, parcel: Parcel, behind_everything: bool) -> Result<(), Parcel> {
        let size = parcel.size();
        if self.kept > 0 && self.kept + size > MAX_KEPT {
            return Err(parcel);
        }
        self.kept += size;
        let queue = match &parcel.lane {
            Lane::Session(session) if !behind_everything => self.sessions.entry(session.clone()).or_default(),
            _ => &mut self.everything,
        };
        queue.waiting.push_back(parcel);
        Ok(())
    }

    /// The next message of a lane that may go on.
    pub(super) fn next(&mut self, lane: &Lane) -> Option<Parcel> {
        let next = match lane {
            Lane::Own => None,
            Lane::All => {
                // What waited behind everything may be behind its own session too: it looks again when it goes on.
                (self.everything.holds == 0).then(|| self.everything.waiting.pop_front())?
            }
            Lane::Session(session) => {
                let queue = self.sessions.get_mut(session)?;
                if queue.holds > 0 {
                    return None;
                }
                let next = queue.waiting.pop_front();
                if next.is_none() {
                    self.sessions.remove(session);
                }
                next
            }
        }?;
        self.kept -= next.size();
        Some(next)
    }

    /// Takes one message out from the middle.
    pub(super) fn take(&mut self, mut wanted: impl FnMut(&Parcel) -> bool) -> Option<Parcel> {
        let queues = std::iter::once(&mut self.everything).chain(self.sessions.values_mut());
        for queue in queues {
            if let Some(at) = queue.waiting.iter().position(&mut wanted) {
                let parcel = queue.waiting.remove(at)?;
                self.kept -= parcel.size();
                return Some(parcel);
            }
        }
        None
    }
}
