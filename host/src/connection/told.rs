//! Telling of what proxies tried and changed: the log hears of each thing once, the audit of all.

use crate::audit::Recorder;
use crate::grants::Profile;
use crate::message::{Denial, Peer};
use crate::sandbox::{INVENTED, MAX_INVENTED, Record};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// How long changes may wait until they are counted up.
pub(super) const TALLY: Duration = Duration::from_secs(30);

/// Denials that are told apart in the log; the audit has the rest.
const MAX_LOGGED: usize = 256;

/// What is told of all proxies of a connection.
pub(super) struct Told {
    audit: Recorder,
    proxies: Vec<(Arc<str>, Arc<Record>)>,
    logged: HashSet<(usize, String)>,
    /// Methods' names that no profile knows, by proxy: there may be as many as it likes.
    invented: HashMap<usize, HashSet<String>>,
}

impl Told {
    pub(super) fn new(audit: Recorder, proxies: Vec<(Arc<str>, Arc<Record>)>) -> Self {
        let mut told = Self {
            audit,
            proxies,
            logged: HashSet::new(),
            invented: HashMap::new(),
        };
        // What their start has brought.
        for index in 0..told.proxies.len() {
            told.look(index);
        }
        told
    }

    /// A proxy has had a turn, or a start.
    pub(super) fn look(&mut self, index: usize) {
        let Some((name, record)) = self.proxies.get(index) else {
            return;
        };
        let Some(news) = record.news() else { return };
        let name = name.clone();
        for (denial, times) in &news.denials {
            self.denied(index, &name, denial, *times);
        }
        for change in news.changes {
            let to = change.source.opposite().unwrap_or(Peer::Host);
            let (before, after) = (change.before.as_ref(), change.after.as_ref());
            self.audit.digests(&name, &change.method, to, before, after);
        }
        self.audit.lost(news.lost_changes);
    }

    fn denied(&mut self, index: usize, name: &str, denial: &Denial, times: u64) {
        let mut what = format!("{} {}", denial.peer.name(), denial.method);
        if !Profile::knows(&denial.method) {
            let names = self.invented.entry(index).or_default();
            if names.len() < MAX_INVENTED {
                names.insert(what.clone());
            } else if !names.contains(&what) {
                what = format!("{} {INVENTED}", denial.peer.name());
            }
        }
        self.audit.denied(name, &what, &denial.reason, times);
        let key = (index, denial.reason.clone());
        if self.logged.len() < MAX_LOGGED && self.logged.insert(key) {
            tracing::warn!(target: "consort::grants", "proxy `{name}` was denied something: {}", denial.reason);
        }
    }

    /// Counts up what proxies have changed.
    pub(super) fn tally(&mut self) {
        for (name, record) in &self.proxies {
            for (source, method, count) in record.take_changed() {
                let to = source.opposite().unwrap_or(Peer::Host);
                self.audit.changes(name, &method, to, count);
            }
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.tally();
    }
}
