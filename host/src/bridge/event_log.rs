//! What is said to a client over one stream of events: kept until it was read, and a while longer, so that a broken stream goes on where
//! it broke.

use super::lock;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// Bytes of events that were read and are kept for a stream that goes on.
const KEPT: usize = 1024 * 1024;

/// Bytes of events that nobody has read. Who lets more come up to here loses the stream; one event above it is let in alone.
const UNREAD: usize = 16 * 1024 * 1024;

/// A stream of events.
#[derive(Default)]
pub(super) struct EventLog {
    /// Its number among those of its client.
    pub(super) number: u64,
    state: Mutex<State>,
    more: Notify,
    /// Counts who reads: the one that came last.
    reader: AtomicU64,
}

#[derive(Default)]
struct State {
    /// The number of the first of these.
    first: u64,
    events: VecDeque<Bytes>,
    bytes: usize,
    /// The number of the first event that was not read.
    read: u64,
    ended: bool,
}

/// Somebody who reads a stream.
pub(super) struct Cursor {
    reader: u64,
    /// The number of the event that comes next.
    pub(super) next: u64,
}

impl EventLog {
    pub(super) fn new(number: u64) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    /// Adds a message; says whether it is on its way.
    pub(super) fn push(&self, message: &str) -> bool {
        let mut state = lock(&self.state);
        if state.ended {
            return false;
        }
        // A line break ends it wherever it goes, and JSON has none outside of its strings that means anything.
        let event = Bytes::from(message.replace(['\n', '\r'], " "));
        state.bytes += event.len();
        state.events.push_back(event);
        while state.first < state.read && state.bytes > KEPT {
            state.drop_first();
        }
        if state.bytes > UNREAD && state.events.len() > 1 {
            state.ended = true;
        }
        drop(state);
        self.more.notify_waiters();
        true
    }

    /// Nothing more comes.
    pub(super) fn end(&self) {
        lock(&self.state).ended = true;
        self.more.notify_waiters();
    }

    /// Bytes of the events that are kept.
    pub(super) fn bytes(&self) -> usize {
        lock(&self.state).bytes
    }

    pub(super) fn has_ended(&self) -> bool {
        lock(&self.state).ended
    }

    /// Whether somebody has begun to read, and more may come.
    pub(super) fn is_heard(&self) -> bool {
        self.reader.load(Ordering::Relaxed) > 0 && !self.has_ended()
    }

    /// Begins to read, at this event or at the first that nobody has read. Who has read before gets nothing more.
    pub(super) fn read(&self, from: Option<u64>) -> Cursor {
        let state = lock(&self.state);
        let last = state.first + state.events.len() as u64;
        let next = from.unwrap_or(state.read).clamp(state.first, last);
        drop(state);
        let reader = self.reader.fetch_add(1, Ordering::Relaxed) + 1;
        self.more.notify_waiters();
        Cursor { reader, next }
    }

    /// Whether somebody who began to read is not the last one to do so.
    fn is_past(&self, cursor: &Cursor) -> bool {
        self.reader.load(Ordering::Relaxed) != cursor.reader
    }

    /// The next event and the number of what comes behind it; none at the end.
    pub(super) async fn next(&self, cursor: &mut Cursor) -> Option<(u64, Bytes)> {
        loop {
            let more = self.more.notified();
            if self.is_past(cursor) {
                return None;
            }
            {
                let mut state = lock(&self.state);
                let at = cursor
                    .next
                    .checked_sub(state.first)
                    .and_then(|at| usize::try_from(at).ok());
                if let Some(event) = at.and_then(|at| state.events.get(at).cloned()) {
                    cursor.next += 1;
                    state.read = state.read.max(cursor.next);
                    return Some((cursor.next, event));
                }
                if state.ended {
                    return None;
                }
            }
            more.await;
        }
    }
}

impl State {
    fn drop_first(&mut self) {
        if let Some(event) = self.events.pop_front() {
            self.bytes -= event.len();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(log: &EventLog, from: Option<u64>) -> Vec<(u64, Bytes)> {
        let mut cursor = log.read(from);
        let mut all = Vec::new();
        while let Some(event) = log.next(&mut cursor).await {
            all.push(event);
        }
        all
    }

    fn event(behind: u64, message: &'static str) -> (u64, Bytes) {
        (behind, Bytes::from_static(message.as_bytes()))
    }

    #[tokio::test]
    async fn a_stream_goes_on_where_it_broke() {
        let log = EventLog::new(3);
        for message in ["a", "b\nb", "c"] {
            log.push(message);
        }
        let mut cursor = log.read(None);
        assert_eq!(log.next(&mut cursor).await, Some(event(1, "a")));
        log.end();
        assert_eq!(all(&log, Some(1)).await, [event(2, "b b"), event(3, "c")]);
        assert!(log.next(&mut cursor).await.is_none(), "somebody else reads now");
        assert!(all(&log, None).await.is_empty(), "all was read");
        assert!(all(&log, Some(u64::MAX)).await.is_empty());
    }

    #[tokio::test]
    async fn what_nobody_reads_ends_the_stream() {
        let log = EventLog::new(0);
        let large = "x".repeat(6 * 1024 * 1024);
        for _ in 0..5 {
            log.push(&large);
        }
        assert!(log.has_ended());
        assert_eq!(all(&log, None).await.len(), 3, "nothing that came in is lost");
    }
}
