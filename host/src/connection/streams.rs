//! The small steps of reading and writing that the driver puts together.

use crate::wire::envelope::{self, Id, Malformed};
use crate::wire::lines::Line;
use crate::wire::output::Output;
use crate::wire::skim::Skim;
use bytes::Bytes;
use std::future::Future;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::Poll;
use std::time::Instant;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::oneshot;

/// A line that is no message.
pub(super) struct Refused {
    pub(super) malformed: Malformed,
    /// What can be made out of it all the same.
    pub(super) skims: Vec<Skim>,
    /// Its beginning, for a person.
    pub(super) quoted: String,
}

/// Reads a line.
pub(super) fn parsed(line: Line, cap: usize) -> Result<envelope::Incoming, Box<Refused>> {
    match line {
        Line::Whole(bytes) => envelope::parse(&bytes).map_err(|malformed| {
            Box::new(Refused {
                malformed,
                skims: Skim::all_of(&bytes),
                quoted: quote(&bytes),
            })
        }),
        Line::TooLong(skipped) => {
            let malformed = Malformed {
                code: -32600,
                // A request that is too long gets its answer all the same.
                id: skipped.skim.asked().unwrap_or_else(Id::null),
                reason: format!(
                    "the line is longer than {cap} bytes, which is the most that is taken; `--max-line` or `max-line` in \
                     consort.toml sets it"
                ),
            };
            Err(Box::new(Refused {
                malformed,
                quoted: quote(&skipped.beginning),
                skims: vec![skipped.skim],
            }))
        }
    }
}

/// The beginning of a line, for a person.
fn quote(line: &Bytes) -> String {
    const SHOWN: usize = 200;
    let text = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]);
    let mut quoted = crate::log::printable(text.trim_end());
    if line.len() > SHOWN {
        quoted.push('…');
    }
    quoted
}

pub(super) async fn write_some<'a, W: AsyncWrite + Unpin>(
    to: Option<&mut W>,
    output: &'a mut Output,
    slices: &mut [IoSlice<'a>],
) -> std::io::Result<usize> {
    let Some(to) = to else { return Ok(0) };
    let count = output.slices(slices);
    to.write_vectored(&slices[..count]).await
}

/// The first of two that is ready, looked at in the order given; waits for ever if there is none.
pub(super) async fn either<T, A, B>(client: Option<A>, agent: Option<B>, client_first: bool) -> T
where
    A: Future<Output = T>,
    B: Future<Output = T>,
{
    let (mut client, mut agent) = (std::pin::pin!(client), std::pin::pin!(agent));
    std::future::poll_fn(|context| {
        for turn in [client_first, !client_first] {
            let polled = if turn {
                client.as_mut().as_pin_mut().map(|client| client.poll(context))
            } else {
                agent.as_mut().as_pin_mut().map(|agent| agent.poll(context))
            };
            if let Some(Poll::Ready(ready)) = polled {
                return Poll::Ready(ready);
            }
        }
        Poll::Pending
    })
    .await
}

pub(super) async fn until(at: Option<Instant>) {
    if let Some(at) = at {
        tokio::time::sleep_until(at.into()).await;
    }
}

pub(super) async fn exit(exited: &mut Option<Pin<Box<dyn Future<Output = ()> + Send>>>) {
    if let Some(exited) = exited {
        exited.await;
    }
}

/// What comes of something, unless it is given up before.
pub(super) async fn unless<T>(given_up: oneshot::Receiver<()>, done: impl Future<Output = T>) -> Option<T> {
    let given_up = async {
        if given_up.await.is_err() {
            // Nobody can give it up any more.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        done = done => Some(done),
        () = given_up => None,
    }
}

/// Ends when somebody asks for it.
pub(super) async fn notified(notify: Option<&tokio::sync::Notify>) {
    if let Some(notify) = notify {
        notify.notified().await;
    }
}
