//! One MCP client of the agent, as it talks to one server: a connection over ACP where the server makes one, and otherwise requests on
//! their own. Owns its ids and its streams.

mod hears;
mod says;

use super::event_log::EventLog;
use super::served::Served;
use super::{INTERNAL, SESSION, Shared, lock};
use crate::wire::envelope::error_text;
use crate::wire::scan;
use crate::wire::text::Text;
pub(super) use says::Asking;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tokio::sync::Notify;

/// Streams of answers that are kept when they have ended, in case that they broke before their end was read, and their bytes. One above
/// that is kept alone.
const ENDED_STREAMS: usize = 32;
const ENDED_BYTES: usize = 16 * 1024 * 1024;

/// Requests of a client that wait for their answers, and requests of its server that wait for its.
const MAX_OPEN: usize = 1024;

/// The revision of MCP that has batches, and the first one that has events which say nothing but how to come back.
const WITH_BATCHES: &str = "2025-03-26";
const WITH_PRIMING: &str = "2025-11-25";

/// Revisions with sessions that are known here; what a server speaks is its business.
const REVISIONS: [&str; 3] = [WITH_BATCHES, "2025-06-18", WITH_PRIMING];

/// A client.
pub(super) struct Client {
    served: Arc<Served>,
    /// Known as soon as the server has answered.
    way: OnceLock<Way>,
    /// Several clients that say nothing of each other are this one.
    is_shared: bool,
    numbers: AtomicU64,
    state: Mutex<State>,
}

/// How it reaches its server.
enum Way {
    Connection(String),
    /// Each request for itself, as a server that knows no connections has it.
    Requests,
}

#[derive(Default)]
struct State {
    /// What the server says on its own account.
    main: Option<Arc<EventLog>>,
    /// Requests of the client by the numbers under which the server knows them, the latest behind.
    open: BTreeMap<u64, Open>,
    /// Streams that have ended, the latest behind.
    ended: VecDeque<Arc<EventLog>>,
    /// Requests of the server: their ids for the client, and their calls.
    calls: HashMap<u64, String>,
    /// The revision of MCP that was agreed on.
    revision: Option<String>,
    has_begun: bool,
    is_over: bool,
}

/// A request that waits for its answer.
struct Open {
    /// Its id for the client.
    id: String,
    /// The token under which the client wants to hear of its progress, and what the server has in its place.
    token: Option<(Value, Value)>,
    /// Where everything goes that belongs to it.
    stream: Arc<EventLog>,
    given_up: Arc<Notify>,
}

impl Client {
    /// Connects to a server. Where everything is heard over one stream, that is so from the beginning.
    ///
    /// # Errors
    ///
    /// What the server answers, as a JSON-RPC error.
    pub(super) async fn connect(
        shared: &Arc<Shared>,
        served: Arc<Served>,
        is_shared: bool,
        hears: Option<&Arc<EventLog>>,
    ) -> Result<Arc<Self>, Text> {
        let client = Arc::new(Self {
            served: served.clone(),
            way: OnceLock::new(),
            is_shared,
            numbers: AtomicU64::new(1),
            state: Mutex::new(State {
                main: hears.cloned(),
                ..State::default()
            }),
        });
        let server = &served.server;
        let mut params = json!({"serverId": server, "acpId": server});
        if let Some(session) = served.session() {
            params["_meta"] = json!({SESSION: &*session});
        }
        let connecting = Connecting(Some((client.clone(), shared.clone())));
        match shared.connect(&client, Text::of(&params)).await {
            Ok(_) if client.connection().is_some() => {}
            Ok(_) => {
                return Err(error_text(
                    INTERNAL,
                    "the server's answer to `mcp/connect` has no `connectionId`",
                    None,
                ));
            }
            // It speaks the later generation.
            Err(error) if is_unknown_method(&error) => {
                client.way.get_or_init(|| Way::Requests);
            }
            Err(error) => return Err(error),
        }
        Ok(connecting.done().unwrap_or(client))
    }

    /// The server has made the connection. Says whether it is still wanted: whoever asked for it may have given up.
    pub(super) fn connected(self: &Arc<Self>, shared: &Shared, connection: &str) -> bool {
        let state = lock(&self.state);
        if state.is_over {
            return false;
        }
        self.way.get_or_init(|| Way::Connection(connection.to_owned()));
        lock(&shared.connections).insert(connection.to_owned(), Arc::downgrade(self));
        drop(state);
        true
    }

    /// Its connection, if its server makes such.
    fn connection(&self) -> Option<&str> {
        match self.way.get()? {
            Way::Connection(connection) => Some(connection),
            Way::Requests => None,
        }
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether its server has said yes to `initialize`.
    pub(super) fn has_begun(&self) -> bool {
        lock(&self.state).has_begun
    }

    /// Whether a request may name this revision: clients were seen to name another one than they have agreed on.
    pub(super) fn speaks(&self, revision: &str) -> bool {
        REVISIONS.contains(&revision)
            || lock(&self.state)
                .revision
                .as_deref()
                .is_none_or(|agreed| agreed == revision)
    }

    /// Whether it has agreed on a revision with batches.
    pub(super) fn takes_batches(&self) -> bool {
        lock(&self.state).revision.as_deref() == Some(WITH_BATCHES)
    }

    /// Whether it has agreed on a revision in which streams begin with how to come back.
    pub(super) fn is_primed(&self) -> bool {
        // They are dates.
        lock(&self.state)
            .revision
            .as_deref()
            .is_some_and(|revision| revision >= WITH_PRIMING)
    }

    /// The stream of what the server says on its own account.
    pub(super) fn main(&self) -> Arc<EventLog> {
        let mut state = lock(&self.state);
        let usable = state.main.clone().filter(|main| !main.has_ended());
        let main = usable.unwrap_or_else(|| self.new_stream());
        state.main = Some(main.clone());
        main
    }

    /// A stream for the answer to a request.
    pub(super) fn new_stream(&self) -> Arc<EventLog> {
        Arc::new(EventLog::new(self.number()))
    }

    /// Keeps a stream that ends, in case that it breaks before its end is read.
    pub(super) fn keep(&self, stream: &Arc<EventLog>) {
        let mut state = lock(&self.state);
        if state.is_over {
            return;
        }
        state.ended.push_back(stream.clone());
        let mut bytes: usize = state.ended.iter().map(|stream| stream.bytes()).sum();
        while state.ended.len() > ENDED_STREAMS || (bytes > ENDED_BYTES && state.ended.len() > 1) {
            let Some(oldest) = state.ended.pop_front() else { return };
            bytes -= oldest.bytes();
        }
    }

    /// The stream with this number.
    pub(super) fn stream(&self, number: u64) -> Option<Arc<EventLog>> {
        let state = lock(&self.state);
        let open = state.open.values().map(|open| &open.stream);
        let mut all = open.chain(&state.ended).chain(&state.main);
        all.find(|stream| stream.number == number).cloned()
    }

    /// It is over: what it waits for is given up, and its server hears of it.
    pub(super) fn end(self: &Arc<Self>, shared: &Arc<Shared>) {
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.is_over, true) {
            return;
        }
        let main = state.main.take();
        state.ended.clear();
        let calls = std::mem::take(&mut state.calls);
        for open in state.open.values() {
            open.given_up.notify_one();
        }
        drop(state);
        for call in calls.into_values() {
            let outcome = Err(error_text(INTERNAL, "the MCP client is gone", None));
            shared.answered(Some(&call), outcome, None);
        }
        // Those of requests end with their answers.
        if let Some(main) = main {
            main.end();
        }
        self.served.remove(self);
        if let Some(connection) = self.connection() {
            let mut connections = lock(&shared.connections);
            connections.remove(connection);
            connections.retain(|_, client| client.strong_count() > 0);
            drop(connections);
            shared.disconnect(connection);
        }
    }
}

/// A client that has no connection yet. It ends with this, unless that is done.
struct Connecting(Option<(Arc<Client>, Arc<Shared>)>);

impl Connecting {
    fn done(mut self) -> Option<Arc<Client>> {
        self.0.take().map(|(client, _)| client)
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        if let Some((client, shared)) = &self.0 {
            client.end(shared);
        }
    }
}

/// Whether an error says that there is no such method.
fn is_unknown_method(error: &Text) -> bool {
    scan::find(error, "/code").and_then(|range| error.slice(range).decode::<i64>()) == Some(-32601)
}
