//! What can go wrong on the channel: JSON-RPC errors and the host's refusals.

use std::fmt;

use crate::json::{Json, JsonError};
use crate::raw;

/// A JSON-RPC error: to answer a request with, or as a peer answered one.
///
/// An error that came from a peer is kept as it came and passes on byte for byte when a handler returns it.
///
/// ```
/// use consort_proxy::{RpcError, json};
///
/// let error = RpcError::new(-32000, "log in first").with_data(json!({"url": "https://example.org"}));
/// assert_eq!((error.code(), error.message().as_str()), (-32000, "log in first"));
/// ```
#[derive(Clone, Debug)]
pub struct RpcError(Inner);

#[derive(Clone, Debug)]
enum Inner {
    /// The whole error object as it came.
    Received(Json),
    Own {
        code: i64,
        message: String,
        data: Option<Json>,
    },
}

impl RpcError {
    /// JSON-RPC's code for parameters that a method cannot take.
    pub const INVALID_PARAMS: i64 = -32602;
    /// JSON-RPC's code for a fault of whoever answers.
    pub const INTERNAL: i64 = -32603;
    /// JSON-RPC's code for a method that nobody knows.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// ACP's code for a request that was cancelled.
    pub const CANCELLED: i64 = -32800;
    /// ACP's code for something that was asked for and is not there.
    pub const NOT_FOUND: i64 = -32002;
    /// Consort's code for more than a proxy may keep; see [`crate::host::state`].
    pub const QUOTA: i64 = -32010;
    /// Consort's code for something that the proxy is not granted.
    pub const DENIED: i64 = -32011;

    /// An error with a code and a message: one sentence that says what to do about it.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self(Inner::Own {
            code,
            message: message.into(),
            data: None,
        })
    }

    /// An error with the code [`RpcError::INTERNAL`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Self::INTERNAL, message)
    }

    /// An error with the code [`RpcError::INVALID_PARAMS`].
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(Self::INVALID_PARAMS, message)
    }

    /// An error with the code [`RpcError::CANCELLED`].
    pub fn cancelled() -> Self {
        Self::new(Self::CANCELLED, "the request was cancelled")
    }

    /// The same error with `data`, replacing what it had.
    #[must_use]
    pub fn with_data(self, data: Json) -> Self {
        Self(Inner::Own {
            code: self.code(),
            message: self.message(),
            data: Some(data),
        })
    }

    /// The code; 0 if a peer sent none that is an integer.
    pub fn code(&self) -> i64 {
        match &self.0 {
            Inner::Received(error) => error.decode_at("/code").unwrap_or_default(),
            Inner::Own { code, .. } => *code,
        }
    }

    /// The message; empty if a peer sent none.
    pub fn message(&self) -> String {
        match &self.0 {
            Inner::Received(error) => error.string("/message").unwrap_or_default(),
            Inner::Own { message, .. } => message.clone(),
        }
    }

    /// What stands in `data`, if anything.
    pub fn data(&self) -> Option<Json> {
        match &self.0 {
            Inner::Received(error) => error.get("/data"),
            Inner::Own { data, .. } => data.clone(),
        }
    }

    pub(crate) fn received(error: Json) -> Self {
        Self(Inner::Received(error))
    }

    /// The error object. Fails only if the host has no handle left for it.
    pub(crate) fn into_json(self) -> Result<Json, JsonError> {
        match self.0 {
            Inner::Received(error) => Ok(error),
            Inner::Own { code, message, data } => {
                let error = Json::encode(&serde_json::json!({"code": code, "message": message}))?;
                if let Some(data) = data {
                    error.add("/data", &data)?;
                }
                Ok(error)
            }
        }
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} (code {})", self.message(), self.code())
    }
}

impl std::error::Error for RpcError {}

/// JSON that has not the shape which a handler needs is the asker's fault: [`RpcError::INVALID_PARAMS`].
impl From<JsonError> for RpcError {
    fn from(error: JsonError) -> Self {
        Self::invalid_params(error.to_string())
    }
}

impl From<Refusal> for RpcError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Denied(_) => Self::new(Self::DENIED, refusal.to_string()),
            refusal => Self::internal(refusal.to_string()),
        }
    }
}

/// Why the host did not take a message. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The proxy has no grant for it; the text says what is missing. A delivered message that it wanted to change or to answer has gone
    /// on as it came.
    Denied(String),
    /// The message is larger than the host allows.
    TooLarge,
    /// Too many messages or bytes in one turn, or too many requests without an answer.
    Flooded,
    /// Nothing can be sent now: during `start`.
    Closed,
    /// It names a message that this proxy does not own, or that is used up.
    UnknownId,
    /// The params could not be given to the host.
    Json(JsonError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(missing) => {
                write!(formatter, "the proxy is not allowed to do this: {missing}")
            }
            Self::TooLarge => formatter.write_str("the message is larger than the host allows"),
            Self::Flooded => formatter.write_str("the proxy sends too much at once"),
            Self::Closed => formatter.write_str("nothing can be sent while the proxy starts"),
            Self::UnknownId => formatter.write_str("the message is answered or gone, or never was the proxy's"),
            Self::Json(error) => write!(formatter, "the params are not sendable: {error}"),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<JsonError> for Refusal {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

impl From<raw::Refusal> for Refusal {
    fn from(refusal: raw::Refusal) -> Self {
        match refusal {
            raw::Refusal::Denied(missing) => Self::Denied(missing),
            raw::Refusal::TooLarge => Self::TooLarge,
            raw::Refusal::Flooded => Self::Flooded,
            raw::Refusal::Closed => Self::Closed,
            raw::Refusal::UnknownId => Self::UnknownId,
        }
    }
}
