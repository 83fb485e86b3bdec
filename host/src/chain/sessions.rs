//! What the host knows of sessions: which ones were seen, and the working directory that the client gave.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

/// Sessions that are remembered; the oldest are forgotten beyond that, which costs file reads and nothing else.
const MAX_SESSIONS: usize = 100_000;

/// Known sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    known: HashMap<Arc<str>, Option<Arc<PathBuf>>>,
    order: VecDeque<Arc<str>>,
}

impl Sessions {
    /// The session's shared name: always the same `Arc` for a known one.
    pub(super) fn name(&self, session: &str) -> Arc<str> {
        match self.known.get_key_value(session) {
            Some((name, _)) => name.clone(),
            None => session.into(),
        }
    }

    pub(super) fn knows(&self, session: &str) -> bool {
        self.known.contains_key(session)
    }

    /// A session is there now. A directory once given stays unless a new one is given.
    pub(super) fn add(&mut self, session: &Arc<str>, directory: Option<Arc<PathBuf>>) {
        if let Some(known) = self.known.get_mut(session) {
            if directory.is_some() {
                *known = directory;
            }
            return;
        }
        self.known.insert(session.clone(), directory);
        self.order.push_back(session.clone());
        if self.order.len() > MAX_SESSIONS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// The working directory of a session.
    pub(super) fn directory(&self, session: &str) -> Option<Arc<PathBuf>> {
        self.known.get(session)?.clone()
    }
}
