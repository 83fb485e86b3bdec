//! A stream of events as the body of an HTTP answer.

use super::event_log::{Cursor, EventLog};
use bytes::Bytes;
use hyper::body::{Body, Frame};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::AbortHandle;

/// How often a stream on which nothing is said shows that it is still there. Agents give up after a minute or more.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long a client should wait before it comes back for the rest of a stream that broke.
const RETRY: Duration = Duration::from_millis(500);

/// Work that ends with whoever waits for it.
pub(super) struct EndsWithThis(pub(super) AbortHandle);

impl Drop for EndsWithThis {
    fn drop(&mut self) {
        self.0.abort();
    }
}

type Reading = Pin<Box<dyn Future<Output = Option<(Bytes, Arc<EventLog>, Cursor)>> + Send + Sync>>;

/// The body of a stream of events.
pub(super) struct Events {
    /// What comes before all events.
    first: Option<Bytes>,
    reading: Reading,
    /// What is given up when nobody reads any more.
    _work: Option<EndsWithThis>,
}

impl Events {
    pub(super) fn new(log: Arc<EventLog>, cursor: Cursor, work: Option<EndsWithThis>) -> Self {
        Self {
            first: None,
            reading: read(log, cursor),
            _work: work,
        }
    }

    /// The same, where the client hears at once how it can come back: its revision has events that say nothing else.
    pub(super) fn primed(log: Arc<EventLog>, cursor: Cursor) -> Self {
        let first = format!(
            "id: {}-{}\nretry: {}\ndata: \n\n",
            log.number,
            cursor.next,
            RETRY.as_millis()
        );
        Self {
            first: Some(first.into()),
            ..Self::new(log, cursor, None)
        }
    }
}

/// The next event; something that says nothing if there is none for a while.
fn read(log: Arc<EventLog>, mut cursor: Cursor) -> Reading {
    Box::pin(async move {
        let next = tokio::time::timeout(KEEP_ALIVE, log.next(&mut cursor)).await;
        let frame = match next {
            Ok(event) => framed(log.number, event?),
            Err(_) => Bytes::from_static(b": \n\n"),
        };
        Some((frame, log, cursor))
    })
}

fn framed(stream: u64, (behind, message): (u64, Bytes)) -> Bytes {
    let mut frame = format!("id: {stream}-{behind}\nevent: message\ndata: ").into_bytes();
    frame.reserve_exact(message.len() + 2);
    frame.extend_from_slice(&message);
    frame.extend_from_slice(b"\n\n");
    frame.into()
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        match self.reading.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Ready(Some((event, log, cursor))) => {
                self.reading = read(log, cursor);
                Poll::Ready(Some(Ok(Frame::data(event))))
            }
        }
    }
}
