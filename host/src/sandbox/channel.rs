//! The interface `channel`: what a proxy sends is checked at once against what it owns, and kept until its turn ends.

use super::bindings::consort::proxy::channel as wit;
use super::json::Value;
use super::limits::{MAX_REQUESTS, MAX_TURN_MESSAGES};
use super::state::State;
use crate::message::{Message, Notification, Peer, Receipt, Request, RequestId, Response, Sent, Ticket, Turn};
use crate::wire::text::Text;
use std::collections::{HashMap, HashSet};
use wasmtime::Result;
use wasmtime::component::Resource;

/// What the proxy owns, and what it has sent in this turn.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Bytes of the largest message.
    max_message: usize,
    tickets: HashMap<Ticket, Holding>,
    requests: HashSet<RequestId>,
    sent: Vec<Sent>,
    bytes: usize,
    open: bool,
    replay: bool,
}

/// A delivered message that the proxy has not done with.
#[derive(Clone, Copy, Debug)]
struct Holding {
    source: Peer,
    request: bool,
    /// Sent on without an id: it may still be answered, but not sent on again.
    passed: bool,
}

impl Ledger {
    /// Of a proxy that owns nothing yet and may send messages of up to so many bytes.
    pub(super) fn new(max_message: usize) -> Self {
        Self {
            max_message,
            tickets: HashMap::new(),
            requests: HashSet::new(),
            sent: Vec::new(),
            bytes: 0,
            open: false,
            replay: false,
        }
    }

    /// Opens a turn: the delivered message becomes the proxy's.
    pub(super) fn begin(&mut self, turn: &Turn) {
        for ticket in &turn.closed {
            self.tickets.remove(ticket);
        }
        self.open = true;
        self.replay = turn.replay;
        self.bytes = 0;
        let request = match &turn.message {
            Message::Response(response) => {
                if !turn.copy {
                    self.requests.remove(&response.id);
                }
                return;
            }
            Message::Request(_) => true,
            Message::Notification(_) => false,
        };
        if !turn.copy {
            let holding = Holding {
                source: turn.source,
                request,
                passed: false,
            };
            self.tickets.insert(turn.ticket, holding);
        }
    }

    /// Ends a turn and hands over what was sent.
    pub(super) fn end(&mut self, turn: &Turn, receipt: Receipt) -> Vec<Sent> {
        self.open = false;
        if receipt == Receipt::Done && self.tickets.get(&turn.ticket).is_some_and(|holding| !holding.request) {
            self.tickets.remove(&turn.ticket);
        }
        std::mem::take(&mut self.sent)
    }

    fn send(&mut self, to: Peer, message: Message) -> std::result::Result<(), wit::Refusal> {
        let size = size(&message);
        if !self.open {
            return Err(wit::Refusal::Closed);
        }
        if size > self.max_message {
            return Err(wit::Refusal::TooLarge);
        }
        if self.sent.len() >= MAX_TURN_MESSAGES || self.bytes + size > self.max_message.saturating_mul(2) {
            return Err(wit::Refusal::Flooded);
        }
        if self.replay && !self.fits_replay(to, &message) {
            return Err(wit::Refusal::Closed);
        }
        match &message {
            Message::Request(request) => self.request(to, request)?,
            Message::Notification(notification) => self.notification(to, notification)?,
            Message::Response(response) => self.response(to, response)?,
        }
        self.bytes += size;
        self.sent.push(Sent::Message(to, message));
        Ok(())
    }

    /// While `initialize` is replayed after a rebuild only it goes on, and log lines.
    fn fits_replay(&self, to: Peer, message: &Message) -> bool {
        match message {
            Message::Request(request) => request.on_behalf_of.is_some() && &*request.method == "initialize",
            Message::Response(_) => true,
            Message::Notification(notification) => to == Peer::Host && &*notification.method == "host/log",
        }
    }

    fn request(&mut self, to: Peer, request: &Request) -> std::result::Result<(), wit::Refusal> {
        if request.id.is_some_and(|id| self.requests.contains(&id)) {
            return Err(wit::Refusal::UnknownId);
        }
        if self.requests.len() >= MAX_REQUESTS {
            return Err(wit::Refusal::Flooded);
        }
        match request.on_behalf_of {
            None if request.id.is_none() => return Err(wit::Refusal::UnknownId),
            None => {}
            Some(ticket) => {
                let holding = self.tickets.get_mut(&ticket).ok_or(wit::Refusal::UnknownId)?;
                let onward = to != holding.source && to != Peer::Host;
                if request.id.is_none() {
                    if !holding.request || !onward || holding.passed {
                        return Err(wit::Refusal::UnknownId);
                    }
                    holding.passed = true;
                } else if onward && !holding.request {
                    self.tickets.remove(&ticket);
                }
            }
        }
        self.requests.extend(request.id);
        Ok(())
    }

    fn notification(&mut self, to: Peer, notification: &Notification) -> std::result::Result<(), wit::Refusal> {
        if let Some(ticket) = notification.on_behalf_of {
            let holding = self.tickets.get(&ticket).ok_or(wit::Refusal::UnknownId)?;
            if !holding.request && to != holding.source && to != Peer::Host {
                self.tickets.remove(&ticket);
            }
        }
        Ok(())
    }

    fn response(&mut self, to: Peer, response: &Response) -> std::result::Result<(), wit::Refusal> {
        match self.tickets.get(&response.id) {
            Some(holding) if holding.request && holding.source == to => {
                self.tickets.remove(&response.id);
                Ok(())
            }
            _ => Err(wit::Refusal::UnknownId),
        }
    }
}

fn size(message: &Message) -> usize {
    let method = match message {
        Message::Request(request) => request.method.len(),
        Message::Notification(notification) => notification.method.len(),
        Message::Response(_) => 0,
    };
    method + message.text().map_or(0, Text::len)
}

impl State {
    fn take_message(&mut self, message: wit::Message) -> Result<Message> {
        let mut take = |value: Resource<Value>| self.take_back(value);
        Ok(match message {
            wit::Message::Request(request) => Message::Request(Request {
                id: request.id,
                on_behalf_of: request.on_behalf_of,
                method: request.method.into(),
                params: request.params.map(take).transpose()?,
            }),
            wit::Message::Notification(notification) => Message::Notification(Notification {
                on_behalf_of: notification.on_behalf_of,
                method: notification.method.into(),
                params: notification.params.map(take).transpose()?,
            }),
            wit::Message::Response(response) => Message::Response(Response {
                id: response.id,
                outcome: match response.outcome {
                    Ok(value) => Ok(take(value)?),
                    Err(value) => Err(take(value)?),
                },
            }),
        })
    }

    /// Makes a message into what the proxy gets.
    pub(super) fn give_message(&mut self, message: &Message) -> Result<wit::Message> {
        let mut give = |text: &Text| self.hand_out(text.clone());
        Ok(match message {
            Message::Request(request) => wit::Message::Request(wit::Request {
                id: None,
                on_behalf_of: None,
                method: request.method.to_string(),
                params: request.params.as_ref().map(give).transpose()?,
            }),
            Message::Notification(notification) => wit::Message::Notification(wit::Notification {
                on_behalf_of: None,
                method: notification.method.to_string(),
                params: notification.params.as_ref().map(give).transpose()?,
            }),
            Message::Response(response) => wit::Message::Response(wit::Response {
                id: response.id,
                outcome: match &response.outcome {
                    Ok(text) => Ok(give(text)?),
                    Err(text) => Err(give(text)?),
                },
            }),
        })
    }
}

impl wit::Host for State {
    fn send(&mut self, to: wit::Peer, message: wit::Message) -> Result<std::result::Result<(), wit::Refusal>> {
        let message = self.take_message(message)?;
        Ok(self.ledger.send(to.into(), message))
    }

    fn release(&mut self, ticket: Ticket) -> Result<()> {
        if self.ledger.tickets.get(&ticket).is_some_and(|holding| !holding.request) {
            self.ledger.tickets.remove(&ticket);
            self.ledger.sent.push(Sent::Release(ticket));
        }
        Ok(())
    }
}

impl From<wit::Peer> for Peer {
    fn from(peer: wit::Peer) -> Self {
        match peer {
            wit::Peer::Client => Self::Client,
            wit::Peer::Agent => Self::Agent,
            wit::Peer::Host => Self::Host,
        }
    }
}

impl From<Peer> for wit::Peer {
    fn from(peer: Peer) -> Self {
        match peer {
            Peer::Client => Self::Client,
            Peer::Agent => Self::Agent,
            Peer::Host => Self::Host,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(source: Peer, ticket: Ticket, message: Message) -> Turn {
        Turn {
            source,
            ticket,
            message,
            copy: false,
            closed: Vec::new(),
            replay: false,
        }
    }

    fn request(id: Option<RequestId>, on_behalf_of: Option<Ticket>) -> Message {
        Message::Request(Request {
            id,
            on_behalf_of,
            method: "m".into(),
            params: None,
        })
    }

    fn notification(on_behalf_of: Option<Ticket>) -> Message {
        Message::Notification(Notification {
            on_behalf_of,
            method: "n".into(),
            params: None,
        })
    }

    fn answer(id: u64) -> Message {
        Message::Response(Response {
            id,
            outcome: Ok(Text::trusted("null")),
        })
    }

    fn refused(result: std::result::Result<(), wit::Refusal>) -> &'static str {
        match result {
            Ok(()) => "sent",
            Err(wit::Refusal::UnknownId) => "unknown-id",
            Err(wit::Refusal::Closed) => "closed",
            Err(wit::Refusal::Flooded) => "flooded",
            Err(_) => "other",
        }
    }

    #[test]
    fn a_request_is_passed_on_once_and_answered_once() {
        let mut ledger = Ledger::new(1024);
        assert_eq!(refused(ledger.send(Peer::Agent, request(Some(1), None))), "closed");
        ledger.begin(&turn(Peer::Client, 5, request(None, None)));
        assert_eq!(refused(ledger.send(Peer::Client, request(None, Some(5)))), "unknown-id");
        assert_eq!(refused(ledger.send(Peer::Agent, request(None, Some(6)))), "unknown-id");
        assert_eq!(refused(ledger.send(Peer::Agent, request(None, None))), "unknown-id");
        assert_eq!(refused(ledger.send(Peer::Agent, request(None, Some(5)))), "sent");
        assert_eq!(refused(ledger.send(Peer::Agent, request(None, Some(5)))), "unknown-id");
        assert_eq!(refused(ledger.send(Peer::Agent, answer(5))), "unknown-id");
        assert_eq!(refused(ledger.send(Peer::Client, answer(5))), "sent");
        assert_eq!(refused(ledger.send(Peer::Client, answer(5))), "unknown-id");
    }

    #[test]
    fn own_ids_are_free_again_after_the_response() {
        let mut ledger = Ledger::new(1024);
        ledger.begin(&turn(Peer::Client, 5, request(None, None)));
        assert_eq!(refused(ledger.send(Peer::Agent, request(Some(1), Some(5)))), "sent");
        assert_eq!(
            refused(ledger.send(Peer::Host, request(Some(1), Some(5)))),
            "unknown-id"
        );
        ledger.begin(&turn(Peer::Agent, 6, answer(1)));
        assert_eq!(refused(ledger.send(Peer::Agent, request(Some(1), Some(5)))), "sent");
    }

    #[test]
    fn a_notification_is_spent_when_sent_on_done_or_released() {
        let mut ledger = Ledger::new(1024);
        let delivered = turn(Peer::Agent, 7, notification(None));
        ledger.begin(&delivered);
        assert_eq!(refused(ledger.send(Peer::Agent, answer(7))), "unknown-id");
        assert_eq!(refused(ledger.send(Peer::Agent, notification(Some(7)))), "sent");
        assert_eq!(refused(ledger.send(Peer::Client, notification(Some(7)))), "sent");
        assert_eq!(refused(ledger.send(Peer::Client, notification(Some(7)))), "unknown-id");
        let delivered = turn(Peer::Agent, 8, notification(None));
        ledger.begin(&delivered);
        assert_eq!(ledger.end(&delivered, Receipt::Done).len(), 2);
        ledger.begin(&turn(Peer::Agent, 9, notification(None)));
        assert_eq!(refused(ledger.send(Peer::Client, notification(Some(8)))), "unknown-id");
    }

    #[test]
    fn copies_and_closed_tickets_give_no_rights() {
        let mut ledger = Ledger::new(1024);
        let mut copy = turn(Peer::Client, 3, request(None, None));
        copy.copy = true;
        ledger.begin(&copy);
        assert_eq!(refused(ledger.send(Peer::Client, answer(3))), "unknown-id");
        ledger.begin(&turn(Peer::Client, 4, request(None, None)));
        let mut next = turn(Peer::Client, 5, request(None, None));
        next.closed.push(4);
        ledger.begin(&next);
        assert_eq!(refused(ledger.send(Peer::Client, answer(4))), "unknown-id");
    }

    #[test]
    fn one_turn_is_bounded() {
        let mut ledger = Ledger::new(1024);
        ledger.begin(&turn(Peer::Client, 1, request(None, None)));
        for _ in 0..MAX_TURN_MESSAGES {
            assert_eq!(refused(ledger.send(Peer::Client, notification(None))), "sent");
        }
        assert_eq!(refused(ledger.send(Peer::Client, notification(None))), "flooded");
    }
}
