//! What went over the hops of a chain, as far as the demo shows it.

use crate::tap::{Hop, Kind, Place, Tap};
use crate::wire::text::Text;
use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, CLIENT_METHOD_NAMES, ContentBlock, ContentChunk, EmbeddedResourceResource, PromptRequest,
    SessionNotification, SessionUpdate,
};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A piece of traffic on one hop, as lines of text.
#[derive(Clone, Debug)]
pub(super) struct Passage {
    pub(super) from: Place,
    pub(super) to: Place,
    pub(super) text: String,
}

/// What the demo needs to know.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    /// The prompt, hop by hop.
    pub(super) prompt: Vec<Passage>,
    /// The answer's text, hop by hop.
    pub(super) answer: Vec<Passage>,
    /// From the beginning until the chain was initialised.
    pub(super) ready: Option<Duration>,
    /// From the prompt to the end of the turn.
    pub(super) turn: Option<Duration>,
    /// When the prompt left the client.
    pub(super) prompted: Option<Duration>,
}

/// A tap that keeps a record.
pub(super) struct Recorder {
    started: Instant,
    record: Mutex<Record>,
}

impl Recorder {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            record: Mutex::default(),
        }
    }

    pub(super) fn take(&self) -> Record {
        std::mem::take(&mut *self.record.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Tap for Recorder {
    fn hop(&self, hop: &Hop<'_>) {
        let now = self.started.elapsed();
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        if hop.method == AGENT_METHOD_NAMES.initialize && hop.kind == Kind::Result && hop.to == Place::Client {
            record.ready = Some(now);
        } else if hop.method == AGENT_METHOD_NAMES.session_prompt {
            record.prompt_hop(hop, now);
        } else if hop.method == CLIENT_METHOD_NAMES.session_update {
            record.update_hop(hop);
        }
    }
}

impl Record {
    fn prompt_hop(&mut self, hop: &Hop<'_>, now: Duration) {
        match hop.kind {
            Kind::Request => {
                self.prompted.get_or_insert(now);
                if let Some(request) = hop.text.and_then(Text::decode::<PromptRequest>) {
                    self.prompt.push(Passage {
                        from: hop.from,
                        to: hop.to,
                        text: request.prompt.iter().map(block).collect(),
                    });
                }
            }
            _ if hop.to == Place::Client => {
                self.turn = self.prompted.map(|prompted| now.saturating_sub(prompted));
            }
            _ => {}
        }
    }

    fn update_hop(&mut self, hop: &Hop<'_>) {
        let Some(SessionNotification {
            update: SessionUpdate::AgentMessageChunk(ContentChunk { content, .. }),
            ..
        }) = hop.text.and_then(Text::decode)
        else {
            return;
        };
        let ContentBlock::Text(text) = content else {
            return;
        };
        let known = self
            .answer
            .iter_mut()
            .find(|passage| (passage.from, passage.to) == (hop.from, hop.to));
        match known {
            Some(passage) => passage.text.push_str(&text.text),
            None => self.answer.push(Passage {
                from: hop.from,
                to: hop.to,
                text: text.text,
            }),
        }
    }
}

/// A block of a prompt as lines: what it is, and its text.
fn block(block: &ContentBlock) -> String {
    let (title, content) = match block {
        ContentBlock::Text(text) => ("text".to_owned(), text.text.as_str()),
        ContentBlock::Resource(resource) => match &resource.resource {
            EmbeddedResourceResource::TextResourceContents(resource) => {
                (format!("resource {}", resource.uri), resource.text.as_str())
            }
            _ => ("resource".to_owned(), ""),
        },
        ContentBlock::ResourceLink(link) => (format!("link {}", link.uri), ""),
        _ => ("another block".to_owned(), ""),
    };
    let mut text = format!("[{title}]\n");
    for line in content.lines() {
        text.push_str(line);
        text.push('\n');
    }
    text
}
