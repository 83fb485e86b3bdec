//! What proxies keep on this computer: a few keys and values for each, which survive restarts of the proxy and of Consort. Owns
//! the requests, the quotas and what is answered; must not know who asks, or when.
//!
//! Every change goes to the disk as a whole, under a lock, before it is answered. So what was answered is there after a crash, two
//! processes that run proxies of the same name see each other's changes, and a change that cannot be made leaves what was there.

mod entries;
mod store;

use crate::message::Outcome;
use crate::wire::envelope::error_text;
use crate::wire::text::Text;
use entries::Entries;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use store::Store;

/// The largest limit that can be set.
pub const MAX_LIMIT: u64 = 64 * 1024 * 1024;

/// The longest key in bytes. A key is a name; what is long belongs into the value.
const MAX_KEY: usize = 256;

/// Keys of one proxy, so that a list of them stays small.
const MAX_KEYS: usize = 1000;

/// The code of an error that tells of a quota. Not -32000, which means in ACP that the user has to log in.
pub(crate) const QUOTA: i64 = -32010;

/// What a proxy wants of its saved state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The value of a key.
    Get {
        /// The key.
        key: String,
    },
    /// A key gets a value.
    Set {
        /// The key.
        key: String,
        /// The JSON text of the value.
        value: String,
    },
    /// A key is removed.
    Delete {
        /// The key.
        key: String,
    },
    /// All keys.
    Keys,
}

impl Request {
    /// Bytes that it keeps in memory, roughly.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Set { key, value } => key.len() + value.len(),
            Self::Get { key } | Self::Delete { key } => key.len(),
            Self::Keys => 0,
        }
    }
}

/// The saved state of one proxy.
#[derive(Debug)]
pub struct SavedState {
    /// None where there is no place for it.
    store: Option<Store>,
    proxy: String,
    limit: u64,
    /// That the disk fails was said in the log.
    told: AtomicBool,
}

/// Where saved state is kept; none where the environment names no place.
pub fn folder() -> Option<PathBuf> {
    Some(crate::folders::state()?.join("state"))
}

impl SavedState {
    /// The state of the proxy with this name, of at most `limit` bytes on disk.
    pub fn new(folder: Option<&Path>, proxy: &str, limit: u64) -> Self {
        Self {
            store: folder.map(|folder| Store::new(folder, proxy)),
            proxy: proxy.to_owned(),
            limit: limit.min(MAX_LIMIT),
            told: AtomicBool::new(false),
        }
    }

    /// Bytes on disk that it may take.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Does what is asked. Blocks until it is on the disk.
    pub fn answer(&self, request: Request) -> Outcome {
        let Some(store) = &self.store else {
            let reason = "there is no place for saved state: neither XDG_STATE_HOME nor HOME is set";
            return Err(error_text(-32603, reason, None));
        };
        self.carry_out(store, request).unwrap_or_else(|error| {
            if !self.told.swap(true, Ordering::Relaxed) {
                let (proxy, folder) = (&self.proxy, store.folder().display());
                tracing::warn!("the saved state of proxy `{proxy}` in {folder} cannot be used: {error}");
            }
            let reason = format!("the saved state cannot be used: {error}");
            Err(error_text(-32603, &reason, None))
        })
    }

    fn carry_out(&self, store: &Store, request: Request) -> io::Result<Outcome> {
        let answer = match request {
            Request::Get { key } => {
                if let Err(error) = check(&key) {
                    return Ok(Err(error));
                }
                match self.read(store)?.get(&key) {
                    Some(value) => Text::trusted(format!("{{\"value\":{value}}}")),
                    None => Text::trusted("{}"),
                }
            }
            Request::Keys => Text::of(&serde_json::json!({ "keys": self.read(store)?.keys() })),
            Request::Set { key, value } => {
                if let Err(error) = check(&key) {
                    return Ok(Err(error));
                }
                let _lock = store.lock()?;
                let mut entries = self.read_locked(store)?;
                let before = entries.size();
                if entries.get(&key) != Some(value.as_str()) {
                    entries.set(key, value)?;
                    if let Err(error) = self.check_quota(&entries, before) {
                        return Ok(Err(error));
                    }
                    store.write(&entries.to_bytes(&self.proxy))?;
                }
                Text::trusted("{}")
            }
            Request::Delete { key } => {
                if let Err(error) = check(&key) {
                    return Ok(Err(error));
                }
                // What is not there needs no lock, and no folder.
                if self.read(store)?.get(&key).is_some() {
                    let _lock = store.lock()?;
                    let mut entries = self.read_locked(store)?;
                    if entries.remove(&key) {
                        store.write(&entries.to_bytes(&self.proxy))?;
                    }
                }
                Text::trusted("{}")
            }
        };
        Ok(Ok(answer))
    }

    fn check_quota(&self, entries: &Entries, before: u64) -> Result<(), Text> {
        let (size, keys) = (entries.size(), entries.keys().len());
        let data = serde_json::json!({ "limit": self.limit, "needed": size, "maxKeys": MAX_KEYS });
        // What becomes smaller is always taken: the limit may have been lowered.
        if size > self.limit && size > before {
            let reason = format!(
                "the saved state of proxy `{}` would take {size} bytes and may take {}; delete keys that are not needed, or \
                 set `limits.state` in consort.toml higher",
                self.proxy, self.limit
            );
            return Err(error_text(QUOTA, &reason, Some(data)));
        }
        if keys > MAX_KEYS {
            let reason = format!(
                "proxy `{}` has {MAX_KEYS} keys in its saved state already, and may have no more; delete keys that are not \
                 needed, or put more into one value",
                self.proxy
            );
            return Err(error_text(QUOTA, &reason, Some(data)));
        }
        Ok(())
    }

    /// What is there now. A writer puts whole files in place, so reading needs no lock.
    fn read(&self, store: &Store) -> io::Result<Entries> {
        match store.read()?.map(|bytes| Entries::parse(&bytes)) {
            None => Ok(Entries::default()),
            Some(Ok(entries)) => Ok(entries),
            Some(Err(_)) => {
                let _lock = store.lock()?;
                self.read_locked(store)
            }
        }
    }

    /// The same under the lock: what is damaged is put aside, never written over.
    fn read_locked(&self, store: &Store) -> io::Result<Entries> {
        match store.read()?.map(|bytes| Entries::parse(&bytes)) {
            None => Ok(Entries::default()),
            Some(Ok(entries)) => Ok(entries),
            Some(Err(reason)) => {
                let aside = store.put_aside()?;
                let (proxy, aside) = (&self.proxy, aside.display());
                tracing::warn!(
                    "the saved state of proxy `{proxy}` is damaged ({reason}); it is now {aside}, and begins anew"
                );
                Ok(Entries::default())
            }
        }
    }
}

fn check(key: &str) -> Result<(), Text> {
    if key.len() <= MAX_KEY {
        return Ok(());
    }
    let reason = format!("a key has at most {MAX_KEY} bytes, and this one {}", key.len());
    Err(error_text(-32602, &reason, None))
}

#[cfg(test)]
mod tests;
