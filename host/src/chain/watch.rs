//! Showing the traffic to whoever watches it: every message on every hop, also what Consort says itself.

use super::parcel::{Body, CallId, Edge, Parcel, Position, Requester, Responder};
use super::router::Router;
use crate::message::{Message, Outcome};
use crate::tap::{Hop, Kind, Place};
use crate::wire::envelope::Id;
use crate::wire::text::Text;

impl Router {
    /// A message goes over a hop.
    pub(super) fn show(&self, parcel: &Parcel, from: Position, to: Position) {
        let Some(tap) = &self.tap else { return };
        let id = match parcel.body {
            Body::Request { call, .. } | Body::Response { call, .. } => Some(call.to_string()),
            Body::Notification { .. } => None,
        };
        tap.hop(&Hop {
            from: from.into(),
            to: to.into(),
            kind: parcel.kind(),
            method: parcel.method(),
            id: id.as_deref(),
            text: parcel.text(),
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
            Responder::KeptBack(_) | Responder::Nobody => return,
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

    /// Consort answers a request by itself, at an end of the chain.
    pub(super) fn show_refusal(&self, edge: Edge, id: &Id, outcome: &Outcome) {
        let Some(tap) = &self.tap else { return };
        let (kind, text) = match outcome {
            Ok(text) => (Kind::Result, text),
            Err(text) => (Kind::Error, text),
        };
        tap.hop(&Hop {
            from: Place::Host,
            to: Position::Edge(edge).into(),
            kind,
            method: "",
            id: Some(id.as_json()),
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
        let (kind, text) = match outcome {
            Ok(text) => (Kind::Result, text),
            Err(text) => (Kind::Error, text),
        };
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

impl From<Position> for Place {
    fn from(position: Position) -> Self {
        match position {
            Position::Edge(Edge::Client) => Self::Client,
            Position::Edge(Edge::Agent) => Self::Agent,
            Position::Proxy(index) => Self::Proxy(index),
        }
    }
}
