//! What has to come, and whether it does: the answer to every request once, and every update of every session once, in order and with
//! every proxy's edit. Each line is compared as a whole.

use crate::forms::{Kind, contains};
use crate::wire::{self, Message, Order, quoted};
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::Write as _;

/// How a chain changes what goes through it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changes {
    /// Arrows before the text of each update.
    pub(crate) arrows: usize,
    /// Arrows before the title of each question.
    pub(crate) question_arrows: usize,
    /// Blocks before each prompt.
    pub(crate) blocks: usize,
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Came<'a> {
    Update { session: usize },
    Answer { id: u64 },
    Question { id: &'a str },
}

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    Initialize,
    Session,
    Turn,
}

/// A session, and what has to come of it.
struct Session {
    name: String,
    came: u64,
    ordered: u64,
    questions: u64,
    /// The filling of each update.
    filling: String,
}

/// All that has to come through a chain.
pub(crate) struct Expected {
    blocks: u64,
    arrows: String,
    question_arrows: String,
    sessions: Vec<Session>,
    names: HashMap<String, usize>,
    asked: HashMap<u64, Asked>,
    /// Questions of all sessions that came.
    questions: u64,
    update_kind: Kind,
    answer_kind: Kind,
    question_kind: Kind,
    /// What differs in a line from others of its kind.
    parts: [Vec<u8>; 3],
}

impl Expected {
    pub(crate) fn new(changes: Changes) -> Self {
        Self {
            blocks: changes.blocks as u64,
            arrows: ">".repeat(changes.arrows),
            question_arrows: ">".repeat(changes.question_arrows),
            sessions: Vec::new(),
            names: HashMap::new(),
            asked: HashMap::new(),
            questions: 0,
            update_kind: Kind::default(),
            answer_kind: Kind::default(),
            question_kind: Kind::default(),
            parts: Default::default(),
        }
    }

    /// How many sessions there are.
    pub(crate) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The id that the agent has given to a session.
    pub(crate) fn name(&self, session: usize) -> &str {
        &self.sessions[session].name
    }

    /// A request is made that has to be answered.
    pub(crate) fn ask(&mut self, id: u64, asked: Asked) {
        self.asked.insert(id, asked);
    }

    /// Completes an order, and expects what comes of it.
    pub(crate) fn order(&mut self, session: usize, order: &mut Order) {
        let session = &mut self.sessions[session];
        order.first = session.ordered;
        order.blocks = self.blocks;
        session.ordered += order.updates + order.later;
        session.questions += order.questions;
        if session.filling.len() as u64 != order.size {
            session.filling = wire::update_filling(order.size);
        }
    }

    /// Whether all updates of a session have come that were ordered.
    pub(crate) fn is_complete(&self, session: usize) -> bool {
        self.sessions[session].came == self.sessions[session].ordered
    }

    /// How many updates of a session have come.
    pub(crate) fn came(&self, session: usize) -> u64 {
        self.sessions[session].came
    }

    /// Verifies a line.
    pub(crate) fn take<'a>(&mut self, line: &'a [u8]) -> anyhow::Result<Came<'a>> {
        let message = Message::read(line);
        self.parts.iter_mut().for_each(Vec::clear);
        match (message.method, message.id) {
            (Some(b"session/update"), None) => self.update(line),
            (Some(b"session/request_permission"), Some(id)) => self.question(line, id),
            (None, Some(id)) => self.answer(line, id),
            _ => bail!("this came: {}", quoted(line)),
        }
    }

    fn update(&mut self, line: &[u8]) -> anyhow::Result<Came<'static>> {
        let Some(index) = wire::session(line).and_then(|name| self.names.get(name).copied()) else {
            bail!("an update of no session came: {}", quoted(line));
        };
        let session = &mut self.sessions[index];
        let Session {
            name,
            came,
            ordered,
            filling,
            ..
        } = session;
        let [id, text, _] = &mut self.parts;
        write!(id, "\"{name}\"")?;
        wire::update_text(text, name, &self.arrows, *came, filling);
        let is_it = self.update_kind.says(line, &[id, text], |wanted| {
            wire::update(wanted, name, &self.arrows, *came, filling);
        });
        if !is_it || came >= ordered {
            bail!(
                "of session {name} with {ordered} updates, instead of update {came} with {} edits and {} bytes of filling this came: {}",
                self.arrows.len(),
                filling.len(),
                quoted(line)
            );
        }
        *came += 1;
        Ok(Came::Update { session: index })
    }

    fn question<'a>(&mut self, line: &[u8], id: &'a str) -> anyhow::Result<Came<'a>> {
        let session = wire::session(line).and_then(|name| self.names.get(name).copied());
        let Some(session) = session.map(|index| &mut self.sessions[index]) else {
            bail!("a question of no session came: {}", quoted(line));
        };
        let [number, name, call] = &mut self.parts;
        write!(number, "\"id\":{id}")?;
        write!(name, "\"{}\"", session.name)?;
        write!(call, "\"t{}\"", self.questions)?;
        let is_it = self.question_kind.says(line, &[number, name, call], |wanted| {
            wire::question(wanted, id, self.questions, &session.name, &self.question_arrows);
        });
        if !is_it || session.questions == 0 {
            bail!(
                "instead of question {} with {} edits, of session {} with {} to come, this came: {}",
                self.questions,
                self.question_arrows.len(),
                session.name,
                session.questions,
                quoted(line)
            );
        }
        session.questions -= 1;
        self.questions += 1;
        Ok(Came::Question { id })
    }

    fn answer(&mut self, line: &[u8], id: &str) -> anyhow::Result<Came<'static>> {
        let id = id.parse::<u64>().ok();
        let Some((id, asked)) = id.and_then(|id| Some((id, self.asked.remove(&id)?))) else {
            bail!("an answer to nothing came: {}", quoted(line));
        };
        let is_it = match asked {
            Asked::Initialize => {
                let wanted: Value = serde_json::from_str(wire::INITIALIZED)?;
                // A conductor may add what it can do itself.
                let came = serde_json::from_slice(line);
                came.is_ok_and(|came| contains(&came, &json!({"jsonrpc": "2.0", "id": id, "result": wanted})))
            }
            Asked::Session => self.open(line, id)?,
            Asked::Turn => {
                let part = &mut self.parts[0];
                write!(part, "\"id\":{id}")?;
                self.answer_kind.says(line, &[part], |wanted| {
                    wire::answer(wanted, id, wire::END_OF_TURN);
                })
            }
        };
        match is_it {
            true => Ok(Came::Answer { id }),
            false => bail!("{id} ({asked:?}) was answered with {}", quoted(line)),
        }
    }

    /// There is one session more, with the name that this answer has; false if there is anything else in it.
    fn open(&mut self, line: &[u8], id: u64) -> anyhow::Result<bool> {
        let came: Value = serde_json::from_slice(line).with_context(|| quoted(line))?;
        let Some(name) = came["result"]["sessionId"].as_str() else {
            return Ok(false);
        };
        let is_new = self.names.insert(name.to_owned(), self.sessions.len()).is_none();
        self.sessions.push(Session {
            name: name.to_owned(),
            came: 0,
            ordered: 0,
            questions: 0,
            filling: String::new(),
        });
        Ok(is_new && came == json!({"jsonrpc": "2.0", "id": id, "result": {"sessionId": name}}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One session that is called `s5`, and an order for it.
    fn expected(changes: Changes, mut order: Order) -> Expected {
        let mut expected = Expected::new(changes);
        expected.ask(1, Asked::Session);
        let answer = br#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s5"}}"#;
        assert_eq!(expected.take(answer).unwrap(), Came::Answer { id: 1 });
        assert_eq!(expected.name(0), "s5");
        expected.order(0, &mut order);
        expected
    }

    /// Expects four updates with two arrows and three bytes of filling.
    fn four() -> Expected {
        let changes = Changes {
            arrows: 2,
            ..Changes::default()
        };
        expected(
            changes,
            Order {
                updates: 4,
                size: 3,
                ..Order::default()
            },
        )
    }

    fn update(number: u64) -> String {
        let mut line = Vec::new();
        wire::update(&mut line, "s5", ">>", number, "...");
        String::from_utf8(line).unwrap().trim_end().to_owned()
    }

    #[test]
    fn all_updates_come_in_order_and_in_any_form() {
        let other = |line: &str| {
            let (update, session) = (r#""update":{"#, r#""sessionId":"s5","#);
            let line = line.replace(session, "").replace("}}}}", r#"}},"sessionId":"s5"}}"#);
            assert!(line.contains(update));
            line
        };
        for written in [str::to_owned as fn(&str) -> String, other] {
            let mut expected = four();
            for number in 0..4 {
                assert!(!expected.is_complete(0));
                let line = written(&update(number));
                assert_eq!(expected.take(line.as_bytes()).unwrap(), Came::Update { session: 0 });
            }
            assert!(expected.is_complete(0));
            assert!(expected.take(update(4).as_bytes()).is_err(), "more than were ordered");
        }
    }

    #[test]
    fn whatever_differs_in_an_update_is_told() {
        let mut expected = four();
        expected.take(update(0).as_bytes()).unwrap();
        let good = update(1);
        for bad in [
            update(0),
            update(2),
            good.replace(">>", ">"),
            good.replace(">>", ">>>"),
            good.replace(">>s5", "s5>>"),
            good.replace("...", ".."),
            good.replace("...", "..,"),
            good.replace("may say", "must say"),
            good.replace("\"s5\"", "\"s6\""),
            good.replace("\"s5\"", "\"s5\",\"more\":1"),
            good.replace("agent_message_chunk", "agent_thought_chunk"),
            good.replace("\"type\":\"text\",", ""),
            good.replace("2.0", "1.0"),
            good.replace("}}}}", "}}}"),
        ] {
            let error = expected.take(bad.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(&bad), "{error}");
        }
        expected.take(good.as_bytes()).unwrap();
    }

    #[test]
    fn answers_are_those_of_the_agent_and_come_once() {
        let good = r#"{"jsonrpc":"2.0","id":7,"result":{"stopReason":"end_turn"}}"#;
        for bad in [
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"no"}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"stopReason":"cancelled"}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"stopReason":"end_turn","more":"\"result\":"}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":"7","result":{"stopReason":"end_turn"}}"#,
            r#"{"jsonrpc":"2.0","id":8,"result":{"stopReason":"end_turn"}}"#,
            r#"{"jsonrpc":"2.0","method":"session/update","params":{}}"#,
            "what",
        ] {
            let mut expected = expected(Changes::default(), Order::default());
            for id in [6, 7] {
                expected.ask(id, Asked::Turn);
            }
            expected.take(good.replace('7', "6").as_bytes()).unwrap();
            assert!(expected.take(bad.as_bytes()).unwrap_err().to_string().contains(bad));
        }
        let mut expected = expected(Changes::default(), Order::default());
        expected.ask(7, Asked::Turn);
        assert_eq!(expected.take(good.as_bytes()).unwrap(), Came::Answer { id: 7 });
        assert!(expected.take(good.as_bytes()).is_err());
    }

    #[test]
    fn the_answers_to_what_comes_first_are_those_of_the_agent() {
        let take = |asked, result: &str| {
            let mut expected = expected(Changes::default(), Order::default());
            expected.ask(2, asked);
            let mut line = Vec::new();
            wire::answer(&mut line, 2, result);
            expected.take(&line).map(drop).is_ok()
        };
        assert!(take(Asked::Initialize, wire::INITIALIZED));
        assert!(take(
            Asked::Initialize,
            &wire::INITIALIZED.replace("true", "true,\"more\":{}")
        ));
        assert!(!take(Asked::Initialize, &wire::INITIALIZED.replace("true", "false")));
        assert!(!take(Asked::Initialize, r#"{"protocolVersion":1}"#));
        assert!(take(Asked::Session, r#"{"sessionId":"s6"}"#));
        assert!(!take(Asked::Session, r#"{"sessionId":"s5"}"#), "there already");
        assert!(!take(Asked::Session, r#"{"sessionId":"s6","more":1}"#));
        assert!(!take(Asked::Session, "{}"));
    }

    #[test]
    fn questions_are_those_that_were_ordered_and_have_their_edits() {
        let changes = Changes {
            question_arrows: 1,
            ..Changes::default()
        };
        let question = |number, edits: &str| {
            let mut line = Vec::new();
            wire::question(&mut line, "\"q\"", number, "s5", edits);
            line
        };
        let order = Order {
            questions: 2,
            ..Order::default()
        };
        let mut expected = expected(changes, order);
        for number in 0..2 {
            for bad in [question(number, ""), question(number, ">>"), question(number + 1, ">")] {
                assert!(expected.take(&bad).is_err());
            }
            let came = question(number, ">");
            assert_eq!(expected.take(&came).unwrap(), Came::Question { id: "\"q\"" });
        }
        assert!(expected.take(&question(2, ">")).is_err(), "more than were ordered");
    }
}
