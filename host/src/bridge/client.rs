//! One MCP client of the agent, as it talks to one server: a connection over ACP where the server makes one, and otherwise requests on
//! their own. Owns its ids and its streams.

use super::event_log::EventLog;
use super::message::{self, Kind, Notification, Request, member, progress_token, with_token};
use super::served::Served;
use super::{INTERNAL, SESSION, Shared, lock, request_key};
use crate::message::Outcome;
use crate::wire::edit::{self, Edit};
use crate::wire::envelope::error_text;
use crate::wire::scan;
use crate::wire::text::Text;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
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
    way: Way,
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
    /// Connects to a server.
    ///
    /// # Errors
    ///
    /// What the server answers, as a JSON-RPC error.
    pub(super) async fn connect(shared: &Arc<Shared>, served: Arc<Served>, is_shared: bool) -> Result<Arc<Self>, Text> {
        let server = &served.server;
        let mut params = json!({"serverId": server, "acpId": server});
        if let Some(session) = served.session() {
            params["_meta"] = json!({SESSION: &*session});
        }
        let way = match shared.ask("mcp/connect", Text::of(&params), None).await {
            Ok(result) => match scan::string_member(&result, "connectionId") {
                Some(connection) => Way::Connection(connection.into_owned()),
                None => {
                    return Err(error_text(
                        INTERNAL,
                        "the server's answer to `mcp/connect` has no `connectionId`",
                        None,
                    ));
                }
            },
            // It speaks the later generation.
            Err(error) if is_unknown_method(&error) => Way::Requests,
            Err(error) => return Err(error),
        };
        let client = Arc::new(Self {
            served,
            way,
            is_shared,
            numbers: AtomicU64::new(1),
            state: Mutex::default(),
        });
        if let Way::Connection(connection) = &client.way {
            lock(&shared.connections).insert(connection.clone(), Arc::downgrade(&client));
        }
        Ok(client)
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The params of `mcp/message`.
    fn message(&self, method: &str, params: Option<&RawValue>, request: Option<u64>) -> Text {
        let mut message = json!({"method": method});
        match &self.way {
            Way::Connection(connection) => message["connectionId"] = connection.clone().into(),
            Way::Requests => {
                message["serverId"] = self.served.server.clone().into();
                message["requestId"] = request.map_or(Value::Null, |request| request.to_string().into());
            }
        }
        if let Some(session) = self.served.session() {
            message["_meta"] = json!({SESSION: &*session});
        }
        // The params go as they came.
        let mut text = message.to_string();
        if let Some(params) = params {
            text.pop();
            text.push_str(",\"params\":");
            text.push_str(params.get());
            text.push('}');
        }
        Text::trusted(text)
    }

    /// Takes a request in: from now on the client can give it up. What the server tells about it on the way goes into the stream.
    pub(super) fn begin(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        mut request: Request,
        stream: &Arc<EventLog>,
    ) -> Asking {
        let number = shared.number();
        let mut token = None;
        if let Some(params) = &request.params
            && let Some(own) = progress_token(params)
        {
            let sent = match self.is_shared {
                // Others may have chosen the same.
                true => json!(number),
                false => own.clone(),
            };
            if self.is_shared {
                request.params = Some(with_token(params, &sent));
            }
            token = Some((own, sent));
        }
        let given_up = Arc::new(Notify::new());
        let open = Open {
            id: request.id.get().to_owned(),
            token,
            stream: stream.clone(),
            given_up: given_up.clone(),
        };
        let mut state = lock(&self.state);
        let is_open = !state.is_over && state.open.len() < MAX_OPEN;
        if is_open {
            state.open.insert(number, open);
        }
        drop(state);
        let key = match self.way {
            Way::Requests if is_open => Some(request_key(&self.served.server, &number.to_string())),
            _ => None,
        };
        if let Some(key) = &key {
            lock(&shared.connections).insert(key.clone(), Arc::downgrade(self));
        }
        Asking {
            request,
            given_up: is_open.then_some(given_up),
            waiting: Waiting {
                client: self.clone(),
                shared: shared.clone(),
                number,
                key,
            },
        }
    }

    /// A server without connections wraps what it answers once more.
    fn unwrapped(&self, outcome: Outcome) -> Outcome {
        match (&self.way, outcome) {
            (Way::Requests, Ok(wrapped)) => {
                let part = |name: &str| Some(wrapped.slice(scan::find(&wrapped, name)?));
                match (part("/result"), part("/error")) {
                    (Some(result), _) => Ok(result),
                    (None, Some(error)) => Err(error),
                    (None, None) => Err(error_text(
                        INTERNAL,
                        "the server's answer has neither result nor error",
                        None,
                    )),
                }
            }
            (_, outcome) => outcome,
        }
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

    /// Takes what the client says besides requests; those are given back.
    pub(super) async fn take(&self, shared: &Arc<Shared>, kind: Kind) -> Option<Request> {
        match kind {
            Kind::Request(request) => return Some(request),
            Kind::Notification(notification) => self.tell(shared, notification).await,
            Kind::Response(Some(id), outcome, room) => {
                let call = lock(&self.state).calls.remove(&id);
                if let Some(call) = call {
                    shared.answered(Some(&call), outcome, room);
                }
            }
            // Nobody has asked.
            Kind::Response(None, ..) => {}
        }
        None
    }

    /// Tells the server something.
    async fn tell(&self, shared: &Shared, Notification { method, params, room }: Notification) {
        let params = params.as_deref();
        if method == "notifications/cancelled" {
            // Ids are the client's own; what is given up is known by its request to the chain.
            if let Some(id) = params.and_then(|params| member(params, "requestId")) {
                let state = lock(&self.state);
                let mut same = state.open.values().filter(|open| open.id == id);
                // Whoever has several requests of this id, or shares this with others who do, does not say which one.
                if let (Some(open), None) = (same.next(), same.next()) {
                    open.given_up.notify_one();
                }
            }
            return;
        }
        if let Way::Connection(_) = self.way {
            let params = self.message(&method, params, None);
            shared.tell("mcp/message", params, room).await;
        }
    }

    /// The server says something: a request if it has a call.
    pub(super) fn hear(&self, shared: &Shared, call: Option<&str>, params: Option<&Text>) {
        let Some(params) = params else { return };
        let method = scan::string_member(params, "method").unwrap_or_default();
        let mut inner = scan::find(params, "/params").map(|range| params.slice(range));
        let mut message = json!({"jsonrpc": "2.0", "method": method});
        if let Some(call) = call {
            let id = self.number();
            message["id"] = id.into();
            let mut state = lock(&self.state);
            if state.calls.len() >= MAX_OPEN {
                drop(state);
                let reason = format!("{MAX_OPEN} requests to this client have no answer yet");
                return shared.answered(Some(call), Err(error_text(INTERNAL, &reason, None)), None);
            }
            state.calls.insert(id, call.to_owned());
        }
        let token = inner.as_ref().filter(|_| method == "notifications/progress");
        let token = token.and_then(|inner| inner.slice(scan::find(inner, "/progressToken")?).decode::<Value>());
        let request = scan::string_member(params, "requestId").and_then(|request| request.parse().ok());
        let Some((stream, token)) = self.stream_for(token.as_ref(), request) else {
            return;
        };
        if let (Some(token), Some(progress)) = (token, &inner) {
            let put = Edit::Replace("/progressToken".to_owned(), Text::of(&token));
            inner = edit::one(progress, &put).ok().or(inner);
        }
        let mut text = message.to_string();
        if let Some(inner) = &inner {
            text.pop();
            text.push_str(",\"params\":");
            text.push_str(&inner.to_text());
            text.push('}');
        }
        stream.push(&text);
    }

    /// Where something goes that the server says: along with the request that it belongs to, or over the stream for all else, or, if
    /// nobody has ever opened that, along with any request. Also gives the token that the client has in the place of this one.
    fn stream_for(&self, token: Option<&Value>, request: Option<u64>) -> Option<(Arc<EventLog>, Option<Value>)> {
        let state = lock(&self.state);
        let mut open = state.open.iter().rev();
        let is_its_token = |open: &Open| token.is_some() && open.token.as_ref().map(|(_, sent)| sent) == token;
        let belongs = |(number, open): &(&u64, &Open)| Some(**number) == request || is_its_token(open);
        if let Some((_, open)) = open.clone().find(belongs) {
            let own = open
                .token
                .as_ref()
                .filter(|(own, sent)| own != sent && is_its_token(open));
            return Some((open.stream.clone(), own.map(|(own, _)| own.clone())));
        }
        let any = || open.next().map(|(_, open)| open.stream.clone());
        Some((state.main.clone().or_else(any)?, None))
    }

    /// Hears everything over one stream.
    pub(super) fn hears_over(&self, stream: &Arc<EventLog>) {
        lock(&self.state).main = Some(stream.clone());
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

    /// Its server gives a request up.
    pub(super) fn give_up(&self, call: u64) {
        let call = call.to_string();
        let mut state = lock(&self.state);
        let id = state.calls.iter().find(|(_, one)| **one == call).map(|(id, _)| *id);
        let Some(id) = id else { return };
        state.calls.remove(&id);
        drop(state);
        let params = json!({"requestId": id, "reason": "the server does not need it any more"});
        let message = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        if let Some((stream, _)) = self.stream_for(None, None) {
            stream.push(&message.to_string());
        }
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
        if let Way::Connection(connection) = &self.way {
            let mut connections = lock(&shared.connections);
            connections.remove(connection);
            connections.retain(|_, client| client.strong_count() > 0);
            drop(connections);
            let (shared, params) = (shared.clone(), Text::of(&json!({ "connectionId": connection })));
            tokio::spawn(async move { shared.ask("mcp/disconnect", params, None).await });
        }
    }
}

/// A request that was taken in. Dropping it gives it up.
pub(super) struct Asking {
    request: Request,
    /// None if it is refused.
    given_up: Option<Arc<Notify>>,
    waiting: Waiting,
}

impl Asking {
    /// Asks the server; gives the answer as the client gets it.
    pub(super) async fn answer(self) -> String {
        let Self {
            request,
            given_up,
            waiting,
        } = self;
        let Request {
            id,
            method,
            params,
            room,
        } = request;
        let (client, shared) = (&waiting.client, &waiting.shared);
        let outcome = match given_up {
            Some(given_up) => {
                let params = client.message(&method, params.as_deref(), Some(waiting.number));
                tokio::select! {
                    outcome = shared.ask("mcp/message", params, room) => client.unwrapped(outcome),
                    () = given_up.notified() => Err(error_text(-32800, "cancelled", None)),
                }
            }
            None => {
                let reason = "the server is gone, or too many requests of this client wait for it";
                Err(error_text(INTERNAL, reason, None))
            }
        };
        if method == "initialize"
            && let Ok(result) = &outcome
        {
            let revision = scan::string_member(result, "protocolVersion");
            lock(&client.state).revision = revision.map(|revision| revision.into_owned());
        }
        message::answer(id.get(), &outcome)
    }
}

/// A request that is not open any more when this is gone.
struct Waiting {
    client: Arc<Client>,
    shared: Arc<Shared>,
    number: u64,
    /// Under which what belongs to it is found, if there is no connection.
    key: Option<String>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        lock(&self.client.state).open.remove(&self.number);
        if let Some(key) = &self.key {
            lock(&self.shared.connections).remove(key);
        }
    }
}

/// Whether an error says that there is no such method.
fn is_unknown_method(error: &Text) -> bool {
    scan::find(error, "/code").and_then(|range| error.slice(range).decode::<i64>()) == Some(-32601)
}
