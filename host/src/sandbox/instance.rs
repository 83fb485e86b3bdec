//! One proxy's instance: made, started, and called a turn at a time. An instance that failed is never used again.

use super::bindings::{How as WitHow, Proxy, Receipt as WitReceipt};
use super::engine::{Clock, Loaded};
use super::limits::{FIRST_TICKS, MAX_HANDLES, TICK, TURN_TICKS, TURN_TIME};
use super::state::State;
use crate::fault::{Class, Fault, Phase};
use crate::message::{How, Interest, Peer, Receipt, Registration, Turn, TurnResult};
use crate::wire::text::Text;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::{Store, Trap, UpdateDeadline};

/// A running proxy.
pub struct Instance {
    store: Store<State>,
    proxy: Proxy,
    clock: Arc<Clock>,
}

/// Marks the error that ends a call which computed for too long.
#[derive(Debug)]
struct OutOfTime;

impl std::fmt::Display for OutOfTime {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("it computed for too long")
    }
}

impl std::error::Error for OutOfTime {}

impl Instance {
    /// Makes an instance and calls its `start`.
    ///
    /// # Errors
    ///
    /// The fault, also when the proxy says that its configuration is wrong.
    pub async fn start(loaded: &Loaded, configuration: Text) -> Result<(Self, Registration), Fault> {
        let mut store = Store::new(loaded.pre().engine(), State::new(loaded.log.clone(), loaded.limits));
        store.limiter(|state| &mut state.limiter);
        store.set_max_component_handles(MAX_HANDLES);
        let clock = loaded.clock().clone();
        store.epoch_deadline_callback(move |mut context| {
            // A long turn keeps the clock running that ends it.
            clock.wake();
            tick(context.data_mut())
        });
        begin(&mut store, loaded.clock());
        let started = tokio::time::timeout(TURN_TIME, async {
            let proxy = loaded.pre().instantiate_async(&mut store).await?;
            let configuration = store.data_mut().hand_out(configuration)?;
            let answer = proxy.call_start(&mut store, configuration).await?;
            wasmtime::Result::Ok((proxy, answer))
        })
        .await;
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
        let registration = Registration {
            interests: answer.interests.into_iter().map(interest).collect::<Result<_, _>>()?,
            protocol_version: answer.protocol_version,
        };
        let clock = loaded.clock().clone();
        Ok((Self { store, proxy, clock }, registration))
    }

    /// Delivers one message. The instance comes back if it can be used again.
    pub async fn turn(mut self, turn: Turn) -> Result<(Self, TurnResult), Fault> {
        begin(&mut self.store, &self.clock);
        self.store.data_mut().ledger.begin(&turn);
        let message = match self.store.data_mut().give_message(&turn.message) {
            Ok(message) => message,
            Err(error) => return Err(fault(&mut self.store, Phase::Receive, &error)),
        };
        let called = {
            let call = self
                .proxy
                .call_receive(&mut self.store, turn.source.into(), turn.ticket, &message);
            let mut call = std::pin::pin!(call);
            // A timer costs more than a short turn: it is set only when the turn does not end at once.
            match std::future::poll_fn(|context| std::task::Poll::Ready(call.as_mut().poll(context))).await {
                std::task::Poll::Ready(done) => Ok(done),
                std::task::Poll::Pending => {
                    // Whoever drives this gets to know that the turn lasts, before it goes on.
                    tokio::task::yield_now().await;
                    tokio::time::timeout(TURN_TIME, call).await
                }
            }
        };
        let receipt = match called {
            Ok(Ok(WitReceipt::Done)) => Receipt::Done,
            Ok(Ok(WitReceipt::Kept)) => Receipt::Kept,
            Ok(Err(error)) => return Err(fault(&mut self.store, Phase::Receive, &error)),
            Err(_) => return Err(too_long(&mut self.store, Phase::Receive)),
        };
        let sent = self.store.data_mut().ledger.end(&turn, receipt);
        Ok((self, TurnResult { receipt, sent }))
    }
}

fn begin(store: &mut Store<State>, clock: &Clock) {
    clock.wake();
    store.data_mut().ticks = 0;
    store.set_epoch_deadline(FIRST_TICKS);
}

/// What happens at an epoch deadline. First the call is suspended once, so that the connection can go on without it; from
/// then on it runs in a task of its own and gives its worker thread away at every tick.
fn tick(state: &mut State) -> wasmtime::Result<UpdateDeadline> {
    let first = state.ticks == 0;
    state.ticks += if first { FIRST_TICKS } else { 1 };
    if state.ticks > TURN_TICKS {
        return Err(wasmtime::Error::new(OutOfTime));
    }
    if first {
        return Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())));
    }
    tokio::task::block_in_place(|| {});
    Ok(UpdateDeadline::Continue(1))
}

fn interest(interest: super::bindings::Interest) -> Result<Interest, Fault> {
    let source = Peer::from(interest.source);
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

fn too_long(store: &mut Store<State>, phase: Phase) -> Fault {
    store.data().log.flush();
    let limit = TURN_TIME.as_secs();
    Fault::new(
        Class::Timeout,
        phase,
        format!("it did not return within {limit} seconds"),
    )
}

/// What an error of wasmtime means.
fn fault(store: &mut Store<State>, phase: Phase, error: &wasmtime::Error) -> Fault {
    let state = store.data();
    state.log.flush();
    let (class, cause) = if error.downcast_ref::<OutOfTime>().is_some() {
        let limit = Duration::as_secs(&(TICK * TURN_TICKS as u32));
        (
            Class::Cpu,
            format!("it computed for more than {limit} seconds in one turn"),
        )
    } else if state.limiter.refused {
        (
            Class::Memory,
            format!(
                "it used up its memory or its JSON handles ({}); give it more with `memory` in consort.toml",
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
