//! A message of an MCP client, as far as it has to be understood.

use super::client::Request;
use crate::message::Outcome;
use crate::wire::envelope::error_text;
use crate::wire::text::Text;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Bytes of a message: as much as one of ACP has.
pub(super) const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// One message.
#[derive(Deserialize)]
pub(super) struct Message {
    /// Its id, if it has one.
    #[serde(default)]
    pub(super) id: Option<Box<RawValue>>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Option<Box<RawValue>>,
    #[serde(default)]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<Box<RawValue>>,
}

/// What it is.
pub(super) enum Kind {
    Request(Request),
    Notification(String, Option<Box<RawValue>>),
    /// An answer to a request with this id, if it is one that was given out.
    Response(Option<u64>, Outcome),
}

impl Message {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// JSON-RPC's code and a sentence.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, (i64, String)> {
        serde_json::from_slice(bytes).map_err(|error| match bytes.trim_ascii_start().starts_with(b"[") {
            true => (-32600, "batches are not taken: send one message at a time".to_owned()),
            false => (-32700, format!("this is no JSON-RPC message: {error}")),
        })
    }

    /// What it is.
    ///
    /// # Errors
    ///
    /// JSON-RPC's code and a sentence.
    pub(super) fn kind(self) -> Result<Kind, (i64, String)> {
        let text = |value: Box<RawValue>| Text::trusted(String::from(Box::<str>::from(value)));
        match (self.method, self.id, self.result, self.error) {
            (Some(method), Some(id), _, _) => Ok(Kind::Request(Request {
                id,
                method,
                params: self.params,
            })),
            (Some(method), None, _, _) => Ok(Kind::Notification(method, self.params)),
            (None, Some(id), Some(result), _) => Ok(Kind::Response(id.get().parse().ok(), Ok(text(result)))),
            (None, Some(id), None, Some(error)) => Ok(Kind::Response(id.get().parse().ok(), Err(text(error)))),
            (None, _, _, _) => Err((
                -32600,
                "this is neither a request nor a notification nor an answer".to_owned(),
            )),
        }
    }
}

/// An error for whoever has sent something.
pub(super) fn failure(id: &str, code: i64, reason: &str) -> String {
    let error = error_text(code, reason, None).to_text();
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}")
}
