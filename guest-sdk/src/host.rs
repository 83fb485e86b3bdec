//! What the host does for a proxy: timers, files and saved state. Owns the shape of these requests.

pub mod state;

use std::future::Future;
use std::time::Duration;

use serde::Deserialize;

use crate::error::RpcError;
use crate::json;
use crate::peer::{Call, Peer};

/// Waits. The time begins with the call, not with the first `.await`.
///
/// # Errors
/// If the host has no timers or too many requests are waiting.
pub fn sleep(time: Duration) -> impl Future<Output = Result<(), RpcError>> + use<> {
    // A part of a millisecond counts as a whole one: no sleep ends early.
    let milliseconds = time.as_nanos().div_ceil(1_000_000);
    let milliseconds = u64::try_from(milliseconds).unwrap_or(u64::MAX);
    let call = Peer::Host.request("host/sleep", json!({"milliseconds": milliseconds}));
    async move { call.await.map(drop) }
}

/// A file's text, as [`read_file`] gives it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct File {
    /// The text, or the beginning of it.
    pub text: String,
    /// Whether the file has more.
    #[serde(default)]
    pub truncated: bool,
}

/// Reads a text file under the working directory that the client gave for the session: at most `max_bytes` of it (1 MiB if none).
/// The path is relative, without `..`.
///
/// # Errors
/// [`RpcError::NOT_FOUND`] if there is no such file; other codes if the proxy may not read it or the host cannot.
pub fn read_file(
    session: &str,
    path: &str,
    max_bytes: Option<u64>,
) -> impl Future<Output = Result<File, RpcError>> + use<> {
    let mut params = serde_json::json!({"sessionId": session, "path": path});
    if let (Some(max_bytes), Some(params)) = (max_bytes, params.as_object_mut()) {
        params.insert("maxBytes".to_owned(), max_bytes.into());
    }
    let call: Call = Peer::Host.request("host/file/read", params);
    async move {
        let file = call.await?;
        file.decode()
            .map_err(|error| RpcError::internal(format!("the host's answer is no file: {error}")))
    }
}
