//! The router: messages from the ends, and the way from place to place.

use super::interest::Interests;
use super::lanes::Kept;
use super::parcel::{Body, Call, CallId, Direction, Edge, Lane, Parcel, Position, Requester, Responder};
use super::proxy::{Hold, ProxyState};
use super::sessions::Sessions;
use crate::log::ProxyLog;
use crate::message::{How, Interest, Outcome};
use crate::tap::{Hop, OptionalTap, Place};
use crate::wire::envelope::{Id, Incoming, Malformed, error_text};
use crate::wire::output::Output;
use crate::wire::scan;
use crate::wire::text::Text;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long notifications of an unknown session wait for the session's birth.
pub(super) const BIRTH_WAIT: Duration = Duration::from_secs(2);

/// Something that the router cannot do itself.
#[derive(Debug)]
pub enum Effect {
    /// The client's first `initialize` is there: start the agent, then call [`Router::agent_started`].
    StartAgent,
    /// Call [`Router::host_answer`] with the operation after this time.
    Sleep {
        /// The operation.
        operation: u64,
        /// The proxy.
        proxy: usize,
        /// How long.
        duration: Duration,
    },
    /// Read a file and call [`Router::host_answer`].
    ReadFile {
        /// The operation.
        operation: u64,
        /// The proxy.
        proxy: usize,
        /// The session's working directory.
        directory: Arc<PathBuf>,
        /// The path in it.
        path: String,
        /// The most bytes to read.
        max_bytes: u64,
    },
    /// Make a new instance of this proxy after a while and call [`Router::proxy_restarted`].
    Restart {
        /// The proxy.
        proxy: usize,
        /// How long to wait first.
        after: Duration,
    },
    /// Call [`Router::timer`] at this time or soon after.
    Timer(Instant),
}

/// What the router needs to know of a proxy.
pub struct ProxySetup {
    /// Its name.
    pub name: Arc<str>,
    /// Its log.
    pub log: ProxyLog,
    /// What it wants to see.
    pub interests: Vec<Interest>,
}

/// One end of the chain.
#[derive(Default)]
pub(super) struct End {
    pub(super) output: Output,
    /// The peer's own requests that wait for an answer.
    pub(super) ids: HashMap<Id, CallId>,
    /// How many requests of the peer wait for an answer.
    pub(super) open: usize,
    /// Why nothing can be sent here any more, as a JSON-RPC error.
    pub(super) gone: Option<Text>,
}

/// How far the connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waiting for `initialize`.
    Fresh,
    /// `initialize` is under way.
    Initializing,
    /// Everything may go.
    Ready,
}

/// The state of one connection's chain.
pub struct Router {
    pub(super) proxies: Vec<ProxyState>,
    pub(super) calls: HashMap<CallId, Call>,
    pub(super) ends: [End; 2],
    pub(super) sessions: Sessions,
    pub(super) phase: Phase,
    /// The version that the client offered in the `initialize` under way.
    pub(super) offered: u64,
    /// Whether an earlier `initialize` succeeded.
    pub(super) was_ready: bool,
    pub(super) agent_running: bool,
    /// The `initialize` that waits for the agent to be started.
    pub(super) first: Option<(Id, Option<Text>)>,
    /// Messages of the client that wait for the end of `initialize`, and their bytes.
    pub(super) behind_initialize: VecDeque<Incoming>,
    pub(super) behind_bytes: usize,
    /// Notifications of the agent for sessions that nobody has seen yet.
    pub(super) unborn: VecDeque<(Instant, Parcel)>,
    /// `session/new` and `session/fork` requests at the agent.
    pub(super) births: usize,
    pub(super) ready: VecDeque<usize>,
    pub(super) effects: VecDeque<Effect>,
    /// Bytes in the proxies' inboxes.
    pub(super) inbox_bytes: usize,
    /// Holds that ended, to be followed up when the message at hand has found its place.
    pub(super) releases: VecDeque<(usize, Hold)>,
    tap: OptionalTap,
    next_number: u64,
}

/// What is checked of a message that arrives at a proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// Everything that is held.
    All,
    /// What is held in its session.
    Session,
    /// Nothing: it was kept back and goes on now.
    Open,
}

impl Router {
    /// A chain of these proxies, client side first.
    pub fn new(proxies: Vec<ProxySetup>, tap: OptionalTap) -> Self {
        let proxies: Vec<_> = proxies
            .into_iter()
            .map(|setup| ProxyState::new(setup.name, setup.log, Interests::new(&setup.interests)))
            .collect();
        Self {
            proxies,
            calls: HashMap::new(),
            ends: Default::default(),
            sessions: Sessions::default(),
            phase: Phase::Fresh,
            offered: 0,
            was_ready: false,
            agent_running: false,
            first: None,
            behind_initialize: VecDeque::new(),
            behind_bytes: 0,
            unborn: VecDeque::new(),
            births: 0,
            ready: VecDeque::new(),
            effects: VecDeque::new(),
            inbox_bytes: 0,
            releases: VecDeque::new(),
            tap,
            next_number: 0,
        }
    }

    /// The next thing to do outside.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// What waits to be written to the client.
    pub fn client_output(&mut self) -> &mut Output {
        &mut self.ends[0].output
    }

    /// What waits to be written to the agent.
    pub fn agent_output(&mut self) -> &mut Output {
        &mut self.ends[1].output
    }

    /// What waits to be written to the client and to the agent.
    pub fn outputs(&mut self) -> (&mut Output, &mut Output) {
        let [client, agent] = &mut self.ends;
        (&mut client.output, &mut agent.output)
    }

    /// Bytes that wait in proxies' inboxes and behind `initialize`: a measure for when to stop reading.
    pub fn queued_bytes(&self) -> usize {
        self.inbox_bytes + self.behind_bytes
    }

    /// Requests of the client that have no answer yet.
    pub fn open_client_requests(&self) -> usize {
        self.ends[0].open + self.behind_initialize.len() + usize::from(self.first.is_some())
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// A line from the client that is no message.
    pub fn client_malformed(&mut self, malformed: &Malformed) {
        let error = error_text(malformed.code, &malformed.reason, None);
        self.ends[0].output.response(&malformed.id, &Err(error));
    }

    /// A message from the client.
    pub fn from_client(&mut self, message: Incoming) {
        match message {
            Incoming::Request { id, method, params } if is_proxy_method(&method) => {
                let reason = format!("`{method}` is for proxies; a client sends `initialize`");
                drop(params);
                self.refuse(Edge::Client, id, -32600, &reason);
            }
            Incoming::Notification { method, .. } if is_proxy_method(&method) => {
                tracing::warn!("a notification `{method}` of the client was dropped");
            }
            Incoming::Notification { method, params } if &*method == "$/cancel_request" => {
                self.cancel_from_edge(Edge::Client, params.as_ref());
            }
            Incoming::Response { id, outcome } => self.response_from(Edge::Client, &id, outcome),
            other => self.client_begins(other),
        }
        self.settle();
    }

    /// A request or notification of the client, in its phase.
    pub(super) fn client_begins(&mut self, message: Incoming) {
        match (self.phase, message) {
            (Phase::Initializing, message) => self.wait_behind_initialize(message),
            (_, Incoming::Request { id, method, params }) if &*method == "initialize" => self.initialize(id, params),
            (Phase::Fresh, Incoming::Request { id, method, .. }) => {
                let reason = format!("`{method}` before `initialize`: send `initialize` first");
                self.refuse(Edge::Client, id, -32600, &reason);
            }
            (Phase::Fresh, Incoming::Notification { method, .. }) => {
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
        match message {
            Incoming::Request { id, method, .. } if is_proxy_method(&method) => {
                let reason = format!("`{method}` is for proxies; this is the agent's end of the chain");
                self.refuse(Edge::Agent, id, -32600, &reason);
            }
            Incoming::Notification { method, .. } if is_proxy_method(&method) => {
                tracing::warn!("a notification `{method}` of the agent was dropped");
            }
            Incoming::Notification { method, params } if &*method == "$/cancel_request" => {
                self.cancel_from_edge(Edge::Agent, params.as_ref());
            }
            Incoming::Response { id, outcome } => self.response_from(Edge::Agent, &id, outcome),
            Incoming::Request { id, method, params } => self.request_from(Edge::Agent, id, method, params),
            Incoming::Notification { method, params } => self.notification_from(Edge::Agent, method, params),
        }
        self.settle();
    }

    /// Follows up on holds that ended: what they kept back goes on, in order.
    pub(super) fn settle(&mut self) {
        while let Some((index, hold)) = self.releases.pop_front() {
            let Hold { direction, lane, place } = hold;
            if !place {
                self.proxies[index].lanes[direction.index()].end_hold(&lane);
            }
            let gate = if lane == Lane::All { Gate::Session } else { Gate::Open };
            while let Some(kept) = self.proxies[index].lanes[direction.index()].next(&lane) {
                match kept {
                    Kept::Message(parcel) => self.resume(index, parcel, gate),
                    Kept::Answer(parcel) => self.travel(parcel, Position::Proxy(index)),
                    // Never handed out.
                    Kept::Place(_) => {}
                }
            }
        }
    }

    /// Answers a peer's request without taking it in.
    pub(super) fn refuse(&mut self, edge: Edge, id: Id, code: i64, reason: &str) {
        let error = error_text(code, reason, None);
        self.ends[edge.index()].output.response(&id, &Err(error));
    }

    pub(super) fn request_from(&mut self, edge: Edge, id: Id, method: Arc<str>, params: Option<Text>) {
        let direction = edge.inward();
        let lane = self.lane_of(&method, params.as_ref());
        let directory = (edge == Edge::Client)
            .then(|| session_directory(&method, params.as_ref()))
            .flatten();
        if let (Lane::Session(session), true) = (&lane, edge == Edge::Client) {
            // The client knows the session, whether or not this chain has seen it begin.
            self.sessions.add(session, directory.clone());
        }
        let call = self.new_call(
            Requester::Edge(edge, id.clone()),
            direction,
            method.clone(),
            lane.clone(),
        );
        if let Some(record) = self.calls.get_mut(&call) {
            record.directory = directory;
        }
        let end = &mut self.ends[edge.index()];
        end.ids.insert(id, call);
        end.open += 1;
        let body = Body::Request { call, method, params };
        let parcel = Parcel { direction, lane, body };
        self.travel(parcel, Position::Edge(edge));
    }

    fn notification_from(&mut self, edge: Edge, method: Arc<str>, params: Option<Text>) {
        let lane = self.lane_of(&method, params.as_ref());
        let parcel = Parcel {
            direction: edge.inward(),
            body: Body::Notification { method, params },
            lane,
        };
        if edge == Edge::Agent
            && self.births > 0
            && let Lane::Session(session) = &parcel.lane
            && !self.sessions.knows(session)
        {
            let until = Instant::now() + BIRTH_WAIT;
            self.effects.push_back(Effect::Timer(until));
            self.unborn.push_back((until, parcel));
            return;
        }
        self.travel(parcel, Position::Edge(edge));
    }

    fn response_from(&mut self, edge: Edge, id: &Id, outcome: Outcome) {
        let known = id.as_number().filter(|call| {
            self.calls
                .get(call)
                .is_some_and(|record| record.responder == Responder::Edge(edge) && !record.answered)
        });
        match known {
            Some(call) => self.answer_from_edge(edge, call, outcome),
            None => {
                let side = if edge == Edge::Client { "client" } else { "agent" };
                let id = crate::log::printable(id.as_json());
                tracing::debug!("a response of the {side} to no open request ({id}) was dropped");
            }
        }
    }

    pub(super) fn answer_from_edge(&mut self, edge: Edge, call: CallId, outcome: Outcome) {
        let Some(record) = self.calls.get(&call) else { return };
        let born = edge == Edge::Agent && is_birth(&record.method);
        let outcome = if edge == Edge::Agent && &*record.method == "initialize" {
            self.check_version(outcome)
        } else {
            outcome
        };
        if born {
            self.births = self.births.saturating_sub(1);
            if let Some(session) = outcome
                .as_ref()
                .ok()
                .and_then(|result| scan::string_member(result, "sessionId"))
            {
                let session = self.sessions.name(session);
                let directory = self.root_directory(call);
                self.sessions.add(&session, directory);
            }
        }
        self.respond(call, outcome, Position::Edge(edge));
        if born {
            self.deliver_born(Instant::now());
        }
    }

    /// Lets notifications go whose session is known now, whose time is over, or that no birth is left for.
    pub(super) fn deliver_born(&mut self, now: Instant) {
        let mut rest = VecDeque::new();
        for (until, parcel) in std::mem::take(&mut self.unborn) {
            let known = matches!(&parcel.lane, Lane::Session(session) if self.sessions.knows(session));
            if known || self.births == 0 || until <= now {
                self.travel(parcel, Position::Edge(Edge::Agent));
            } else {
                rest.push_back((until, parcel));
            }
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

    pub(super) fn new_call(
        &mut self,
        requester: Requester,
        direction: Direction,
        method: Arc<str>,
        lane: Lane,
    ) -> CallId {
        let call = self.number();
        let record = Call {
            requester,
            responder: Responder::Nobody,
            direction,
            method,
            lane,
            children: Vec::new(),
            observers: Vec::new(),
            directory: None,
            cancelled: false,
            answered: false,
        };
        self.calls.insert(call, record);
        call
    }

    pub(super) fn lane_of(&self, method: &str, params: Option<&Text>) -> Lane {
        if method == "initialize" {
            return Lane::All;
        }
        match params.and_then(|params| scan::string_member(params, "sessionId")) {
            Some(session) => Lane::Session(self.sessions.name(session)),
            None => Lane::Own,
        }
    }

    /// Sends an answer on its way back, once. Requests that are still open on its behalf are given up.
    pub(super) fn respond(&mut self, call: CallId, outcome: Outcome, from: Position) {
        if let Some(parcel) = self.begin_answer(call, outcome) {
            self.travel(parcel, from);
        }
    }

    /// Makes an answer, once.
    pub(super) fn begin_answer(&mut self, call: CallId, outcome: Outcome) -> Option<Parcel> {
        let record = self.calls.get_mut(&call)?;
        if record.answered {
            return None;
        }
        record.answered = true;
        record.responder = Responder::Nobody;
        let method = record.method.clone();
        let direction = record.direction.opposite();
        let mut lane = record.lane.clone();
        let children = std::mem::take(&mut record.children);
        let wanted = !matches!(record.requester, Requester::Nobody);
        if !wanted {
            self.calls.remove(&call);
        }
        for child in children {
            self.cancel(child);
        }
        if is_birth(&method)
            && let Some(session) = outcome
                .as_ref()
                .ok()
                .and_then(|result| scan::string_member(result, "sessionId"))
        {
            // What follows in the new session must not overtake the news of it.
            lane = Lane::Session(self.sessions.name(session));
        }
        let body = Body::Response { call, method, outcome };
        wanted.then_some(Parcel { direction, lane, body })
    }

    /// Moves a message on from a place until somebody has it.
    pub(super) fn travel(&mut self, mut parcel: Parcel, from: Position) {
        let mut hop_from = from;
        let mut place = self.next_place(from, parcel.direction);
        loop {
            match place {
                Position::Edge(edge) => {
                    self.show(&parcel, hop_from, place);
                    return self.leave(edge, parcel);
                }
                Position::Proxy(index) => match self.visit(index, parcel, Gate::All, &mut hop_from) {
                    Some(onward) => parcel = onward,
                    None => return,
                },
            }
            place = self.next_place(place, parcel.direction);
        }
    }

    /// Goes on with a message that a proxy kept back.
    pub(super) fn resume(&mut self, index: usize, parcel: Parcel, gate: Gate) {
        // Where it came from is not known any more: the neighbour on the side that it comes from.
        let mut from = self.next_place(Position::Proxy(index), parcel.direction.opposite());
        if let Some(parcel) = self.visit(index, parcel, gate, &mut from) {
            self.travel(parcel, Position::Proxy(index));
        }
    }

    fn next_place(&self, from: Position, direction: Direction) -> Position {
        let next = match (from, direction) {
            (Position::Edge(Edge::Client), Direction::Down) => Some(0),
            (Position::Edge(Edge::Agent), Direction::Up) => self.proxies.len().checked_sub(1),
            (Position::Proxy(index), Direction::Down) => Some(index + 1),
            (Position::Proxy(index), Direction::Up) => index.checked_sub(1),
            (Position::Edge(edge), _) => return Position::Edge(edge),
        };
        match next {
            Some(index) if index < self.proxies.len() => Position::Proxy(index),
            _ => Position::Edge(Edge::at_end_of(direction)),
        }
    }

    /// Shows a message to a proxy; gives it back if it goes past.
    fn visit(&mut self, index: usize, mut parcel: Parcel, gate: Gate, from: &mut Position) -> Option<Parcel> {
        let place = Position::Proxy(index);
        if let Body::Response { call, .. } = &parcel.body {
            match self.calls.get(call)?.requester {
                Requester::Proxy {
                    index: owner,
                    own: Some(own),
                    behalf,
                } if owner == index => {
                    self.show(&parcel, *from, place);
                    self.deliver_response(index, own, behalf, parcel);
                    return None;
                }
                // Nobody waits for it any more.
                Requester::Nobody => {
                    self.calls.remove(call);
                    return None;
                }
                _ => {}
            }
        }
        parcel = self.pass_gate(index, parcel, gate)?;
        if let Body::Response { call, .. } = parcel.body {
            let passed = match self.calls.get(&call)?.requester {
                Requester::Proxy {
                    index: owner,
                    own: None,
                    behalf,
                } if owner == index => Some(behalf),
                _ => None,
            };
            if let Some(behalf) = passed {
                self.show(&parcel, *from, place);
                *from = place;
                parcel = self.end_leg(index, call, behalf, parcel)?;
            }
            self.copy_response(index, &parcel);
            return Some(parcel);
        }
        match self.wants(index, &parcel) {
            Some(How::Intercept) => {
                self.show(&parcel, *from, place);
                self.deliver(index, parcel);
                None
            }
            Some(How::Observe) => {
                self.copy(index, &parcel);
                Some(parcel)
            }
            None => Some(parcel),
        }
    }

    /// Keeps a message back if the proxy holds something before it.
    fn pass_gate(&mut self, index: usize, parcel: Parcel, gate: Gate) -> Option<Parcel> {
        let lanes = &mut self.proxies[index].lanes[parcel.direction.index()];
        let behind_everything = gate == Gate::All && lanes.everything_blocks();
        let blocked = behind_everything || (gate != Gate::Open && lanes.session_blocks(&parcel.lane));
        let response = matches!(parcel.body, Body::Response { .. });
        if !blocked || (response && parcel.direction == Direction::Down) {
            return Some(parcel);
        }
        if let Body::Request { call, .. } = parcel.body
            && let Some(record) = self.calls.get_mut(&call)
        {
            record.responder = Responder::KeptBack(index);
        }
        self.announce_cancel(index, &parcel);
        match self.proxies[index].lanes[parcel.direction.index()].keep(parcel, behind_everything) {
            Ok(()) => None,
            Err(parcel) => self.too_much_kept(index, parcel),
        }
    }

    /// Too much waits behind a proxy: a request is answered, an answer goes on, a notification is dropped.
    fn too_much_kept(&mut self, index: usize, parcel: Parcel) -> Option<Parcel> {
        let name = self.proxies[index].name.clone();
        let method = parcel.method().clone();
        match parcel.body {
            Body::Response { .. } => Some(parcel),
            Body::Request { call, .. } => {
                let reason = format!("proxy `{name}` holds an earlier message back, and too much waits behind it");
                self.respond(call, Err(error_text(-32603, &reason, None)), Position::Proxy(index));
                None
            }
            Body::Notification { .. } => {
                tracing::warn!("a notification `{method}` was dropped: too much waits behind proxy `{name}`");
                None
            }
        }
    }

    /// A message leaves the chain.
    fn leave(&mut self, edge: Edge, parcel: Parcel) {
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
                let id = call.to_string();
                self.ends[edge.index()].output.call(Some(&id), &method, params.as_ref());
            }
            Body::Notification { method, params } => {
                let end = &mut self.ends[edge.index()];
                // A client that sends nothing more may well be reading.
                if end.gone.is_none() || edge == Edge::Client {
                    end.output.call(None, &method, params.as_ref());
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
                if edge == Edge::Client && &*record.method == "initialize" {
                    return self.initialized(&id, outcome);
                }
                if edge == Edge::Agent && end.gone.is_some() {
                    return;
                }
                end.output.response(&id, &outcome);
            }
        }
    }

    fn show(&self, parcel: &Parcel, from: Position, to: Position) {
        let Some(tap) = &self.tap else { return };
        let text = parcel.text().map_or_else(|| "null".to_owned(), Text::to_text);
        tap.hop(&Hop {
            from: shown(from),
            to: shown(to),
            kind: parcel.kind(),
            method: parcel.method(),
            text: &text,
        });
    }
}

fn shown(position: Position) -> Place {
    match position {
        Position::Edge(Edge::Client) => Place::Client,
        Position::Edge(Edge::Agent) => Place::Agent,
        Position::Proxy(index) => Place::Proxy(index),
    }
}

/// Methods that only a conductor and its proxies exchange.
fn is_proxy_method(method: &str) -> bool {
    matches!(
        method,
        "proxy/initialize" | "proxy/successor" | "_proxy/initialize" | "_proxy/successor"
    )
}

/// Methods that bring a session into being under an id that their answer tells.
pub(super) fn is_birth(method: &str) -> bool {
    matches!(method, "session/new" | "session/fork")
}

fn session_directory(method: &str, params: Option<&Text>) -> Option<Arc<PathBuf>> {
    if !matches!(
        method,
        "session/new" | "session/load" | "session/resume" | "session/fork"
    ) {
        return None;
    }
    let directory = PathBuf::from(scan::string_member(params?, "cwd")?);
    directory.is_absolute().then(|| Arc::new(directory))
}
