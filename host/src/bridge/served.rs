//! One MCP server of one session, as the agent reaches it.

use super::client::Client;
use super::{Shared, lock};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// Clients of one server. Agents have one or two; more than these have been left behind.
const MAX_CLIENTS: usize = 64;

/// Connections to one server: those of an agent's clients, several each.
const MAX_CONNECTIONS: usize = 64;

/// A server that is served.
pub(super) struct Served {
    /// Its id for whoever brings it.
    pub(super) server: String,
    /// The set-up that it came with.
    pub(super) set_up: u64,
    bearer: blake3::Hash,
    /// Places for connections.
    pub(super) places: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    session: Option<Arc<str>>,
    /// By the hash of their ids, the one that was made first in front.
    clients: Vec<(blake3::Hash, Arc<Client>)>,
    /// The client of requests that make no connection.
    plain: Option<Arc<Client>>,
    /// Whether its bearer token was shown.
    was_shown: bool,
    over: bool,
}

impl Served {
    pub(super) fn new(server: String, set_up: u64, session: Option<&str>, bearer: &str) -> Self {
        let session = session.map(Arc::from);
        Self {
            server,
            set_up,
            bearer: blake3::hash(bearer.as_bytes()),
            places: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            state: Mutex::new(State {
                session,
                ..State::default()
            }),
        }
    }

    /// Whether whoever shows this may come in. Some agents drop the header; from one that was seen to send it, it is demanded. Hashes are
    /// compared in a time that tells nothing.
    pub(super) fn lets_in(&self, authorization: Option<&str>) -> bool {
        let Some(shown) = authorization else {
            return !lock(&self.state).was_shown;
        };
        let bearer = shown
            .split_once(' ')
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let is_right = bearer.is_some_and(|(_, token)| blake3::hash(token.trim().as_bytes()) == self.bearer);
        if is_right {
            lock(&self.state).was_shown = true;
        }
        is_right
    }

    pub(super) fn session(&self) -> Option<Arc<str>> {
        lock(&self.state).session.clone()
    }

    pub(super) fn is_of(&self, session: &str) {
        lock(&self.state).session = Some(session.into());
    }

    pub(super) fn client(&self, id: &str) -> Option<Arc<Client>> {
        let wanted = blake3::hash(id.as_bytes());
        let state = lock(&self.state);
        state
            .clients
            .iter()
            .find(|(id, _)| *id == wanted)
            .map(|(_, client)| client.clone())
    }

    /// Has another client; gives back one that has to go for it.
    pub(super) fn add(&self, id: &str, client: Arc<Client>) -> Option<Arc<Client>> {
        let mut state = lock(&self.state);
        if state.over {
            return Some(client);
        }
        let oldest = (state.clients.len() >= MAX_CLIENTS).then(|| state.clients.remove(0).1);
        state.clients.push((blake3::hash(id.as_bytes()), client));
        oldest
    }

    pub(super) fn remove(&self, client: &Arc<Client>) {
        let mut state = lock(&self.state);
        state.clients.retain(|(_, one)| !Arc::ptr_eq(one, client));
        state.plain.take_if(|one| Arc::ptr_eq(one, client));
    }

    pub(super) fn plain(&self) -> Option<Arc<Client>> {
        lock(&self.state).plain.clone()
    }

    /// Keeps the client of requests without a connection; the first one stays. None if the server is over.
    pub(super) fn set_plain(&self, client: Arc<Client>) -> Option<Arc<Client>> {
        let mut state = lock(&self.state);
        (!state.over).then(|| state.plain.get_or_insert(client).clone())
    }

    /// Ends all its clients.
    pub(super) fn end(&self, shared: &Arc<Shared>) {
        let mut state = lock(&self.state);
        state.over = true;
        let clients: Vec<_> = std::mem::take(&mut state.clients)
            .into_iter()
            .map(|(_, client)| client)
            .collect();
        let plain = state.plain.take();
        drop(state);
        for client in clients.into_iter().chain(plain) {
            client.end(shared);
        }
    }
}

/// Something that nobody guesses: 128 bits.
///
/// # Errors
///
/// If the system gives no random numbers.
pub(super) fn secret() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    crate::random::fill(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
