//! Host-held JSON values: the interface `json` of the world.

use super::bindings::consort::proxy::json::{Content, Edit as WitEdit, Host, HostValue};
use super::limits::{MAX_DEPTH, MAX_MESSAGE};
use super::state::State;
use crate::wire::edit::{self, Edit};
use crate::wire::scan;
use crate::wire::text::Text;
use wasmtime::Result;
use wasmtime::component::Resource;

/// What a handle stands for.
#[derive(Debug)]
#[allow(unreachable_pub, reason = "the generated bindings name this type and need it public")]
pub struct Value(pub(super) Text);

impl State {
    /// Puts text behind a new handle.
    ///
    /// # Errors
    ///
    /// A trap if the proxy has too many handles; remembered as a memory fault.
    pub(super) fn hand_out(&mut self, text: Text) -> Result<Resource<Value>> {
        self.table.push(Value(text)).map_err(|error| {
            self.limiter.refused = true;
            error.into()
        })
    }

    /// Takes a handle back.
    pub(super) fn take_back(&mut self, value: Resource<Value>) -> Result<Text> {
        Ok(self.table.delete(value)?.0)
    }

    fn content(&self, content: Content) -> Result<std::result::Result<Text, String>> {
        Ok(match content {
            Content::Text(text) if text.len() > MAX_MESSAGE => Err(format!("larger than {MAX_MESSAGE} bytes")),
            Content::Text(text) => Text::parse(&text, MAX_DEPTH),
            Content::Value(value) => Ok(self.table.get(&value)?.0.clone()),
        })
    }
}

impl Host for State {}

impl HostValue for State {
    fn parse(&mut self, text: String) -> Result<std::result::Result<Resource<Value>, String>> {
        match self.content(Content::Text(text))? {
            Ok(text) => self.hand_out(text).map(Ok),
            Err(reason) => Ok(Err(reason)),
        }
    }

    fn size(&mut self, value: Resource<Value>, pointer: String) -> Result<Option<u64>> {
        let text = &self.table.get(&value)?.0;
        Ok(scan::find(text, &pointer).map(|range| range.len() as u64))
    }

    fn read(&mut self, value: Resource<Value>, pointer: String) -> Result<Option<String>> {
        let text = &self.table.get(&value)?.0;
        Ok(scan::find(text, &pointer).map(|range| text.slice(range).to_text()))
    }

    fn get(&mut self, value: Resource<Value>, pointer: String) -> Result<Option<Resource<Value>>> {
        let text = &self.table.get(&value)?.0;
        let part = scan::find(text, &pointer).map(|range| text.slice(range));
        part.map(|part| self.hand_out(part)).transpose()
    }

    fn edit(&mut self, value: Resource<Value>, edits: Vec<WitEdit>) -> Result<std::result::Result<(), String>> {
        let mut checked = Vec::with_capacity(edits.len());
        for edit in edits {
            let (pointer, content, make): (_, _, fn(String, Text) -> Edit) = match edit {
                WitEdit::Add((pointer, content)) => (pointer, content, Edit::Add),
                WitEdit::Replace((pointer, content)) => (pointer, content, Edit::Replace),
                WitEdit::Remove(pointer) => {
                    checked.push(Edit::Remove(pointer));
                    continue;
                }
            };
            match self.content(content)? {
                Ok(text) => checked.push(make(pointer, text)),
                Err(reason) => return Ok(Err(format!("the content for `{pointer}` is {reason}"))),
            }
        }
        let value = self.table.get_mut(&value)?;
        Ok(edit::apply(&value.0, &checked).and_then(|edited| {
            if edited.len() > MAX_MESSAGE {
                return Err(format!("the value would be larger than {MAX_MESSAGE} bytes"));
            }
            value.0 = edited;
            Ok(())
        }))
    }

    fn dup(&mut self, value: Resource<Value>) -> Result<Resource<Value>> {
        let text = self.table.get(&value)?.0.clone();
        self.hand_out(text)
    }

    fn drop(&mut self, value: Resource<Value>) -> Result<()> {
        self.table.delete(value)?;
        Ok(())
    }
}
