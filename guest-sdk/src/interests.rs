//! What a proxy wants to see. Owns the patterns; the runtime asks it whether a delivered message is owned or a copy.

#[cfg(feature = "mcp")]
use std::rc::Rc;

use crate::peer::Peer;
#[cfg(target_family = "wasm")]
use crate::raw;

/// Methods that set up a session.
pub(crate) const SET_UPS: [&str; 4] = ["session/new", "session/load", "session/resume", "session/fork"];

/// Which messages a proxy wants, as `start` returns it.
///
/// A method is an exact name, `prefix/*` for all methods that begin with `prefix/`, or `*` for all. A pattern with a `*` never
/// means `initialize`, which every proxy gets, or methods that begin with `$/`. What no interest matches goes past the proxy
/// at no cost. Responses need no interest: whoever asked gets them.
///
/// ```
/// use consort_proxy::{Interests, Peer::{Agent, Client}};
///
/// let interests = Interests::new().intercept(Client, "session/prompt").observe(Agent, "*");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Interests {
    all: Vec<Interest>,
    protocol_version: Option<u16>,
    #[cfg(feature = "mcp")]
    servers: Vec<Rc<crate::mcp::Server>>,
}

/// One interest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Where the messages come from: the client or the agent.
    pub source: Peer,
    /// A method or a pattern.
    pub method: String,
    /// Owned, or just seen.
    pub how: How,
}

/// What a proxy wants to do with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Get a copy, of a request also of its response, without delaying or changing anything.
    Observe,
    /// Own the message. Wins where both match.
    Intercept,
}

impl Interests {
    /// No interest in anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also owns messages of this method that come from `source`.
    #[must_use]
    pub fn intercept(self, source: Peer, method: impl Into<String>) -> Self {
        self.and(source, method, How::Intercept)
    }

    /// Also gets copies of messages of this method that come from `source`.
    #[must_use]
    pub fn observe(self, source: Peer, method: impl Into<String>) -> Self {
        self.and(source, method, How::Observe)
    }

    /// Also notices when sessions end (observes `session/close` and `session/delete` from the client), so that
    /// [`crate::Sessions`] forget them.
    #[must_use]
    pub fn session_ends(self) -> Self {
        self.observe(Peer::Client, "session/close")
            .observe(Peer::Client, "session/delete")
    }

    /// Also takes part in the set-up of sessions: intercepts `session/new`, `session/load`, `session/resume` and `session/fork` from the
    /// client.
    #[must_use]
    pub fn set_ups(self) -> Self {
        SET_UPS
            .into_iter()
            .fold(self, |interests, method| interests.intercept(Peer::Client, method))
    }

    /// Also says which version of ACP (`protocolVersion`) is the latest that the proxy understands; without this it is 1. As long as
    /// a proxy intercepts anything, no later version is spoken through it.
    #[must_use]
    pub fn protocol_version(self, latest: u16) -> Self {
        Self {
            protocol_version: Some(latest),
            ..self
        }
    }

    /// Also serves this MCP server in every session: it is added to the set-up of sessions, and answers who asks it.
    #[cfg(feature = "mcp")]
    #[must_use]
    pub fn serve(mut self, server: crate::mcp::Server) -> Self {
        self.servers.push(Rc::new(server));
        self
    }

    /// The MCP servers that are to be served.
    #[cfg(feature = "mcp")]
    pub(crate) fn servers(&self) -> &[Rc<crate::mcp::Server>] {
        &self.servers
    }

    /// What the host has to know: the interests of the proxy, and those of its servers.
    #[cfg(target_family = "wasm")]
    fn all(&self) -> Vec<Interest> {
        #[cfg_attr(not(feature = "mcp"), allow(unused_mut, reason = "only servers add anything"))]
        let mut all = self.all.clone();
        #[cfg(feature = "mcp")]
        if !self.servers.is_empty() {
            let set_ups = SET_UPS.map(|method| (Peer::Client, method));
            let served = set_ups.into_iter().chain([(Peer::Agent, crate::mcp::MESSAGES)]);
            all.extend(served.map(|(source, method)| Interest {
                source,
                method: method.to_owned(),
                how: How::Intercept,
            }));
        }
        all
    }

    fn and(mut self, source: Peer, method: impl Into<String>, how: How) -> Self {
        self.all.push(Interest {
            source,
            method: method.into(),
            how,
        });
        self
    }

    /// The latest version of ACP that the proxy understands, if it says so.
    pub fn latest_version(&self) -> Option<u16> {
        self.protocol_version
    }

    /// The interests, in the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = &Interest> {
        self.all.iter()
    }

    /// What these interests mean for a message: nothing, a copy, or owning it.
    pub fn matching(&self, source: Peer, method: &str) -> Option<How> {
        match self.is_served(source, method) {
            true => Some(How::Intercept),
            false => self.of_handlers(source, method),
        }
    }

    /// Whether there are MCP servers.
    pub(crate) fn serves(&self) -> bool {
        #[cfg(feature = "mcp")]
        return !self.servers.is_empty();
        #[cfg(not(feature = "mcp"))]
        false
    }

    /// Whether the MCP servers have to do with a message.
    pub(crate) fn is_served(&self, source: Peer, method: &str) -> bool {
        #[cfg(feature = "mcp")]
        if !self.servers.is_empty() {
            return match source {
                Peer::Client => SET_UPS.contains(&method),
                Peer::Agent => matches(crate::mcp::MESSAGES, method),
                Peer::Host => false,
            };
        }
        let _ = (source, method);
        false
    }

    /// The same for the proxy's own handlers.
    pub(crate) fn of_handlers(&self, source: Peer, method: &str) -> Option<How> {
        let mut matching = self
            .all
            .iter()
            .filter(|interest| interest.source == source && matches(&interest.method, method));
        matching
            .clone()
            .find(|interest| interest.how == How::Intercept)
            .or_else(|| matching.next())
            .map(|found| found.how)
    }

    pub(crate) fn observes(&self) -> bool {
        self.all.iter().any(|interest| interest.how == How::Observe)
    }

    #[cfg(target_family = "wasm")]
    pub(crate) fn into_raw(self) -> raw::Registration {
        let raw = |interest: Interest| raw::Interest {
            source: interest.source.raw(),
            method: interest.method,
            how: match interest.how {
                How::Observe => raw::How::Observe,
                How::Intercept => raw::How::Intercept,
            },
        };
        raw::Registration {
            interests: self.all().into_iter().map(raw).collect(),
            protocol_version: self.protocol_version,
        }
    }
}

fn matches(pattern: &str, method: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) if prefix.is_empty() || prefix.ends_with('/') => {
            method.starts_with(prefix) && method != "initialize" && !method.starts_with("$/")
        }
        _ => pattern == method,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Peer::{Agent, Client};

    #[test]
    fn patterns_match_as_the_world_says() {
        let interests = Interests::new()
            .observe(Client, "*")
            .intercept(Client, "session/*")
            .intercept(Agent, "$/x");
        for (source, method, how) in [
            (Client, "session/prompt", Some(How::Intercept)),
            (Client, "session", Some(How::Observe)),
            (Client, "fs/read", Some(How::Observe)),
            (Client, "initialize", None),
            (Client, "$/cancel_request", None),
            (Agent, "$/x", Some(How::Intercept)),
            (Agent, "session/update", None),
        ] {
            assert_eq!(interests.matching(source, method), how, "{method}");
        }
        assert!(!matches("se*", "session"), "a star stands alone or behind a slash");
    }
}
