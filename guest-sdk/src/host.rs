//! What the host does for a proxy: timers, files, lists of them, and saved state. Owns the shape of these requests.

pub mod state;

use std::future::Future;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::RpcError;
use crate::json;
use crate::json::Json;
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

/// Whether the host would take this path of a file: relative, and without `..`. For configurations: saying so at the start is kinder than
/// a warning with every prompt.
///
/// ```
/// use consort_proxy::host::is_inside;
///
/// assert!(is_inside("docs/README.md"));
/// assert!(!is_inside("/etc/passwd") && !is_inside("docs/../../secret"));
/// ```
pub fn is_inside(path: &str) -> bool {
    let absolute = path.starts_with(['/', '\\']) || path.get(1..2) == Some(":");
    !path.is_empty() && !absolute && path.split(['/', '\\']).all(|part| part != "..")
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

/// What to list of a session's directory, for [`list_files`].
///
/// ```
/// use consort_proxy::host::List;
///
/// let sources = List::of("src").depth(32).skip(["target"]);
/// ```
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct List {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    depth: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skip: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_entries: Option<u64>,
}

impl List {
    /// What stands in a folder; an empty path is the session's directory itself.
    pub fn of(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            ..Self::default()
        }
    }

    /// Also what is below it, so many folders deep: 32 at most, 1 for the folder alone.
    #[must_use]
    pub fn depth(self, depth: u32) -> Self {
        Self {
            depth: Some(depth),
            ..self
        }
    }

    /// Does not enter folders with one of these names; 256 at most.
    #[must_use]
    pub fn skip<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        Self {
            skip: names.into_iter().map(Into::into).collect(),
            ..self
        }
    }

    /// Only what comes behind this path: the last one of a list that was truncated.
    #[must_use]
    pub fn after(self, path: impl Into<String>) -> Self {
        Self {
            after: Some(path.into()),
            ..self
        }
    }

    /// At most so many entries: 1,000 if nothing is said, and never more than 10,000.
    #[must_use]
    pub fn max_entries(self, entries: u64) -> Self {
        Self {
            max_entries: Some(entries),
            ..self
        }
    }
}

/// What stands in a folder, as [`list_files`] gives it: a folder before what is in it, and names in the order of their bytes.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Listing {
    /// Files and folders.
    pub entries: Vec<Entry>,
    /// Whether there is more than that.
    #[serde(default)]
    pub truncated: bool,
}

/// A file or a folder.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Entry {
    /// Its path, relative to the session's directory.
    pub path: String,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: EntryKind,
    /// Bytes of a file.
    #[serde(default)]
    pub size: Option<u64>,
    /// Whether it is a link to that. Links are not entered.
    #[serde(default)]
    pub link: bool,
}

/// What an [`Entry`] is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum EntryKind {
    /// A file.
    File,
    /// A folder.
    Directory,
    /// Something that this version does not know.
    #[serde(other)]
    Other,
}

/// Lists files and folders under the working directory that the client gave for the session: those that the proxy may read by its
/// grants `file:…`. What begins with a dot is among them only if the path of such a grant names it.
///
/// ```
/// use consort_proxy::host::{self, List};
/// use consort_proxy::RpcError;
///
/// async fn notes(session: &str) -> Result<Vec<String>, RpcError> {
///     let listing = host::list_files(session, &List::of("docs")).await?;
///     let paths = listing.entries.into_iter().map(|entry| entry.path);
///     Ok(paths.filter(|path| path.ends_with(".md")).collect())
/// }
/// ```
///
/// # Errors
/// [`RpcError::NOT_FOUND`] if there is no such folder; other codes if nothing in it may be read, or the host cannot.
pub fn list_files(session: &str, list: &List) -> impl Future<Output = Result<Listing, RpcError>> + use<> {
    let params = Json::encode(list).and_then(|params| {
        params.add("/sessionId", session)?;
        Ok(params)
    });
    let call = match params {
        Ok(params) => Peer::Host.request("host/file/list", params),
        Err(error) => Call::failed(error.into()),
    };
    async move {
        let listing = call.await?;
        listing
            .decode()
            .map_err(|error| RpcError::internal(format!("the host's answer is no list of files: {error}")))
    }
}
