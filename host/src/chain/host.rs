//! The peer `host`: what a proxy can ask of Consort itself. A new service is a new method here and nowhere else.

use super::proxy::Target;
use super::router::{Effect, Router};
use crate::file_list;
use crate::log::named;
use crate::message::{Message, Notification, Outcome, Request, cancelled_number};
use crate::saved_state::{self, QUOTA};
use crate::wire::envelope::error_text;
use crate::wire::scan;
use crate::wire::text::Text;
use serde::Deserialize;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tracing::Level;

/// The longest sleep: a day.
const MAX_SLEEP: Duration = Duration::from_secs(24 * 60 * 60);

/// Bytes of a file that are read if the proxy does not say how many.
const DEFAULT_READ: u64 = 1024 * 1024;

/// The most bytes of a file that are read at once.
const MAX_READ: u64 = 16 * 1024 * 1024;

/// What the host answers.
const SERVICES: [&str; 7] = [
    "host/sleep",
    "host/file/read",
    "host/file/list",
    "host/state/get",
    "host/state/set",
    "host/state/delete",
    "host/state/keys",
];

#[derive(Deserialize)]
struct Sleep {
    milliseconds: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadFile {
    session_id: String,
    path: String,
    max_bytes: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListFiles {
    session_id: String,
    #[serde(flatten)]
    request: file_list::Request,
}

#[derive(Deserialize)]
struct Key {
    key: String,
}

#[derive(Deserialize)]
struct LogLine {
    level: String,
    message: String,
}

impl Router {
    /// A message of a proxy to the host.
    pub(super) fn host_message(&mut self, index: usize, message: Message) {
        let operation = self.number();
        self.show_to_host(index, operation, &message);
        match message {
            Message::Request(request) => self.host_request(index, operation, request),
            Message::Notification(notification) => self.host_notification(index, &notification),
            // The host asks nothing of proxies.
            Message::Response(_) => {}
        }
    }

    fn host_request(&mut self, index: usize, operation: u64, request: Request) {
        let Some(own) = request.id else { return };
        let effect = match &*request.method {
            "host/sleep" => decode(request.params.as_ref()).map(|sleep: Sleep| Effect::Sleep {
                operation,
                proxy: index,
                duration: Duration::from_millis(sleep.milliseconds).min(MAX_SLEEP),
            }),
            "host/file/read" => decode(request.params.as_ref()).and_then(|read| self.read_file(index, operation, read)),
            "host/file/list" => {
                decode(request.params.as_ref()).and_then(|list| self.list_files(index, operation, list))
            }
            method => saved_state(method, request.params.as_ref()).map(|request| Effect::SavedState {
                operation,
                proxy: index,
                request,
            }),
        };
        let effect = effect.and_then(|effect| match answer_bytes(&effect, self.proxies[index].state) {
            Some(bytes) if !self.proxies[index].reserve(operation, bytes) => {
                let reason = "too many answers are on their way to this proxy; wait for them, or ask for less at once";
                Err(error_text(QUOTA, reason, None))
            }
            _ => Ok(effect),
        });
        match effect {
            Ok(effect) => {
                self.proxies[index].requests.insert(own, Target::Host(operation));
                self.effects.push_back(effect);
            }
            Err(error) => {
                let outcome = Err(error);
                self.show_host_answer(index, operation, &outcome);
                self.deliver_host_response(index, own, outcome);
            }
        }
    }

    fn read_file(&self, index: usize, operation: u64, read: ReadFile) -> Result<Effect, Text> {
        if read.path.is_empty() || !is_plain(&read.path) {
            return Err(no_plain_path(&read.path));
        }
        Ok(Effect::ReadFile {
            operation,
            proxy: index,
            directory: self.directory_of(&read.session_id)?,
            path: read.path,
            max_bytes: read.max_bytes.unwrap_or(DEFAULT_READ).min(MAX_READ),
        })
    }

    fn list_files(&self, index: usize, operation: u64, list: ListFiles) -> Result<Effect, Text> {
        let ListFiles { session_id, request } = list;
        let after = request.after.as_deref().unwrap_or_default();
        if let Some(wrong) = [&request.path, after].into_iter().find(|path| !is_plain(path)) {
            return Err(no_plain_path(wrong));
        }
        if request.skip.len() > file_list::MAX_SKIPPED {
            let reason = format!("`skip` can name {} folders at most", file_list::MAX_SKIPPED);
            return Err(error_text(-32602, &reason, None));
        }
        Ok(Effect::ListFiles {
            operation,
            proxy: index,
            directory: self.directory_of(&session_id)?,
            request,
        })
    }

    fn directory_of(&self, session: &str) -> Result<Arc<PathBuf>, Text> {
        self.sessions.directory(session).ok_or_else(|| {
            let reason = format!("no working directory is known for session `{}`", named(session));
            error_text(-32002, &reason, None)
        })
    }

    fn host_notification(&mut self, index: usize, notification: &Notification) {
        match &*notification.method {
            "host/log" => {
                if let Ok(line) = decode::<LogLine>(notification.params.as_ref()) {
                    let level = line.level.parse().unwrap_or(Level::INFO);
                    self.proxies[index].log.message(level, &line.message);
                }
            }
            "$/cancel_request" => {
                let own = notification.params.as_ref().and_then(cancelled_number);
                self.cancel_own(index, own);
            }
            other => {
                let name = &self.proxies[index].name;
                tracing::debug!(
                    "a notification `{}` of proxy `{name}` to the host was dropped",
                    named(other)
                );
            }
        }
    }
}

/// Whether a path is relative and has no `..`. An empty one is.
fn is_plain(path: &str) -> bool {
    Path::new(path)
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

fn no_plain_path(path: &str) -> Text {
    let reason = format!("`{}` is not a relative path without `..`", named(path));
    error_text(-32602, &reason, None)
}

/// A request for saved state, or why it is none.
fn saved_state(method: &str, params: Option<&Text>) -> Result<saved_state::Request, Text> {
    use saved_state::Request::{Delete, Get, Keys, Set};
    let key = || decode(params).map(|Key { key }| key);
    match method {
        "host/state/get" => Ok(Get { key: key()? }),
        "host/state/set" => {
            let value = params.and_then(|params| Some(params.slice(scan::find(params, "/value")?)));
            let value = value.ok_or_else(|| error_text(-32602, "wrong params: missing field `value`", None))?;
            Ok(Set {
                key: key()?,
                value: value.to_text(),
            })
        }
        "host/state/delete" => Ok(Delete { key: key()? }),
        "host/state/keys" => Ok(Keys),
        other => Err(error_text(
            -32601,
            &format!(
                "the host does not know `{}`; it knows {}",
                named(other),
                SERVICES.join(", ")
            ),
            None,
        )),
    }
}

/// Bytes that the answer to an operation may have, if those may be many.
fn answer_bytes(effect: &Effect, state: u64) -> Option<u64> {
    match effect {
        Effect::ReadFile { max_bytes, .. } => Some(*max_bytes),
        Effect::ListFiles { .. } => u64::try_from(file_list::MAX_BYTES).ok(),
        Effect::SavedState { request, .. } => match request {
            saved_state::Request::Get { .. } | saved_state::Request::Keys => Some(state),
            saved_state::Request::Set { .. } | saved_state::Request::Delete { .. } => None,
        },
        _ => None,
    }
}

fn decode<T: serde::de::DeserializeOwned>(params: Option<&Text>) -> Result<T, Text> {
    // Params in a list would be read as well, past those who look at them by name.
    if params.is_some_and(|params| !scan::is_object(params)) {
        return Err(error_text(-32602, "wrong params: they must be an object", None));
    }
    let text = params.map(Text::to_vec).unwrap_or_else(|| b"{}".to_vec());
    // The reason may quote all of a text.
    let reason = |error: serde_json::Error| format!("wrong params: {}", named(&error.to_string()));
    serde_json::from_slice(&text).map_err(|error| error_text(-32602, &reason(error), None))
}

/// What a file read is answered with.
pub(crate) fn file_answer(read: std::io::Result<(Vec<u8>, bool)>) -> Outcome {
    let (mut bytes, truncated) = read.map_err(|error| unread("file", &error))?;
    if let Err(error) = std::str::from_utf8(&bytes) {
        // A cut may fall into a character; anything else is no text.
        if !truncated || error.error_len().is_some() {
            return Err(error_text(-32603, "the file is not UTF-8 text", None));
        }
        bytes.truncate(error.valid_up_to());
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(Text::of(&serde_json::json!({ "text": text, "truncated": truncated })))
}

/// What a list of files is answered with.
pub(crate) fn list_answer(listed: std::io::Result<Text>) -> Outcome {
    listed.map_err(|error| unread("folder", &error))
}

fn unread(what: &str, error: &std::io::Error) -> Text {
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => -32002,
        _ => -32603,
    };
    error_text(code, &format!("the {what} cannot be read: {error}"), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_does_not_repeat_all_that_was_asked() {
        let long = "x".repeat(1 << 20);
        let params = Text::of(&serde_json::json!({ "milliseconds": long }));
        let wrong = decode::<Sleep>(Some(&params)).err();
        let unknown = saved_state(&long, None).err();
        for error in [wrong, unknown] {
            let error = error.expect("it is refused").to_text();
            assert!(error.len() < 1_000 && error.contains("xxx…"), "{error:.2000}");
        }
    }
}
