//! MCP servers over ACP at the agent's end of the chain: an agent that does not speak that gets others in their place, and what those say
//! comes in as if the agent had said it. Must not know how the agent reaches them.

use super::conductor::Role;
use super::parcel::{CallId, Edge};
use super::router::Router;
use crate::bridge::{AcpServer, Bridge, Transport};
use crate::grants::is_setup;
use crate::message::Outcome;
use crate::wire::edit::{self, Edit};
use crate::wire::envelope::Id;
use crate::wire::scan;
use crate::wire::text::Text;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashMap;

/// Bytes of a set-up's servers that are looked into: as much as the grants look at.
const MAX_SERVERS: usize = 4 * 1024 * 1024;

/// Where the answer to `initialize` says what MCP servers the agent can reach.
const CAPABILITIES: &str = "/agentCapabilities/mcpCapabilities";

/// The bridge, and what it is needed for.
#[derive(Default)]
pub(super) struct Bridged {
    bridge: Option<Bridge>,
    /// The agent reaches servers over ACP itself.
    agent_speaks_acp: bool,
    /// The agent has said that it reaches servers over HTTP.
    agent_speaks_http: bool,
    /// Sessions that are being closed, by the calls that do so.
    closing: HashMap<CallId, String>,
}

impl Router {
    /// The same with a bridge for agents that do not speak MCP over ACP.
    pub fn bridged_by(mut self, bridge: Bridge) -> Self {
        // A proxy leaves that to the conductor above, which knows the agent.
        if self.role == Role::Agent {
            self.bridged.bridge = Some(bridge);
        }
        self
    }

    fn bridge(&mut self) -> Option<&mut Bridge> {
        self.bridged.bridge.as_mut()
    }

    /// The agent has answered `initialize`: proxies, and the client in front of them, hear that MCP over ACP works.
    pub(super) fn learn_capabilities(&mut self, outcome: Outcome) -> Outcome {
        let result = outcome?;
        let says = |name: &str| {
            let range = scan::find(&result, &format!("{CAPABILITIES}/{name}"));
            range.is_some_and(|range| result.slice(range).decode() == Some(true))
        };
        (self.bridged.agent_speaks_acp, self.bridged.agent_speaks_http) = (says("acp"), says("http"));
        if self.bridged.bridge.is_none() || self.proxies.is_empty() || self.bridged.agent_speaks_acp {
            return Ok(result);
        }
        let mut edits = Vec::new();
        let mut place = String::new();
        for name in ["agentCapabilities", "mcpCapabilities"] {
            place = format!("{place}/{name}");
            let there = scan::find(&result, &place).is_some_and(|range| scan::is_object(&result.slice(range)));
            if !there {
                edits.push(Edit::Add(place.clone(), Text::of(&serde_json::json!({}))));
            }
        }
        edits.push(Edit::Add(format!("{CAPABILITIES}/acp"), Text::of(&true)));
        Ok(edit::apply(&result, &edits).unwrap_or(result))
    }

    /// A session's set-up leaves for the agent: servers over ACP become others, and what else stands there stays as it is.
    pub(super) fn bridge_servers(&mut self, call: CallId, method: &str, params: Option<Text>) -> Option<Text> {
        let params = params?;
        if !is_setup(method) || self.bridged.agent_speaks_acp || self.bridged.bridge.is_none() {
            return Some(params);
        }
        let servers = scan::find(&params, "/mcpServers").map(|range| params.slice(range));
        let Some(servers) = servers.filter(|servers| servers.len() <= MAX_SERVERS) else {
            return Some(params);
        };
        let entries: Vec<Box<RawValue>> = servers.decode().unwrap_or_default();
        let session = match method {
            // The session that is forked has servers of its own.
            "session/fork" => None,
            _ => scan::string_member(&params, "sessionId").map(|session| session.into_owned()),
        };
        let mut edits = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            let Some(server) = acp_server(entry) else { continue };
            let transport = match self.bridged.agent_speaks_http {
                true => Transport::Http,
                false => Transport::Stdio,
            };
            let Some(bridge) = self.bridge() else { continue };
            let served = bridge.serve(&server, transport, call, session.as_deref());
            let place = format!("/mcpServers/{at}");
            match served {
                Ok(entry) => edits.push(Edit::Replace(place, Text::of(&entry))),
                Err(reason) => {
                    let name = crate::log::named(&server.name);
                    tracing::error!("the agent does without the MCP server `{name}`: {reason}");
                    edits.push(Edit::Remove(place));
                }
            }
        }
        // From behind, so that places stay what they are.
        edits.reverse();
        Some(edit::apply(&params, &edits).unwrap_or(params))
    }

    /// The agent has answered a request that has to do with a session's servers.
    pub(super) fn bridge_answered(&mut self, call: CallId, method: &str, outcome: &Outcome) {
        if self.bridged.bridge.is_none() {
            return;
        }
        if is_setup(method) {
            let named = outcome
                .as_ref()
                .ok()
                .map(|result| scan::string_member(result, "sessionId").map(|id| id.into_owned()));
            if let Some(bridge) = self.bridge() {
                match named {
                    Some(Some(session)) => bridge.set_up(call, Some(&session)),
                    // It has the name that it was asked for.
                    Some(None) => {}
                    None => bridge.set_up(call, None),
                }
            }
        } else if let Some(session) = self.bridged.closing.remove(&call)
            && outcome.is_ok()
            && let Some(bridge) = self.bridge()
        {
            bridge.session_ended(&session);
        }
    }

    /// A request leaves for the agent.
    pub(super) fn bridge_sees(&mut self, call: CallId, method: &str, params: Option<&Text>) {
        if self.bridged.bridge.is_some()
            && matches!(method, "session/close" | "session/delete")
            && let Some(session) = params.and_then(|params| scan::string_member(params, "sessionId"))
        {
            let session = session.into_owned();
            self.bridged.closing.insert(call, session);
        }
    }

    /// Takes what is for somebody who uses the bridge, and not for the agent itself.
    pub(super) fn bridge_takes_call(
        &mut self,
        edge: Edge,
        id: Option<&str>,
        method: &str,
        params: Option<&Text>,
    ) -> bool {
        let Some(bridge) = self
            .bridge()
            .filter(|bridge| edge == Edge::Agent && bridge.takes(method, params))
        else {
            return false;
        };
        bridge.say(id, method, params);
        true
    }

    /// The same for an answer.
    pub(super) fn bridge_takes_response(&mut self, edge: Edge, id: &Id, outcome: &Outcome) -> bool {
        let Some(bridge) = self.bridge().filter(|bridge| edge == Edge::Agent && bridge.owns(id)) else {
            return false;
        };
        bridge.answer(id, outcome);
        true
    }

    /// A request at the agent is given up; it may be with somebody who uses the bridge.
    pub(super) fn bridge_gives_up(&mut self, call: CallId) {
        if let Some(bridge) = self.bridge() {
            bridge.give_up(call);
        }
    }

    /// The agent is gone.
    pub(super) fn bridge_is_left(&mut self) {
        self.bridged.closing.clear();
        if let Some(bridge) = self.bridge() {
            bridge.agent_ended();
        }
    }
}

/// The server that an entry names, if it is one over ACP.
fn acp_server(entry: &RawValue) -> Option<AcpServer> {
    let entry: Value = serde_json::from_str(entry.get()).ok()?;
    let text = |name: &str| entry.get(name)?.as_str().map(str::to_owned);
    if text("type")? != "acp" {
        return None;
    }
    Some(AcpServer {
        name: text("name")?,
        id: text("serverId").or_else(|| text("id")).or_else(|| text("acpId"))?,
    })
}
