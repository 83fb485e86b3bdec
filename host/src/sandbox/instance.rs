//! One proxy's instance: made, started, and called a turn at a time. An instance that failed is never used again.

use super::bindings::{How as WitHow, Proxy, Receipt as WitReceipt};
use super::engine::Loaded;
use super::ledger::Flood;
use super::limits::FIRST_TICKS;
use super::meter::{Meter, OutOfTime};
use super::state::State;
use crate::fault::{Class, Fault, Phase};
use crate::grants::{Policy, Right};
use crate::limits::Limit;
use crate::message::{Denial, How, Interest, Peer, Receipt, Registration, Turn, TurnResult};
use crate::wire::text::Text;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::{Store, Trap, UpdateDeadline};

/// What wasmtime's error says when a component has more instances, memories or tables than the limiter allows, and when it has more
/// handles than the store does: these have no types of their own.
const TOO_MANY_PARTS: &str = "resource limit exceeded";
const TOO_MANY_HANDLES: &str = "store handle limit exceeded";

/// Interests that a proxy may have, and bytes of a method in one: every message is compared with all of them.
const MAX_INTERESTS: usize = 1_000;
const MAX_PATTERN: usize = 1_000;

/// A running proxy.
pub struct Instance {
    store: Store<State>,
    proxy: Proxy,
    meter: Arc<Meter>,
}

impl Instance {
    /// Makes an instance and calls its `start`.
    ///
    /// # Errors
    ///
    /// The fault, also when the proxy says that its configuration is wrong.
    pub async fn start(loaded: &Loaded, configuration: Text) -> Result<(Self, Registration), Fault> {
        let limits = loaded.limits;
        let mut store = Store::new(loaded.pre().engine(), State::new(loaded)?);
        store.limiter(|state| &mut state.limiter);
        store.set_max_component_handles(limits.count(Limit::Handles));
        let clock = loaded.clock().clone();
        store.epoch_deadline_callback(move |mut context| {
            // A long turn keeps the clock running that ends it.
            clock.wake();
            tick(context.data_mut())
        });
        begin(&mut store);
        let meter = store.data().meter.clone();
        let started = async {
            let proxy = loaded.pre().instantiate_async(&mut store).await?;
            let configuration = store.data_mut().give(configuration, None)?;
            let answer = proxy.call_start(&mut store, configuration).await?;
            wasmtime::Result::Ok((proxy, answer))
        };
        let started = tokio::time::timeout(meter.time(), meter.run(started)).await;
        let (proxy, answer) = match started {
            Ok(Ok(started)) => started,
            Ok(Err(error)) => return Err(fault(&mut store, Phase::Start, &error)),
            Err(_) => return Err(too_long(&mut store, Phase::Start)),
        };
        let answer = answer.map_err(|reason| {
            Fault::new(
                Class::Load,
                Phase::Start,
                format!("it does not accept its configuration: {reason}"),
            )
        })?;
        if answer.interests.len() > MAX_INTERESTS {
            let cause = format!(
                "it has {} interests; {MAX_INTERESTS} is the most",
                answer.interests.len()
            );
            return Err(Fault::new(Class::Protocol, Phase::Start, cause));
        }
        let wanted: Vec<Interest> = answer.interests.into_iter().map(interest).collect::<Result<_, _>>()?;
        let (interests, cut) = loaded.policy.cut(&wanted);
        let mut missing = Vec::new();
        for interest in cut {
            let denial = denied(&loaded.policy, &interest);
            if interest.how == How::Intercept {
                missing.push(denial.reason.clone());
            }
            loaded.record.deny(denial);
        }
        let registration = Registration {
            interests,
            protocol_version: answer.protocol_version,
            missing,
        };
        let instance = Self { store, proxy, meter };
        Ok((instance, registration))
    }

    /// The same, whose turns may take no longer than this, whatever its limits say.
    pub fn hurry(self, time: Duration) -> Self {
        self.meter.hurry(time);
        self
    }

    /// Bytes of memory that it has, over all its memories and tables.
    pub fn memory(&self) -> u64 {
        self.store.data().limiter.used()
    }

    /// Delivers one message. The instance comes back if it can be used again.
    pub async fn turn(mut self, turn: Turn) -> Result<(Self, TurnResult), Fault> {
        begin(&mut self.store);
        self.store.data_mut().ledger.begin(&turn);
        let message = match self.store.data_mut().give_message(turn.ticket, &turn.message) {
            Ok(message) => message,
            Err(error) => return Err(fault(&mut self.store, Phase::Receive, &error)),
        };
        let called = {
            let call = self
                .proxy
                .call_receive(&mut self.store, turn.source.into(), turn.ticket, &message);
            let mut call = std::pin::pin!(self.meter.run(call));
            // A timer costs more than a short turn: it is set only when the turn does not end at once.
            match std::future::poll_fn(|context| std::task::Poll::Ready(call.as_mut().poll(context))).await {
                std::task::Poll::Ready(done) => Ok(done),
                std::task::Poll::Pending => {
                    // Whoever drives this gets to know that the turn lasts, before it goes on.
                    tokio::task::yield_now().await;
                    tokio::time::timeout(self.meter.time(), call).await
                }
            }
        };
        let receipt = match called {
            Ok(Ok(WitReceipt::Done)) => Receipt::Done,
            Ok(Ok(WitReceipt::Kept)) => Receipt::Kept,
            Ok(Err(error)) => return Err(fault(&mut self.store, Phase::Receive, &error)),
            Err(_) => return Err(too_long(&mut self.store, Phase::Receive)),
        };
        let (sent, within) = self.store.data_mut().ledger.end(&turn, receipt);
        if let Err(limit) = within {
            let what = match limit {
                Limit::BytesPerMinute => "in messages of its own",
                _ => "messages of its own",
            };
            let most = limit.shown(self.store.data().ledger.limits().get(limit));
            let cause =
                format!("it sent more than {most} {what} in a minute; `limits.{limit}` in consort.toml gives it more");
            return Err(Fault::new(Class::Flood, Phase::Receive, cause));
        }
        Ok((self, TurnResult { receipt, sent }))
    }
}

fn begin(store: &mut Store<State>) {
    let state = store.data_mut();
    state.meter.begin();
    // What was refused in an earlier call, and lived with, is not why this one fails.
    state.limiter.refused = false;
    store.set_epoch_deadline(FIRST_TICKS);
}

/// What happens at an epoch deadline. First the call is suspended once, so that the connection can go on without it; from
/// then on it runs in a task of its own and gives its worker thread away at every tick.
fn tick(state: &mut State) -> wasmtime::Result<UpdateDeadline> {
    let first = state.meter.tick().map_err(wasmtime::Error::new)?;
    if first {
        return Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())));
    }
    tokio::task::block_in_place(|| {});
    Ok(UpdateDeadline::Continue(1))
}

fn interest(interest: super::bindings::Interest) -> Result<Interest, Fault> {
    let source = Peer::from(interest.source);
    if interest.method.len() > MAX_PATTERN {
        let cause = format!("an interest of it names a method of more than {MAX_PATTERN} bytes");
        return Err(Fault::new(Class::Protocol, Phase::Start, cause));
    }
    if source == Peer::Host {
        return Err(Fault::new(
            Class::Protocol,
            Phase::Start,
            format!(
                "its interest in `{}` names the host as source; only client and agent are sources",
                interest.method
            ),
        ));
    }
    Ok(Interest {
        source,
        method: interest.method,
        how: match interest.how {
            WitHow::Observe => How::Observe,
            WitHow::Intercept => How::Intercept,
        },
    })
}

/// What the audit says of an interest that is not granted as it was wished.
fn denied(policy: &Policy, interest: &Interest) -> Denial {
    let (right, verb) = match interest.how {
        How::Observe => (Right::Observe, "seeing"),
        How::Intercept => (Right::Intercept, "taking part in"),
    };
    let missing = policy.missing(right, interest.source, &interest.method);
    let method = crate::log::named(&interest.method);
    let source = interest.source.name();
    Denial {
        peer: interest.source,
        method: interest.method.as_str().into(),
        reason: format!("{verb} all of `{method}` from the {source} needs {missing}"),
    }
}

fn too_long(store: &mut Store<State>, phase: Phase) -> Fault {
    let state = store.data();
    state.log.flush();
    let out_of_time = OutOfTime::Clock(state.meter.time());
    Fault::new(Class::Timeout, phase, out_of_time.to_string())
}

/// What an error of wasmtime means.
fn fault(store: &mut Store<State>, phase: Phase, error: &wasmtime::Error) -> Fault {
    let state = store.data();
    state.log.flush();
    let (class, cause) = if let Some(out_of_time) = error.downcast_ref::<OutOfTime>() {
        let class = match out_of_time {
            OutOfTime::Message(_) | OutOfTime::Minute(_) => Class::Cpu,
            OutOfTime::Clock(_) => Class::Timeout,
        };
        (class, out_of_time.to_string())
    } else if let Some(flood) = error.downcast_ref::<Flood>() {
        (Class::Flood, flood.to_string())
    } else if root(error).starts_with(TOO_MANY_PARTS) {
        let cause = format!("it has too many instances, memories or tables ({})", root(error));
        (Class::Memory, cause)
    } else if state.limiter.refused || root(error).ends_with(TOO_MANY_HANDLES) {
        (
            Class::Memory,
            format!(
                "it used up its memory or its JSON handles ({}); `limits.memory` and `limits.handles` in consort.toml give it more",
                root(error)
            ),
        )
    } else if let Some(exit) = error.downcast_ref::<wasmtime_wasi::I32Exit>() {
        (Class::Trap, format!("it ended itself with exit code {}", exit.0))
    } else if let Some(trap) = error.downcast_ref::<Trap>() {
        let cause = match state.log.last_words() {
            Some(words) => format!("{trap}; it said: {words}"),
            None => trap.to_string(),
        };
        (Class::Trap, cause)
    } else {
        (Class::Protocol, root(error))
    };
    Fault::new(class, phase, cause)
}

fn root(error: &wasmtime::Error) -> String {
    error
        .chain()
        .last()
        .map_or_else(|| error.to_string(), ToString::to_string)
}
