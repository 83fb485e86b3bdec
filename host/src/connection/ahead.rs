//! Turns taken ahead of the chain, several of one proxy in a row in a task of their own: so a stream of notifications keeps as many
//! processors busy as there are. Owns what has come of them until the chain asks; what is asked for, and when, is the chain's business.

use super::contained::contained;
use super::driver::Event;
use crate::chain::Router;
use crate::fault::{Fault, Phase};
use crate::message::{Receipt, Sent, Ticket, Turn, TurnResult};
use crate::sandbox::Instance;
use crate::wire::text::Text;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::RangeInclusive;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Turns behind the first one of a row, at least and at most: a change of threads costs as much as a few turns.
const MANY: RangeInclusive<usize> = 4..=32;

/// Bytes of the messages in a row, and of what comes of them, roughly.
const MOST_BYTES: usize = 256 * 1024;

/// A row that has lasted so long ends: what has come of it is not to wait any longer.
const LASTS: Duration = Duration::from_millis(2);

/// What came of some turns.
pub(super) type Results = Vec<(Ticket, Result<TurnResult, Fault>)>;

/// What is known of a proxy's next turns.
#[derive(Default)]
pub(super) struct Ahead {
    results: VecDeque<(Ticket, Result<TurnResult, Fault>)>,
    /// The turn that the chain waits for, unless it is among those that are taken right now.
    waiting: Option<(Ticket, Option<Turn>)>,
    away: bool,
    /// One of the turns that are taken has not ended at once.
    lasts: bool,
}

impl Ahead {
    /// What came of a turn, if it was taken already.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Result<TurnResult, Fault>> {
        let at = self.results.iter().position(|(taken, _)| *taken == ticket)?;
        self.results.remove(at).map(|(_, result)| result)
    }

    /// Whether something is there that the chain has not asked for.
    pub(super) fn has_results(&self) -> bool {
        !self.results.is_empty()
    }

    /// Whether turns are being taken, so that another one has to wait.
    pub(super) fn is_away(&self) -> bool {
        self.away
    }

    /// Whether turns are being taken, and will be over soon.
    pub(super) fn is_soon_back(&self) -> bool {
        self.away && !self.lasts
    }

    /// Makes a turn wait for the end of those that are being taken.
    pub(super) fn wait(&mut self, turn: Turn) {
        self.waiting = Some((turn.ticket, Some(turn)));
    }

    /// The turns to be taken in a row with this one, if that is worth it.
    pub(super) fn row(&mut self, router: &mut Router, index: usize, turn: &Turn) -> Option<Vec<Turn>> {
        self.results.retain(|(ticket, _)| router.may_come(index, *ticket));
        if !self.results.is_empty() {
            return None;
        }
        let turns = router.turns_ahead(index, turn, MANY, MOST_BYTES);
        if turns.is_empty() {
            return None;
        }
        self.away = true;
        self.lasts = false;
        self.waiting = Some((turn.ticket, None));
        Some(turns)
    }

    /// Results are there. Gives the one that the chain waits for, or the turn that has to be taken now.
    pub(super) fn came(
        &mut self,
        router: &mut Router,
        index: usize,
        results: Results,
        over: bool,
    ) -> Option<Result<Result<TurnResult, Fault>, Turn>> {
        self.away &= !over;
        self.lasts = true;
        self.results.extend(results);
        if over {
            router.row_over(index, |ticket| self.results.iter().any(|(taken, _)| *taken == ticket));
        }
        let (ticket, turn) = self.waiting.take()?;
        if let Some(result) = self.take(ticket) {
            return Some(Ok(result));
        }
        match turn {
            Some(turn) if over => Some(Err(turn)),
            turn => {
                self.waiting = Some((ticket, turn));
                None
            }
        }
    }

    /// Why the instance is gone, if it failed in a turn that the chain has not asked for yet. Turns before that count as not taken then.
    pub(super) fn fault(&mut self) -> Option<Fault> {
        let (_, last) = self.results.pop_back()?;
        self.clear();
        last.err()
    }

    /// Nothing of it counts any more: the instance is gone.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Takes turns in a row, until the proxy keeps a message, fails, or takes long. What has come of the others is told at once then.
pub(super) async fn take(
    mut instance: Instance,
    turns: Vec<Turn>,
    tell: impl Fn(Results) -> Event,
    send: mpsc::Sender<Event>,
) -> (Option<Instance>, Results) {
    let begun = Instant::now();
    let mut results = Results::with_capacity(turns.len());
    let mut bytes = 0;
    for turn in turns {
        let ticket = turn.ticket;
        let mut taken = Box::pin(contained(Phase::Receive, instance.turn(turn)));
        let result = match poll_fn(|context| Poll::Ready(taken.as_mut().poll(context))).await {
            Poll::Ready(result) => result,
            Poll::Pending => {
                // The connection may be over.
                let _ = send.send(tell(std::mem::take(&mut results))).await;
                bytes = MOST_BYTES;
                taken.await
            }
        };
        match result {
            Ok((back, result)) => {
                instance = back;
                bytes += result.sent.iter().map(size).sum::<usize>();
                let kept = result.receipt == Receipt::Kept;
                results.push((ticket, Ok(result)));
                if kept || bytes >= MOST_BYTES || begun.elapsed() >= LASTS {
                    break;
                }
            }
            Err(fault) => {
                results.push((ticket, Err(fault)));
                return (None, results);
            }
        }
    }
    (Some(instance), results)
}

/// Bytes that something takes which has no text. So a row brings a thousand messages more than its last turn may send: with what is open
/// already that stays below what the sandbox allows.
const RECORD: usize = 256;

fn size(sent: &Sent) -> usize {
    match sent {
        Sent::Message(_, message) => RECORD + message.text().map_or(0, Text::len),
        Sent::Release(_) => RECORD,
    }
}
