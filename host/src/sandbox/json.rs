//! Host-held JSON values: the interface `json` of the world.

use super::bindings::consort::proxy::json::{Content, Edit as WitEdit, Host, HostValue};
use super::limits::{MAX_DEPTH, MAX_HELD_MESSAGES};
use super::meter::Watch;
use super::state::State;
use crate::message::Ticket;
use crate::wire::edit::{self, Edit};
use crate::wire::scan;
use crate::wire::text::Text;
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
}

impl State {
    /// Puts text behind a new handle.
    ///
    /// # Errors
    ///
    /// A trap if the proxy has too many handles or too much text behind them; remembered as a memory fault.
    pub(super) fn hand_out(&mut self, text: Text, origin: Option<Ticket>) -> Result<Resource<Value>> {
        self.hand_out_value(Value { text, origin, added: 0 })
    }

    fn hand_out_value(&mut self, value: Value) -> Result<Resource<Value>> {
        let size = value.text.len();
        let most = self.max_message.saturating_mul(MAX_HELD_MESSAGES);
        if self.held + size > most {
            self.limiter.refused = true;
            wasmtime::bail!("more than {most} bytes of JSON text behind handles");
        }
        let handle = self.table.push(value).inspect_err(|_| self.limiter.refused = true)?;
        self.held += size;
        Ok(handle)
    }

    /// Takes a handle back.
    pub(super) fn take_back(&mut self, value: Resource<Value>) -> Result<Value> {
        let value = self.table.delete(value)?;
        self.held -= value.text.len().min(self.held);
        Ok(value)
    }

    fn content(&self, content: Content) -> Result<std::result::Result<Value, String>> {
        Ok(match content {
            Content::Text(text) if text.len() > self.max_message => {
                Err(format!("larger than {} bytes", self.max_message))
            }
            Content::Text(text) => Text::parse(&text, MAX_DEPTH).map(|text| Value {
                text,
                origin: None,
                added: 0,
            }),
            Content::Value(value) => Ok(self.table.get(&value)?.clone()),
        })
    }
}

/// Whether what stands at a pointer is not on the outermost level.
fn is_inside(pointer: &str) -> bool {
    pointer.matches('/').nth(1).is_some()
}

impl Host for State {}

impl HostValue for State {
    fn parse(&mut self, text: String) -> Result<std::result::Result<Resource<Value>, String>> {
        match self.content(Content::Text(text))? {
            Ok(value) => self.hand_out_value(value).map(Ok),
            Err(reason) => Ok(Err(reason)),
        }
    }

    fn size(&mut self, value: Resource<Value>, pointer: String) -> Result<Option<u64>> {
        let text = &self.table.get(&value)?.text;
        Ok(scan::find(text, &pointer).map(|range| range.len() as u64))
    }

    fn read(&mut self, value: Resource<Value>, pointer: String) -> Result<Option<String>> {
        let text = &self.table.get(&value)?.text;
        Ok(scan::find(text, &pointer).map(|range| text.slice(range).to_text()))
    }

    fn get(&mut self, value: Resource<Value>, pointer: String) -> Result<Option<Resource<Value>>> {
        let Value { text, origin, added } = self.table.get(&value)?;
        let (origin, added) = (origin.filter(|_| pointer.is_empty()), *added);
        let part = scan::find(text, &pointer).map(|range| text.slice(range));
        part.map(|text| self.hand_out_value(Value { text, origin, added }))
            .transpose()
    }

    async fn edit(&mut self, value: Resource<Value>, edits: Vec<WitEdit>) -> Result<std::result::Result<(), String>> {
        let Value {
            mut origin, mut added, ..
        } = *self.table.get(&value)?;
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
                    added = added.max(content.added + pointer.matches('/').count());
                    checked.push(make(pointer, content.text));
                }
                Err(reason) => return Ok(Err(format!("the content for `{pointer}` is {reason}"))),
            }
        }
        if added > MAX_DEPTH {
            return Ok(Err(format!("the value would nest deeper than {MAX_DEPTH} levels")));
        }
        let most = self.max_message;
        let mut edited = self.table.get(&value)?.text.clone();
        let mut watch = (checked.len() > 1).then(Watch::start);
        for edit in &checked {
            edited = match edit::one(&edited, edit) {
                Ok(edited) if edited.len() > most => {
                    return Ok(Err(format!("the value would be larger than {most} bytes")));
                }
                Ok(edited) => edited,
                Err(reason) => return Ok(Err(reason)),
            };
            // No epoch ends what the host does.
            if let Some(watch) = &mut watch
                && self.meter.works(watch).map_err(wasmtime::Error::new)?
            {
                tokio::task::yield_now().await;
                *watch = Watch::start();
            }
        }
        let value = self.table.get_mut(&value)?;
        self.held = self.held - value.text.len().min(self.held) + edited.len();
        *value = Value {
            text: edited,
            origin,
            added,
        };
        Ok(Ok(()))
    }

    fn dup(&mut self, value: Resource<Value>) -> Result<Resource<Value>> {
        let copy = self.table.get(&value)?.clone();
        self.hand_out_value(copy)
    }

    fn drop(&mut self, value: Resource<Value>) -> Result<()> {
        self.take_back(value).map(drop)
    }
}
