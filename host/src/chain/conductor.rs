//! The chain as a proxy under another conductor: both ends share one line, and what goes to or comes from the agent's side is
//! wrapped. Owns the dialects of the proxy protocol; must not know what is inside of a message.

use super::edges::refused;
use super::parcel::{Edge, Responder};
use super::router::{Phase, Router};
use crate::message::Outcome;
use crate::wire::envelope::{self, Id, Incoming};
use crate::wire::output::Output;
use crate::wire::text::Text;
use std::sync::Arc;

/// What the chain is to whoever started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// An agent: in front of it is a client, behind it an agent on a line of its own.
    Agent,
    /// A proxy: in front of it and behind it is another conductor.
    Proxy,
}

/// How a conductor spells the methods of the proxy protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// As the proposal has it, and the SDK from version 5 on.
    Plain,
    /// With an underscore in front, as SDK 2.x has it.
    Underscored,
}

/// The two methods of the proxy protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyMethod {
    Initialize,
    Successor,
}

impl Dialect {
    fn successor(self) -> &'static str {
        match self {
            Self::Plain => "proxy/successor",
            Self::Underscored => "_proxy/successor",
        }
    }
}

/// Tells methods that only a conductor and its proxies exchange.
pub(super) fn proxy_method(method: &str) -> Option<(Dialect, ProxyMethod)> {
    match method {
        "proxy/initialize" => Some((Dialect::Plain, ProxyMethod::Initialize)),
        "proxy/successor" => Some((Dialect::Plain, ProxyMethod::Successor)),
        "_proxy/initialize" => Some((Dialect::Underscored, ProxyMethod::Initialize)),
        "_proxy/successor" => Some((Dialect::Underscored, ProxyMethod::Successor)),
        _ => None,
    }
}

impl Router {
    /// A message from the conductor above.
    pub(super) fn conductor_says(&mut self, message: Incoming) {
        match message {
            Incoming::Response { id, outcome } => {
                let edge = self.asked_edge(&id);
                self.response_from(edge, &id, outcome);
            }
            Incoming::Notification { method, params } if &*method == "$/cancel_request" => {
                self.cancel_from_edge(Edge::Client, params.as_ref());
            }
            Incoming::Request { id, method, params } => match proxy_method(&method) {
                Some((dialect, ProxyMethod::Initialize)) => {
                    self.dialect = dialect;
                    let method = "initialize".into();
                    self.client_begins(Incoming::Request { id, method, params });
                }
                Some((_, ProxyMethod::Successor)) => self.unwrap(Some(id), params),
                None if &*method == "initialize" => {
                    let reason = "this is a proxy: a conductor sends `proxy/initialize` to it; \
                                  `consort run` is what a client starts";
                    self.refuse(Edge::Client, id, &method, -32600, reason);
                }
                None => self.client_begins(Incoming::Request { id, method, params }),
            },
            Incoming::Notification { method, params } => match proxy_method(&method) {
                Some((_, ProxyMethod::Initialize)) => {
                    tracing::warn!("a notification `{method}` of the conductor was dropped: it is a request");
                }
                Some((_, ProxyMethod::Successor)) => self.unwrap(None, params),
                None => self.client_begins(Incoming::Notification { method, params }),
            },
        }
    }

    /// A message of the successor, in its envelope.
    fn unwrap(&mut self, id: Option<Id>, params: Option<Text>) {
        let message = match params.as_ref().map(envelope::unwrap) {
            Some(Ok((method, params))) => self.unwrapped(id, method, params),
            Some(Err((code, reason))) => Err((id, code, reason)),
            None => Err((id, -32602, "the envelope has no params".into())),
        };
        match message {
            Ok(message) => self.agent_says(message),
            Err((Some(id), code, reason)) => self.refuse(Edge::Agent, id, "proxy/successor", code, &reason),
            Err((None, _, reason)) => tracing::warn!("a notification of the successor was dropped: {reason}"),
        }
    }

    fn unwrapped(
        &self,
        id: Option<Id>,
        method: Arc<str>,
        params: Option<Text>,
    ) -> Result<Incoming, (Option<Id>, i64, String)> {
        if self.phase == Phase::Fresh {
            return Err((id, -32600, refused("proxy/successor", "proxy/initialize")));
        }
        if proxy_method(&method).is_some() {
            return Err((id, -32600, format!("`{method}` must not be wrapped")));
        }
        Ok(match id {
            Some(id) => Incoming::Request { id, method, params },
            None => Incoming::Notification { method, params },
        })
    }

    /// The end that was asked what this is the answer to.
    pub(super) fn asked_edge(&self, id: &Id) -> Edge {
        match id.as_number().and_then(|call| self.calls.get(&call)) {
            Some(call) if call.responder == Responder::Edge(Edge::Agent) => Edge::Agent,
            _ => Edge::Client,
        }
    }

    /// Where an end's lines are written to.
    pub(super) fn line(&mut self, edge: Edge) -> &mut Output {
        match self.role {
            Role::Agent => &mut self.ends[edge.index()].output,
            Role::Proxy => &mut self.ends[Edge::Client.index()].output,
        }
    }

    /// Writes a request (with an id) or a notification to the peer at an end.
    pub(super) fn write_call(&mut self, edge: Edge, id: Option<&str>, method: &str, params: Option<&Text>) {
        if self.bridge_takes_call(edge, id, method, params) {
            return;
        }
        let envelope = (self.role == Role::Proxy && edge == Edge::Agent).then(|| self.dialect.successor());
        let output = self.line(edge);
        match envelope {
            Some(envelope) => output.wrapped_call(id, envelope, method, params),
            None => output.call(id, method, params),
        }
    }

    /// Writes a response to the peer at an end.
    pub(super) fn write_response(&mut self, edge: Edge, id: &Id, outcome: &Outcome) {
        if self.bridge_takes_response(edge, id, outcome) {
            return;
        }
        self.line(edge).response(id, outcome);
    }

    /// Gives up a request at an end. This is never wrapped: it is about the request of the hop.
    pub(super) fn write_cancel(&mut self, edge: Edge, params: &Text) {
        self.line(edge).call(None, "$/cancel_request", Some(params));
    }

    /// Whether an end's lines still reach somebody.
    pub(super) fn is_read(&self, edge: Edge) -> bool {
        // Whoever sends nothing more may well be reading; only an agent process is gone with its output.
        self.ends[edge.index()].gone.is_none() || edge == Edge::Client || self.role == Role::Proxy
    }
}
