//! Taking turns: at once where they are short, in tasks of their own where they last or where there are many.

use super::{Driver, Event, TALLY};
use crate::connection::ahead::{self, Results};
use crate::connection::contained::contained;
use crate::connection::streams::unless;
use crate::connection::timers::Due;
use crate::fault::{Class, Fault, Phase};
use crate::message::{Turn, TurnResult};
use crate::sandbox::Instance;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;
use tokio::sync::oneshot;

/// Turns without a look at what came in: two proxies that talk to each other must not keep everybody else waiting.
const MAX_TURNS: usize = 256;

impl Driver {
    /// Does what can be done without waiting, up to a number of turns.
    pub(in crate::connection) async fn work(&mut self) {
        for _ in 0..MAX_TURNS {
            while let Some(effect) = self.router.next_effect() {
                self.effect(effect);
            }
            if let Some((index, turn)) = self.waited.pop() {
                self.take_turn(index, turn).await;
                continue;
            }
            let Some((index, mut turn)) = self.router.next_turn() else {
                return;
            };
            let ahead = &mut self.slots[index].ahead;
            let result = ahead.take(turn.ticket);
            if result.is_none() && !ahead.is_away() {
                self.take_turn(index, turn).await;
                continue;
            }
            // The instance had this turn before the chain knew what has ended.
            self.router.tell_later(index, std::mem::take(&mut turn.closed));
            match result {
                Some(result) => self.turn_from_ahead(index, result),
                None => self.slots[index].ahead.wait(turn),
            }
        }
    }

    async fn take_turn(&mut self, index: usize, turn: Turn) {
        let slot = &mut self.slots[index];
        let Some(instance) = slot.instance.take() else {
            let fault = slot.ahead.fault().unwrap_or_else(|| {
                let cause = "it has no instance; this is a fault of Consort";
                Fault::new(Class::Host, Phase::Receive, cause)
            });
            self.router.finish_turn(index, Err(fault));
            return;
        };
        if let Some(row) = slot.ahead.row(&mut self.router, index, &turn) {
            return self.take_row(index, instance, turn, row);
        }
        let mut turn = Box::pin(contained(Phase::Receive, instance.turn(turn)));
        match poll_fn(|context| Poll::Ready(turn.as_mut().poll(context))).await {
            Poll::Ready(result) => {
                let result = self.instance_back(index, result);
                self.turn_ended(index, result);
            }
            Poll::Pending => {
                let (number, given_up) = self.may_be_given_up(index);
                self.apart(async move { Event::Turn(index, number, unless(given_up, turn).await.map(Box::new)) });
            }
        }
    }

    fn take_row(&mut self, index: usize, instance: Instance, turn: Turn, row: Vec<Turn>) {
        let (number, given_up) = self.may_be_given_up(index);
        let turns = std::iter::once(turn).chain(row).collect();
        let tell = move |results| Event::TurnsSoFar(index, number, results);
        let taken = ahead::take(instance, turns, tell, self.send_event.clone());
        self.apart(async move { Event::Turns(index, number, unless(given_up, taken).await.map(Box::new)) });
    }

    /// Whether turns are being taken in a row, which will be over soon.
    pub(in crate::connection) fn takes_turns_ahead(&self) -> bool {
        self.slots.iter().any(|slot| slot.ahead.is_soon_back())
    }

    fn may_be_given_up(&mut self, index: usize) -> (u64, oneshot::Receiver<()>) {
        let slot = &mut self.slots[index];
        let (give_up, given_up) = oneshot::channel();
        slot.give_up = Some(give_up);
        (slot.given_up, given_up)
    }

    /// The proxy's instance is gone, or what it does no longer counts.
    pub(super) fn give_up(&mut self, index: usize) {
        self.waited.retain(|(waits, _)| *waits != index);
        let slot = &mut self.slots[index];
        slot.given_up += 1;
        slot.ahead.clear();
        // It may have come back a moment ago.
        slot.instance = None;
        if let Some(give_up) = slot.give_up.take() {
            // It may be over just now.
            let _ = give_up.send(());
        }
    }

    pub(super) fn instance_back(
        &mut self,
        index: usize,
        result: Result<(Instance, TurnResult), Fault>,
    ) -> Result<TurnResult, Fault> {
        result.map(|(instance, result)| {
            self.slots[index].instance = Some(instance);
            result
        })
    }

    pub(super) fn turn_ended(&mut self, index: usize, result: Result<TurnResult, Fault>) {
        self.told.look(index);
        if !self.tally_waits {
            self.tally_waits = true;
            self.timers.add(Instant::now() + TALLY, Due::Tally);
        }
        self.router.finish_turn(index, result);
    }

    fn turn_from_ahead(&mut self, index: usize, result: Result<TurnResult, Fault>) {
        self.turn_ended(index, result);
        if self.slots[index].ahead.has_results() {
            self.router.prefer(index);
        }
    }

    /// Some turns in a row have ended, or all of them.
    pub(super) fn turns_came(&mut self, index: usize, results: Results, over: bool) {
        match self.slots[index].ahead.came(&mut self.router, index, results, over) {
            Some(Ok(result)) => self.turn_from_ahead(index, result),
            Some(Err(turn)) => self.waited.push((index, turn)),
            None => {}
        }
    }
}
