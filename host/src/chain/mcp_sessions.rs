//! Which session a call to an MCP server over ACP belongs to, for agents that reach such servers themselves: the protocol leaves it out,
//! and proxies want to know. Told only where it is certain.

use super::parcel::CallId;
use super::router::Router;
use crate::bridge::SESSION;
use crate::message::Outcome;
use crate::wire::edit::{self, Edit};
use crate::wire::scan;
use crate::wire::text::Text;
use serde_json::json;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Set-ups, connections and servers of the client that are remembered.
const MAX_KNOWN: usize = 10_000;

/// Connections that are being made.
const MAX_CONNECTING: usize = 1024;

/// What is known of servers, sessions and connections.
#[derive(Default)]
pub(super) struct McpSessions {
    /// Servers of the client: what is said to them passes as it is.
    of_client: HashSet<String>,
    set_ups: HashMap<CallId, SetUp>,
    /// There were more set-ups than are remembered, so any server may belong to others as well.
    forgotten: bool,
    connecting: VecDeque<(CallId, Origin)>,
    connections: HashMap<String, Origin>,
}

/// Servers that a session was set up with.
struct SetUp {
    servers: Vec<String>,
    /// None while it is not known yet.
    session: Option<Arc<str>>,
}

/// Where a call comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    /// A set-up that is not answered yet.
    SetUp(CallId),
    Session(Arc<str>),
}

impl McpSessions {
    /// The client brings servers.
    pub(super) fn brought_by_client(&mut self, servers: Vec<String>) {
        let room = MAX_KNOWN.saturating_sub(self.of_client.len());
        self.of_client.extend(servers.into_iter().take(room));
    }

    /// A set-up leaves for the agent; servers over ACP stand in it.
    pub(super) fn set_up(&mut self, call: CallId, servers: Vec<String>, session: Option<&str>) {
        let others = servers.into_iter().filter(|server| !self.of_client.contains(server));
        let servers: Vec<String> = others.collect();
        if servers.is_empty() {
            return;
        }
        if self.set_ups.len() >= MAX_KNOWN {
            self.forgotten = true;
            return;
        }
        let session = session.map(Arc::from);
        self.set_ups.insert(call, SetUp { servers, session });
    }

    /// It was answered: with an error, or with the session's name, or without one if that was known.
    pub(super) fn set_up_answered(&mut self, call: CallId, outcome: &Outcome) {
        let Some(set_up) = self.set_ups.get_mut(&call) else {
            return;
        };
        let Ok(result) = outcome else {
            self.set_ups.remove(&call);
            self.connections.retain(|_, origin| *origin != Origin::SetUp(call));
            self.connecting.retain(|(_, origin)| *origin != Origin::SetUp(call));
            return;
        };
        let named = scan::string_member(result, "sessionId").map(Arc::from);
        let Some(session) = named.or_else(|| set_up.session.take()) else {
            return;
        };
        set_up.session = Some(session.clone());
        // Whatever was set up for it before is in the past.
        self.set_ups
            .retain(|one, set_up| *one == call || set_up.session.as_ref() != Some(&session));
        let all = self.connections.values_mut();
        let all = all.chain(self.connecting.iter_mut().map(|(_, origin)| origin));
        for origin in all.filter(|origin| **origin == Origin::SetUp(call)) {
            *origin = Origin::Session(session.clone());
        }
    }

    pub(super) fn session_ended(&mut self, session: &str) {
        self.set_ups
            .retain(|_, set_up| set_up.session.as_deref() != Some(session));
        let is_of = |origin: &Origin| matches!(origin, Origin::Session(of) if &**of == session);
        self.connecting.retain(|(_, origin)| !is_of(origin));
        self.connections.retain(|_, origin| !is_of(origin));
    }

    pub(super) fn agent_ended(&mut self) {
        let of_client = std::mem::take(&mut self.of_client);
        *self = Self {
            of_client,
            ..Self::default()
        };
    }

    /// Where a call with these params comes from, if there is no doubt.
    fn origin(&self, params: &Text) -> Option<Origin> {
        let member = |name| scan::string_member(params, name);
        if let Some(connection) = member("connectionId") {
            return self.connections.get(&*connection).cloned();
        }
        let server = member("serverId").or_else(|| member("acpId"))?;
        let mut origins = self
            .set_ups
            .iter()
            .filter(|(_, set_up)| set_up.servers.iter().any(|one| *one == server))
            .map(|(call, set_up)| match &set_up.session {
                Some(session) => Origin::Session(session.clone()),
                None => Origin::SetUp(*call),
            });
        let first = origins.next()?;
        if let Some(session) = member("sessionId") {
            return Some(Origin::Session(session.into()));
        }
        let others = origins.any(|other| other != first);
        (!self.forgotten && !others).then_some(first)
    }

    /// The agent asks for a connection.
    fn connects(&mut self, call: CallId, origin: Origin) {
        if self.connecting.len() >= MAX_CONNECTING {
            self.connecting.pop_front();
        }
        self.connecting.push_back((call, origin));
    }

    /// It has got an answer to that.
    pub(super) fn connected(&mut self, call: CallId, outcome: &Outcome) {
        let Some(at) = self.connecting.iter().position(|(one, _)| *one == call) else {
            return;
        };
        let Some((_, origin)) = self.connecting.remove(at) else {
            return;
        };
        let connection = outcome
            .as_ref()
            .ok()
            .and_then(|result| scan::string_member(result, "connectionId"));
        if let Some(connection) = connection
            && self.connections.len() < MAX_KNOWN
        {
            self.connections.insert(connection.into_owned(), origin);
        }
    }

    /// A connection is over.
    pub(super) fn forget(&mut self, connection: &str) {
        self.connections.remove(connection);
    }
}

impl Router {
    /// The agent says something to an MCP server, in a request if there is a call: the same with the session that it belongs to.
    pub(super) fn told_session(&mut self, call: Option<CallId>, method: &str, params: Option<Text>) -> Option<Text> {
        let params = params?;
        let Some(origin) = self.mcp_sessions.origin(&params) else {
            return Some(params);
        };
        if let ("mcp/connect", Some(call)) = (method, call) {
            self.mcp_sessions.connects(call, origin.clone());
        }
        if method == "mcp/disconnect"
            && call.is_none()
            && let Some(connection) = scan::string_member(&params, "connectionId")
        {
            // No answer will tell.
            self.mcp_sessions.forget(&connection);
        }
        Some(match origin {
            Origin::Session(session) if scan::find(&params, "/sessionId").is_none() => with_session(params, &session),
            _ => params,
        })
    }
}

/// Params that say which session they belong to, unless they do already.
fn with_session(params: Text, session: &str) -> Text {
    let meta = scan::find(&params, "/_meta").map(|range| params.slice(range));
    let edit = match &meta {
        Some(meta) if scan::is_object(meta) => {
            let place = format!("/{}", SESSION.replace('/', "~1"));
            if scan::find(meta, &place).is_some() {
                return params;
            }
            Edit::Add(format!("/_meta{place}"), Text::of(&session))
        }
        Some(meta) if meta.decode() != Some(serde_json::Value::Null) => return params,
        _ => Edit::Add("/_meta".to_owned(), Text::of(&json!({SESSION: session}))),
    };
    edit::one(&params, &edit).unwrap_or(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(server: &str) -> Vec<String> {
        vec![server.to_owned()]
    }

    fn text(value: &serde_json::Value) -> Text {
        Text::of(value)
    }

    #[test]
    fn a_server_of_several_sessions_belongs_to_none_for_certain() {
        let mut known = McpSessions::default();
        let connect = text(&json!({"serverId": "s"}));
        known.set_up(1, names("s"), Some("one"));
        assert_eq!(known.origin(&connect), Some(Origin::Session("one".into())));
        known.set_up(2, names("s"), Some("two"));
        assert_eq!(known.origin(&connect), None);
        known.session_ended("two");
        assert_eq!(known.origin(&connect), Some(Origin::Session("one".into())));
    }

    #[test]
    fn where_set_ups_are_forgotten_nothing_is_certain() {
        let mut known = McpSessions::default();
        for call in 0..=MAX_KNOWN as u64 {
            known.set_up(call, names(&call.to_string()), Some("s"));
        }
        assert!(known.forgotten);
        assert_eq!(known.origin(&text(&json!({"serverId": "0"}))), None);
    }

    #[test]
    fn what_was_begun_for_a_session_ends_with_it() {
        let mut known = McpSessions::default();
        let connected = |id: &str| Ok(text(&json!({ "connectionId": id })));
        known.set_up(1, names("s"), None);
        known.connects(7, Origin::SetUp(1));
        known.set_up_answered(1, &Err(text(&json!({"code": 1}))));
        known.connected(7, &connected("c"));
        assert!(known.connections.is_empty(), "its set-up has failed");
        known.connects(8, Origin::Session("one".into()));
        known.connects(9, Origin::Session("one".into()));
        known.connected(8, &connected("c"));
        assert_eq!(known.connections.len(), 1);
        known.session_ended("one");
        known.connected(9, &connected("d"));
        assert!(known.connections.is_empty() && known.connecting.is_empty());
    }
}
