//! The chains that a rule is tested in, and how the test guests are named in one.

use crate::guests::{guest, proxy};
use crate::session::begin;
use crate::{Agent, AgentListener, Client};
use serde_json::{Value, json};
use std::ffi::OsString;

/// Guests that ship with Consort; all others are test guests.
const SHIPPED: [&str; 8] = [
    "context",
    "passthrough",
    "permission",
    "redact",
    "skills",
    "subagent",
    "tool-filter",
    "tools",
];

/// A chain of proxies, client side first, each with its configuration.
#[derive(Clone, Debug)]
pub struct Chain {
    /// What is special about it, for when a test fails.
    pub name: &'static str,
    proxies: Vec<(&'static str, Value)>,
}

impl Chain {
    /// A chain of these proxies.
    pub fn new(name: &'static str, proxies: &[(&'static str, Value)]) -> Self {
        let proxies = proxies.to_vec();
        Self { name, proxies }
    }

    /// What an agent of version 1 says in its answer to `initialize`, as the client hears it: where there are proxies, MCP servers over ACP
    /// are reached whatever the agent says.
    pub fn bridged(&self, result: &Value) -> Value {
        let mut result = result.clone();
        if !self.proxies.is_empty() {
            result["agentCapabilities"]["mcpCapabilities"]["acp"] = json!(true);
        }
        result
    }

    /// The options of `consort run` for it.
    pub fn options(&self) -> Vec<OsString> {
        let mut options: Vec<OsString> = Vec::new();
        for (place, (name, config)) in self.proxies.iter().enumerate() {
            let file = if SHIPPED.contains(name) {
                proxy(name)
            } else {
                guest(name)
            };
            options.extend(["--proxy".into(), file.into()]);
            // Consort numbers proxies of the same file itself.
            let earlier = self.proxies[..place].iter().filter(|(other, _)| other == name).count();
            let own_name = match earlier {
                0 => (*name).to_owned(),
                _ => format!("{name}-{}", earlier + 1),
            };
            if *config != json!({}) {
                options.extend(["--proxy-config".into(), format!("{own_name}={config}").into()]);
            }
        }
        options
    }

    /// A client and an agent with this chain in between, before anything was said.
    pub fn fresh(&self) -> (Client, AgentListener) {
        let listener = AgentListener::new();
        let client = Client::in_front_of(&listener, &self.options());
        (client, listener)
    }

    /// A client and an agent with this chain in between, and a session.
    pub fn start(&self) -> (Client, Agent) {
        let (mut client, listener) = self.fresh();
        let agent = begin(&mut client, &listener);
        (client, agent)
    }
}

/// No proxy at all.
pub fn none() -> Chain {
    Chain::new("no proxy", &[])
}

/// Proxies that take everything and pass it on.
pub fn passing(count: usize) -> Chain {
    let name = if count == 1 {
        "a proxy that passes on"
    } else {
        "proxies that pass on"
    };
    Chain::new(name, &vec![("passthrough", json!({})); count])
}

/// A proxy that takes its time with these methods, from either side.
pub fn slow(milliseconds: u64, methods: &[&str]) -> Chain {
    let config = json!({"milliseconds": milliseconds, "methods": methods});
    Chain::new("a slow proxy", &[("slow", config)])
}

/// Proxies of every kind: one that waits with these methods, one that takes everything, one that looks on, one that nothing of
/// it concerns, and one that waits again.
pub fn mixed(milliseconds: u64, methods: &[&str]) -> Chain {
    let config = json!({"milliseconds": milliseconds, "methods": methods});
    let elsewhere = json!({"method": "nobody/calls_this"});
    Chain::new(
        "proxies of every kind",
        &[
            ("slow", config.clone()),
            ("passthrough", json!({})),
            ("observer", json!({})),
            ("rewriter", elsewhere),
            ("slow", config),
        ],
    )
}

/// The chains that every rule holds in: none, passing on, and with somebody who takes time with these methods.
pub fn every(milliseconds: u64, methods: &[&str]) -> Vec<Chain> {
    vec![
        none(),
        passing(1),
        slow(milliseconds, methods),
        mixed(milliseconds, methods),
    ]
}
