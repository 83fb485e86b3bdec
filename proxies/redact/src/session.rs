//! What a session has of streams that are not at their end.

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
    /// Whether a timer will bring out what is held back.
    pub(crate) timer: bool,
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
    /// Whether somebody has to bring out later what is held back, because no turn will.
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
        let starts_timer = open.stream.holds() && self.turns == 0 && !self.timer;
        self.timer |= starts_timer;
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

    /// As [`Self::pause`], at the end of the last turn: nothing stays open.
    pub(crate) fn finish(&mut self, rules: &Rules) -> Vec<Json> {
        let chunks = self.pause(rules);
        self.streams.clear();
        chunks
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
