//! The sessions of subagents: which there are, for whom they work, and what they have said. Owns their number.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use consort_proxy::Json;
use consort_proxy::mcp::Caller;

use crate::wait::Signal;

/// Sessions that are over and still remembered: what comes late from one is nobody's.
const MAX_OVER: usize = 1_024;

/// Bytes of the title of a tool call that is told as progress.
const MAX_TITLE: u64 = 1_000;

/// Bytes of one piece of an answer that is looked at.
const MAX_CHUNK: u64 = 4 << 20;

/// A subagent at work.
pub(crate) struct Child {
    /// The session that it works for.
    pub(crate) parent: String,
    /// It must stop.
    pub(crate) stopped: Signal,
    /// It is over.
    pub(crate) over: Signal,
    caller: Caller,
    answer: RefCell<Answer>,
}

#[derive(Default)]
struct Answer {
    text: String,
    /// A tool was called after the text: what comes is said anew.
    closed: bool,
    truncated: bool,
    most: usize,
    calls: u32,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Children {
    /// Those whose session the agent has not told yet.
    unborn: RefCell<Vec<Rc<Child>>>,
    running: RefCell<BTreeMap<String, Rc<Child>>>,
    over: RefCell<VecDeque<String>>,
}

impl Children {
    /// There will be one more, for a session.
    pub(crate) fn expect(&self, parent: &str, caller: Caller, most: usize) -> Rc<Child> {
        let answer = Answer {
            most,
            ..Answer::default()
        };
        let child = Rc::new(Child {
            parent: parent.to_owned(),
            stopped: Signal::default(),
            over: Signal::default(),
            caller,
            answer: RefCell::new(answer),
        });
        self.unborn.borrow_mut().push(child.clone());
        child
    }

    /// A session is a subagent's from now on.
    pub(crate) fn begin(&self, session: &str, child: &Rc<Child>) {
        self.running.borrow_mut().insert(session.to_owned(), child.clone());
    }

    /// Its session has begun, or it will have none.
    pub(crate) fn expect_no_more(&self, child: &Rc<Child>) {
        self.unborn.borrow_mut().retain(|other| !Rc::ptr_eq(other, child));
    }

    /// A session is a subagent's no more, or never became one's: nobody hears what is said there.
    pub(crate) fn end(&self, session: &str) {
        let child = self.running.borrow_mut().remove(session);
        let mut over = self.over.borrow_mut();
        if over.len() >= MAX_OVER {
            over.pop_front();
        }
        over.push_back(session.to_owned());
        drop(over);
        if let Some(child) = child {
            child.over.say();
        }
    }

    /// The subagent of a session, if it is at work.
    pub(crate) fn get(&self, session: &str) -> Option<Rc<Child>> {
        self.running.borrow().get(session).cloned()
    }

    /// Whether a session is or was a subagent's.
    pub(crate) fn knows(&self, session: &str) -> bool {
        self.running.borrow().contains_key(session) || self.over.borrow().iter().any(|over| over == session)
    }

    /// Stops all that work for a session.
    pub(crate) fn stop_those_of(&self, parent: &str) {
        let mut all: Vec<Rc<Child>> = self.running.borrow().values().cloned().collect();
        all.extend_from_slice(&self.unborn.borrow());
        for child in all.iter().filter(|child| child.parent == parent) {
            child.stopped.say();
        }
    }
}

impl Child {
    /// Takes in what it says.
    pub(crate) fn hear(&self, update: &Json) {
        let mut answer = self.answer.borrow_mut();
        if update.is_string("/update/sessionUpdate", "agent_message_chunk") {
            if !update.is_string("/update/content/type", "text") {
                return;
            }
            let too_long = update.size("/update/content/text").is_some_and(|size| size > MAX_CHUNK);
            let text = (!too_long).then(|| update.string("/update/content/text")).flatten();
            if answer.closed && text.as_ref().is_none_or(|text| !text.trim().is_empty()) {
                *answer = Answer {
                    most: answer.most,
                    calls: answer.calls,
                    ..Answer::default()
                };
            }
            let text = text.unwrap_or_default();
            let room = answer.most.saturating_sub(answer.text.len());
            let end = text.floor_char_boundary(room);
            answer.truncated |= too_long || end < text.len();
            answer.text.push_str(&text[..end]);
        } else if update.is_string("/update/sessionUpdate", "tool_call") {
            answer.closed = !answer.text.trim().is_empty();
            answer.calls = answer.calls.saturating_add(1);
            let title = update.size("/update/title").filter(|size| *size <= MAX_TITLE);
            let title = title.and_then(|_| update.string("/update/title"));
            let done = f64::from(answer.calls);
            drop(answer);
            self.caller.progress(done, None, title.as_deref());
        }
    }

    /// What it has said last.
    pub(crate) fn answer(&self) -> String {
        let mut answer = self.answer.borrow_mut();
        let mut text = std::mem::take(&mut answer.text);
        if answer.truncated {
            text.push_str("\n[The rest of the answer is left out.]");
        }
        text
    }
}
