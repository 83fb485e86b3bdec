//! The files of the session's directory in a test: what the host would answer to `host/file/…`. Owns no grants: all of them may be read.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::RpcError;

/// Bytes of a file, and entries of a list, if nothing is said.
const DEFAULT_BYTES: usize = 1024 * 1024;
const DEFAULT_ENTRIES: usize = 1_000;

/// Paths and what stands there.
#[derive(Default)]
pub(super) struct Files(BTreeMap<String, String>);

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Params {
    path: String,
    max_bytes: usize,
    depth: usize,
    skip: Vec<String>,
    after: Option<String>,
    max_entries: usize,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            path: String::new(),
            max_bytes: DEFAULT_BYTES,
            depth: 1,
            skip: Vec::new(),
            after: None,
            max_entries: DEFAULT_ENTRIES,
        }
    }
}

impl Files {
    pub(super) fn put(&mut self, path: &str, text: &str) {
        self.0.insert(path.to_owned(), text.to_owned());
    }

    /// The answer to a request; none if it is about something else, or the test has no files and answers itself.
    pub(super) fn answer(&self, method: &str, params: &str) -> Option<Result<String, String>> {
        let asked = matches!(method, "host/file/read" | "host/file/list");
        if !asked || self.0.is_empty() {
            return None;
        }
        let Ok(params) = serde_json::from_str::<Params>(params) else {
            return Some(error(RpcError::INVALID_PARAMS, "wrong params"));
        };
        Some(match method {
            "host/file/read" => self.read(&params),
            _ => self.list(&params),
        })
    }

    fn read(&self, params: &Params) -> Result<String, String> {
        let Some(text) = self.0.get(&params.path) else {
            return error(RpcError::NOT_FOUND, "the file cannot be read: there is none");
        };
        let end = text.floor_char_boundary(params.max_bytes);
        Ok(json!({"text": text[..end], "truncated": end < text.len()}).to_string())
    }

    fn list(&self, params: &Params) -> Result<String, String> {
        let folder = params.path.trim_matches('/');
        let mut found: BTreeMap<Vec<&str>, Value> = BTreeMap::new();
        let mut exists = folder.is_empty();
        for (path, text) in &self.0 {
            let below = match folder {
                "" => Some(path.as_str()),
                folder => path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')),
            };
            let Some(below) = below else { continue };
            exists = true;
            let before = path.len() - below.len();
            let ends = below.match_indices('/').map(|(at, _)| at).chain([below.len()]);
            for end in ends.take(params.depth) {
                let shown = &path[..before + end];
                let entry = match end == below.len() {
                    true => json!({"path": shown, "type": "file", "size": text.len()}),
                    false => json!({"path": shown, "type": "directory"}),
                };
                found.insert(shown.split('/').collect(), entry);
                if params.skip.iter().any(|name| shown.rsplit('/').next() == Some(name)) {
                    break;
                }
            }
        }
        if !exists {
            return error(RpcError::NOT_FOUND, "the folder cannot be read: there is none");
        }
        let is_later = |path: &[&str]| {
            let after = params.after.as_deref();
            after.is_none_or(|after| path.iter().copied().cmp(after.split('/')) == Ordering::Greater)
        };
        let later = found.into_iter().filter(|(path, _)| is_later(path));
        let mut entries: Vec<Value> = later.map(|(_, entry)| entry).collect();
        let truncated = entries.len() > params.max_entries;
        entries.truncate(params.max_entries);
        Ok(json!({"entries": entries, "truncated": truncated}).to_string())
    }
}

fn error(code: i64, message: &str) -> Result<String, String> {
    Err(json!({"code": code, "message": message}).to_string())
}
