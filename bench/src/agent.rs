//! The agent of all chains: verifies each prompt and does what it orders, with one write for all that came in one read.

use crate::forms::{Kind, contains};
use crate::lines::Lines;
use crate::prompts::{Prompt, Prompts, is_filling};
use crate::wire::{self, Message, Order, quoted};
use rustix::stdio::{stdin, stdout};
use serde_json::Value;
use std::collections::HashMap;

/// What is written at once at most.
const WRITE: usize = 256 << 10;

/// A prompt that is not answered yet.
struct Pending {
    id: String,
    session: String,
    order: Order,
}

#[derive(Default)]
struct Agent {
    output: Vec<u8>,
    prompts: Prompts,
    permissions: Kind,
    sessions: usize,
    questions: u64,
    asking: HashMap<String, Pending>,
    kept: Vec<Pending>,
    /// What was wrong with something that was answered or could not be: the answer to each prompt from then on.
    failed: Option<String>,
}

/// Runs until its input ends.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut lines = Lines::default();
    let mut agent = Agent::default();
    while lines.read(stdin())? > 0 {
        while let Some(line) = lines.next() {
            agent.take(lines.bytes(line))?;
        }
        agent.flush()?;
    }
    Ok(())
}

impl Agent {
    fn take(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let message = Message::read(line);
        match (message.method, message.id) {
            (Some(b"initialize"), Some(id)) => match has(line, wire::INITIALIZE) {
                true => wire::answer(&mut self.output, id, wire::INITIALIZED),
                false => wire::error(&mut self.output, id, &format!("this came: {}", quoted(line))),
            },
            (Some(b"session/new"), Some(id)) => match has(line, wire::NEW_SESSION) {
                true => {
                    let session = format!(r#"{{"sessionId":"s{}"}}"#, self.sessions);
                    wire::answer(&mut self.output, id, &session);
                    self.sessions += 1;
                }
                false => wire::error(&mut self.output, id, &format!("this came: {}", quoted(line))),
            },
            (Some(b"session/prompt"), Some(id)) => self.prompt(line, id)?,
            (None, Some(id)) => self.permission(line, id)?,
            (_, Some(id)) => wire::error(&mut self.output, id, "no such method"),
            (_, None) => {}
        }
        Ok(())
    }

    fn prompt(&mut self, line: &[u8], id: &str) -> anyhow::Result<()> {
        let Prompt {
            session,
            order,
            filling,
        } = match self.prompts.read(line, id) {
            Ok(prompt) => prompt,
            Err(error) => {
                wire::error(&mut self.output, id, &error.to_string());
                return Ok(());
            }
        };
        let number = session.strip_prefix('s').and_then(|number| number.parse().ok());
        if number.is_none_or(|number: usize| number >= self.sessions) {
            self.fail(format!("a prompt came for session {session}, which there is not"));
        }
        if let Some(failed) = &self.failed {
            wire::error(&mut self.output, id, failed);
            return Ok(());
        }
        self.begin(Pending {
            id: id.to_owned(),
            session,
            order,
        })?;
        if !filling.is_empty() {
            // Looked at when the answer is on its way, so that this is not in any time that is measured.
            self.flush()?;
            if !is_filling(&line[filling]) {
                self.fail(format!("an earlier prompt came with another filling: {}", quoted(line)));
            }
        }
        Ok(())
    }

    /// The answer to a question.
    fn permission(&mut self, line: &[u8], id: &str) -> anyhow::Result<()> {
        let Some(mut pending) = self.asking.remove(id) else {
            self.fail(format!("an answer to nothing came: {}", quoted(line)));
            return Ok(());
        };
        let part = format!("\"id\":{id}");
        let is_it = self.permissions.says(line, &[part.as_bytes()], |wanted| {
            wire::answer(wanted, id, wire::ALLOWED);
        });
        if !is_it {
            let error = format!("a question was answered with {}", quoted(line));
            wire::error(&mut self.output, &pending.id, &error);
            return Ok(());
        }
        pending.order.questions -= 1;
        self.begin(pending)
    }

    /// Keeps the first thing that is wrong.
    fn fail(&mut self, why: String) {
        self.failed.get_or_insert(why);
    }

    fn begin(&mut self, pending: Pending) -> anyhow::Result<()> {
        if pending.order.questions > 0 {
            wire::question(&mut self.output, self.questions, self.questions, &pending.session, "");
            self.asking.insert(self.questions.to_string(), pending);
            self.questions += 1;
        } else if pending.order.keep == 1 {
            self.kept.push(pending);
        } else {
            if pending.order.keep == 2 {
                for kept in std::mem::take(&mut self.kept) {
                    self.answer(&kept)?;
                }
            }
            self.answer(&pending)?;
        }
        Ok(())
    }

    fn answer(&mut self, pending: &Pending) -> anyhow::Result<()> {
        let Pending { id, session, order } = pending;
        let filling = wire::update_filling(order.size);
        for number in 0..order.updates {
            wire::update(&mut self.output, session, "", order.first + number, &filling);
            if self.output.len() >= WRITE {
                self.flush()?;
            }
        }
        wire::answer(&mut self.output, id, wire::END_OF_TURN);
        for number in order.updates..order.updates + order.later {
            wire::update(&mut self.output, session, "", order.first + number, &filling);
        }
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        let mut rest = self.output.as_slice();
        while !rest.is_empty() {
            let count = rustix::io::retry_on_intr(|| rustix::io::write(stdout(), rest))?;
            rest = &rest[count..];
        }
        self.output.clear();
        Ok(())
    }
}

/// Whether a request has at least these parameters.
fn has(line: &[u8], wanted: &str) -> bool {
    let parsed = |text| serde_json::from_slice::<Value>(text).unwrap_or_default();
    contains(&parsed(line)["params"], &parsed(wanted.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an agent with one session says to a line.
    fn said(agent: &mut Agent, line: &[u8]) -> String {
        agent.sessions = 1;
        agent.output.clear();
        agent.take(line).unwrap();
        String::from_utf8(std::mem::take(&mut agent.output)).unwrap()
    }

    fn prompt(session: &str, order: Order) -> Vec<u8> {
        let mut line = Vec::new();
        wire::prompt(&mut line, 4, session, order, 0, order.filling);
        line
    }

    #[test]
    fn what_comes_first_is_verified() {
        for (method, params) in [("initialize", wire::INITIALIZE), ("session/new", wire::NEW_SESSION)] {
            let mut agent = Agent::default();
            let mut line = Vec::new();
            wire::request(&mut line, 4, method, params);
            assert!(said(&mut agent, &line).contains("\"result\""));
            line.clear();
            wire::request(&mut line, 4, method, "{}");
            assert!(said(&mut agent, &line).contains("\"error\""));
        }
    }

    #[test]
    fn prompts_are_verified() {
        let mut agent = Agent::default();
        let one = Order {
            updates: 1,
            ..Order::default()
        };
        let answers = said(&mut agent, &prompt("s0", one));
        assert!(answers.contains(wire::END_OF_TURN) && answers.contains("s0:0 "));
        let blocks = Order { blocks: 1, ..one };
        let answer = said(&mut agent, &prompt("s0", blocks));
        assert!(answer.contains("with 1 added blocks"), "{answer}");
        let answer = said(&mut agent, &prompt("s1", one));
        assert!(answer.contains("which there is not"), "{answer}");
    }

    #[test]
    fn what_is_found_later_is_the_answer_to_the_next_prompt() {
        for (order, wrong) in [(None, "an answer to nothing"), (Some(2), "another filling")] {
            let mut agent = Agent::default();
            match order {
                None => assert_eq!(said(&mut agent, br#"{"jsonrpc":"2.0","id":9,"result":{}}"#), ""),
                Some(filling) => {
                    // Kept, so that nothing is written.
                    let order = Order {
                        filling,
                        keep: 1,
                        ..Order::default()
                    };
                    let line = String::from_utf8(prompt("s0", order)).unwrap();
                    assert_eq!(said(&mut agent, line.replace("xx<end>", "xy<end>").as_bytes()), "");
                }
            }
            let answer = said(&mut agent, &prompt("s0", Order::default()));
            assert!(answer.contains(wrong), "{answer}");
        }
    }

    #[test]
    fn a_question_is_answered_with_what_the_client_says() {
        let order = Order {
            questions: 1,
            ..Order::default()
        };
        for (result, is_it) in [(wire::ALLOWED, true), (r#"{"outcome":{"outcome":"cancelled"}}"#, false)] {
            let mut agent = Agent::default();
            assert!(said(&mut agent, &prompt("s0", order)).contains("session/request_permission"));
            let mut line = Vec::new();
            wire::answer(&mut line, 0, result);
            assert_eq!(said(&mut agent, &line).contains(wire::END_OF_TURN), is_it);
        }
    }
}
