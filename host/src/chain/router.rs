//! The state of the chain, the requests that wait for an answer, and the effects that only the outside can have.

use super::bridged::Bridged;
use super::conductor::{Dialect, Role};
use super::lanes::{Kept, Lanes};
use super::mcp_sessions::McpSessions;
use super::parcel::{Body, Call, CallId, Direction, Edge, Lane, Parcel, Position, Requester, Responder};
use super::proxy::{Hold, ProxyState, Status};
use super::routes::Routes;
use super::sessions::Sessions;
use crate::audit::Recorder;
use crate::file_list;
use crate::grants::{OwnServers, ids_of};
use crate::hash::Map;
use crate::log::ProxyLog;
use crate::message::{OnFailure, Outcome, Registration};
use crate::saved_state;
use crate::tap::OptionalTap;
use crate::wire::envelope::{Id, Incoming, error_text};
use crate::wire::output::Output;
use crate::wire::scan;
use crate::wire::text::Text;
use std::borrow::Cow;
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
    /// List files that the proxy may read and call [`Router::host_answer`].
    ListFiles {
        /// The operation.
        operation: u64,
        /// The proxy.
        proxy: usize,
        /// The session's working directory.
        directory: Arc<PathBuf>,
        /// What to list.
        request: file_list::Request,
    },
    /// Do something with a proxy's saved state, in the order of these, and call [`Router::host_answer`].
    SavedState {
        /// The operation.
        operation: u64,
        /// The proxy.
        proxy: usize,
        /// What to do.
        request: saved_state::Request,
    },
    /// Make a new instance of this proxy after a while and call [`Router::proxy_restarted`].
    Restart {
        /// The proxy.
        proxy: usize,
        /// How long to wait first.
        after: Duration,
    },
    /// Give up the turn that this proxy has, and its instance. Its end must not be told any more.
    Abort {
        /// The proxy.
        proxy: usize,
    },
    /// The agent has `initialize` now and owes an answer.
    InitializeSent,
    /// Nobody waits for this operation any more.
    Forget {
        /// The operation.
        operation: u64,
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
    /// What it said of itself.
    pub registration: Registration,
    /// What becomes of its messages when it fails.
    pub on_failure: OnFailure,
    /// The MCP servers that concern it; none if all do.
    pub servers: Option<Arc<OwnServers>>,
    /// The most bytes of saved state, and so of one answer about it.
    pub state: u64,
    /// How long it may hold a message while nothing that it sent on the message's behalf is unanswered.
    pub hold_time: Duration,
}

/// One end of the chain.
#[derive(Default)]
pub(super) struct End {
    pub(super) output: Output,
    /// The peer's own requests that wait for an answer.
    pub(super) ids: HashMap<Id, CallId>,
    /// How many requests of the peer wait for an answer.
    pub(super) open: usize,
    /// Bytes of Consort's own answers that may still be among what waits.
    pub(super) refused_bytes: usize,
    /// Why nothing can be sent here any more, as a JSON-RPC error.
    pub(super) gone: Option<Text>,
}

/// What the lane of an MCP server begins with, in the place of a session's name.
pub(super) const SERVER: &str = "\0mcp\0";

/// MCP connections whose owners are remembered.
const MAX_CONNECTIONS: usize = 10_000;

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
    pub(super) role: Role,
    /// How the conductor above spells its methods.
    pub(super) dialect: Dialect,
    pub(super) proxies: Vec<ProxyState>,
    pub(super) routes: Routes,
    pub(super) calls: Map<CallId, Call>,
    pub(super) ends: [End; 2],
    pub(super) sessions: Sessions,
    pub(super) phase: Phase,
    /// The version that the client offered in the `initialize` under way.
    pub(super) offered: u64,
    /// The version that the agent answered with.
    pub(super) answered_version: Option<u64>,
    /// Whether an earlier `initialize` succeeded.
    pub(super) was_ready: bool,
    pub(super) agent_running: bool,
    /// The `initialize` that waits for the agent to be started.
    pub(super) first: Option<(Id, Option<Text>)>,
    /// Messages of the client that wait for the end of `initialize`, and their bytes.
    pub(super) behind_initialize: VecDeque<Incoming>,
    pub(super) behind_bytes: usize,
    /// Notifications of the agent for sessions that nobody has seen yet, and their bytes.
    pub(super) unborn: VecDeque<(Instant, Parcel)>,
    pub(super) unborn_bytes: usize,
    pub(super) dropped_responses: u64,
    /// `session/new` and `session/fork` requests at the agent.
    pub(super) births: usize,
    pub(super) ready: VecDeque<usize>,
    pub(super) effects: VecDeque<Effect>,
    /// Proxies that too much waits for, to be looked at when the message at hand has found its place.
    pub(super) overfull: Vec<usize>,
    /// Holds that ended, to be followed up when the message at hand has found its place.
    pub(super) releases: VecDeque<(usize, Hold)>,
    /// Messages that proxies have kept for too long.
    pub(super) holds_ended: u64,
    pub(super) bridged: Bridged,
    pub(super) mcp_sessions: McpSessions,
    /// Whose the MCP connections are that answers told of.
    connections: HashMap<String, Position>,
    pub(super) tap: OptionalTap,
    /// The host's answers wait until something was written.
    pub(super) choked: bool,
    /// Whether faults are told in the sessions that they concern.
    pub(super) notices: bool,
    /// When there is a look at what proxies keep.
    pub(super) next_look: Option<Instant>,
    pub(super) audit: Recorder,
    pub(super) next_number: u64,
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
    pub fn new(role: Role, proxies: Vec<ProxySetup>, tap: OptionalTap) -> Self {
        let proxies: Vec<_> = proxies.into_iter().map(ProxyState::new).collect();
        Self {
            role,
            dialect: Dialect::Plain,
            proxies,
            routes: Routes::default(),
            calls: Map::default(),
            ends: Default::default(),
            sessions: Sessions::default(),
            phase: Phase::Fresh,
            offered: 0,
            answered_version: None,
            was_ready: false,
            agent_running: false,
            first: None,
            behind_initialize: VecDeque::new(),
            behind_bytes: 0,
            unborn: VecDeque::new(),
            unborn_bytes: 0,
            dropped_responses: 0,
            births: 0,
            ready: VecDeque::new(),
            effects: VecDeque::new(),
            overfull: Vec::new(),
            releases: VecDeque::new(),
            holds_ended: 0,
            bridged: Bridged::default(),
            mcp_sessions: McpSessions::default(),
            connections: HashMap::default(),
            tap,
            choked: false,
            notices: false,
            next_look: None,
            audit: Recorder::default(),
            next_number: 0,
        }
    }

    /// The same, with what happens to its proxies taken down.
    pub fn recorded_by(mut self, audit: Recorder) -> Self {
        self.audit = audit;
        self
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

    /// Bytes that wait for turns: a measure for when to stop reading. What is kept back counts while its proxy is at work,
    /// since that ends by itself; what a proxy holds on purpose must not stop the reading that may release it.
    pub fn queued_bytes(&self) -> usize {
        let kept = |proxy: &ProxyState| match (proxy.status, &proxy.running) {
            (Status::Restarting | Status::Replaying, _) | (_, Some(_)) => proxy.lanes.iter().map(Lanes::kept).sum(),
            _ => 0,
        };
        // One that takes nothing but answers has a cap of its own: what is read next may be an answer.
        let waiting = self.proxies.iter().filter(|proxy| !proxy.is_busy());
        waiting.map(|proxy| proxy.bytes_of_others() + kept(proxy)).sum()
    }

    /// Bytes of Consort's own answers that may still wait for the client, and for the agent.
    pub fn refused_bytes(&mut self) -> [usize; 2] {
        self.ends.each_mut().map(|end| {
            end.refused_bytes = end.refused_bytes.min(end.output.waiting());
            end.refused_bytes
        })
    }

    /// Bytes of the client that wait for the end of `initialize`: only the agent can end that.
    pub fn behind_initialize_bytes(&self) -> usize {
        self.behind_bytes
    }

    /// Whether the agent owes an answer to `initialize`.
    pub fn initialize_waits(&self) -> bool {
        let at_agent = Responder::Edge(Edge::Agent);
        self.calls
            .values()
            .any(|call| &*call.method == "initialize" && call.responder == at_agent && !call.answered)
    }

    /// Whether a proxy can take a turn now.
    pub fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.effects.is_empty()
    }

    /// Responses that answered no open request and were dropped.
    pub fn dropped_responses(&self) -> u64 {
        self.dropped_responses
    }

    /// Requests from outside that have no answer yet and whose sender may still be there to get it.
    pub fn open_requests(&self) -> usize {
        let of_agent = match self.role {
            Role::Agent => 0,
            Role::Proxy => self.ends[1].open,
        };
        self.ends[0].open + of_agent + self.behind_initialize.len() + usize::from(self.first.is_some())
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Follows up on holds that ended: what they kept back goes on, in order.
    pub(super) fn settle(&mut self) {
        if !self.overfull.is_empty() {
            self.end_overfull();
        }
        while let Some((index, hold)) = self.releases.pop_front() {
            let Hold {
                direction, lane, place, ..
            } = hold;
            if !place {
                self.proxies[index].lanes[direction.index()].end_hold(&lane);
            }
            let gate = if lane == Lane::All { Gate::Session } else { Gate::Open };
            while let Some(kept) = self.proxies[index].lanes[direction.index()].next(&lane) {
                match kept {
                    Kept::Message(parcel) => self.resume(index, parcel, gate),
                    Kept::Answer(parcel) => self.travel(parcel),
                    // Never handed out.
                    Kept::Place(_) => {}
                }
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
            Some(session) => Lane::Session(self.sessions.name(&session)),
            // Nothing of a connection comes behind its end.
            None if method == "mcp/disconnect" => params.map_or(Lane::Own, |params| self.server_lane(params)),
            None => Lane::Own,
        }
    }

    /// The lane of a notification, and of the answer to a request. What an MCP server says stays in order, but requests to it don't
    /// wait for each other.
    pub(super) fn carried_lane(&self, method: &str, params: Option<&Text>) -> Lane {
        self.beside_requests(self.lane_of(method, params), method, params)
    }

    /// The same for a request whose own lane is known.
    pub(super) fn beside_requests(&self, lane: Lane, method: &str, params: Option<&Text>) -> Lane {
        match (lane, params) {
            (Lane::Own, Some(params)) if is_carrier(method) => self.server_lane(params),
            (lane, _) => lane,
        }
    }

    /// The lane of the MCP server that these params or this result name.
    fn server_lane(&self, text: &Text) -> Lane {
        let member = |key| scan::string_member(text, key);
        match member("connectionId").or_else(|| member("serverId")) {
            // A session that is called like that would share the lane: its messages would wait more, and stay in order.
            Some(server) => Lane::Session(self.sessions.name(&format!("{SERVER}{server}"))),
            None => Lane::Own,
        }
    }

    /// Sends an answer on its way back, once. Requests that are still open on its behalf are given up.
    pub(super) fn respond(&mut self, call: CallId, outcome: Outcome, from: Position) {
        if let Some(parcel) = self.begin_answer(call, outcome, from) {
            self.travel(parcel);
        }
    }

    /// A connection is whose answer first told of it. A proxy that may speak for its own servers only cannot take another one over.
    fn claim_connection(&mut self, outcome: Outcome, from: Position) -> Outcome {
        let connection = outcome
            .as_ref()
            .ok()
            .and_then(|result| scan::string_member(result, "connectionId"))
            .map(Cow::into_owned);
        let (Some(connection), Ok(result)) = (connection, &outcome) else {
            return outcome;
        };
        let servers = match from {
            Position::Proxy(index) => self.proxies[index].servers.clone(),
            Position::Edge(_) => None,
        };
        let taken = self.connections.get(&connection).is_some_and(|owner| *owner != from);
        match servers {
            Some(_) if taken => {
                let connection = crate::log::named(&connection);
                let reason =
                    format!("the MCP connection `{connection}` is somebody else's; a proxy has to choose another id");
                return Err(error_text(-32603, &reason, None));
            }
            Some(servers) => servers.connected(result),
            None => {}
        }
        if self.connections.len() < MAX_CONNECTIONS {
            self.connections.entry(connection).or_insert(from);
        }
        outcome
    }

    /// An MCP connection is over: what is remembered of it makes room for others.
    pub(super) fn forget_connection(&mut self, connection: &str) {
        self.connections.remove(connection);
        self.mcp_sessions.forget(connection);
        for servers in self.proxies.iter().filter_map(|proxy| proxy.servers.as_ref()) {
            servers.disconnected(connection);
        }
    }

    /// The agent is gone, and all connections with it.
    pub(super) fn forget_connections(&mut self) {
        self.connections.clear();
        self.mcp_sessions.agent_ended();
        for servers in self.proxies.iter().filter_map(|proxy| proxy.servers.as_ref()) {
            servers.all_disconnected();
        }
    }

    /// MCP servers that the client brings are not a proxy's, whatever it has called its own.
    pub(super) fn disown_servers(&mut self, params: Option<&Text>) {
        let names = params.map(ids_of).unwrap_or_default();
        for name in &names {
            for servers in self.proxies.iter().filter_map(|proxy| proxy.servers.as_ref()) {
                servers.remove(name);
            }
        }
        self.mcp_sessions.brought_by_client(names);
    }

    /// Makes an answer, once.
    pub(super) fn begin_answer(&mut self, call: CallId, outcome: Outcome, from: Position) -> Option<Parcel> {
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
            self.show_for_nobody(call, &outcome, from);
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
            lane = Lane::Session(self.sessions.name(&session));
        }
        let outcome = match &*method {
            "mcp/connect" => self.claim_connection(outcome, from),
            _ => outcome,
        };
        if &*method == "mcp/disconnect"
            && let Lane::Session(session) = &lane
            && let Some(connection) = session.strip_prefix(SERVER)
        {
            self.forget_connection(connection);
        }
        if &*method == "mcp/connect"
            && let Ok(result) = &outcome
        {
            // The same for what is said over a new connection.
            lane = self.server_lane(result);
        }
        let body = Body::Response { call, method, outcome };
        wanted.then_some(Parcel::new(direction, lane, body, from))
    }
}

/// The method that carries MCP messages, in both generations.
pub(super) fn is_carrier(method: &str) -> bool {
    method == "mcp/message"
}

/// Methods that bring a session into being under an id that their answer tells.
pub(super) fn is_birth(method: &str) -> bool {
    matches!(method, "session/new" | "session/fork")
}
