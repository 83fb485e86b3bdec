//! The MCP servers that a proxy serves itself, and the connections to them: what is said over others is none of its business.

use crate::wire::scan;
use crate::wire::text::Text;
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Servers and connections that are remembered. More are not a proxy's own.
const MAX_KNOWN: usize = 10_000;

/// Bytes of the name of one.
const MAX_NAME: usize = 256;

/// The members of params that name MCP servers and connections to them.
pub(super) const KEYS: [&str; 3] = ["connectionId", "serverId", "acpId"];

/// The members of an entry of `mcpServers` that are ids.
pub(super) const IDS: [&str; 3] = ["id", "serverId", "acpId"];

/// Bytes of a session's set-up that is looked into; decoded it takes many times that.
pub(super) const MAX_SET_UP: usize = 4 * 1024 * 1024;

/// What a proxy serves.
#[derive(Debug, Default)]
pub struct OwnServers(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    servers: HashSet<String>,
    connections: HashSet<String>,
}

/// Remembers a name; says whether that was possible.
fn remember(names: &mut HashSet<String>, name: &str) -> bool {
    if name.len() > MAX_NAME || (names.len() >= MAX_KNOWN && !names.contains(name)) {
        return false;
    }
    names.insert(name.to_owned());
    true
}

impl OwnServers {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A server is the proxy's own from now on; says whether that could be remembered.
    pub(crate) fn add(&self, name: &str) -> bool {
        remember(&mut self.known().servers, name)
    }

    /// Somebody else brings a server of this name: it is not the proxy's any more.
    pub(crate) fn remove(&self, name: &str) {
        let mut known = self.known();
        known.servers.remove(name);
        known.connections.remove(name);
    }

    /// A connection is over.
    pub(crate) fn disconnected(&self, connection: &str) {
        self.known().connections.remove(connection);
    }

    /// All connections are over.
    pub(crate) fn all_disconnected(&self) {
        self.known().connections.clear();
    }

    /// The proxy has answered who wants to speak to a server of its: what is said over this connection concerns it.
    pub(crate) fn connected(&self, result: &Text) {
        if let Some(connection) = scan::string_member(result, "connectionId") {
            remember(&mut self.known().connections, &connection);
        }
    }

    /// Whether the server or the connection that these params name is the proxy's own.
    pub(crate) fn concern(&self, params: Option<&Text>) -> bool {
        let known = self.known();
        let named = |key: &str| {
            let params = params?;
            let place = scan::find(params, &format!("/{key}"))?;
            // What is no text is nobody's, though some readers would take it for one.
            let name: Option<String> = params.slice(place).decode();
            Some(name.is_some_and(|name| known.servers.contains(&name) || known.connections.contains(&name)))
        };
        // Whoever names several has to own all of them.
        let mut all = KEYS.into_iter().filter_map(named).peekable();
        all.peek().is_some() && all.all(|own| own)
    }
}

/// The ids of an entry of `mcpServers`.
pub(super) fn ids(entry: &Map<String, Value>) -> impl Iterator<Item = &str> {
    IDS.into_iter().filter_map(|key| entry.get(key)?.as_str())
}

/// The ids of all MCP servers that the set-up of a session names.
pub(crate) fn ids_of(set_up: &Text) -> Vec<String> {
    let servers = scan::find(set_up, "/mcpServers").map(|range| set_up.slice(range));
    let servers = servers.filter(|servers| servers.len() <= MAX_SET_UP);
    let entries: Vec<Value> = servers.and_then(|servers| servers.decode()).unwrap_or_default();
    let entries = entries.iter().filter_map(Value::as_object);
    entries.flat_map(ids).map(str::to_owned).collect()
}

/// Whether a method carries what MCP servers and their users say to each other.
pub(crate) fn is_mcp(method: &str) -> bool {
    method.starts_with("mcp/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_own_servers_and_connections_concern_a_proxy() {
        let own = OwnServers::default();
        assert!(own.add("s1"));
        own.connected(&Text::of(&json!({"connectionId": "c1"})));
        let concern = |params| own.concern(Some(&Text::of(&params)));
        assert!(concern(json!({"serverId": "s1"})) && concern(json!({"connectionId": "c1", "method": "x"})));
        for params in [
            json!({"serverId": "s2"}),
            json!({"connectionId": "c2"}),
            json!({"connectionId": "c2", "serverId": "s1"}),
            json!({}),
            json!({"connectionId": 7}),
            json!({"serverId": "s1", "connectionId": ["c2"]}),
        ] {
            assert!(!concern(params.clone()), "{params}");
        }
        assert!(!own.concern(None));
        assert!(!own.add(&"x".repeat(MAX_NAME + 1)));
    }
}
