//! MCP servers that are reached over ACP, for an agent that does not speak that: each becomes an HTTP server on the loopback interface. Owns
//! the listener, its secrets, and who waits for what; the chain sees nothing but messages that might have come from the agent. Must not
//! know of proxies.

mod client;
mod door;
mod event_log;
mod events;
mod http;
mod message;
mod served;
mod socket;

use crate::message::Outcome;
use crate::wire::envelope::{Id, Incoming, error_text};
use crate::wire::scan;
use crate::wire::text::Text;
use client::Client;
use serde_json::{Value, json};
use served::{Served, secret};
use socket::Socket;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

/// Messages that wait to be taken in by the chain; then whoever sends more waits.
const WAITING: usize = 64;

/// Bytes from which on a message is large, and how many of these there are at a time that the chain has not taken in.
const LARGE: usize = 1024 * 1024;
const MAX_LARGE: usize = 2;

/// Servers of all sessions together, and those that one session has of the same kind, since it was set up again.
const MAX_SERVED: usize = 10_000;
const MAX_SAME: usize = 8;

/// JSON-RPC's code for a fault of whoever answers, and the one for what was given up.
const INTERNAL: i64 = -32603;
const CANCELLED: i64 = -32800;

/// What a large message takes of the room for such.
type Room = Option<Arc<OwnedSemaphorePermit>>;

/// A message to the chain, as the agent might have sent it.
pub struct Said {
    /// The message.
    pub message: Incoming,
    /// Given back with this.
    _room: Room,
}

/// A server that ACP carries, as a session's set-up names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcpServer {
    /// Its name for the agent.
    pub name: String,
    /// Its id for whoever brings it.
    pub id: String,
}

/// The bridge of one connection.
pub struct Bridge {
    shared: Arc<Shared>,
    listening: Option<(u16, JoinHandle<()>)>,
    socket: Option<Socket>,
}

/// How an agent reaches servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Over HTTP.
    Http,
    /// By starting them: every agent can.
    Stdio,
}

/// The variable that a shim finds its secret in.
pub const SECRET: &str = "CONSORT_MCP_SECRET";

/// The member of ACP's `_meta` that says which session a message belongs to.
pub(crate) const SESSION: &str = "consort/sessionId";

/// What the ids of requests for connections have behind the prefix.
const CONNECT: &str = "connect-";

/// The command of a shim.
pub const SHIM: &str = "mcp-shim";

/// What the servers have in common.
struct Shared {
    /// By the hash of their secret.
    served: Mutex<HashMap<blake3::Hash, Arc<Served>>>,
    /// Requests to the chain that wait for their answers.
    asked: Mutex<Questions>,
    /// Whom the messages of an MCP connection, or those that belong to a request without one, are for.
    connections: Mutex<HashMap<String, Weak<Client>>>,
    to_chain: mpsc::Sender<Said>,
    large: Arc<Semaphore>,
    /// What the ids of requests begin with: no agent can guess it, so none of its own has it.
    prefix: String,
    numbers: AtomicU64,
}

/// Requests to the chain that wait for their answers.
#[derive(Default)]
struct Questions {
    waiting: HashMap<Id, Waits>,
    /// Nobody answers any more.
    is_over: bool,
}

impl Questions {
    /// One more; says whether it can have an answer.
    fn add(&mut self, id: &Id, waits: Waits) -> bool {
        if !self.is_over {
            self.waiting.insert(id.clone(), waits);
        }
        !self.is_over
    }
}

/// Who waits for an answer.
struct Waits {
    answer: oneshot::Sender<Outcome>,
    /// Whose connection is asked for.
    connects: Option<Arc<Client>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bridge {
    /// A bridge, and what it has to say to the chain in the agent's place. Nothing listens yet.
    ///
    /// # Errors
    ///
    /// If the system gives no random numbers.
    pub fn new() -> std::io::Result<(Self, mpsc::Receiver<Said>)> {
        let (to_chain, messages) = mpsc::channel(WAITING);
        let shared = Arc::new(Shared {
            served: Mutex::default(),
            asked: Mutex::default(),
            connections: Mutex::default(),
            to_chain,
            large: Arc::new(Semaphore::new(MAX_LARGE)),
            prefix: format!("\"consort-mcp-{}-", secret()?),
            numbers: AtomicU64::new(0),
        });
        let bridge = Self {
            shared,
            listening: None,
            socket: None,
        };
        Ok((bridge, messages))
    }

    /// Serves a server from now on; gives the entry that stands in its place. The session is that of the set-up, if it is known already;
    /// the set-up's number tells which session it was once that is known.
    ///
    /// # Errors
    ///
    /// If nothing can listen on the loopback interface, or at a socket.
    pub fn serve(
        &mut self,
        server: &AcpServer,
        transport: Transport,
        set_up: u64,
        session: Option<&str>,
    ) -> std::io::Result<Value> {
        self.make_room(&server.id, session)?;
        let (key, bearer) = (secret()?, secret()?);
        let entry = match transport {
            Transport::Http => {
                let port = self.port()?;
                // Agents that drop the header are let in by the path, as long as nobody has shown the token.
                json!({
                    "type": "http",
                    "name": server.name,
                    "url": format!("http://127.0.0.1:{port}/mcp/{key}"),
                    "headers": [{"name": "Authorization", "value": format!("Bearer {bearer}")}],
                })
            }
            Transport::Stdio => json!({
                "name": server.name,
                "command": plain(std::env::current_exe()?)?,
                "args": [SHIM, plain(self.socket()?)?],
                "env": [{"name": SECRET, "value": key}],
            }),
        };
        let served = Served::new(server.id.clone(), set_up, session, &bearer);
        lock(&self.shared.served).insert(blake3::hash(key.as_bytes()), Arc::new(served));
        Ok(entry)
    }

    /// Makes room for one more server. A session that is set up again and again has used the earlier ones.
    fn make_room(&mut self, server: &str, session: Option<&str>) -> std::io::Result<()> {
        let mut all = lock(&self.shared.served);
        if all.len() >= MAX_SERVED {
            let reason = format!("the sessions that are open have {MAX_SERVED} of them already");
            return Err(std::io::Error::other(reason));
        }
        let is_same = |served: &Served| served.server == server && served.session().as_deref() == session;
        let same = all.iter().filter(|(_, served)| session.is_some() && is_same(served));
        let mut same: Vec<_> = same.map(|(key, served)| (served.set_up, *key)).collect();
        same.sort_unstable_by_key(|(set_up, _)| *set_up);
        let over = same.len().saturating_sub(MAX_SAME - 1);
        let oldest: Vec<_> = same[..over].iter().filter_map(|(_, key)| all.remove(key)).collect();
        drop(all);
        for served in oldest {
            served.end(&self.shared);
        }
        Ok(())
    }

    /// The port that is listened on, from now on at the latest.
    fn port(&mut self) -> std::io::Result<u16> {
        if let Some((port, _)) = &self.listening {
            return Ok(*port);
        }
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let task = tokio::spawn(http::listen(listener, port, self.shared.clone()));
        self.listening = Some((port, task));
        Ok(port)
    }

    /// The socket that is listened at, from now on at the latest.
    fn socket(&mut self) -> std::io::Result<PathBuf> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => Socket::open(&self.shared)?,
        };
        Ok(self.socket.insert(socket).path())
    }

    /// A set-up was answered: its servers are of this session; without one they are of none, and end.
    pub fn set_up(&mut self, number: u64, session: Option<&str>) {
        match session {
            Some(session) => {
                for served in lock(&self.shared.served).values() {
                    if served.set_up == number {
                        served.is_of(session);
                    }
                }
            }
            None => self.end(|served| served.set_up == number),
        }
    }

    /// A session is over, and so are its servers.
    pub fn session_ended(&mut self, session: &str) {
        self.end(|served| served.session().as_deref() == Some(session));
    }

    /// The agent is gone, and so is everything that it used.
    pub fn agent_ended(&mut self) {
        // What it was that has asked, nobody answers it.
        lock(&self.shared.asked).waiting.clear();
        self.end(|_| true);
    }

    fn end(&mut self, is_over: impl Fn(&Served) -> bool) {
        let mut all = lock(&self.shared.served);
        let over: Vec<Arc<Served>> = all
            .extract_if(|_, served| is_over(served))
            .map(|(_, served)| served)
            .collect();
        let none_left = all.is_empty();
        drop(all);
        for served in over {
            served.end(&self.shared);
        }
        if none_left {
            self.socket = None;
            if let Some((_, task)) = self.listening.take() {
                task.abort();
            }
        }
    }

    /// Whether a request with this id came from here, so that its answer is for here.
    pub fn owns(&self, id: &Id) -> bool {
        id.as_json().starts_with(&self.shared.prefix)
    }

    /// An answer to a request that came from here. A new connection is known from now on, so that what its server says next finds its way;
    /// one that nobody waits for any more ends at once.
    pub fn answer(&self, id: &Id, outcome: &Outcome) {
        let waits = lock(&self.shared.asked).waiting.remove(id);
        let result = outcome.as_ref().ok().filter(|_| self.shared.is_connect(id));
        if let Some(connection) = result.and_then(|result| scan::string_member(result, "connectionId")) {
            let client = waits.as_ref().and_then(|waits| waits.connects.as_ref());
            if !client.is_some_and(|client| client.connected(&self.shared, &connection)) {
                self.shared.disconnect(&connection);
            }
        }
        if let Some(waits) = waits {
            // It may have been given up.
            let _ = waits.answer.send(outcome.clone());
        }
    }

    fn client(&self, params: Option<&Text>) -> Option<Arc<Client>> {
        let member = |name| scan::string_member(params?, name);
        let connections = lock(&self.shared.connections);
        match member("connectionId") {
            Some(connection) => connections.get(&*connection)?.upgrade(),
            None => connections
                .get(&request_key(&member("serverId")?, &member("requestId")?))?
                .upgrade(),
        }
    }

    /// A request (with the number of its call) or a notification of a server to its client.
    pub fn say(&self, call: Option<&str>, method: &str, params: Option<&Text>) {
        let (Some(client), Some(params)) = (self.client(params), params) else {
            let outcome = Err(error_text(
                INTERNAL,
                "the MCP connection is over, or was never there",
                None,
            ));
            return self.shared.answered(call, outcome, None);
        };
        let outcome = match method {
            "mcp/message" => return client.hear(&self.shared, call, params),
            "mcp/disconnect" => {
                client.end(&self.shared);
                Ok(Text::of(&json!({})))
            }
            _ => Err(error_text(-32601, "MCP clients have no such method", None)),
        };
        self.shared.answered(call, outcome, None);
    }

    /// A server gives a request up that it has sent to its client.
    pub fn give_up(&self, call: u64) {
        let clients: Vec<_> = lock(&self.shared.connections)
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        for client in clients {
            client.give_up(&self.shared, call);
        }
    }
}

/// A path as JSON can carry it.
fn plain(path: PathBuf) -> std::io::Result<String> {
    let path = path.into_os_string().into_string();
    path.map_err(|path| std::io::Error::other(format!("the path {path:?}, which the agent needs, is not UTF-8")))
}

/// What a request to a server without connections is found by.
fn request_key(server: &str, request: &str) -> String {
    format!("{server}\0{request}")
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let mut asked = lock(&self.shared.asked);
        asked.is_over = true;
        asked.waiting.clear();
        drop(asked);
        self.end(|_| true);
    }
}

impl Shared {
    /// A number that nobody else has.
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Room for a large message; waits for it. It is given back when the chain has taken the message in.
    async fn room(&self) -> Room {
        // Nobody closes this.
        self.large.clone().acquire_owned().await.ok().map(Arc::new)
    }

    async fn send(&self, message: Incoming, room: Room) -> bool {
        self.to_chain.send(Said { message, _room: room }).await.is_ok()
    }

    /// Whether the request of this id asks for a connection.
    fn is_connect(&self, id: &Id) -> bool {
        let rest = id.as_json().strip_prefix(&self.prefix);
        rest.is_some_and(|rest| rest.starts_with(CONNECT))
    }

    /// Asks a server for a connection of this client.
    async fn connect(&self, client: &Arc<Client>, params: Text) -> Outcome {
        let name = format!("{CONNECT}{}", self.number());
        self.question(&name, Some(client), "mcp/connect", params, None).await
    }

    /// Tells a server that nobody uses a connection any more.
    fn disconnect(self: &Arc<Self>, connection: &str) {
        if lock(&self.asked).is_over {
            return;
        }
        let (shared, params) = (self.clone(), Text::of(&json!({ "connectionId": connection })));
        tokio::spawn(async move { shared.ask("mcp/disconnect", params, None).await });
    }

    /// Asks the chain for something, as the agent would. Giving this up gives the request up.
    async fn ask(&self, method: &str, params: Text, room: Room) -> Outcome {
        let name = self.number().to_string();
        self.question(&name, None, method, params, room).await
    }

    async fn question(
        &self,
        name: &str,
        connects: Option<&Arc<Client>>,
        method: &str,
        params: Text,
        room: Room,
    ) -> Outcome {
        let gone = || Err(error_text(INTERNAL, "the connection is over", None));
        let Some(id) = Id::parse(&format!("{}{name}\"", self.prefix)) else {
            return Err(error_text(INTERNAL, "an id of Consort's cannot be read", None));
        };
        let (answer, answered) = oneshot::channel();
        let waits = Waits {
            answer,
            connects: connects.cloned(),
        };
        if !lock(&self.asked).add(&id, waits) {
            return gone();
        }
        let mut asked = Asked {
            shared: self,
            id: id.clone(),
            open: true,
        };
        let method = method.into();
        let request = Incoming::Request {
            id,
            method,
            params: Some(params),
        };
        if !self.send(request, room).await {
            asked.open = false;
            return gone();
        }
        let outcome = answered.await;
        asked.open = false;
        outcome.unwrap_or_else(|_| gone())
    }

    /// Tells the chain something, as the agent would.
    async fn tell(&self, method: &str, params: Text, room: Room) {
        let (method, params) = (method.into(), Some(params));
        // Without a chain nobody is left to be told.
        self.send(Incoming::Notification { method, params }, room).await;
    }

    /// The client has answered a request of its server.
    fn answered(&self, call: Option<&str>, outcome: Outcome, room: Room) {
        let Some(id) = call.and_then(Id::parse) else { return };
        let message = Incoming::Response { id, outcome };
        let (to_chain, said) = (self.to_chain.clone(), Said { message, _room: room });
        tokio::spawn(async move { to_chain.send(said).await });
    }
}

/// A request that is given up if nobody waits for its answer any more.
struct Asked<'a> {
    shared: &'a Shared,
    id: Id,
    open: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        lock(&self.shared.asked).waiting.remove(&self.id);
        if !self.open {
            return;
        }
        let Ok(id) = serde_json::from_str::<Value>(self.id.as_json()) else {
            return;
        };
        let cancel = Incoming::Notification {
            method: "$/cancel_request".into(),
            params: Some(Text::of(&json!({ "requestId": id }))),
        };
        let (to_chain, said) = (
            self.shared.to_chain.clone(),
            Said {
                message: cancel,
                _room: None,
            },
        );
        tokio::spawn(async move { to_chain.send(said).await });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_no_text_is_an_error() {
        use std::os::unix::ffi::OsStringExt as _;
        assert_eq!(plain("/a".into()).unwrap(), "/a");
        let path = std::ffi::OsString::from_vec(b"/\xff".to_vec());
        assert!(plain(path.into()).unwrap_err().to_string().contains("UTF-8"));
    }

    #[tokio::test]
    async fn nobody_waits_for_a_bridge_that_is_gone() {
        let (bridge, mut messages) = Bridge::new().unwrap();
        let shared = bridge.shared.clone();
        let asking = tokio::spawn(async move { shared.ask("mcp/message", Text::of(&json!({})), None).await });
        assert!(messages.recv().await.is_some());
        let shared = bridge.shared.clone();
        drop(bridge);
        assert!(asking.await.unwrap().is_err());
        assert!(shared.ask("mcp/message", Text::of(&json!({})), None).await.is_err());
    }
}
