//! What can go wrong with what an agent asks of a server: something that its model can do better, or a breach of the protocol.

use std::fmt;

use crate::error::{Refusal, RpcError};
use crate::json::JsonError;

/// Why there is no result.
#[derive(Debug)]
pub enum Failure {
    /// The tool could not do it. The agent's model reads the sentence and may try again with something else.
    Tool(String),
    /// An error of the protocol, as JSON-RPC has it. Agents seldom show these to their model.
    Protocol(RpcError),
}

impl Failure {
    /// An error of the protocol with a code of JSON-RPC or MCP.
    pub fn protocol(code: i64, message: impl Into<String>) -> Self {
        Self::Protocol(RpcError::new(code, message))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool(sentence) => formatter.write_str(sentence),
            Self::Protocol(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for Failure {}

impl From<String> for Failure {
    fn from(sentence: String) -> Self {
        Self::Tool(sentence)
    }
}

impl From<&str> for Failure {
    fn from(sentence: &str) -> Self {
        Self::Tool(sentence.to_owned())
    }
}

/// What somebody else could not do for the tool, the tool could not do.
impl From<RpcError> for Failure {
    fn from(error: RpcError) -> Self {
        Self::Tool(error.message())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Tool(refusal.to_string())
    }
}

impl From<JsonError> for Failure {
    fn from(error: JsonError) -> Self {
        Self::Tool(error.to_string())
    }
}
