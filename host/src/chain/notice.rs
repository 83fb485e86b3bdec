//! Telling the user of a fault where he looks: as text of the agent in the session concerned. Only if he wants it, and once for
//! each incident: a proxy that fails again and again has one that begins with its first fault and ends with its rest.

use super::parcel::Edge;
use super::router::Router;
use crate::fault::{Class, Fault};
use crate::tap::{Hop, Kind, Place};
use crate::wire::text::Text;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most sessions that are told of one incident.
const MAX_SESSIONS: usize = 8;

/// Faults of one proxy within this time are one incident.
const INCIDENT: Duration = Duration::from_secs(60);

/// What has happened, in Consort's own words.
fn happened(class: Class) -> &'static str {
    match class {
        Class::Load => "it does not fit",
        Class::Denied => "it lacks a grant",
        Class::Cpu => "it computed for too long",
        Class::Memory => "it used too much memory",
        Class::Flood => "it sent too much",
        Class::Trap => "it crashed",
        Class::Protocol => "it broke the rules",
        Class::Timeout => "it took too long",
        Class::Host => "this is a fault of Consort",
    }
}

/// The only version of ACP whose updates look like this.
const VERSION: u64 = 1;

impl Router {
    /// Whether faults are told in the sessions that they concern.
    pub fn set_notices(&mut self, on: bool) {
        self.notices = on;
    }

    /// The sessions of what a proxy has in its hands.
    pub(super) fn sessions_at(&self, index: usize) -> Vec<Arc<str>> {
        if !self.notices {
            return Vec::new();
        }
        let proxy = &self.proxies[index];
        let mut tickets: Vec<_> = proxy.tickets.keys().copied().collect();
        tickets.sort_unstable();
        let mut sessions: Vec<Arc<str>> = Vec::new();
        for session in tickets.into_iter().filter_map(|ticket| proxy.session_of(ticket)) {
            if sessions.len() < MAX_SESSIONS && !sessions.contains(&session) && self.sessions.knows(&session) {
                sessions.push(session);
            }
        }
        sessions
    }

    /// Tells of a fault that may begin an incident.
    pub(super) fn notice_incident(&mut self, index: usize, sessions: &[Arc<str>], fault: &Fault) {
        if !self.notices || sessions.is_empty() {
            return;
        }
        let now = Instant::now();
        let proxy = &mut self.proxies[index];
        if proxy
            .noticed
            .is_some_and(|at| now.saturating_duration_since(at) < INCIDENT)
        {
            return;
        }
        proxy.noticed = Some(now);
        // What the proxy itself said of it has no place here: it would be read as Consort's own words.
        let told = Fault::new(fault.class, fault.phase, happened(fault.class));
        let sentence = format!("{}. The log and the audit file tell more.", told.sentence(&proxy.name));
        self.notice(sessions, &sentence);
    }

    /// Tells the user something in these sessions.
    pub(super) fn notice(&mut self, sessions: &[Arc<str>], sentence: &str) {
        if !self.notices || self.answered_version != Some(VERSION) {
            return;
        }
        for session in sessions {
            let params = Text::of(&serde_json::json!({
                "sessionId": &**session,
                "update": {
                    "sessionUpdate": "agent_message_chunk",
                    "content": {"type": "text", "text": format!("\n\n> **Consort:** {sentence}\n\n")},
                },
            }));
            if let Some(tap) = &self.tap {
                tap.hop(&Hop {
                    from: Place::Host,
                    to: Place::Client,
                    kind: Kind::Notification,
                    method: "session/update",
                    id: None,
                    text: Some(&params),
                });
            }
            self.write_call(Edge::Client, None, "session/update", Some(&params));
        }
    }
}
