//! The demo agent's JSON-RPC: lines to messages and back. It is an agent of its own and shares no code with the chain, so that a
//! mistake in the one does not hide in the other.

use agent_client_protocol_schema::v1::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// A line that was read.
pub(super) enum Message<'a> {
    Request {
        id: &'a RawValue,
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    Notification {
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    /// The result is none for an error.
    Response {
        id: &'a RawValue,
        result: Option<&'a RawValue>,
    },
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Tells `null` from nothing.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

/// Reads a line; the error is for whoever wrote it.
pub(super) fn parse(line: &[u8]) -> Result<Message<'_>, Error> {
    let json: &RawValue = serde_json::from_slice(line).map_err(|_| Error::parse_error())?;
    let envelope: Envelope<'_> = serde_json::from_str(json.get()).map_err(|_| Error::invalid_request())?;
    match envelope {
        Envelope {
            method: Some(method),
            id: Some(id),
            params,
            ..
        } => Ok(Message::Request { id, method, params }),
        Envelope {
            method: Some(method),
            params,
            ..
        } => Ok(Message::Notification { method, params }),
        Envelope {
            id: Some(id),
            result,
            error,
            ..
        } if result.is_some() || error.is_some() => Ok(Message::Response { id, result }),
        _ => Err(Error::invalid_request()),
    }
}

#[derive(Serialize)]
struct Request<'a, T> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    params: T,
}

pub(super) fn request<'a>(id: u64, method: &'a str, params: impl Serialize + 'a) -> impl Serialize + 'a {
    Request {
        jsonrpc: "2.0",
        id: Some(id),
        method,
        params,
    }
}

pub(super) fn notification<'a>(method: &'a str, params: impl Serialize + 'a) -> impl Serialize + 'a {
    Request {
        jsonrpc: "2.0",
        id: None,
        method,
        params,
    }
}

#[derive(Serialize)]
struct Success<'a, T> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    result: T,
}

pub(super) fn result<'a>(id: &'a RawValue, result: impl Serialize + 'a) -> impl Serialize + 'a {
    Success {
        jsonrpc: "2.0",
        id,
        result,
    }
}

#[derive(Serialize)]
struct Failure<'a> {
    jsonrpc: &'static str,
    id: Option<&'a RawValue>,
    error: Error,
}

/// Without an id: the error of a line that could not be understood.
pub(super) fn error(id: Option<&RawValue>, error: Error) -> impl Serialize {
    Failure {
        jsonrpc: "2.0",
        id,
        error,
    }
}
