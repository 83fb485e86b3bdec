//! The thread that writes the file.

use super::counts::INTERVAL;
use super::file::AuditFile;
use super::line::Line;
use super::{Shared, lock};
use crate::digest::sha256;
use crate::wire::text::Text;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Instant;

/// What may wait for the thread.
pub(super) enum Item {
    Line(String),
    Changed(Changed),
    /// Say so when everything before it is written.
    Flush(Sender<()>),
}

/// A change whose digests are still to be made, which takes too long for a connection's task.
pub(super) struct Changed {
    pub(super) line: Line,
    pub(super) before: Option<Text>,
    pub(super) after: Option<Text>,
}

impl Changed {
    /// Bytes that it keeps in memory, roughly.
    pub(super) fn size(&self) -> usize {
        let length = |text: &Option<Text>| text.as_ref().map_or(0, Text::len);
        1024 + length(&self.before) + length(&self.after)
    }

    fn finish(self) -> String {
        let digest = |text: Option<Text>| match text {
            Some(text) => json!({ "bytes": text.len(), "sha256": sha256(text.pieces()) }),
            None => Value::Null,
        };
        let fields = json!({ "before": digest(self.before), "after": digest(self.after) });
        self.line.fields(fields).finish()
    }
}

pub(super) struct Writer {
    path: PathBuf,
    file: AuditFile,
    shared: Arc<Shared>,
    /// That the file cannot be written was said in the log.
    told: bool,
}

impl Writer {
    pub(super) fn new(path: &Path, shared: Arc<Shared>) -> Self {
        Self {
            path: path.to_owned(),
            file: AuditFile::new(path),
            shared,
            told: false,
        }
    }

    /// Writes until nobody records any more.
    pub(super) fn run(mut self, items: &Receiver<Item>) {
        let mut counted = Instant::now();
        loop {
            match items.recv_timeout(INTERVAL) {
                Ok(item) => self.item(item),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if counted.elapsed() >= INTERVAL {
                counted = Instant::now();
                self.write_counts(counted);
            }
        }
        self.write_dropped();
    }

    fn item(&mut self, item: Item) {
        match item {
            Item::Line(line) => {
                self.shared.lines.fetch_sub(line.len(), Ordering::Relaxed);
                self.write(&line);
            }
            Item::Changed(changed) => {
                let size = changed.size();
                let line = changed.finish();
                self.shared.texts.fetch_sub(size, Ordering::Relaxed);
                self.write(&line);
            }
            Item::Flush(done) => {
                self.write_dropped();
                // Whoever waited may have given up.
                let _ = done.send(());
            }
        }
    }

    /// Writes what was counted on connections that go on.
    fn write_counts(&mut self, now: Instant) {
        let counts: Vec<_> = lock(&self.shared.counts)
            .iter()
            .filter_map(|counts| counts.upgrade())
            .collect();
        for counts in counts {
            let lines = lock(&counts).take(Some(now));
            for line in lines {
                self.write(&line);
            }
        }
    }

    fn write(&mut self, line: &str) {
        self.write_dropped();
        self.append(line, 1);
    }

    /// Says how many lines were dropped since the last one.
    fn write_dropped(&mut self) {
        match self.shared.dropped.swap(0, Ordering::Relaxed) {
            0 => {}
            count => {
                let line = Line::new("dropped", None).number("count", count).finish();
                self.append(&line, count);
            }
        }
    }

    fn append(&mut self, line: &str, worth: u64) {
        if let Err(error) = self.file.append(line) {
            self.shared.dropped.fetch_add(worth, Ordering::Relaxed);
            if !std::mem::replace(&mut self.told, true) {
                let path = self.path.display();
                tracing::warn!("the audit file {path} cannot be written: {error}; everything else goes on without it");
            }
        }
    }
}
