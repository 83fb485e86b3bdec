//! Showing the traffic to whoever watches it: every message on every hop, also what Consort says itself.

use super::parcel::{Body, CallId, Edge, Parcel, Position, Requester, Responder};
use super::router::Router;
use crate::message::{Message, Outcome};
use crate::tap::{Hop, Kind, Place};
use crate::wire::text::Text;

impl Router {
    /// A message goes over a hop.
    pub(super) fn show(&self, parcel: &Parcel, to: Position) {
        let Some(tap) = &self.tap else { return };
        let id = match parcel.body {
            Body::Request { call, .. } | Body::Response { call, .. } => Some(call.to_string()),
            Body::Notification { .. } => None,
        };
        tap.hop(&Hop {
            from: parcel.from.into(),
            to: to.into(),
            kind: parcel.kind(),
            method: parcel.method(),
            id: id.as_deref(),
            text: parcel.text(),
        });
    }

    /// An answer comes that nobody waits for any more.
    pub(super) fn show_for_nobody(&self, call: CallId, outcome: &Outcome, from: Position) {
        let Some(tap) = &self.tap else { return };
        let (kind, text) = answer(outcome);
        tap.hop(&Hop {
            from: from.into(),
            to: Place::Host,
            kind,
            method: "",
            id: Some(&call.to_string()),
            text: Some(text),
        });
    }

    /// A request is given up on its hop.
    pub(super) fn show_cancel(&self, call: CallId) {
        let (Some(tap), Some(record)) = (&self.tap, self.calls.get(&call)) else {
            return;
        };
        let from = match record.requester {
            Requester::Edge(edge, _) => Position::Edge(edge).into(),
            Requester::Proxy { index, .. } => Place::Proxy(index),
            Requester::Nobody => Place::Host,
        };
        let to = match record.responder {
            Responder::Edge(edge) => Position::Edge(edge).into(),
            Responder::Proxy(index, _) => Place::Proxy(index),
            Responder::KeptBack(index) => Place::Proxy(index),
            Responder::Nobody => return,
        };
        tap.hop(&Hop {
            from,
            to,
            kind: Kind::Notification,
            method: "$/cancel_request",
            id: None,
            text: Some(&Text::of(&serde_json::json!({ "requestId": call }))),
        });
    }

    /// Consort answers a request at an end of the chain without taking it in. It gets a number of its own, since the peer's may be
    /// anything.
    pub(super) fn show_refused(&mut self, edge: Edge, method: &str, outcome: &Outcome) {
        if self.tap.is_none() {
            return;
        }
        let number = self.number().to_string();
        let Some(tap) = &self.tap else { return };
        let place = Position::Edge(edge).into();
        let hop = Hop {
            from: place,
            to: Place::Host,
            kind: Kind::Request,
            method,
            id: Some(&number),
            text: None,
        };
        tap.hop(&hop);
        let (kind, text) = answer(outcome);
        tap.hop(&Hop {
            from: Place::Host,
            to: place,
            kind,
            text: Some(text),
            ..hop
        });
    }

    /// Consort answers a request for whoever owes the answer.
    pub(super) fn show_given_up(&self, call: CallId, outcome: &Outcome) {
        let (Some(tap), Some(record)) = (&self.tap, self.calls.get(&call)) else {
            return;
        };
        let Requester::Edge(edge, _) = record.requester else {
            return;
        };
        let from = match record.responder {
            Responder::Edge(edge) => Position::Edge(edge).into(),
            Responder::Proxy(index, _) | Responder::KeptBack(index) => Place::Proxy(index),
            Responder::Nobody => Place::Host,
        };
        let (kind, text) = answer(outcome);
        tap.hop(&Hop {
            from,
            to: Position::Edge(edge).into(),
            kind,
            method: &record.method,
            id: Some(&call.to_string()),
            text: Some(text),
        });
    }

    /// A proxy says something to Consort, as the operation with this number if it is a request.
    pub(super) fn show_to_host(&self, index: usize, operation: u64, message: &Message) {
        let Some(tap) = &self.tap else { return };
        let (kind, method, id) = match message {
            Message::Request(request) => (Kind::Request, &request.method, Some(operation.to_string())),
            Message::Notification(notification) => (Kind::Notification, &notification.method, None),
            Message::Response(_) => return,
        };
        tap.hop(&Hop {
            from: Place::Proxy(index),
            to: Place::Host,
            kind,
            method,
            id: id.as_deref(),
            text: message.text(),
        });
    }

    /// Consort answers a proxy.
    pub(super) fn show_host_answer(&self, index: usize, operation: u64, outcome: &Outcome) {
        let Some(tap) = &self.tap else { return };
        let (kind, text) = answer(outcome);
        tap.hop(&Hop {
            from: Place::Host,
            to: Place::Proxy(index),
            kind,
            method: "",
            id: Some(&operation.to_string()),
            text: Some(text),
        });
    }
}

fn answer(outcome: &Outcome) -> (Kind, &Text) {
    match outcome {
        Ok(text) => (Kind::Result, text),
        Err(text) => (Kind::Error, text),
    }
}

impl From<Position> for Place {
    fn from(position: Position) -> Self {
        match position {
            Position::Edge(Edge::Client) => Self::Client,
            Position::Edge(Edge::Agent) => Self::Agent,
            Position::Proxy(index) => Self::Proxy(index),
        }
    }
}
