//! The order in which a proxy's saved state is read and changed: that of its requests, one at a time, away from the
//! connection's task.

use crate::message::Outcome;
use crate::sandbox::Record;
use crate::saved_state::{QUOTA, Request, SavedState};
use crate::wire::envelope::error_text;
use crate::wire::text::Text;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long an answer may take.
const TIME: Duration = Duration::from_secs(10);

/// Bytes of requests that may wait however little the proxy may keep.
const ROOM: usize = 64 * 1024;

/// What a proxy wants of its saved state, in order.
pub(super) struct SavedQueue(Arc<Shared>);

struct Shared {
    state: SavedState,
    /// Pays for the time that the work takes.
    record: Option<Arc<Record>>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    bytes: usize,
    /// A thread is at it.
    working: bool,
}

struct Job {
    request: Request,
    answer: oneshot::Sender<Outcome>,
}

impl SavedQueue {
    /// The requests of a proxy, whose record pays for the time that they take.
    pub(super) fn new(state: SavedState, record: Option<Arc<Record>>) -> Self {
        let waiting = Mutex::default();
        Self(Arc::new(Shared { state, record, waiting }))
    }

    /// Takes a request. Its place is that of this call, whenever the answer is waited for.
    pub(super) fn ask(&self, request: Request) -> impl Future<Output = Outcome> + use<> {
        let answer = self.0.push(request);
        async move {
            match tokio::time::timeout(TIME, answer?).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) => Err(error_text(
                    -32603,
                    "the saved state cannot be used: Consort is ending",
                    None,
                )),
                Err(_) => Err(error_text(
                    -32603,
                    "the disk has not answered in time; what was asked for may still be done",
                    None,
                )),
            }
        }
    }
}

impl Shared {
    fn push(self: &Arc<Self>, request: Request) -> Result<oneshot::Receiver<Outcome>, Text> {
        let size = request.size();
        let limit = usize::try_from(self.state.limit()).unwrap_or(usize::MAX);
        let (answer, receiver) = oneshot::channel();
        let mut waiting = self.lock();
        // A proxy that does not wait for its answers must not fill the memory with what it wants to keep. One that is too large goes
        // in alone, to be told so.
        if waiting.bytes > 0 && waiting.bytes.saturating_add(size) > limit.saturating_mul(2).max(ROOM) {
            let reason = "too much waits to be saved; wait for the answers to earlier requests, or save less at once";
            return Err(error_text(QUOTA, reason, None));
        }
        waiting.bytes += size;
        waiting.jobs.push_back(Job { request, answer });
        if !std::mem::replace(&mut waiting.working, true) {
            let shared = self.clone();
            tokio::task::spawn_blocking(move || shared.work());
        }
        Ok(receiver)
    }

    fn work(&self) {
        while let Some(Job { request, answer }) = self.next() {
            // Whoever was told that it takes too long does not expect it to be done much later.
            if answer.is_closed() {
                continue;
            }
            let begun = Instant::now();
            // A panic must not leave all later requests waiting for a thread that is gone.
            let outcome = catch_unwind(AssertUnwindSafe(|| self.state.answer(request)));
            let outcome = outcome.unwrap_or_else(|_| {
                let reason = "Consort panicked over the saved state; please report this as a fault of Consort";
                Err(error_text(-32603, reason, None))
            });
            if let Some(record) = &self.record {
                record.work(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
            }
            // The connection may be over.
            let _ = answer.send(outcome);
        }
    }

    fn next(&self) -> Option<Job> {
        let mut waiting = self.lock();
        let job = waiting.jobs.pop_front();
        match &job {
            Some(job) => waiting.bytes -= job.request.size(),
            None => waiting.working = false,
        }
        job
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(value: usize) -> Request {
        Request::Set {
            key: "key".into(),
            value: value.to_string(),
        }
    }

    fn shown(outcome: &Outcome) -> String {
        match outcome {
            Ok(text) | Err(text) => text.to_text(),
        }
    }

    #[tokio::test]
    async fn what_is_asked_is_done_in_order_whoever_waits_first() {
        let folder = std::env::temp_dir().join(format!("consort-saved-order-{}", std::process::id()));
        let queue = SavedQueue::new(SavedState::new(Some(&folder), "proxy", 1024), None);
        for value in 0..20 {
            let written = queue.ask(set(value));
            let read = queue.ask(Request::Get { key: "key".into() });
            assert_eq!(shown(&read.await), format!("{{\"value\":{value}}}"));
            assert_eq!(shown(&written.await), "{}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn what_is_too_much_to_wait_is_refused_at_once() {
        let folder = std::env::temp_dir().join(format!("consort-saved-flood-{}", std::process::id()));
        let queue = SavedQueue::new(SavedState::new(Some(&folder), "proxy", 1024), None);
        // As if the disk had stalled with as much waiting.
        queue.0.lock().bytes = ROOM;
        let refused = queue.ask(set(1)).await;
        assert!(shown(&refused).contains("too much waits"), "{refused:?}");
        queue.0.lock().bytes = 0;
        assert_eq!(shown(&queue.ask(set(1)).await), "{}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn what_is_too_large_is_told_its_limit() {
        let folder = std::env::temp_dir().join(format!("consort-saved-large-{}", std::process::id()));
        let queue = SavedQueue::new(SavedState::new(Some(&folder), "proxy", 1024), None);
        let value = format!("\"{}\"", "x".repeat(2 * ROOM));
        let key = "key".into();
        let refused = queue.ask(Request::Set { key, value }).await;
        assert!(shown(&refused).contains("may take 1024"), "{refused:?}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
