//! How servers are found and asked over ACP: the entries in the set-up of sessions, and `mcp/connect`, `mcp/message` and `mcp/disconnect` in
//! both generations. The ids tell which server they belong to, so that a new instance of the proxy goes on with what agents know; where
//! another proxy brings a server of the same name, they are told apart by what stood in the set-ups.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::rc::Rc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::caller::{self, Caller, Severity, Way};
use super::{Server, protocol};
use crate::error::RpcError;
use crate::interests::SET_UPS;
use crate::json::Json;
use crate::message::{Notification, Outcome, Request};
use crate::peer::Peer;
use crate::proxy::Work;

/// What an agent says to servers.
pub(crate) const MESSAGES: &str = "mcp/*";

/// Connections that are told of changes. More than any agent makes; those that are not among them work all the same.
const MAX_CONNECTIONS: usize = 1024;

/// Resources that somebody is told of over one connection, and bytes of their URIs.
const MAX_SUBSCRIBED: usize = 256;
const MAX_URI: usize = 2048;

/// The members that name a server, in the dialects of ACP.
const SERVER_KEYS: [&str; 3] = ["/serverId", "/acpId", "/id"];

/// Bytes of an id that is looked at. Those that are given are shorter, unless a server has no name but a text.
const MAX_ID: usize = 256;

/// Ids from set-ups that are remembered.
const MAX_IDS: usize = 4096;

/// Where the host tells which session a message belongs to.
const SESSION: &str = "/_meta/consort~1sessionId";

/// The servers of a proxy.
pub(crate) struct Serving {
    servers: Vec<Rc<Server>>,
    connections: RefCell<VecDeque<Connection>>,
    ids: RefCell<VecDeque<Known>>,
    /// The proxy has asked for what is said to all servers, so that an id which it does not know may be another proxy's.
    sees_all: bool,
    numbers: Cell<u64>,
}

/// An id that stood in a set-up.
struct Known {
    id: String,
    /// The place of the server that it was given to; none if somebody else brought it.
    place: Option<usize>,
}

/// A connection that an agent has made.
struct Connection {
    id: String,
    /// That of its server.
    place: usize,
    /// The least that lines for its log have to matter.
    least: Severity,
    /// URIs of resources whose changes it wants to hear of.
    subscribed: BTreeSet<String>,
}

/// As much of an entry of `mcpServers` as has to be known.
#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    name: String,
    #[serde(default)]
    id: Value,
    #[serde(default, rename = "serverId")]
    server_id: Value,
    #[serde(default, rename = "acpId")]
    acp_id: Value,
}

impl Serving {
    pub(crate) fn new(servers: Vec<Rc<Server>>, sees_all: bool) -> Rc<Self> {
        let serving = Rc::new(Self {
            servers,
            connections: RefCell::default(),
            ids: RefCell::default(),
            sees_all,
            numbers: Cell::default(),
        });
        for (place, server) in serving.servers.iter().enumerate() {
            *server.shared.serving.borrow_mut() = Rc::downgrade(&serving);
            server.shared.place.set(place);
        }
        serving
    }

    /// Does what a request wants of the servers: adds them to a session's set-up, or answers. Gives it back if something is left to be
    /// done with it.
    pub(crate) fn request(self: &Rc<Self>, request: Request) -> Result<Work, Request> {
        match (request.source(), request.method()) {
            (Peer::Client, method) if SET_UPS.contains(&method) => match self.declare(request.params()) {
                Ok(()) => Err(request),
                Err(error) => {
                    crate::warn!("the MCP servers are not in this session: {error}");
                    Err(request)
                }
            },
            (Peer::Agent, "mcp/connect" | "mcp/message" | "mcp/disconnect") => {
                let Some(place) = self.asked(request.params()) else {
                    return Err(request);
                };
                let serving = self.clone();
                Ok(Box::pin(async move { serving.answer(place, request).await }))
            }
            _ => Err(request),
        }
    }

    /// Takes a notification for one of the servers. Gives it back if it is for somebody else.
    pub(crate) fn notification(&self, notification: Notification) -> Result<Work, Notification> {
        let ours = notification.source() == Peer::Agent
            && matches!(notification.method(), "mcp/message" | "mcp/disconnect")
            && self.asked(notification.params()).is_some();
        if !ours {
            return Err(notification);
        }
        if notification.method() == "mcp/disconnect" {
            self.disconnect(notification.params());
        }
        // Servers here need not be told of anything: who gives a request up cancels it.
        Ok(Box::pin(async { notification.discard() }))
    }

    /// Adds the servers to a set-up.
    fn declare(&self, params: &Json) -> Result<(), crate::json::JsonError> {
        let entries: Vec<Entry> = match params.size("/mcpServers") {
            None => {
                params.add("/mcpServers", crate::json::Raw("[]"))?;
                Vec::new()
            }
            Some(_) => params.decode_at("/mcpServers")?,
        };
        let mut names: Vec<String> = Vec::new();
        let mut ids: Vec<String> = Vec::new();
        for entry in entries {
            names.push(entry.name);
            for id in [entry.id, entry.server_id, entry.acp_id] {
                let Value::String(id) = id else { continue };
                if self.named(&id).is_some() {
                    self.learn(&id, None);
                }
                ids.push(id);
            }
        }
        for (place, server) in self.servers.iter().enumerate() {
            let (mut name, mut id) = (server.name.clone(), server_id(server));
            let mut number = 1;
            // Agents tell servers apart by their names, and whoever passes calls on by their ids.
            while names.contains(&name) || ids.iter().any(|other| base(other) == id) {
                number += 1;
                name = format!("{}-{number}", server.name);
                id = format!("{}-{number}", server_id(server));
            }
            if server.each_session {
                id = format!("{id}@{}", self.fresh());
            }
            self.learn(&id, Some(place));
            ids.push(id.clone());
            let entry = json!({"type": "acp", "name": name, "id": id, "serverId": id});
            params.add("/mcpServers/-", Json::encode(&entry)?)?;
            names.push(name);
        }
        Ok(())
    }

    /// The place of the server that params name, by its own id or by a connection to it.
    fn asked(&self, params: &Json) -> Option<usize> {
        let named = SERVER_KEYS.iter().find_map(|key| params.string(key));
        let asked = params.string("/connectionId").or(named)?;
        let id = asked.split('#').next()?;
        let known = self
            .ids
            .borrow()
            .iter()
            .find(|known| known.id == id)
            .map(|known| known.place);
        match known {
            Some(place) => place,
            // An instance before this one may have given it.
            None if !self.sees_all => self.named(id),
            None => None,
        }
    }

    /// The place of the server that gives ids of this kind.
    fn named(&self, id: &str) -> Option<usize> {
        let base = base(id);
        let of = |base: &str| self.servers.iter().position(|server| server_id(server) == base);
        let numbered = || {
            let (before, number) = base.rsplit_once('-')?;
            number.parse::<u32>().is_ok().then(|| of(before)).flatten()
        };
        (id.len() <= MAX_ID).then(|| of(base).or_else(numbered)).flatten()
    }

    /// Remembers whose an id is, as the last set-up has it.
    fn learn(&self, id: &str, place: Option<usize>) {
        let mut ids = self.ids.borrow_mut();
        ids.retain(|known| known.id != id);
        if ids.len() >= MAX_IDS {
            ids.pop_front();
        }
        let id = id.to_owned();
        ids.push_back(Known { id, place });
    }

    async fn answer(&self, place: usize, request: Request) -> Outcome {
        let Some(server) = self.servers.get(place) else {
            return request.forward();
        };
        match request.method() {
            "mcp/connect" => {
                let named = SERVER_KEYS.iter().find_map(|key| request.params().string(key));
                let id = named.as_deref().and_then(|named| named.split('#').next());
                let connection = format!("{}#{}", id.unwrap_or_default(), self.fresh());
                self.with_connection(&connection, place, |_| ());
                request.reply(Json::encode(&json!({"connectionId": connection}))?)
            }
            "mcp/disconnect" => {
                self.disconnect(request.params());
                request.reply(Json::encode(&json!({}))?)
            }
            _ => {
                let params = request.params();
                let method = params.string("/method").unwrap_or_default();
                let inner = match params.get("/params") {
                    Some(inner) => inner,
                    None => Json::encode(&json!({}))?,
                };
                let connection = params.string("/connectionId");
                let stateless = connection.is_none();
                if let Some(connection) = &connection
                    && self.keep(server, place, connection, &method, &inner)?
                {
                    drop(inner);
                    return request.reply(Json::encode(&json!({}))?);
                }
                let least = match &connection {
                    Some(connection) => Some(self.least(connection)),
                    None => protocol::log_level(&inner).and_then(|level| caller::severity(&level)),
                };
                let text = |pointer| params.string(pointer).unwrap_or_default();
                let caller = Caller {
                    session: params.string(SESSION).or_else(|| params.string("/sessionId")),
                    way: match connection {
                        Some(connection) => Way::Connection(connection),
                        None => Way::Request {
                            server: text("/serverId"),
                            request: text("/requestId"),
                        },
                    },
                    progress: inner.decode_at("/_meta/progressToken").ok(),
                    least,
                };
                let outcome = protocol::answer(server, &method, &inner, caller).await;
                drop(inner);
                match (outcome, stateless) {
                    (Ok(result), false) => request.reply(Json::encode(&result)?),
                    (Err(error), false) => Err(error),
                    (Ok(result), true) => request.reply(Json::encode(&json!({"result": result}))?),
                    (Err(error), true) => request.reply(wrapped(error)?),
                }
            }
        }
    }

    fn disconnect(&self, params: &Json) {
        let connection = params.string("/connectionId");
        self.connections
            .borrow_mut()
            .retain(|one| Some(&one.id) != connection.as_ref());
    }

    /// Keeps what the agent wants from now on, over a connection: lines for its log, or news of a resource. Says whether it was about that.
    fn keep(&self, server: &Server, place: usize, id: &str, method: &str, params: &Json) -> Result<bool, RpcError> {
        match method {
            "logging/setLevel" => {
                let level = params.string("/level").unwrap_or_default();
                let Some(least) = caller::severity(&level) else {
                    return Err(RpcError::invalid_params(format!("MCP has no level `{level}`")));
                };
                self.with_connection(id, place, |connection| connection.least = least);
            }
            "resources/subscribe" | "resources/unsubscribe" if server.has_resources() => {
                let uri = params.string("/uri").filter(|uri| uri.len() <= MAX_URI);
                let uri = uri.ok_or_else(|| RpcError::invalid_params("there is no `uri`, or it is too long"))?;
                self.with_connection(id, place, |Connection { subscribed, .. }| {
                    if method == "resources/unsubscribe" {
                        subscribed.remove(&uri);
                    } else if subscribed.len() >= MAX_SUBSCRIBED && !subscribed.contains(&uri) {
                        let reason = format!("no more than {MAX_SUBSCRIBED} resources can be subscribed to");
                        return Err(RpcError::invalid_params(reason));
                    } else {
                        subscribed.insert(uri);
                    }
                    Ok(())
                })?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Works on what is known of a connection. One that an instance before this one has made is new.
    fn with_connection<R>(&self, id: &str, place: usize, work: impl FnOnce(&mut Connection) -> R) -> R {
        let mut connections = self.connections.borrow_mut();
        if let Some(connection) = connections.iter_mut().find(|one| one.id == id) {
            return work(connection);
        }
        let mut connection = Connection {
            id: id.to_owned(),
            place,
            least: 0,
            subscribed: BTreeSet::new(),
        };
        let result = work(&mut connection);
        if connections.len() >= MAX_CONNECTIONS {
            connections.pop_front();
        }
        connections.push_back(connection);
        result
    }

    /// What lines for the log have to matter there. Whoever has never said so gets all.
    fn least(&self, connection: &str) -> Severity {
        let connections = self.connections.borrow();
        let known = connections.iter().find(|one| one.id == connection);
        known.map_or(0, |connection| connection.least)
    }

    /// Tells everybody who is connected to a server of a change.
    pub(super) fn changed(&self, place: usize, method: &str) {
        self.tell(method, &json!({}), |one| one.place == place);
    }

    /// Tells those who have subscribed to a resource that it is another one now.
    pub(super) fn updated(&self, place: usize, uri: &str) {
        self.tell("notifications/resources/updated", &json!({"uri": uri}), |one| {
            one.place == place && one.subscribed.contains(uri)
        });
    }

    fn tell(&self, method: &str, params: &Value, wanted: impl Fn(&Connection) -> bool) {
        let connections = self.connections.borrow();
        for connection in connections.iter().filter(|one| wanted(one)) {
            if let Err(error) = caller::tell(&Way::Connection(connection.id.clone()), method, params) {
                crate::debug!("{method} was not sent: {error}");
            }
        }
    }

    /// A name that no instance has given before.
    fn fresh(&self) -> String {
        let mut hasher = RandomState::new().build_hasher();
        self.numbers.set(self.numbers.get() + 1);
        hasher.write_u64(self.numbers.get());
        format!("{:016x}", hasher.finish())
    }
}

/// The same for every instance of the proxy.
fn server_id(server: &Server) -> String {
    format!("consort:{}", server.name.replace(['@', '#'], "_"))
}

/// An id without what makes it one of a single session.
fn base(id: &str) -> &str {
    id.split('@').next().unwrap_or(id)
}

/// An error of MCP inside of an answer of ACP.
fn wrapped(error: RpcError) -> Result<Json, RpcError> {
    let data = error.data();
    let wrapped = Json::encode(&json!({"error": {"code": error.code(), "message": error.message()}}))?;
    if let Some(data) = data {
        wrapped.add("/error/data", &data)?;
    }
    Ok(wrapped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_were_never_given_are_given() {
        let serving = Serving::new(Vec::new(), false);
        assert_ne!(serving.fresh(), serving.fresh());
    }
}
