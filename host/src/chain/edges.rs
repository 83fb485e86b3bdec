//! The ends of the chain: what the client and the agent send, where it enters, and where answers and messages leave.

use super::conductor::{Role, proxy_method};
use super::parcel::{Body, CallId, Edge, Lane, Parcel, Position, Requester, Responder};
use super::router::{BIRTH_WAIT, Effect, Phase, Router, is_birth, is_carrier};
use super::status;
use crate::grants::{is_mcp, is_setup};
use crate::message::Outcome;
use crate::wire::envelope::{Id, Incoming, Malformed, error_text};
use crate::wire::scan;
use crate::wire::skim::Skim;
use crate::wire::text::Text;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// What is said of a message with a key twice that the host goes by.
pub(super) const AMBIGUOUS: &str = "a key that tells the session, its directory or the version is there twice";

/// Requests of one peer without an answer: their records take memory whatever they ask. Editors have a handful, and agents one for
/// each tool that runs; more than proxies may wait for themselves.
const MAX_OPEN: usize = 16_384;

/// Bytes of notifications that wait for the birth of their sessions. An agent announces its commands there, no more.
const MAX_UNBORN: usize = 1024 * 1024;

impl Router {
    /// A line from the client that is no message, and what can be made out of it.
    pub fn client_malformed(&mut self, malformed: &Malformed, skims: &[Skim]) {
        self.refuse(
            Edge::Client,
            malformed.id.clone(),
            "",
            malformed.code,
            &malformed.reason,
        );
        for skim in skims {
            self.unreadable_answer(Edge::Client, skim, &malformed.reason);
        }
    }

    /// A line from the agent that is no message, and what can be made out of it. Only what is clearly a request is answered.
    pub fn agent_malformed(&mut self, malformed: &Malformed, skims: &[Skim]) {
        if malformed.id != Id::null() {
            self.refuse(Edge::Agent, malformed.id.clone(), "", malformed.code, &malformed.reason);
        }
        for skim in skims {
            self.unreadable_answer(Edge::Agent, skim, &malformed.reason);
        }
    }

    /// A message from the client, or from the conductor whose proxy this is.
    pub fn from_client(&mut self, message: Incoming) {
        match self.role {
            Role::Agent => self.client_says(message),
            Role::Proxy => self.conductor_says(message),
        }
        self.settle();
    }

    fn client_says(&mut self, message: Incoming) {
        match message {
            Incoming::Request { id, method, .. } if proxy_method(&method).is_some() => {
                let reason = format!("`{method}` is for proxies; a client sends `initialize`");
                self.refuse(Edge::Client, id, &method, -32600, &reason);
            }
            Incoming::Notification { method, .. } if proxy_method(&method).is_some() => {
                tracing::warn!("a notification `{method}` of the client was dropped");
            }
            Incoming::Notification { method, params } if &*method == "$/cancel_request" => {
                self.cancel_from_edge(Edge::Client, params.as_ref());
            }
            Incoming::Response { id, outcome } => self.response_from(Edge::Client, &id, outcome),
            other => self.client_begins(other),
        }
    }

    /// A request or notification of the client, in its phase.
    pub(super) fn client_begins(&mut self, message: Incoming) {
        match (self.phase, message) {
            (Phase::Initializing, message) => self.wait_behind_initialize(message),
            (_, Incoming::Request { id, method, params }) if &*method == "initialize" => self.initialize(id, params),
            (_, Incoming::Request { id, method, params }) if method.starts_with(status::PREFIX) => {
                self.consort_asked(&id, &method, params.as_ref());
            }
            (_, Incoming::Notification { method, .. }) if method.starts_with(status::PREFIX) => {
                let method = crate::log::named(&method);
                tracing::warn!("a notification `{method}` was dropped: Consort answers requests only");
            }
            (Phase::Fresh, Incoming::Request { id, method, .. }) => {
                let first = match self.role {
                    Role::Agent => "initialize",
                    Role::Proxy => "proxy/initialize",
                };
                let reason = refused(&method, first);
                self.refuse(Edge::Client, id, &method, -32600, &reason);
            }
            (Phase::Fresh, Incoming::Notification { method, .. }) => {
                let method = crate::log::printable(&method);
                tracing::warn!("a notification `{method}` before `initialize` was dropped");
            }
            (Phase::Ready, Incoming::Request { id, method, params }) => {
                self.request_from(Edge::Client, id, method, params);
            }
            (Phase::Ready, Incoming::Notification { method, params }) => {
                self.notification_from(Edge::Client, method, params);
            }
            (_, Incoming::Response { .. }) => {}
        }
    }

    /// A message from the agent.
    pub fn from_agent(&mut self, message: Incoming) {
        self.agent_says(message);
        self.settle();
    }

    pub(super) fn agent_says(&mut self, message: Incoming) {
        match message {
            Incoming::Request { id, method, .. } if proxy_method(&method).is_some() => {
                let reason = format!("`{method}` is for proxies; this is the agent's end of the chain");
                self.refuse(Edge::Agent, id, &method, -32600, &reason);
            }
            Incoming::Notification { method, .. } if proxy_method(&method).is_some() => {
                tracing::warn!("a notification `{method}` of the agent was dropped");
            }
            Incoming::Notification { method, params } if &*method == "$/cancel_request" => {
                self.cancel_from_edge(Edge::Agent, params.as_ref());
            }
            Incoming::Response { id, outcome } => self.response_from(Edge::Agent, &id, outcome),
            Incoming::Request { id, method, params } => self.request_from(Edge::Agent, id, method, params),
            Incoming::Notification { method, params } => self.notification_from(Edge::Agent, method, params),
        }
    }

    /// Answers a peer's request without taking it in. The method is for those who watch, and empty where it is not known.
    pub(super) fn refuse(&mut self, edge: Edge, id: Id, method: &str, code: i64, reason: &str) {
        self.answer_at(edge, &id, method, &Err(error_text(code, reason, None)));
    }

    /// Consort's own answer to a request that was not taken in.
    pub(super) fn answer_at(&mut self, edge: Edge, id: &Id, method: &str, outcome: &Outcome) {
        self.show_refused(edge, method, outcome);
        let before = self.line(edge).waiting();
        self.write_response(edge, id, outcome);
        let queued = self.line(edge).waiting() - before;
        self.ends[edge.index()].refused_bytes += queued;
    }

    pub(super) fn request_from(&mut self, edge: Edge, id: Id, method: Arc<str>, params: Option<Text>) {
        if self.is_ambiguous(&method, params.as_ref()) {
            return self.refuse(edge, id, &method, -32600, AMBIGUOUS);
        }
        if self.ends[edge.index()].open >= MAX_OPEN {
            let reason = format!(
                "{MAX_OPEN} requests of the {} have no answer yet, which is the most",
                edge.name()
            );
            return self.refuse(edge, id, &method, -32603, &reason);
        }
        if edge == Edge::Client && is_setup(&method) {
            self.disown_servers(params.as_ref());
        }
        let direction = edge.inward();
        let lane = self.lane_of(&method, params.as_ref());
        let directory = (edge == Edge::Client)
            .then(|| session_directory(&method, params.as_ref()))
            .flatten();
        if let (Lane::Session(session), true) = (&lane, edge == Edge::Client) {
            // The client knows the session, whether or not this chain has seen it begin.
            self.sessions.add(session, directory.clone());
            if !self.unborn.is_empty() {
                self.deliver_born(Instant::now());
            }
        }
        let call = self.new_call(
            Requester::Edge(edge, id.clone()),
            direction,
            method.clone(),
            self.beside_requests(lane.clone(), &method, params.as_ref()),
        );
        if let Some(record) = self.calls.get_mut(&call) {
            record.directory = directory;
        }
        let end = &mut self.ends[edge.index()];
        end.ids.insert(id, call);
        end.open += 1;
        let params = match edge {
            Edge::Agent if is_mcp(&method) => self.told_session(Some(call), &method, params),
            _ => params,
        };
        let body = Body::Request { call, method, params };
        self.travel(Parcel::new(direction, lane, body, Position::Edge(edge)));
    }

    /// Whether a field that decides about order and files is there twice: who reads which one is anybody's guess.
    pub(super) fn is_ambiguous(&self, method: &str, params: Option<&Text>) -> bool {
        let twice = |key| params.is_some_and(|params| scan::is_twice(params, key));
        twice("sessionId") || (is_setup(method) && twice("cwd")) || (method == "initialize" && twice("protocolVersion"))
    }

    fn notification_from(&mut self, edge: Edge, method: Arc<str>, params: Option<Text>) {
        if self.is_ambiguous(&method, params.as_ref()) {
            let method = crate::log::printable(&method);
            tracing::warn!("a notification `{method}` was dropped: {AMBIGUOUS}");
            return;
        }
        let lane = self.carried_lane(&method, params.as_ref());
        let params = match edge {
            Edge::Agent if is_mcp(&method) => self.told_session(None, &method, params),
            _ => params,
        };
        let body = Body::Notification { method, params };
        let parcel = Parcel::new(edge.inward(), lane, body, Position::Edge(edge));
        if edge == Edge::Agent
            && self.births > 0
            && let Lane::Session(session) = &parcel.lane
            && !self.sessions.knows(session)
            && !is_carrier(parcel.method())
        {
            return self.wait_for_birth(parcel);
        }
        self.travel(parcel);
    }

    pub(super) fn response_from(&mut self, edge: Edge, id: &Id, outcome: Outcome) {
        let known = id.as_number().filter(|call| {
            self.calls
                .get(call)
                .is_some_and(|record| record.responder == Responder::Edge(edge) && !record.answered)
        });
        match known {
            Some(call) => self.answer_from_edge(edge, call, outcome),
            None => {
                let side = edge.name();
                let id = crate::log::printable(id.as_json());
                tracing::debug!("a response of the {side} to no open request ({id}) was dropped");
                self.dropped_responses += 1;
            }
        }
    }

    /// An answer that cannot be read: its request is answered with an error, since no other answer will come. Over
    /// the line of a conductor answers for both ends come.
    fn unreadable_answer(&mut self, from: Edge, skim: &Skim, reason: &str) {
        let Some(call) = skim.answered() else { return };
        let Some(record) = self.calls.get(&call).filter(|record| !record.answered) else {
            return;
        };
        let Responder::Edge(asked) = record.responder else {
            return;
        };
        if asked != from && self.role == Role::Agent {
            return;
        }
        let reason = format!("the {}'s answer cannot be read: {reason}", asked.name());
        self.answer_from_edge(asked, call, Err(error_text(-32603, &reason, None)));
        self.settle();
    }

    pub(super) fn answer_from_edge(&mut self, edge: Edge, call: CallId, outcome: Outcome) {
        let Some(record) = self.calls.get(&call) else { return };
        let method = record.method.clone();
        let born = edge == Edge::Agent && is_birth(&method);
        let outcome = if edge == Edge::Agent && &*method == "initialize" {
            let outcome = self.check_version(outcome);
            self.learn_capabilities(outcome)
        } else {
            outcome
        };
        if edge == Edge::Agent {
            self.bridge_answered(call, &method, &outcome);
        }
        if born {
            self.births = self.births.saturating_sub(1);
            if let Some(session) = outcome
                .as_ref()
                .ok()
                .and_then(|result| scan::string_member(result, "sessionId"))
            {
                let session = self.sessions.name(&session);
                let directory = self.root_directory(call);
                self.sessions.add(&session, directory);
            }
        }
        self.respond(call, outcome, Position::Edge(edge));
        if born {
            self.deliver_born(Instant::now());
        }
    }

    fn wait_for_birth(&mut self, parcel: Parcel) {
        let until = Instant::now() + BIRTH_WAIT;
        if self.unborn.is_empty() {
            self.effects.push_back(Effect::Timer(until));
        }
        self.unborn_bytes += parcel.size();
        self.unborn.push_back((until, parcel));
        while self.unborn_bytes > MAX_UNBORN
            && self.unborn.len() > 1
            && let Some((_, oldest)) = self.unborn.pop_front()
        {
            self.unborn_bytes -= oldest.size();
            self.travel(oldest);
        }
    }

    /// Lets notifications go whose session is known now, whose time is over, or that no birth is left for.
    pub(super) fn deliver_born(&mut self, now: Instant) {
        let mut rest = VecDeque::new();
        for (until, parcel) in std::mem::take(&mut self.unborn) {
            let known = matches!(&parcel.lane, Lane::Session(session) if self.sessions.knows(session));
            if known || self.births == 0 || until <= now {
                self.unborn_bytes -= parcel.size();
                self.travel(parcel);
            } else {
                rest.push_back((until, parcel));
            }
        }
        if let Some((until, _)) = rest.front() {
            self.effects.push_back(Effect::Timer(*until));
        }
        self.unborn = rest;
    }

    /// The working directory that the client gave for the session setup at the root of a request.
    fn root_directory(&self, call: CallId) -> Option<Arc<PathBuf>> {
        let mut call = call;
        loop {
            let record = self.calls.get(&call)?;
            match record.requester {
                Requester::Edge(Edge::Client, _) => return record.directory.clone(),
                Requester::Proxy {
                    behalf: Some(behalf), ..
                } => call = behalf,
                _ => return None,
            }
        }
    }

    /// A message is about to leave the chain: what proxies must not have changed of it is put back.
    pub(super) fn at_edge(&mut self, edge: Edge, mut parcel: Parcel) -> Parcel {
        parcel.body = match parcel.body {
            Body::Request { call, method, params } if edge == Edge::Agent && &*method == "initialize" => {
                Body::Request {
                    params: self.limit_offer(params),
                    call,
                    method,
                }
            }
            Body::Request { call, method, params } if edge == Edge::Agent && is_setup(&method) => Body::Request {
                params: self.bridge_servers(call, &method, params),
                call,
                method,
            },
            Body::Response { call, method, outcome } if edge == Edge::Client && &*method == "initialize" => {
                Body::Response {
                    outcome: self.restore_version(outcome),
                    call,
                    method,
                }
            }
            body => body,
        };
        parcel
    }

    /// A message leaves the chain.
    pub(super) fn leave(&mut self, edge: Edge, parcel: Parcel) {
        match parcel.body {
            Body::Request { call, method, params } => {
                if let Some(gone) = self.ends[edge.index()].gone.clone() {
                    return self.respond(call, Err(gone), Position::Edge(edge));
                }
                let Some(record) = self.calls.get_mut(&call) else {
                    return;
                };
                record.responder = Responder::Edge(edge);
                if edge == Edge::Agent && is_birth(&method) {
                    self.births += 1;
                }
                if edge == Edge::Agent && &*method == "initialize" {
                    self.effects.push_back(Effect::InitializeSent);
                }
                if edge == Edge::Agent {
                    self.bridge_sees(call, &method, params.as_ref());
                }
                self.write_call(edge, Some(&call.to_string()), &method, params.as_ref());
            }
            Body::Notification { method, params } => {
                if self.is_read(edge) {
                    self.write_call(edge, None, &method, params.as_ref());
                }
                if &*method == "mcp/disconnect"
                    && let Some(connection) = params
                        .as_ref()
                        .and_then(|params| scan::string_member(params, "connectionId"))
                {
                    self.forget_connection(&connection);
                }
            }
            Body::Response { call, outcome, .. } => {
                let Some(record) = self.calls.remove(&call) else { return };
                let Requester::Edge(_, id) = record.requester else {
                    return;
                };
                let end = &mut self.ends[edge.index()];
                end.open = end.open.saturating_sub(1);
                if end.ids.get(&id) == Some(&call) {
                    end.ids.remove(&id);
                }
                if edge == Edge::Agent && &*record.method == "mcp/connect" {
                    self.mcp_sessions.connected(call, &outcome);
                }
                if edge == Edge::Client && &*record.method == "initialize" {
                    return self.initialized(&id, outcome);
                }
                // Whoever uses the bridge may have something to clear up behind the agent.
                if self.is_read(edge) || self.is_bridged(edge, &id) {
                    self.write_response(edge, &id, &outcome);
                }
            }
        }
    }
}

/// What is said of a message that comes too early.
pub(super) fn refused(method: &str, first: &str) -> String {
    let method = crate::log::printable(method);
    format!("`{method}` before `{first}`: send `{first}` first")
}

/// The working directory that a session is set up with.
fn session_directory(method: &str, params: Option<&Text>) -> Option<Arc<PathBuf>> {
    if !is_setup(method) {
        return None;
    }
    let directory = PathBuf::from(&*scan::string_member(params?, "cwd")?);
    directory.is_absolute().then(|| Arc::new(directory))
}
