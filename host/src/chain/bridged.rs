//! MCP servers over ACP at the agent's end of the chain: an agent that does not speak that gets others in their place, and what those say
//! comes in as if the agent had said it. Must not know how the agent reaches them.

use super::conductor::Role;
use super::parcel::{CallId, Edge};
use super::router::Router;
use crate::bridge::{AcpServer, Bridge, Transport};
use crate::grants::{is_mcp, is_setup};
use crate::message::Outcome;
use crate::wire::edit::{self, Edit};
use crate::wire::envelope::Id;
use crate::wire::scan;
use crate::wire::text::Text;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{HashMap, HashSet};

/// Bytes of a set-up's servers that are looked into: as much as the grants look at.
const MAX_SERVERS: usize = 4 * 1024 * 1024;

/// Where the answer to `initialize` says what MCP servers the agent can reach.
const CAPABILITIES: &str = "/agentCapabilities/mcpCapabilities";

/// The same in the draft of version 2.
const DRAFT_CAPABILITIES: &str = "/capabilities/session/mcp";

/// The bridge, and what it is needed for.
#[derive(Default)]
pub(super) struct Bridged {
    bridge: Option<Bridge>,
    reached: Reached,
    /// Sessions that are being closed, by the calls that do so.
    closing: HashMap<CallId, String>,
    /// Requests that somebody has got who uses the bridge.
    taken: HashSet<CallId>,
}

/// The MCP servers that the agent reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reached {
    /// Those over ACP, or nobody can tell: they pass as they are.
    #[default]
    AsTheyAre,
    /// Those over HTTP.
    Http,
    /// Those that it starts.
    Started,
}

impl Reached {
    /// What the answer to `initialize` says.
    fn by(result: &Text, is_draft: bool) -> Self {
        let says = |name: &str| {
            let (place, is_yes): (_, fn(&Text) -> bool) = match is_draft {
                true => (DRAFT_CAPABILITIES, scan::is_object),
                false => (CAPABILITIES, |value| value.decode() == Some(true)),
            };
            scan::find(result, &format!("{place}/{name}")).is_some_and(|range| is_yes(&result.slice(range)))
        };
        match (says("acp"), says("http")) {
            (true, _) => Self::AsTheyAre,
            (_, true) => Self::Http,
            // Every agent of version 1 starts servers; later ones say so.
            _ if is_draft && !says("stdio") => Self::AsTheyAre,
            _ => Self::Started,
        }
    }
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

    /// Whether the agent speaks a version of ACP that is a draft.
    fn is_draft(&self) -> bool {
        self.answered_version.is_some_and(|version| version > 1)
    }

    fn bridge(&mut self) -> Option<&mut Bridge> {
        self.bridged.bridge.as_mut()
    }

    /// The agent has answered `initialize`: proxies, and the client in front of them, hear that MCP over ACP works.
    pub(super) fn learn_capabilities(&mut self, outcome: Outcome) -> Outcome {
        let result = outcome?;
        self.bridged.reached = Reached::by(&result, self.is_draft());
        // What a draft says elsewhere may change, so its answers pass untouched.
        let is_told = self.bridged.reached != Reached::AsTheyAre && !self.is_draft() && !self.proxies.is_empty();
        if self.bridged.bridge.is_none() || !is_told {
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
        let servers = scan::find(&params, "/mcpServers").map(|range| params.slice(range));
        let Some(servers) = servers.filter(|servers| servers.len() <= MAX_SERVERS) else {
            return Some(params);
        };
        let entries: Vec<Box<RawValue>> = servers.decode().unwrap_or_default();
        let named: Vec<(usize, AcpServer)> = entries
            .iter()
            .enumerate()
            .filter_map(|(at, entry)| Some((at, acp_server(entry)?)))
            .collect();
        // Without an agent nobody would use them.
        if named.is_empty() || self.ends[Edge::Agent.index()].gone.is_some() {
            return Some(params);
        }
        let session = match method {
            // The session that is forked has servers of its own.
            "session/fork" => None,
            _ => scan::string_member(&params, "sessionId").map(|session| session.into_owned()),
        };
        let transport = match self.bridged.reached {
            Reached::Http if self.bridged.bridge.is_some() => Transport::Http,
            Reached::Started if self.bridged.bridge.is_some() => Transport::Stdio,
            _ => {
                let ids = named.into_iter().map(|(_, server)| server.id).collect();
                self.mcp_sessions.set_up(call, ids, session.as_deref());
                return Some(params);
            }
        };
        let is_draft = self.is_draft();
        let mut edits = Vec::new();
        for (at, server) in named {
            let Some(bridge) = self.bridge() else { continue };
            let served = bridge.serve(&server, transport, call, session.as_deref());
            let place = format!("/mcpServers/{at}");
            match served {
                Ok(mut entry) => {
                    if is_draft && transport == Transport::Stdio {
                        entry["type"] = "stdio".into();
                    }
                    edits.push(Edit::Replace(place, Text::of(&entry)));
                }
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
        if !self.bridged.taken.is_empty() {
            self.bridged.taken.remove(&call);
        }
        if is_setup(method) {
            self.mcp_sessions.set_up_answered(call, outcome);
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
        } else if !self.bridged.closing.is_empty()
            && let Some(session) = self.bridged.closing.remove(&call)
            && outcome.is_ok()
        {
            // An agent that speaks MCP over ACP ends its connections itself.
            self.mcp_sessions.session_ended(&session);
            if let Some(bridge) = self.bridge() {
                bridge.session_ended(&session);
            }
        }
    }

    /// A request leaves for the agent.
    pub(super) fn bridge_sees(&mut self, call: CallId, method: &str, params: Option<&Text>) {
        if matches!(method, "session/close" | "session/delete")
            && let Some(session) = params.and_then(|params| scan::string_member(params, "sessionId"))
        {
            let session = session.into_owned();
            self.bridged.closing.insert(call, session);
        }
    }

    /// Takes what is for somebody who uses the bridge, and not for the agent itself: that does not know what to do with such messages,
    /// whether or not the connection that they belong to is there.
    pub(super) fn bridge_takes_call(
        &mut self,
        edge: Edge,
        id: Option<&str>,
        method: &str,
        params: Option<&Text>,
    ) -> bool {
        if edge != Edge::Agent || !is_mcp(method) || self.bridged.reached == Reached::AsTheyAre {
            return false;
        }
        let Bridged {
            bridge: Some(bridge),
            taken,
            ..
        } = &mut self.bridged
        else {
            return false;
        };
        taken.extend(id.and_then(|id| id.parse::<CallId>().ok()));
        bridge.say(id, method, params);
        true
    }

    /// Whether this id is that of a request of somebody who uses the bridge.
    pub(super) fn is_bridged(&self, edge: Edge, id: &Id) -> bool {
        edge == Edge::Agent && self.bridged.bridge.as_ref().is_some_and(|bridge| bridge.owns(id))
    }

    /// The same for an answer.
    pub(super) fn bridge_takes_response(&mut self, edge: Edge, id: &Id, outcome: &Outcome) -> bool {
        let is_bridged = self.is_bridged(edge, id);
        if let Some(bridge) = self.bridge().filter(|_| is_bridged) {
            bridge.answer(id, outcome);
        }
        is_bridged
    }

    /// A request at the agent is given up; says whether it is with somebody who uses the bridge, and not with the agent itself.
    pub(super) fn bridge_gives_up(&mut self, call: CallId) -> bool {
        let is_taken = self.bridged.taken.contains(&call);
        if let Some(bridge) = self.bridge().filter(|_| is_taken) {
            bridge.give_up(call);
        }
        is_taken
    }

    /// Nothing more is bridged: the connection is over.
    pub fn leave_bridge(&mut self) {
        self.bridge_is_left();
        self.bridged.bridge = None;
    }

    /// The agent is gone.
    pub(super) fn bridge_is_left(&mut self) {
        self.bridged.closing.clear();
        self.bridged.taken.clear();
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
