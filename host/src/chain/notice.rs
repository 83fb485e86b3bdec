//! Telling the user of a fault where he looks: as text of the agent in the session concerned. Only if he wants it, and once for
//! each incident: a proxy that fails again and again has one that begins with its first fault and ends with its rest.

use super::parcel::Edge;
use super::router::Router;
use crate::tap::{Hop, Kind, Place};
use crate::wire::text::Text;
use std::sync::Arc;

/// The most sessions that are told of one incident.
const MAX_SESSIONS: usize = 8;

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

    /// Tells the user something in these sessions.
    pub(super) fn notice(&mut self, sessions: &[Arc<str>], sentence: &str) {
        if self.answered_version != Some(VERSION) {
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
