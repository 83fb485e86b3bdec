//! The client's JSON-RPC: lines to and from the chain. Knows nothing of what the methods mean.

use agent_client_protocol_schema::v1::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::fmt;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::mpsc;

/// How many lines may wait in each direction.
const QUEUED: usize = 4;

/// The chain has ended before it answered.
#[derive(Debug)]
pub(super) struct ChainEnded;

impl fmt::Display for ChainEnded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the connection to the agent ended before it answered")
    }
}

impl std::error::Error for ChainEnded {}

/// A message from the chain.
pub(super) enum Incoming {
    Request {
        id: Box<RawValue>,
        method: String,
        params: Box<RawValue>,
    },
    Notification {
        method: String,
        params: Box<RawValue>,
    },
    Response {
        id: u64,
        outcome: Result<Box<RawValue>, Error>,
    },
}

/// One end of a connection. Reading and writing have a task each, so that neither waits for the other.
pub(super) struct Client {
    outgoing: mpsc::Sender<String>,
    incoming: mpsc::Receiver<Vec<u8>>,
    next_id: u64,
}

impl Client {
    /// Must be called within the runtime. Dropping the client ends the chain's input.
    pub(super) fn new(mut writer: DuplexStream, reader: DuplexStream) -> Self {
        let (outgoing, mut lines) = mpsc::channel::<String>(QUEUED);
        tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                if writer.write_all(line.as_bytes()).await.is_err() {
                    break;
                }
            }
        });
        let (sender, incoming) = mpsc::channel(QUEUED);
        tokio::spawn(async move {
            let mut reader = BufReader::new(reader);
            loop {
                let mut line = Vec::new();
                match reader.read_until(b'\n', &mut line).await {
                    Ok(1..) if sender.send(line).await.is_ok() => {}
                    _ => break,
                }
            }
        });
        Self {
            outgoing,
            incoming,
            next_id: 0,
        }
    }

    /// Sends a request and returns its id.
    pub(super) async fn request(&mut self, method: &str, params: impl Serialize) -> anyhow::Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&Call {
            jsonrpc: "2.0",
            id: Some(id),
            method,
            params,
        })
        .await?;
        Ok(id)
    }

    /// Sends a notification.
    pub(super) async fn notify(&self, method: &str, params: impl Serialize) -> anyhow::Result<()> {
        self.send(&Call {
            jsonrpc: "2.0",
            id: None,
            method,
            params,
        })
        .await
    }

    /// Answers a request.
    pub(super) async fn answer(&self, id: &RawValue, outcome: Result<impl Serialize, Error>) -> anyhow::Result<()> {
        let (result, error) = match outcome {
            Ok(result) => (Some(result), None),
            Err(error) => (None, Some(error)),
        };
        self.send(&Answer {
            jsonrpc: "2.0",
            id,
            result,
            error,
        })
        .await
    }

    async fn send(&self, message: &impl Serialize) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(message)?;
        line.push('\n');
        // A chain that has ended is noticed by reading.
        let _ = self.outgoing.send(line).await;
        Ok(())
    }

    /// The next message; lines that are none are passed over. Can be dropped and called again without a loss.
    ///
    /// # Errors
    ///
    /// [`ChainEnded`].
    pub(super) async fn receive(&mut self) -> Result<Incoming, ChainEnded> {
        loop {
            let line = self.incoming.recv().await.ok_or(ChainEnded)?;
            match parse(&line) {
                Some(message) => return Ok(message),
                None => tracing::warn!(
                    "a line that is no message: {}",
                    String::from_utf8_lossy(&line[..line.len().min(200)])
                ),
            }
        }
    }
}

#[derive(Serialize)]
struct Call<'a, T> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    params: T,
}

#[derive(Serialize)]
struct Answer<'a, T> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(default, deserialize_with = "present")]
    id: Option<Box<RawValue>>,
    method: Option<String>,
    params: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present")]
    result: Option<Box<RawValue>>,
    error: Option<Error>,
}

/// Tells `null` from nothing.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

fn parse(line: &[u8]) -> Option<Incoming> {
    let envelope: Envelope = serde_json::from_slice(line).ok()?;
    let params = envelope.params.or_else(|| RawValue::from_string("null".into()).ok())?;
    Some(match (envelope.id, envelope.method) {
        (Some(id), Some(method)) => Incoming::Request { id, method, params },
        (None, Some(method)) => Incoming::Notification { method, params },
        (Some(id), None) => Incoming::Response {
            id: id.get().parse().ok()?,
            outcome: match (envelope.result, envelope.error) {
                (_, Some(error)) => Err(error),
                (Some(result), None) => Ok(result),
                (None, None) => return None,
            },
        },
        (None, None) => return None,
    })
}
