//! Order at one proxy in one direction: what is held keeps back what comes behind it in its lane.

use super::parcel::{Body, Lane, Parcel};
use crate::message::Ticket;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Bytes that may be kept back at one proxy in one direction: as much as the largest line, unless a user sets that higher.
const MAX_KEPT: usize = 64 * 1024 * 1024;

/// The lanes of one direction at one proxy. Empty unless the proxy holds something.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    everything: Queue,
    sessions: HashMap<Arc<str>, Queue>,
    kept: usize,
    kept_messages: usize,
}

#[derive(Debug, Default)]
struct Queue {
    holds: usize,
    waiting: VecDeque<Kept>,
}

/// Something in a queue.
#[derive(Debug)]
pub(super) enum Kept {
    /// A message that has yet to come by the proxy.
    Message(Parcel),
    /// The place of an answer that the proxy has yet to give to the request with this ticket. The response that the answer
    /// comes of went to the proxy at once; the answer keeps its place in the order.
    Place(Ticket),
    /// That answer.
    Answer(Parcel),
}

impl Queue {
    fn blocks(&self) -> bool {
        self.holds > 0 || !self.waiting.is_empty()
    }
}

impl Lanes {
    /// Whether nothing at all is held or kept back.
    pub(super) fn is_free(&self) -> bool {
        self.sessions.is_empty() && !self.everything.blocks()
    }

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

    /// Whether so much is kept back that it has to end. One message above the cap is let in alone.
    pub(super) fn is_full(&self) -> bool {
        self.kept > MAX_KEPT && self.kept_messages > 1
    }

    /// Keeps a message back, behind everything or behind its session.
    pub(super) fn keep(&mut self, parcel: Parcel, behind_everything: bool) {
        self.count(&parcel);
        let queue = match &parcel.lane {
            Lane::Session(session) if !behind_everything => self.sessions.entry(session.clone()).or_default(),
            _ => &mut self.everything,
        };
        queue.waiting.push_back(Kept::Message(parcel));
    }

    /// Keeps a place for an answer behind what is held and kept back in a session.
    pub(super) fn keep_place(&mut self, session: &Arc<str>, ticket: Ticket) {
        let queue = self.sessions.entry(session.clone()).or_default();
        queue.waiting.push_back(Kept::Place(ticket));
    }

    /// Takes the first response out that the proxy itself waits for, leaving the place of an answer if one is to come of it.
    pub(super) fn take_owed(
        &mut self,
        session: &Arc<str>,
        mut owed: impl FnMut(&Parcel) -> Option<Option<Ticket>>,
    ) -> Option<(Parcel, Option<Ticket>)> {
        let queue = self.sessions.get_mut(session)?;
        let (at, ticket) = queue.waiting.iter().enumerate().find_map(|(at, kept)| match kept {
            Kept::Message(parcel) => Some((at, owed(parcel)?)),
            _ => None,
        })?;
        let taken = match ticket {
            Some(ticket) => std::mem::replace(queue.waiting.get_mut(at)?, Kept::Place(ticket)),
            None => queue.waiting.remove(at)?,
        };
        let Kept::Message(parcel) = taken else { return None };
        self.discount(&parcel);
        Some((parcel, ticket))
    }

    /// The `session/cancel` notifications that wait in a session before its next prompt.
    pub(super) fn cancels(&self, lane: &Lane) -> Vec<Parcel> {
        let Lane::Session(session) = lane else {
            return Vec::new();
        };
        let waiting = self.sessions.get(session).map(|queue| &queue.waiting);
        let messages = waiting.into_iter().flatten().filter_map(|kept| match kept {
            Kept::Message(parcel) => Some(parcel),
            _ => None,
        });
        messages
            .take_while(|parcel| &**parcel.method() != "session/prompt")
            .filter(|parcel| &**parcel.method() == "session/cancel")
            .cloned()
            .collect()
    }

    /// The messages that wait in a session behind a single one that is held, in order, up to the place of an answer.
    pub(super) fn behind_one(&mut self, session: &Arc<str>) -> impl Iterator<Item = &mut Parcel> {
        let alone = |queue: &&mut Queue| queue.holds == 1;
        let waiting = self
            .sessions
            .get_mut(session)
            .filter(alone)
            .map(|queue| &mut queue.waiting);
        waiting.into_iter().flatten().map_while(|kept| match kept {
            Kept::Message(parcel) => Some(parcel),
            _ => None,
        })
    }

    /// Whether a message waits that will be delivered under this ticket.
    pub(super) fn keeps(&self, ticket: Ticket) -> bool {
        let waiting = self.sessions.values().flat_map(|queue| &queue.waiting);
        waiting
            .into_iter()
            .any(|kept| matches!(kept, Kept::Message(parcel) if parcel.ticket == Some(ticket)))
    }

    /// Bytes that are kept back.
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// Puts an answer in its place; gives it back if there is none.
    pub(super) fn fill_place(&mut self, lane: &Lane, ticket: Ticket, answer: Parcel) -> Option<Parcel> {
        let size = answer.size();
        match self.place(lane, ticket) {
            Some(place) => *place = Kept::Answer(answer),
            None => return Some(answer),
        }
        self.kept += size;
        self.kept_messages += 1;
        None
    }

    /// Gives a place up.
    pub(super) fn give_up_place(&mut self, lane: &Lane, ticket: Ticket) {
        if let Lane::Session(session) = lane
            && let Some(queue) = self.sessions.get_mut(session)
        {
            queue
                .waiting
                .retain(|kept| !matches!(kept, Kept::Place(place) if *place == ticket));
        }
    }

    fn place(&mut self, lane: &Lane, ticket: Ticket) -> Option<&mut Kept> {
        let Lane::Session(session) = lane else { return None };
        let waiting = &mut self.sessions.get_mut(session)?.waiting;
        waiting
            .iter_mut()
            .find(|kept| matches!(kept, Kept::Place(place) if *place == ticket))
    }

    /// The next of a lane that may go on.
    pub(super) fn next(&mut self, lane: &Lane) -> Option<Kept> {
        let queue = match lane {
            Lane::Own => return None,
            // What waited behind everything may be behind its own session too: it looks again when it goes on.
            Lane::All => &mut self.everything,
            Lane::Session(session) => self.sessions.get_mut(session)?,
        };
        if queue.holds > 0 || matches!(queue.waiting.front(), Some(Kept::Place(_))) {
            return None;
        }
        match queue.waiting.pop_front() {
            Some(next) => {
                if let Kept::Message(parcel) | Kept::Answer(parcel) = &next {
                    self.kept -= parcel.size();
                    self.kept_messages -= 1;
                }
                Some(next)
            }
            None => {
                if let Lane::Session(session) = lane {
                    self.sessions.remove(session);
                }
                None
            }
        }
    }

    /// Whether nothing is held or kept back.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        !self.everything.blocks() && self.sessions.is_empty() && self.kept == 0
    }

    /// Takes one message out from the middle.
    pub(super) fn take(&mut self, mut wanted: impl FnMut(&Parcel) -> bool) -> Option<Parcel> {
        let queues = std::iter::once(&mut self.everything).chain(self.sessions.values_mut());
        for queue in queues {
            let found = |kept: &Kept| matches!(kept, Kept::Message(parcel) if wanted(parcel));
            if let Some(at) = queue.waiting.iter().position(found)
                && let Some(Kept::Message(parcel)) = queue.waiting.remove(at)
            {
                self.discount(&parcel);
                return Some(parcel);
            }
        }
        None
    }

    /// Takes the answers out that wait in a lane, or in all of them.
    pub(super) fn take_answers(&mut self, lane: Option<&Lane>) -> Vec<Parcel> {
        let queues: Vec<&mut Queue> = match lane {
            Some(Lane::Session(session)) => self.sessions.get_mut(session).into_iter().collect(),
            Some(_) => Vec::new(),
            None => self.sessions.values_mut().collect(),
        };
        let mut answers = Vec::new();
        for queue in queues {
            let answer =
                |kept: &Kept| matches!(kept, Kept::Message(parcel) if matches!(parcel.body, Body::Response { .. }));
            if !queue.waiting.iter().any(answer) {
                continue;
            }
            for kept in std::mem::take(&mut queue.waiting) {
                match kept {
                    Kept::Message(parcel) if matches!(parcel.body, Body::Response { .. }) => answers.push(parcel),
                    kept => queue.waiting.push_back(kept),
                }
            }
        }
        for answer in &answers {
            self.discount(answer);
        }
        answers
    }

    fn count(&mut self, parcel: &Parcel) {
        self.kept += parcel.size();
        self.kept_messages += 1;
    }

    fn discount(&mut self, parcel: &Parcel) {
        self.kept -= parcel.size();
        self.kept_messages -= 1;
    }
}
