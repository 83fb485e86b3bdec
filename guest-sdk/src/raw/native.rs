//! What the host provides to a component, for native builds: the message types, JSON values that live in this process, and the
//! trait that a fake channel implements. Must not know what a proxy does with them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::text;

thread_local! {
    static LIVE_VALUES: Cell<usize> = const { Cell::new(0) };
}

/// How many values this thread holds: what a component would hold in handles.
pub(crate) fn live_values() -> usize {
    LIVE_VALUES.with(Cell::get)
}

/// JSON text, as `json.value` of the world.
pub(crate) struct Value {
    text: RefCell<Rc<str>>,
}

impl Value {
    fn new(text: Rc<str>) -> Self {
        LIVE_VALUES.with(|live| live.set(live.get() + 1));
        Self {
            text: RefCell::new(text),
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Ok(Self::new(text::check(text)?.into()))
    }

    pub(crate) fn size(&self, pointer: &str) -> Option<u64> {
        text::find(&self.text.borrow(), pointer).map(|range| range.len() as u64)
    }

    pub(crate) fn read(&self, pointer: &str) -> Option<String> {
        let text = self.text.borrow();
        text::find(&text, pointer).map(|range| text[range].to_owned())
    }

    pub(crate) fn get(&self, pointer: &str) -> Option<Self> {
        let text = self.text.borrow();
        text::find(&text, pointer).map(|range| Self::new(text[range].into()))
    }

    pub(crate) fn edit(&self, edits: &[Edit<'_>]) -> Result<(), String> {
        let mut edited = self.text.borrow().to_string();
        for edit in edits {
            edited = match edit {
                Edit::Add((pointer, content)) => text::add(&edited, pointer, &content.to_text()?)?,
                Edit::Replace((pointer, content)) => text::replace(&edited, pointer, &content.to_text()?)?,
                Edit::Remove(pointer) => text::remove(&edited, pointer)?,
            };
        }
        *self.text.borrow_mut() = text::check(&edited)?.into();
        Ok(())
    }

    pub(crate) fn dup(&self) -> Self {
        Self::new(self.text.borrow().clone())
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        LIVE_VALUES.with(|live| live.set(live.get().saturating_sub(1)));
    }
}

pub(crate) enum Edit<'a> {
    Add((&'a str, Content<'a>)),
    Replace((&'a str, Content<'a>)),
    Remove(&'a str),
}

pub(crate) enum Content<'a> {
    Text(&'a str),
    Value(&'a Value),
}

impl Content<'_> {
    fn to_text(&self) -> Result<Rc<str>, String> {
        match self {
            Self::Text(text) => Ok(text::check(text)?.into()),
            Self::Value(value) => Ok(value.text.borrow().clone()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Client,
    Agent,
    Host,
}

pub(crate) struct Request {
    pub(crate) id: Option<u64>,
    pub(crate) on_behalf_of: Option<u64>,
    pub(crate) method: String,
    pub(crate) params: Option<Value>,
}

pub(crate) struct Notification {
    pub(crate) on_behalf_of: Option<u64>,
    pub(crate) method: String,
    pub(crate) params: Option<Value>,
}

pub(crate) struct Response {
    pub(crate) id: u64,
    pub(crate) outcome: Result<Value, Value>,
}

pub(crate) enum Message {
    Request(Request),
    Notification(Notification),
    Response(Response),
}

#[derive(Clone)]
pub(crate) enum Refusal {
    Denied(String),
    TooLarge,
    Flooded,
    Closed,
    UnknownId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receipt {
    Done,
    Kept,
}

/// The functions of the world's interface `channel`.
pub(crate) trait Channel {
    fn send(&self, to: Peer, message: Message) -> Result<(), Refusal>;
    fn release(&self, ticket: u64);
}
