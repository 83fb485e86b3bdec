//! One client's connection: the chain with its proxies and its agent, from the first line to the end. Owns the streams, the
//! instances and the clock; what goes where is the chain's business.

mod agent_side;
mod ahead;
mod contained;
mod driver;
mod files;
mod flow;
mod load;
mod saved;
mod streams;
mod timers;
mod told;

use crate::agent::AgentCommand;
use crate::audit::{Audit, Recorder};
pub use crate::chain::Role;
use crate::grants::Grant;
use crate::limits::Settings;
use crate::message::OnFailure;
use crate::sandbox::Sandbox;
use crate::tap::OptionalTap;
use anyhow::Context as _;
pub(crate) use contained::contained;
pub use load::sandbox;
pub(crate) use load::{COMPILE_TIME, Started, agree, loaded_until, setup, unprotecting};
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// The longest line in bytes unless another is set. Prompts carry images and files; agents in use have been seen to write lines of
/// several MiB.
pub const DEFAULT_MAX_LINE: usize = 64 * 1024 * 1024;

/// A proxy of the chain, as the user named it.
#[derive(Clone, Debug)]
pub struct ProxyOptions {
    /// The name in logs and errors; unique in a chain.
    pub name: String,
    /// The component.
    pub file: PathBuf,
    /// The JSON text that the proxy's `start` gets.
    pub configuration: String,
    /// What the user grants it, beyond the ordinary things that it asks for.
    pub grants: Vec<Grant>,
    /// What the user grants to all proxies.
    pub common_grants: Vec<Grant>,
    /// The limits that the user sets for it.
    pub limits: Settings,
    /// What becomes of its messages when it fails, if the user says so.
    pub on_failure: Option<OnFailure>,
}

/// What a connection is made of.
#[derive(Clone)]
pub struct ConnectionOptions {
    /// The proxies, client side first.
    pub proxies: Vec<ProxyOptions>,
    /// The engine that the proxies run in, for a process with several connections: it costs memory and a thread, and keeps the code of
    /// components for all of them. A connection makes one of its own otherwise.
    pub sandbox: Option<Arc<Sandbox>>,
    /// The agent. Without one the chain is a proxy for the conductor on the client's streams.
    pub agent: Option<AgentCommand>,
    /// The longest line in bytes that is taken from either side.
    pub max_line: usize,
    /// How long pending requests may go on after the client's input has ended.
    pub grace: Duration,
    /// Sees all traffic.
    pub tap: OptionalTap,
    /// Whether faults of proxies are told in the sessions that they concern, as text of the agent.
    pub notices: bool,
    /// Asks for proxies that rest to be tried again at once.
    pub retry: Option<Arc<Notify>>,
    /// Where what proxies do is recorded.
    pub audit: Option<Arc<Audit>>,
    /// Whether compile times and progress may be shown on standard error.
    pub progress: bool,
}

/// The client's end of a connection: lines come from `input` and go to `output`.
pub struct ClientStreams {
    /// What the client writes.
    pub input: Pin<Box<dyn AsyncRead + Send>>,
    /// What the client reads.
    pub output: Pin<Box<dyn AsyncWrite + Send>>,
    /// Ends when nobody reads the output any more, where that can be told without writing.
    pub gone: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// How a connection ended that did not go as it should have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// Why no agent or no proxies could be started, in a sentence.
    pub failure: Option<String>,
    /// The agent's command does not exist.
    pub agent_missing: bool,
}

/// Serves one client until its input ends, its output is gone, or the future is dropped; then the agent and all of its
/// descendants are gone too. Must run on tokio's multi-thread runtime.
///
/// # Errors
///
/// When the connection's task fails. What goes wrong otherwise is answered on the wire and told in [`Ending`].
pub async fn serve(options: ConnectionOptions, client: ClientStreams) -> anyhow::Result<Ending> {
    apart(async { driver::Driver::new(options, client).await.run().await }).await
}

/// Serves one client with nothing but the reason why there is no chain: editors show the answer to `initialize`, but not what
/// a program wrote before it ended.
///
/// # Errors
///
/// When the connection's task fails.
pub async fn serve_failure(role: Role, sentence: String, client: ClientStreams) -> anyhow::Result<Ending> {
    let options = ConnectionOptions {
        proxies: Vec::new(),
        sandbox: None,
        agent: (role == Role::Agent).then(|| AgentCommand::new("none")),
        max_line: DEFAULT_MAX_LINE,
        grace: Duration::ZERO,
        tap: None,
        notices: false,
        retry: None,
        audit: None,
        progress: false,
    };
    apart(driver::Driver::with(options, client, Vec::new(), Recorder::default(), Some(sentence)).run()).await
}

/// A task of its own runs on the thread that waits for input, which saves a change of threads for each message.
async fn apart(connection: impl Future<Output = Ending> + Send + 'static) -> anyhow::Result<Ending> {
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    match tasks.join_next().await {
        Some(ending) => ending.context("the connection's task ended early"),
        None => Ok(Ending::default()),
    }
}
