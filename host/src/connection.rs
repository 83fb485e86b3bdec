//! One client's connection: the chain with its proxies and its agent, from the first line to the end.

use crate::agent::AgentCommand;
use crate::tap::OptionalTap;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// A proxy of the chain, as the user named it.
#[derive(Clone, Debug)]
pub struct ProxyOptions {
    /// The name in logs and errors; unique in a chain.
    pub name: String,
    /// The component.
    pub file: PathBuf,
    /// The JSON text that the proxy's `start` gets.
    pub configuration: String,
    /// The most memory in bytes that its instance may use.
    pub memory: u64,
}

/// What a connection is made of.
#[derive(Clone)]
pub struct ConnectionOptions {
    /// The proxies, client side first.
    pub proxies: Vec<ProxyOptions>,
    /// The agent.
    pub agent: AgentCommand,
    /// How long pending requests may go on after the client's input has ended.
    pub grace: Duration,
    /// Sees all traffic.
    pub tap: OptionalTap,
    /// Whether compile times and progress may be shown on standard error.
    pub progress: bool,
}

/// The client's end of a connection: lines come from `input` and go to `output`.
pub struct ClientStreams {
    /// What the client writes.
    pub input: Pin<Box<dyn AsyncRead + Send>>,
    /// What the client reads.
    pub output: Pin<Box<dyn AsyncWrite + Send>>,
}

/// Serves one client until its input ends, its output is gone, or the future is dropped.
///
/// # Errors
///
/// When a component cannot be loaded; everything that happens after the first line is answered on the wire.
pub async fn serve(_options: ConnectionOptions, _client: ClientStreams) -> anyhow::Result<()> {
    anyhow::bail!("the chain is not there yet")
}
