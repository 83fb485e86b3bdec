//! The channel of a test: checks what is sent by the rules of the world, and keeps it for the test. Owns tickets and ids; knows
//! nothing of handlers.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::Value;

use crate::log::Level;
use crate::peer::Peer;
use crate::raw::{self, Channel, Receipt, Refusal};
use crate::testing::files::Files;
use crate::testing::saved::Saved;

/// The host's number for a message that it delivered.
pub type Ticket = u64;

/// A message that the proxy sent.
#[derive(Clone, Debug)]
pub struct Sent {
    to: Peer,
    kind: Kind,
    method: String,
    on_behalf_of: Option<Ticket>,
    text: Option<String>,
}

/// What kind of message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request; without an id its answer goes past the proxy.
    Request {
        /// The proxy's id for it.
        id: Option<u64>,
    },
    /// A notification.
    Notification,
    /// A response with a result.
    Result,
    /// A response with an error.
    Error,
}

impl Sent {
    /// Whom it goes to.
    pub fn to(&self) -> Peer {
        self.to
    }

    /// What kind of message it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The method; empty for a response.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The ticket that it carries on or, for a response, answers.
    pub fn on_behalf_of(&self) -> Option<Ticket> {
        self.on_behalf_of
    }

    /// The ticket that it carries on or answers; panics if there is none.
    pub fn ticket(&self) -> Ticket {
        self.on_behalf_of
            .unwrap_or_else(|| panic!("this message carries nothing on: {self:?}"))
    }

    /// The exact text of the params, the result or the error; empty if there is none.
    pub fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// The params of a request or notification, `null` if there are none.
    pub fn params(&self) -> Value {
        assert!(
            matches!(self.kind, Kind::Request { .. } | Kind::Notification),
            "a response has no params: {self:?}"
        );
        self.value()
    }

    /// The result of a response.
    pub fn result(&self) -> Value {
        assert_eq!(self.kind, Kind::Result, "this is no result: {self:?}");
        self.value()
    }

    /// The error of a response.
    pub fn error(&self) -> Value {
        assert_eq!(self.kind, Kind::Error, "this is no error: {self:?}");
        self.value()
    }

    fn value(&self) -> Value {
        // It came out of a checked value.
        self.text.as_deref().map_or(Value::Null, |text| {
            serde_json::from_str(text).expect("the text is JSON")
        })
    }
}

/// How a proxy owns a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// It may not do anything with it.
    Copy,
    Request,
    Notification,
    /// Passed on under the proxy's own id: to be answered still.
    Carried,
    /// Passed on without an id, answered, released or discarded.
    Settled,
}

#[derive(Default)]
struct State {
    open: bool,
    last_ticket: Ticket,
    tickets: BTreeMap<Ticket, (Peer, Owner)>,
    /// Requests of the proxy's own that wait for an answer, and whom they went to.
    own: BTreeMap<u64, Peer>,
    sent: VecDeque<Sent>,
    logs: Vec<(Level, String)>,
    now: Duration,
    sleepers: Vec<(Duration, u64)>,
    cancelled_sleepers: VecDeque<u64>,
    saved: Saved,
    files: Files,
    /// Answers to requests about saved state and files, which come when the turn is over.
    answers: VecDeque<(u64, Result<String, String>)>,
    denied: Vec<(Peer, String)>,
    max_bytes: Option<usize>,
    max_messages: Option<usize>,
    /// Messages that were sent in this turn.
    messages: usize,
}

#[derive(Default)]
pub(super) struct Fake(RefCell<State>);

impl Fake {
    pub(super) fn open(&self) {
        self.0.borrow_mut().open = true;
    }

    pub(super) fn take_in(&self, source: Peer, owner: Owner) -> Ticket {
        let mut state = self.0.borrow_mut();
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        state.tickets.insert(ticket, (source, owner));
        ticket
    }

    pub(super) fn end_turn(&self, ticket: Ticket, receipt: Receipt) {
        self.0.borrow_mut().messages = 0;
        if receipt == Receipt::Done {
            self.release(ticket);
        }
    }

    pub(super) fn end(&self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            self.0.borrow_mut().tickets.remove(&ticket);
        }
    }

    pub(super) fn take_own(&self, id: u64) -> bool {
        self.0.borrow_mut().own.remove(&id).is_some()
    }

    pub(super) fn source_of_open(&self, ticket: Ticket) -> Option<Peer> {
        match self.0.borrow().tickets.get(&ticket) {
            Some((source, Owner::Request | Owner::Carried)) => Some(*source),
            _ => None,
        }
    }

    pub(super) fn holds(&self, ticket: Ticket) -> bool {
        matches!(
            self.0.borrow().tickets.get(&ticket),
            Some((_, Owner::Request | Owner::Notification))
        )
    }

    pub(super) fn next_sent(&self) -> Option<Sent> {
        self.0.borrow_mut().sent.pop_front()
    }

    pub(super) fn take_logs(&self) -> Vec<(Level, String)> {
        std::mem::take(&mut self.0.borrow_mut().logs)
    }

    pub(super) fn deny(&self, to: Peer, method: &str) {
        self.0.borrow_mut().denied.push((to, method.to_owned()));
    }

    pub(super) fn limit(&self, bytes: usize) {
        self.0.borrow_mut().max_bytes = Some(bytes);
    }

    pub(super) fn limit_messages(&self, messages: usize) {
        self.0.borrow_mut().max_messages = Some(messages);
    }

    pub(super) fn now(&self) -> Duration {
        self.0.borrow().now
    }

    pub(super) fn set_now(&self, now: Duration) {
        self.0.borrow_mut().now = now;
    }

    pub(super) fn sleeping(&self) -> Vec<Duration> {
        let state = self.0.borrow();
        let mut left: Vec<_> = state
            .sleepers
            .iter()
            .map(|(due, _)| due.saturating_sub(state.now))
            .collect();
        left.sort();
        left
    }

    /// Takes the sleep that ends first, if it ends until then, and sets the clock to its end.
    pub(super) fn next_sleeper(&self, until: Duration) -> Option<u64> {
        let mut state = self.0.borrow_mut();
        let (index, (due, id)) = state
            .sleepers
            .iter()
            .copied()
            .enumerate()
            .min_by_key(|(_, sleeper)| *sleeper)?;
        if due > until {
            return None;
        }
        state.sleepers.remove(index);
        state.own.remove(&id);
        state.now = due;
        Some(id)
    }

    /// The next answer of the host that is ready.
    pub(super) fn next_answer(&self) -> Option<(u64, Result<String, String>)> {
        let mut state = self.0.borrow_mut();
        let answer = state.answers.pop_front()?;
        state.own.remove(&answer.0);
        Some(answer)
    }

    pub(super) fn with_saved<T>(&self, look: impl FnOnce(&mut Saved) -> T) -> T {
        look(&mut self.0.borrow_mut().saved)
    }

    pub(super) fn put_file(&self, path: &str, text: &str) {
        self.0.borrow_mut().files.put(path, text);
    }

    pub(super) fn next_cancelled_sleeper(&self) -> Option<u64> {
        let mut state = self.0.borrow_mut();
        let id = state.cancelled_sleepers.pop_front()?;
        state.own.remove(&id);
        Some(id)
    }
}

impl Channel for Fake {
    fn send(&self, to: raw::Peer, message: raw::Message) -> Result<(), Refusal> {
        self.0.borrow_mut().send(to.into(), message)
    }

    fn release(&self, ticket: Ticket) {
        if let Some((_, owner)) = self.0.borrow_mut().tickets.get_mut(&ticket)
            && *owner == Owner::Notification
        {
            *owner = Owner::Settled;
        }
    }
}

impl State {
    fn send(&mut self, to: Peer, message: raw::Message) -> Result<(), Refusal> {
        if !self.open {
            return Err(Refusal::Closed);
        }
        self.send_open(to, message).inspect(|()| self.messages += 1)
    }

    fn send_open(&mut self, to: Peer, message: raw::Message) -> Result<(), Refusal> {
        match message {
            raw::Message::Request(request) => {
                let text = self.check(to, &request.method, request.params)?;
                self.send_request(to, request.id, request.on_behalf_of, request.method, text)
            }
            raw::Message::Notification(notification) => {
                let text = self.check(to, &notification.method, notification.params)?;
                self.send_notification(to, notification.on_behalf_of, notification.method, text)
            }
            raw::Message::Response(response) => {
                let kind = if response.outcome.is_ok() {
                    Kind::Result
                } else {
                    Kind::Error
                };
                let value = response.outcome.unwrap_or_else(|error| error);
                let text = self.check(to, "", Some(value))?;
                match self.tickets.get_mut(&response.id) {
                    Some((source, owner @ (Owner::Request | Owner::Carried))) if *source == to => {
                        *owner = Owner::Settled
                    }
                    _ => return Err(Refusal::UnknownId),
                }
                self.push(to, kind, String::new(), Some(response.id), text);
                Ok(())
            }
        }
    }

    fn check(&self, to: Peer, method: &str, value: Option<raw::Value>) -> Result<Option<String>, Refusal> {
        if self
            .denied
            .iter()
            .any(|(denied_to, denied)| *denied_to == to && denied == method)
        {
            return Err(Refusal::Denied(format!("{method} to {to:?}")));
        }
        if self
            .max_messages
            .is_some_and(|max_messages| self.messages >= max_messages)
        {
            return Err(Refusal::Flooded);
        }
        let text = value.and_then(|value| value.read(""));
        let size = text.as_ref().map_or(0, String::len);
        match self.max_bytes {
            Some(max_bytes) if size > max_bytes => Err(Refusal::TooLarge),
            _ => Ok(text),
        }
    }

    fn send_request(
        &mut self,
        to: Peer,
        id: Option<u64>,
        on_behalf_of: Option<Ticket>,
        method: String,
        text: Option<String>,
    ) -> Result<(), Refusal> {
        if id.is_some_and(|id| self.own.contains_key(&id)) {
            return Err(Refusal::UnknownId);
        }
        let ticket = on_behalf_of
            .map(|ticket| self.tickets.get_mut(&ticket).ok_or(Refusal::UnknownId))
            .transpose()?;
        match (ticket, id) {
            (None, None) => return Err(Refusal::UnknownId),
            (None, Some(_)) => {}
            (Some((source, owner @ (Owner::Request | Owner::Carried))), id) => {
                let onwards = *source == to.opposite();
                match id {
                    None if !onwards => return Err(Refusal::UnknownId),
                    None => *owner = Owner::Settled,
                    Some(_) if onwards => *owner = Owner::Carried,
                    Some(_) => {}
                }
            }
            (Some((source, owner @ Owner::Notification)), Some(_)) => {
                if *source == to.opposite() {
                    *owner = Owner::Settled;
                }
            }
            (Some(_), _) => return Err(Refusal::UnknownId),
        }
        if let Some(id) = id {
            self.own.insert(id, to);
            if (to, method.as_str()) == (Peer::Host, "host/sleep") {
                let milliseconds = text
                    .as_deref()
                    .and_then(|text| serde_json::from_str::<Value>(text).ok());
                let milliseconds = milliseconds
                    .and_then(|params| params["milliseconds"].as_u64())
                    .unwrap_or_default();
                self.sleepers.push((self.now + Duration::from_millis(milliseconds), id));
                return Ok(());
            }
            let params = text.as_deref().unwrap_or("{}");
            let answer = || self.files.answer(&method, params);
            if to == Peer::Host
                && let Some(answer) = self.saved.answer(&method, params).or_else(answer)
            {
                self.answers.push_back((id, answer));
                return Ok(());
            }
        }
        self.push(to, Kind::Request { id }, method, on_behalf_of, text);
        Ok(())
    }

    fn send_notification(
        &mut self,
        to: Peer,
        on_behalf_of: Option<Ticket>,
        method: String,
        text: Option<String>,
    ) -> Result<(), Refusal> {
        let params = || {
            text.as_deref()
                .and_then(|text| serde_json::from_str::<Value>(text).ok())
                .unwrap_or_default()
        };
        if method == "$/cancel_request" && on_behalf_of.is_none() {
            let id = params()["requestId"].as_u64();
            let Some(id) = id.filter(|id| self.own.get(id) == Some(&to)) else {
                return Err(Refusal::UnknownId);
            };
            let sleepers = self.sleepers.len();
            self.sleepers.retain(|(_, sleeper)| *sleeper != id);
            if self.sleepers.len() < sleepers {
                self.cancelled_sleepers.push_back(id);
                return Ok(());
            }
            if self.answers.iter().any(|(answered, _)| *answered == id) {
                // It has been carried out already.
                return Ok(());
            }
        }
        if (to, method.as_str()) == (Peer::Host, "host/log") {
            let params = params();
            let levels = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];
            let level = levels.into_iter().find(|level| params["level"] == level.name());
            let message = params["message"].as_str().unwrap_or_default().to_owned();
            self.logs.push((level.unwrap_or(Level::Info), message));
            return Ok(());
        }
        if let Some(ticket) = on_behalf_of {
            match self.tickets.get_mut(&ticket) {
                Some((_, owner @ Owner::Notification)) => *owner = Owner::Settled,
                _ => return Err(Refusal::UnknownId),
            }
        }
        self.push(to, Kind::Notification, method, on_behalf_of, text);
        Ok(())
    }

    fn push(&mut self, to: Peer, kind: Kind, method: String, on_behalf_of: Option<Ticket>, text: Option<String>) {
        self.sent.push_back(Sent {
            to,
            kind,
            method,
            on_behalf_of,
            text,
        });
    }
}
