//! The interface `channel`: messages as the bindings have them and as the chain has them.

use super::bindings::consort::proxy::channel as wit;
use super::json::Value;
use super::state::State;
use crate::message::{Message, Notification, Peer, Request, Response, Ticket};
use crate::wire::text::Text;
use wasmtime::Result;
use wasmtime::component::Resource;

impl State {
    /// Also tells the delivery that its text came with, as far as its outermost level goes.
    fn take_message(&mut self, message: wit::Message) -> Result<(Message, Option<Ticket>)> {
        let mut origin = None;
        let mut take = |value: Resource<Value>| -> Result<Text> {
            let value = self.take_back(value)?;
            origin = value.origin;
            Ok(value.text)
        };
        let message = match message {
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
        };
        Ok((message, origin))
    }

    /// Makes a message into what the proxy gets with this delivery.
    pub(super) fn give_message(&mut self, ticket: Ticket, message: &Message) -> Result<wit::Message> {
        let mut give = |text: &Text| self.give(text.clone(), Some(ticket));
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
        let (message, origin) = self.take_message(message)?;
        let watch = self.meter.watch(message.text().map_or(0, Text::len));
        let verdict = self.ledger.send(to.into(), message, origin);
        self.meter.works(watch.as_ref()).map_err(wasmtime::Error::new)?;
        Ok(verdict)
    }

    fn release(&mut self, ticket: Ticket) -> Result<()> {
        self.ledger.release(ticket);
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
