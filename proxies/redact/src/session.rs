//! What a session has of streams that are not at their end.

use std::task::{Context, Poll, Waker};

use consort_proxy::{Json, JsonError};

use crate::rules::Rules;
use crate::stream::Stream;

/// Streams that are open at a time. Agents have two, the message and the thought, or a few messages side by side.
const MAX_STREAMS: usize = 8;

/// Which stream a chunk belongs to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The kind of update.
    pub(crate) kind: String,
    /// The message, if the agent says.
    pub(crate) message: Option<String>,
}

#[derive(Default)]
pub(crate) struct Session {
    /// Requests during which the agent streams.
    pub(crate) turns: u32,
    /// Whether a handler watches over what is held back, for when no turn brings it out.
    pub(crate) timer: bool,
    /// That handler, while it waits for the turns to end.
    watcher: Option<Waker>,
    /// Whether text came since the handler began to sleep.
    fed: bool,
    streams: Vec<Open>,
}

struct Open {
    place: Place,
    stream: Stream,
    /// The last chunk, with an empty text: the shape of the one that brings out what is held back.
    shape: Option<Json>,
}

/// What comes of a chunk.
pub(crate) struct Pushed {
    /// Its text as it goes on.
    pub(crate) text: String,
    /// Chunks to send before it, of a stream that had to make room.
    pub(crate) crowded_out: Vec<Json>,
    /// Whether somebody has to watch over what is held back, because there may be no turn to bring it out.
    pub(crate) starts_timer: bool,
}

impl Session {
    /// Takes a chunk.
    pub(crate) fn push(&mut self, rules: &Rules, place: Place, chunk: &Json, text: &str) -> Result<Pushed, JsonError> {
        let index = self.streams.iter().position(|open| open.place == place);
        let mut crowded_out = Vec::new();
        let mut open = match index {
            Some(index) => self.streams.remove(index),
            None => {
                if self.streams.len() >= MAX_STREAMS {
                    crowded_out.extend(self.streams.remove(0).pause(rules));
                }
                Open {
                    place,
                    stream: Stream::default(),
                    shape: None,
                }
            }
        };
        let text = open.stream.push(rules, text, false);
        open.shape = match open.stream.holds() {
            true => {
                let shape = chunk.clone();
                shape.replace("/update/content/text", "")?;
                Some(shape)
            }
            false => None,
        };
        // In a turn too, since it can be cancelled.
        let starts_timer = open.stream.holds() && !self.timer;
        self.timer |= starts_timer;
        self.fed = true;
        // The one that was used last is the last.
        self.streams.push(open);
        Ok(Pushed {
            text,
            crowded_out,
            starts_timer,
        })
    }

    /// Brings out what all streams hold back: a chunk for each that has something. Streams inside of a secret stay open.
    pub(crate) fn pause(&mut self, rules: &Rules) -> Vec<Json> {
        let chunks = self.streams.iter_mut().filter_map(|open| open.pause(rules)).collect();
        self.streams.retain(|open| open.stream.is_inside());
        chunks
    }

    /// Brings out everything before a turn's answer. If it is the last turn, nothing stays open.
    pub(crate) fn answer(&mut self, rules: &Rules) -> Vec<Json> {
        let chunks = self.pause(rules);
        if self.turns <= 1 {
            self.streams.clear();
        }
        chunks
    }

    /// A turn is over, by its answer or by a cancellation.
    pub(crate) fn end_turn(&mut self) {
        self.turns = self.turns.saturating_sub(1);
        if self.turns == 0
            && let Some(watcher) = self.watcher.take()
        {
            watcher.wake();
        }
    }

    /// Ready when there are no turns: whether there is still something to watch over.
    pub(crate) fn poll_turns(&mut self, context: &Context<'_>) -> Poll<bool> {
        if self.turns > 0 {
            self.watcher = Some(context.waker().clone());
            return Poll::Pending;
        }
        self.fed = false;
        self.timer = self.streams.iter().any(|open| open.stream.holds());
        Poll::Ready(self.timer)
    }

    /// After a sleep: brings out everything, as [`Self::pause`], unless a turn began or text came meanwhile. That text may end in
    /// the middle of a secret.
    pub(crate) fn pause_if_idle(&mut self, rules: &Rules, slept: bool) -> Option<Vec<Json>> {
        if self.turns > 0 || (slept && self.fed) {
            return None;
        }
        self.timer = false;
        Some(self.pause(rules))
    }
}

/// The session may be forgotten before its turns end.
impl Drop for Session {
    fn drop(&mut self) {
        if let Some(watcher) = self.watcher.take() {
            watcher.wake();
        }
    }
}

impl Open {
    fn pause(&mut self, rules: &Rules) -> Option<Json> {
        let text = self.stream.pause(rules);
        let shape = self.shape.take().filter(|_| !text.is_empty())?;
        match shape.replace("/update/content/text", text) {
            Ok(()) => Some(shape),
            Err(error) => {
                consort_proxy::error!("the end of a text is lost: {error}");
                None
            }
        }
    }
}
