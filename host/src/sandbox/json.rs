//! Host-held JSON values: the interface `json` of the world.

use super::bindings::consort::proxy::json::{Content, Edit as WitEdit, Host, HostValue};
use super::held::Share;
use super::limits::{LARGE_TEXT, MAX_DEPTH};
use super::seen::Seen;
use super::state::State;
use crate::message::Ticket;
use crate::wire::edit::{self, Edit};
use crate::wire::text::Text;
use std::ops::Range;
use wasmtime::Result;
use wasmtime::component::Resource;

/// What a handle stands for.
#[derive(Clone, Debug)]
#[allow(unreachable_pub, reason = "the generated bindings name this type and need it public")]
pub struct Value {
    pub(super) text: Text,
    /// The delivery that the text came with, as long as nothing was changed on its outermost level: its members are those of that
    /// message then, each of them once.
    pub(super) origin: Option<Ticket>,
    /// How many levels edits with other handles' values have put on top: text alone is checked when it comes in.
    added: usize,
    /// Bytes that the proxy wrote, or more.
    written: usize,
    /// Where the proxy has looked last.
    seen: Option<Seen>,
}

impl Value {
    /// What the proxy wrote.
    fn written(text: Text) -> Self {
        Self {
            written: text.len(),
            text,
            origin: None,
            added: 0,
            seen: None,
        }
    }

    /// What it counts for.
    fn share(&self) -> Share {
        let kept = self.text.kept();
        let written = self.written.min(kept);
        Share {
            written,
            given: kept - written,
        }
    }
}

impl State {
    /// Puts text that the proxy is given behind a new handle.
    ///
    /// # Errors
    ///
    /// A trap if the proxy has too many handles, or holds too much from before; remembered as a memory fault.
    pub(super) fn give(&mut self, text: Text, origin: Option<Ticket>) -> Result<Resource<Value>> {
        let counted = self.held.deliver(text.kept());
        self.limiter.fits(counted)?;
        self.push(Value {
            text,
            origin,
            added: 0,
            written: 0,
            seen: None,
        })
    }

    /// Puts what the proxy has made of something behind a new handle.
    fn hand_out(&mut self, value: Value) -> Result<Resource<Value>> {
        let counted = self.held.add(value.share());
        self.limiter.fits(counted)?;
        self.push(value)
    }

    fn push(&mut self, value: Value) -> Result<Resource<Value>> {
        let share = value.share();
        self.table.push(value).map_err(|error| {
            self.held.remove(share);
            self.limiter.refused = true;
            error.into()
        })
    }

    /// Takes a handle back.
    pub(super) fn take_back(&mut self, value: Resource<Value>) -> Result<Value> {
        let value = self.table.delete(value)?;
        self.held.remove(value.share());
        Ok(value)
    }

    fn content(&self, content: Content) -> Result<std::result::Result<Value, String>> {
        Ok(match content {
            Content::Text(text) if text.len() > self.max_message => {
                Err(format!("larger than {} bytes", self.max_message))
            }
            Content::Text(text) => Text::parse(&text, MAX_DEPTH).map(Value::written),
            Content::Value(value) => Ok(self.table.get(&value)?.clone()),
        })
    }
}

impl State {
    /// Looks at what stands at a pointer.
    fn look<T>(
        &mut self,
        value: &Resource<Value>,
        pointer: String,
        look: impl FnOnce(&Value, Range<usize>) -> T,
    ) -> Result<Option<T>> {
        let value = self.table.get_mut(value)?;
        let watch = self.meter.watch(value.text.len());
        let place = Seen::find(&mut value.seen, &value.text, pointer);
        let seen = place.map(|range| look(value, range));
        self.meter.works(watch.as_ref()).map_err(wasmtime::Error::new)?;
        Ok(seen)
    }
}

/// Whether an edit brings much text.
fn is_large(edit: &WitEdit) -> bool {
    match edit {
        WitEdit::Add((_, Content::Text(text))) | WitEdit::Replace((_, Content::Text(text))) => text.len() > LARGE_TEXT,
        _ => false,
    }
}

/// Whether what stands at a pointer is not on the outermost level.
fn is_inside(pointer: &str) -> bool {
    levels(pointer) > 1
}

/// How many levels down a pointer leads.
fn levels(pointer: &str) -> usize {
    pointer.bytes().filter(|byte| *byte == b'/').count()
}

impl Host for State {}

impl HostValue for State {
    fn parse(&mut self, text: String) -> Result<std::result::Result<Resource<Value>, String>> {
        let watch = self.meter.watch(text.len());
        let parsed = self.content(Content::Text(text))?;
        self.meter.works(watch.as_ref()).map_err(wasmtime::Error::new)?;
        match parsed {
            Ok(value) => self.hand_out(value).map(Ok),
            Err(reason) => Ok(Err(reason)),
        }
    }

    fn size(&mut self, value: Resource<Value>, pointer: String) -> Result<Option<u64>> {
        self.look(&value, pointer, |_, range| range.len() as u64)
    }

    fn read(&mut self, value: Resource<Value>, pointer: String) -> Result<Option<String>> {
        self.look(&value, pointer, |value, range| value.text.slice(range).to_text())
    }

    fn get(&mut self, value: Resource<Value>, pointer: String) -> Result<Option<Resource<Value>>> {
        let whole = pointer.is_empty();
        let part = self.look(&value, pointer, |value, range| Value {
            text: value.text.slice(range),
            origin: value.origin.filter(|_| whole),
            added: value.added,
            written: value.written,
            seen: None,
        })?;
        part.map(|part| self.hand_out(part)).transpose()
    }

    async fn edit(&mut self, value: Resource<Value>, edits: Vec<WitEdit>) -> Result<std::result::Result<(), String>> {
        let Value {
            mut origin,
            mut added,
            mut written,
            ref text,
            ..
        } = *self.table.get(&value)?;
        let long = edits.len() > 1 || text.len() > LARGE_TEXT || edits.iter().any(is_large);
        let mut watch = long.then(|| self.meter.watch_closely());
        let mut checked = Vec::with_capacity(edits.len());
        for edit in edits {
            let (pointer, content, make): (_, _, fn(String, Text) -> Edit) = match edit {
                WitEdit::Add((pointer, content)) => (pointer, content, Edit::Add),
                WitEdit::Replace((pointer, content)) => (pointer, content, Edit::Replace),
                WitEdit::Remove(pointer) => {
                    origin = origin.filter(|_| is_inside(&pointer));
                    checked.push(Edit::Remove(pointer));
                    continue;
                }
            };
            origin = origin.filter(|_| is_inside(&pointer));
            match self.content(content)? {
                Ok(content) => {
                    added = added.max(content.added + levels(&pointer));
                    // The key may be new as well.
                    written = written.saturating_add(content.written + pointer.len());
                    checked.push(make(pointer, content.text));
                }
                Err(reason) => return Ok(Err(format!("the content for `{pointer}` is {reason}"))),
            }
            self.meter.breathe(&mut watch).await.map_err(wasmtime::Error::new)?;
        }
        if added > MAX_DEPTH {
            return Ok(Err(format!("the value would nest deeper than {MAX_DEPTH} levels")));
        }
        let before = self.table.get_mut(&value)?;
        let (mut edited, mut seen) = (before.text.clone(), before.seen.take());
        // What it was given larger than that can still be made smaller.
        let most = self.max_message.max(edited.len());
        for edit in &checked {
            let known = seen.take().filter(|_| checked.len() == 1);
            let made = match (edit, known) {
                (Edit::Replace(pointer, content), Some(known)) if let Some(place) = known.at(pointer) => {
                    seen = Some(known.replaced(content.len()));
                    Ok(edited.splice(place, content.pieces(), content.kept()))
                }
                (edit, _) => edit::one(&edited, edit),
            };
            edited = match made {
                Ok(edited) if edited.len() > most => {
                    return Ok(Err(format!("the value would be larger than {most} bytes")));
                }
                Ok(edited) => edited,
                Err(reason) => return Ok(Err(reason)),
            };
            self.meter.breathe(&mut watch).await.map_err(wasmtime::Error::new)?;
        }
        let value = self.table.get_mut(&value)?;
        let edited = Value {
            text: edited,
            origin,
            added,
            written,
            seen,
        };
        if let Err(reason) = self.held.exchange(value.share(), edited.share()) {
            return Ok(Err(reason));
        }
        *value = edited;
        Ok(Ok(()))
    }

    fn dup(&mut self, value: Resource<Value>) -> Result<Resource<Value>> {
        let copy = self.table.get(&value)?.clone();
        self.hand_out(copy)
    }

    fn drop(&mut self, value: Resource<Value>) -> Result<()> {
        self.take_back(value).map(drop)
    }
}
