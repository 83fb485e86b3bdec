//! The saved state of a proxy under test: what the host would answer to `host/state/…`, in memory.

use std::collections::BTreeMap;

use crate::error::RpcError;
use crate::raw;

/// The longest key in bytes.
const MAX_KEY: usize = 256;

/// Bytes of keys and values unless the test sets another limit.
const DEFAULT_LIMIT: usize = 1024 * 1024;

/// Keys and the JSON text of their values.
pub(super) struct Saved {
    pub(super) entries: BTreeMap<String, String>,
    pub(super) limit: usize,
}

impl Default for Saved {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            limit: DEFAULT_LIMIT,
        }
    }
}

impl Saved {
    /// The answer to a request; none if it is about something else.
    pub(super) fn answer(&mut self, method: &str, params: &str) -> Option<Result<String, String>> {
        let member = |name: &str| raw::Value::parse(params).ok()?.read(&format!("/{name}"));
        let key = || {
            let key: Option<String> = member("key").and_then(|key| serde_json::from_str(&key).ok());
            key.filter(|key| key.len() <= MAX_KEY)
                .ok_or_else(|| error(RpcError::INVALID_PARAMS, "`key` is no string of at most 256 bytes"))
        };
        let answer = match method {
            "host/state/get" => key().map(|key| match self.entries.get(&key) {
                Some(value) => format!("{{\"value\":{value}}}"),
                None => "{}".to_owned(),
            }),
            "host/state/set" => match (key(), member("value")) {
                (Ok(key), Some(value)) => self.set(key, value).map(|()| "{}".to_owned()),
                (Ok(_), None) => Err(error(RpcError::INVALID_PARAMS, "there is no `value`")),
                (Err(error), _) => Err(error),
            },
            "host/state/delete" => key().map(|key| {
                self.entries.remove(&key);
                "{}".to_owned()
            }),
            "host/state/keys" => {
                let keys: Vec<&String> = self.entries.keys().collect();
                Ok(serde_json::json!({ "keys": keys }).to_string())
            }
            _ => return None,
        };
        Some(answer)
    }

    fn set(&mut self, key: String, value: String) -> Result<(), String> {
        let others = self.entries.iter().filter(|(other, _)| **other != key);
        let size: usize = others.map(|(key, value)| key.len() + value.len()).sum();
        if size + key.len() + value.len() > self.limit {
            return Err(error(RpcError::QUOTA, "the saved state would take more than it may"));
        }
        self.entries.insert(key, value);
        Ok(())
    }
}

fn error(code: i64, message: &str) -> String {
    serde_json::json!({ "code": code, "message": message }).to_string()
}
