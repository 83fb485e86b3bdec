//! `--trace FILE`: all traffic as JSON lines in the reference conductor's trace format, which its viewer opens. Watches through a
//! [`Tap`]; the chain hands events over and never waits. Must not know how a chain works.

mod event;
mod file;
mod mask;

use crate::tap::{Hop, Tap};
use anyhow::Context;
use event::Event;
use file::TraceFile;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of events that wait for the disk; what comes on top is dropped and counted. A second of a fast chain.
const MAX_WAITING: usize = 16 * 1024 * 1024;

/// Bytes that an event takes besides its text, roughly.
const RECORD: usize = 256;

/// How long the last events may take at the end.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// A trace that is being written. What is left is written when it is dropped.
pub struct Trace {
    begun: Instant,
    shared: Arc<Shared>,
    /// None when it ends.
    events: Option<Sender<Event>>,
    /// Only used at the end.
    finished: Mutex<Receiver<()>>,
}

#[derive(Default)]
struct Shared {
    waiting: AtomicUsize,
    dropped: AtomicU64,
}

impl Trace {
    /// Starts a trace in a file, whose former content is lost. Only the user can read it: it has prompts and files in it.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let file =
            TraceFile::create(path).with_context(|| format!("cannot write the trace file {}", path.display()))?;
        let shared = Arc::new(Shared::default());
        let (events, receiver) = mpsc::channel();
        let (finish, finished) = mpsc::channel();
        let begun = Instant::now();
        let writer = Writer {
            begun,
            file,
            shared: shared.clone(),
        };
        // Not joined, since a write may never end.
        thread::Builder::new()
            .name("trace".into())
            .spawn(move || {
                writer.run(&receiver);
                // Nobody may wait for it any more.
                let _ = finish.send(());
            })
            .context("cannot start the thread that writes the trace")?;
        Ok(Self {
            begun,
            shared,
            events: Some(events),
            finished: Mutex::new(finished),
        })
    }
}

impl Tap for Trace {
    fn hop(&self, hop: &Hop<'_>) {
        let size = RECORD + hop.text.map_or(0, crate::wire::text::Text::len);
        let waiting = self.shared.waiting.fetch_add(size, Ordering::Relaxed);
        // A large one is let in alone.
        let fits = waiting == 0 || waiting + size <= MAX_WAITING;
        let event = fits.then(|| Event::of(hop, self.begun.elapsed(), size));
        let sent = match (&self.events, event) {
            (Some(events), Some(event)) => events.send(event).is_ok(),
            _ => false,
        };
        if !sent {
            self.shared.waiting.fetch_sub(size, Ordering::Relaxed);
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.events = None;
        let finished = self.finished.get_mut().unwrap_or_else(PoisonError::into_inner);
        if finished.recv_timeout(LAST_WRITE).is_err() {
            tracing::warn!("the disk is too slow for the end of the trace, which is lost");
        }
    }
}

/// The end that writes.
struct Writer {
    begun: Instant,
    file: TraceFile,
    shared: Arc<Shared>,
}

impl Writer {
    fn run(mut self, events: &Receiver<Event>) {
        while let Some(event) = self.next(events) {
            let size = event.size;
            let line = event.line();
            self.shared.waiting.fetch_sub(size, Ordering::Relaxed);
            let written = self.write_dropped().and_then(|()| self.file.line(&line));
            if let Err(error) = written {
                tracing::error!("the trace ends here, since it cannot be written: {error}");
                return;
            }
        }
        if let Err(error) = self.write_dropped().and_then(|()| self.file.flush()) {
            tracing::error!("the end of the trace is lost, since it cannot be written: {error}");
        }
    }

    /// The next event. What was written so far is on the disk before it is waited for.
    fn next(&mut self, events: &Receiver<Event>) -> Option<Event> {
        if let Ok(event) = events.try_recv() {
            return Some(event);
        }
        if let Err(error) = self.file.flush() {
            tracing::error!("the trace cannot be written: {error}");
        }
        events.recv().ok()
    }

    /// Says how many events were dropped since the last one.
    fn write_dropped(&mut self) -> std::io::Result<()> {
        match self.shared.dropped.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            count => self.file.line(&event::dropped(self.begun.elapsed(), count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tap::{Kind, Place};
    use crate::wire::text::Text;

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let folder = std::env::temp_dir().join(format!("consort-trace-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("trace.jsons");
        let trace = Trace::create(&path).unwrap();
        // As if the disk had stalled with as much waiting.
        trace.shared.waiting.store(MAX_WAITING, Ordering::Relaxed);
        let text = Text::of(&serde_json::json!({"sessionId": "s"}));
        let hop = Hop {
            from: Place::Client,
            to: Place::Proxy(1),
            kind: Kind::Notification,
            method: "a",
            id: None,
            text: Some(&text),
        };
        trace.hop(&hop);
        trace.hop(&hop);
        trace.shared.waiting.store(0, Ordering::Relaxed);
        trace.hop(&Hop { method: "b", ..hop });
        drop(trace);
        let lines: Vec<serde_json::Value> = std::fs::read_to_string(&path)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert_eq!(
            (&lines[0]["method"], &lines[0]["params"]["events"]),
            (&"consort/dropped".into(), &2.into())
        );
        assert_eq!(
            (&lines[1]["method"], &lines[1]["to"]),
            (&"b".into(), &"Proxy(1)".into())
        );
        std::fs::remove_dir_all(folder).unwrap();
    }
}
