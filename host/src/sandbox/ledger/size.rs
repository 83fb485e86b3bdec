//! How much a proxy may send in a turn. What goes on as it came is never too much: the proxy has not made it.

use super::super::bindings::consort::proxy::channel::Refusal;
use super::{Ledger, same, same_outcome};
use crate::limits::Limit;
use crate::message::{Message, Peer, Ticket};
use crate::wire::text::Text;
use std::fmt;

/// How many times more than it may send a proxy may try to in a turn.
pub(super) const PATIENCE: usize = 10;

/// A proxy tried to send far more in one turn than it may, which is so many messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sandbox) struct Flood(pub(super) usize);

impl fmt::Display for Flood {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "it went on sending after the {} messages that it may send for one; `limits.messages` in consort.toml gives it more",
            self.0
        )
    }
}

impl std::error::Error for Flood {}

impl Ledger {
    /// Whether it keeps within reason, though nothing of what it sends is taken any more.
    ///
    /// # Errors
    ///
    /// When it goes on and on.
    pub(in crate::sandbox) fn keeps_on(&self) -> Result<(), Flood> {
        let most = self.limits.count(Limit::Messages);
        match self.tries > most.saturating_mul(PATIENCE) {
            true => Err(Flood(most)),
            false => Ok(()),
        }
    }

    /// For how many bytes a message counts, if it may be sent.
    pub(super) fn fits(&self, to: Peer, message: &Message) -> Result<usize, Refusal> {
        if self.tries > self.limits.count(Limit::Messages) {
            return Err(Refusal::Flooded);
        }
        let size = size(message);
        let most = self.limits.count(Limit::MessageSize);
        let refusal = match size > most {
            true => Refusal::TooLarge,
            false if self.bytes + size > most.saturating_mul(2) => Refusal::Flooded,
            false => return Ok(size),
        };
        match self.goes_as_it_came(to, message) {
            true => Ok(0),
            false => Err(refusal),
        }
    }

    fn goes_as_it_came(&self, to: Peer, message: &Message) -> bool {
        let carries = |ticket: Option<Ticket>, method: &str, params: Option<&Text>| {
            let holding = ticket.and_then(|ticket| self.tickets.get(&ticket));
            holding.is_some_and(|holding| {
                let onward = Some(to) == holding.source.opposite() && !holding.carried;
                onward && *holding.method == *method && same(holding.params.as_ref(), params)
            })
        };
        match message {
            Message::Request(request) => carries(request.on_behalf_of, &request.method, request.params.as_ref()),
            Message::Notification(notification) => carries(
                notification.on_behalf_of,
                &notification.method,
                notification.params.as_ref(),
            ),
            Message::Response(response) => {
                let came = self
                    .tickets
                    .get(&response.id)
                    .and_then(|holding| holding.answer.as_ref());
                same_outcome(came, &response.outcome)
            }
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
