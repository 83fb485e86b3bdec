//! `--trace FILE`: all traffic as JSON lines in the reference conductor's trace format, which its viewer opens. Watches through a
//! [`Tap`]; the chain hands events over and never waits. Must not know how a chain works.

mod event;
mod file;
mod mask;

use crate::tap::{Hop, Tap};
use anyhow::Context;
use event::Event;
use file::TraceFile;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of events that wait for the disk, but for the last event; what comes on top is dropped and counted. A second of a fast
/// chain.
const MAX_WAITING: usize = 16 * 1024 * 1024;

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
        let waiting = &self.shared.waiting;
        let sent = self.events.as_ref().is_some_and(|events| {
            // What does not fit is not even looked at.
            if waiting.load(Ordering::Relaxed) >= MAX_WAITING {
                return false;
            }
            let event = Event::of(hop, self.begun.elapsed());
            let size = event.size();
            waiting.fetch_add(size, Ordering::Relaxed);
            let sent = events.send(event).is_ok();
            if !sent {
                waiting.fetch_sub(size, Ordering::Relaxed);
            }
            sent
        });
        if !sent {
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
        if let Err(error) = self.write(events) {
            tracing::error!("the trace ends here, since it cannot be written: {error}");
        }
    }

    fn write(&mut self, events: &Receiver<Event>) -> io::Result<()> {
        while let Some(event) = self.next(events)? {
            let size = event.size();
            let line = event.line();
            self.shared.waiting.fetch_sub(size, Ordering::Relaxed);
            self.write_dropped()?;
            self.file.line(&line)?;
        }
        self.write_dropped()?;
        self.file.flush()
    }

    /// The next event. What was written so far is on the disk before it is waited for.
    fn next(&mut self, events: &Receiver<Event>) -> io::Result<Option<Event>> {
        if let Ok(event) = events.try_recv() {
            return Ok(Some(event));
        }
        self.file.flush()?;
        Ok(events.recv().ok())
    }

    /// Says how many events were dropped since the last one.
    fn write_dropped(&mut self) -> io::Result<()> {
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
    use serde_json::Value;
    use std::path::PathBuf;

    /// A folder of its own for each test, and the trace in it.
    fn folder(test: &str) -> (PathBuf, PathBuf) {
        let folder = std::env::temp_dir().join(format!("consort-trace-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("trace.jsons");
        (folder, path)
    }

    fn read(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn notification<'a>(method: &'a str, text: &'a Text) -> Hop<'a> {
        Hop {
            from: Place::Client,
            to: Place::Proxy(1),
            kind: Kind::Notification,
            method,
            id: None,
            text: Some(text),
        }
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let (folder, path) = folder("full");
        let trace = Trace::create(&path).unwrap();
        // As if the disk had stalled with as much waiting.
        trace.shared.waiting.store(MAX_WAITING, Ordering::Relaxed);
        let text = Text::of(&serde_json::json!({"sessionId": "s"}));
        trace.hop(&notification("a", &text));
        trace.hop(&notification("a", &text));
        trace.shared.waiting.store(0, Ordering::Relaxed);
        trace.hop(&notification("b", &text));
        drop(trace);
        let lines = read(&path);
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

    #[test]
    fn an_event_is_counted_with_what_is_kept_of_it() {
        let (folder, path) = folder("kept");
        let trace = Trace::create(&path).unwrap();
        let long = Text::of(&"x".repeat(MAX_WAITING));
        // Room for what is told of the text, but not for the text.
        let before = MAX_WAITING - 1024;
        trace.shared.waiting.store(before, Ordering::Relaxed);
        trace.hop(&notification("long", &long));
        let shared = trace.shared.clone();
        drop(trace);
        let lines = read(&path);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0]["method"], "long");
        assert_eq!(shared.waiting.load(Ordering::Relaxed), before);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_trace_that_cannot_be_written_any_more_ends() {
        // What is buffered goes through, and is refused when it is flushed.
        let trace = Trace::create(Path::new("/dev/full")).unwrap();
        trace.hop(&notification("a", &Text::trusted("[]")));
        let finished = trace.finished.lock().unwrap();
        finished.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}
