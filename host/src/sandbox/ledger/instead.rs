//! What becomes of a delivered message when the proxy must not do with it what it wanted: it takes the way that it would have without
//! the proxy.

use super::super::bindings::consort::proxy::channel::Refusal;
use super::{Ledger, Verdict};
use crate::grants::Right;
use crate::message::{Change, Message, Notification, Peer, Request, Response, Sent, Ticket};

impl Ledger {
    /// Something else is sent in the place of a delivered message: of a notification, which ends with that, or `straight` of a request,
    /// which is answered by what comes back.
    pub(super) fn ends_otherwise(&mut self, ticket: Ticket, straight: bool, to: Peer) -> Verdict {
        let Some(holding) = self.tickets.get(&ticket) else {
            return Ok(());
        };
        let (source, method) = (holding.source, holding.method.clone());
        let (right, verb) = match holding.request {
            true if straight => (Right::Answer, "answering"),
            true => return Ok(()),
            false => (Right::Intercept, "dropping"),
        };
        if self.policy.may(right, source, &method) {
            return Ok(());
        }
        let missing = self.policy.missing(right, source, &method);
        let reason = format!("{verb} `{}` needs {missing}", crate::log::named(&method));
        self.deny(source, &method, reason.clone());
        match holding.carried {
            // The answer to what went on comes back as it is.
            true if straight => self.answer_otherwise(ticket, source),
            true => {}
            false => self.pass_original(ticket, to),
        }
        Err(Refusal::Denied(reason))
    }

    /// Lets a delivered notification end here, if that may be.
    pub(super) fn drop_notification(&mut self, ticket: Ticket) -> bool {
        let Some(holding) = self.tickets.get(&ticket).filter(|holding| !holding.request) else {
            return false;
        };
        let Some(onward) = holding.source.opposite() else {
            return false;
        };
        if self.ends_otherwise(ticket, false, onward).is_err() {
            return false;
        }
        if let Some(holding) = self.tickets.remove(&ticket) {
            let (source, method) = (holding.source, holding.method);
            let change = || Change {
                source,
                method: method.clone(),
                before: holding.params,
                after: None,
            };
            self.record.change(change, source, &method);
        }
        true
    }

    /// What must not be changed goes on as it came.
    pub(super) fn pass_original(&mut self, ticket: Ticket, to: Peer) {
        let Some(holding) = self.tickets.get_mut(&ticket) else {
            return;
        };
        holding.passed = true;
        holding.carried = true;
        let (method, params, on_behalf_of) = (holding.method.clone(), holding.params.clone(), Some(ticket));
        let message = match holding.request {
            true => Message::Request(Request {
                id: None,
                on_behalf_of,
                method,
                params,
            }),
            false => {
                self.tickets.remove(&ticket);
                Message::Notification(Notification {
                    on_behalf_of,
                    method,
                    params,
                })
            }
        };
        self.sent.push(Sent::Message(to, message));
    }

    /// A request that the proxy must not answer gets the answer that it would have without it.
    pub(super) fn answer_otherwise(&mut self, ticket: Ticket, to: Peer) {
        let Some(holding) = self.tickets.get_mut(&ticket) else {
            return;
        };
        if let Some(outcome) = holding.answer.take() {
            self.tickets.remove(&ticket);
            let answer = Message::Response(Response { id: ticket, outcome });
            self.sent.push(Sent::Message(to, answer));
        } else if holding.carried {
            holding.denied = true;
        } else if let Some(onward) = to.opposite() {
            self.pass_original(ticket, onward);
        }
    }
}
