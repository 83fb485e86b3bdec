//! The audit file: what proxies were granted and denied, what they failed at and what became of them, and how much they changed, as
//! JSON lines that are only ever added. Owns the events and their file; must not know how a chain works.
//!
//! Nobody waits for it: events go to a thread through a queue with bounds, and what does not fit is counted, with the count in the
//! file. A proxy cannot fill the file either, to push out what it did: what it can cause at will is counted and written at most once
//! a minute, and whatever it names is cut.

mod counts;
mod file;
mod line;
mod writer;

use crate::fault::Fault;
use crate::message::{OnFailure, Peer};
use crate::wire::text::Text;
use anyhow::Context;
use counts::{Counts, Kind, Repeated};
use line::Line;
use serde_json::{Value, json};
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use writer::{Changed, Item, Writer};

/// Bytes of lines that may wait for the disk.
const MAX_LINES: usize = 1024 * 1024;

/// Bytes of messages that may wait for their digests, but for the last one.
const MAX_TEXTS: usize = 16 * 1024 * 1024;

/// How long the last lines may take at the end.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// What is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Nothing.
    Off,
    /// What was granted, denied, failed and so on, and how many messages were changed.
    #[default]
    Events,
    /// The same, and for each message that a proxy changed its digests before and after.
    Changes,
}

impl Level {
    /// A level by its name in a configuration.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "off" => Some(Self::Off),
            "events" => Some(Self::Events),
            "changes" => Some(Self::Changes),
            _ => None,
        }
    }
}

/// The file that is used unless another is named; none where the environment names no place.
pub fn default_file() -> Option<PathBuf> {
    Some(crate::folders::state()?.join("audit.jsonl"))
}

/// An audit file that is being written. What is left is written when it is dropped.
pub struct Audit {
    level: Level,
    shared: Arc<Shared>,
    /// None when it ends.
    items: Option<Sender<Item>>,
    /// Only used at the end.
    finished: Mutex<Receiver<()>>,
}

/// What the writing thread and those who record share.
#[derive(Default)]
struct Shared {
    /// Bytes of lines that wait.
    lines: AtomicUsize,
    /// Bytes of messages that wait.
    texts: AtomicUsize,
    dropped: AtomicU64,
    /// The counts of each connection, which are written from time to time.
    counts: Mutex<Vec<Weak<Mutex<Counts>>>>,
}

impl Audit {
    /// Begins to write to a file, behind what is there. One that cannot be written is told in the log, and nothing else comes of it.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub fn start(file: &Path, level: Level) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (items, receiver) = mpsc::channel();
        let (finish, finished) = mpsc::channel();
        let writer = Writer::new(file, shared.clone());
        // Not joined, since a write may never end.
        thread::Builder::new()
            .name("audit".into())
            .spawn(move || {
                writer.run(&receiver);
                // Nobody may wait for it any more.
                let _ = finish.send(());
            })
            .context("cannot start the thread that writes the audit file")?;
        Ok(Self {
            level,
            shared,
            items: Some(items),
            finished: Mutex::new(finished),
        })
    }

    /// What happens on a connection, from now on.
    pub fn connection(self: &Arc<Self>) -> Recorder {
        let random = std::hash::RandomState::new().build_hasher().finish();
        let id: Arc<str> = format!("{:012x}", random >> 16).into();
        let counts = Arc::new(Mutex::new(Counts::new(id.clone())));
        let mut all = lock(&self.shared.counts);
        all.retain(|counts| counts.strong_count() > 0);
        all.push(Arc::downgrade(&counts));
        drop(all);
        Recorder(Some(Arc::new(Connection {
            audit: self.clone(),
            id,
            counts,
            ended: AtomicBool::new(false),
        })))
    }

    /// Waits until everything that was recorded so far is in the file, but not for long.
    pub fn flush(&self) {
        let (done, written) = mpsc::channel();
        let sent = self
            .items
            .as_ref()
            .is_some_and(|items| items.send(Item::Flush(done)).is_ok());
        if sent && written.recv_timeout(LAST_WRITE).is_err() {
            tracing::warn!("the disk is too slow for the end of the audit file, which is lost");
        }
    }

    fn line(&self, line: String) {
        let waiting = &self.shared.lines;
        if waiting.load(Ordering::Relaxed) + line.len() > MAX_LINES {
            return self.dropped();
        }
        waiting.fetch_add(line.len(), Ordering::Relaxed);
        self.send(Item::Line(line));
    }

    fn changed(&self, changed: Changed) {
        let waiting = &self.shared.texts;
        let before = waiting.load(Ordering::Relaxed);
        if before > 0 && before + changed.size() > MAX_TEXTS {
            return self.dropped();
        }
        waiting.fetch_add(changed.size(), Ordering::Relaxed);
        self.send(Item::Changed(changed));
    }

    fn send(&self, item: Item) {
        // The thread is there as long as this is.
        if self.items.as_ref().is_none_or(|items| items.send(item).is_err()) {
            self.dropped();
        }
    }

    fn dropped(&self) {
        self.shared.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.items = None;
        let finished = self.finished.get_mut().unwrap_or_else(PoisonError::into_inner);
        // If it takes longer, that was told when it was flushed.
        let _ = finished.recv_timeout(LAST_WRITE);
    }
}

/// Takes down what happens on one connection; the default takes down nothing. Cheap to clone, and never waits.
#[derive(Clone, Default)]
pub struct Recorder(Option<Arc<Connection>>);

struct Connection {
    audit: Arc<Audit>,
    id: Arc<str>,
    /// Apart from the rest, since the writing thread holds them for a moment and must not be the last to let go of a connection.
    counts: Arc<Mutex<Counts>>,
    ended: AtomicBool,
}

impl Recorder {
    /// A connection or, with a name, a proxy on it has started. The fields are free.
    pub fn started(&self, proxy: Option<&str>, fields: Value) {
        self.event("started", proxy, fields);
    }

    /// A proxy was granted something. The fields are free.
    pub fn granted(&self, proxy: &str, fields: Value) {
        self.event("granted", Some(proxy), fields);
    }

    /// A proxy was denied something: a method, for example, and why. The same again is counted.
    pub fn denied(&self, proxy: &str, what: &str, detail: &str, times: u64) {
        self.count(Kind::Denied, proxy, what, detail, times);
    }

    /// A proxy did nothing about a message, which was taken from it. More of that are counted.
    pub fn held(&self, proxy: &str, method: &str, cause: &str) {
        self.count(Kind::Held, proxy, method, cause, 1);
    }

    /// A proxy failed.
    pub fn failed(&self, proxy: &str, fault: &Fault) {
        if self.0.is_some() {
            let (phase, class) = (fault.phase.name(), fault.class.name());
            let fields = json!({ "phase": phase, "class": class, "cause": fault.cause });
            self.event("failed", Some(proxy), fields);
        }
    }

    /// A proxy that failed has a new instance.
    pub fn restarted(&self, proxy: &str) {
        self.event("restarted", Some(proxy), Value::Null);
    }

    /// A proxy has failed too often and is off for a while.
    pub fn off(&self, proxy: &str, on_failure: OnFailure, rest: Duration) {
        if self.0.is_some() {
            let event = match on_failure {
                OnFailure::Bypass => "bypassed",
                OnFailure::Closed => "closed",
            };
            let until = line::rfc3339(SystemTime::now() + rest);
            self.event(event, Some(proxy), json!({ "until": until }));
        }
    }

    /// A proxy that was off is tried again.
    pub fn retried(&self, proxy: &str) {
        self.event("retried", Some(proxy), Value::Null);
    }

    /// A message was kept from going past a proxy that failed and lets nothing past it then. More of the same method are counted.
    pub fn shut_out(&self, proxy: &str, method: &str) {
        self.count(Kind::ShutOut, proxy, method, "", 1);
    }

    /// A proxy changed so many messages on their way to the client or the agent, or put others in their place.
    pub fn changes(&self, proxy: &str, method: &str, to: Peer, times: u64) {
        self.count(Kind::Changed, proxy, method, to.name(), times);
    }

    /// Whether digests of changes are written.
    pub fn keeps_changes(&self) -> bool {
        let connection = self.0.as_ref();
        connection.is_some_and(|connection| connection.audit.level == Level::Changes)
    }

    /// So many digests of changes could not be kept.
    pub fn lost(&self, times: u64) {
        if let Some(connection) = &self.0 {
            connection.audit.shared.dropped.fetch_add(times, Ordering::Relaxed);
        }
    }

    /// A proxy changed a message: digests of what it was before and after are written, if that was asked for.
    pub fn digests(&self, proxy: &str, method: &str, to: Peer, before: Option<&Text>, after: Option<&Text>) {
        let Some(connection) = &self.0 else { return };
        if connection.audit.level != Level::Changes {
            return;
        }
        if !lock(&connection.counts).may_write_change(Instant::now()) {
            return connection.audit.dropped();
        }
        let line = Line::new("changed", Some(&connection.id))
            .text("proxy", proxy)
            .text("method", method)
            .text("to", to.name());
        connection.audit.changed(Changed {
            line,
            before: before.cloned(),
            after: after.cloned(),
        });
    }

    /// The connection is over.
    pub fn ended(&self) {
        if let Some(connection) = &self.0 {
            connection.end(false);
        }
    }

    fn event(&self, event: &str, proxy: Option<&str>, fields: Value) {
        let Some(connection) = &self.0 else { return };
        let mut line = Line::new(event, Some(&connection.id));
        if let Some(proxy) = proxy {
            line = line.text("proxy", proxy);
        }
        connection.audit.line(line.fields(fields).finish());
    }

    fn count(&self, kind: Kind, proxy: &str, what: &str, detail: &str, times: u64) {
        let Some(connection) = &self.0 else { return };
        let repeated = Repeated {
            kind,
            proxy,
            what,
            detail,
            times,
        };
        let line = lock(&connection.counts).add(&repeated, Instant::now());
        if let Some(line) = line {
            connection.audit.line(line);
        }
    }
}

impl Connection {
    fn end(&self, early: bool) {
        if self.ended.swap(true, Ordering::Relaxed) {
            return;
        }
        let lines = lock(&self.counts).take(None);
        for line in lines {
            self.audit.line(line);
        }
        let fields = match early {
            true => json!({ "early": true }),
            false => Value::Null,
        };
        self.audit
            .line(Line::new("ended", Some(&self.id)).fields(fields).finish());
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // By a signal, for example.
        self.end(true);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
