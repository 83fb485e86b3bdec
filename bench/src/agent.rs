//! The agent of all chains: does what each prompt orders, with one write for all that came in one read.

use crate::lines::Lines;
use crate::wire::{self, Message, Order};
use rustix::stdio::{stdin, stdout};
use std::collections::HashMap;

/// What is written at once at most.
const WRITE: usize = 256 << 10;

/// A prompt that is not answered yet.
struct Pending {
    id: Vec<u8>,
    session: String,
    order: Order,
}

#[derive(Default)]
struct Agent {
    output: Vec<u8>,
    sessions: usize,
    questions: u64,
    asking: HashMap<Vec<u8>, Pending>,
    kept: Vec<Pending>,
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
            (Some(b"initialize"), Some(id)) => {
                wire::answer(&mut self.output, id, r#"{"protocolVersion":1,"agentCapabilities":{}}"#);
            }
            (Some(b"session/new"), Some(id)) => {
                wire::answer(
                    &mut self.output,
                    id,
                    &format!(r#"{{"sessionId":"s{}"}}"#, self.sessions),
                );
                self.sessions += 1;
            }
            (Some(b"session/prompt"), Some(id)) => {
                let checked = Order::find(line).and_then(|order| order.check(line).map(|()| order));
                match (checked, wire::session(line)) {
                    (Ok(order), Some(session)) => self.begin(Pending {
                        id: id.to_vec(),
                        session: session.to_owned(),
                        order,
                    })?,
                    (Ok(_), None) => wire::error(&mut self.output, id, "a prompt came without its session"),
                    (Err(error), _) => wire::error(&mut self.output, id, &error.to_string()),
                }
            }
            (None, Some(id)) => {
                if let Some(mut pending) = self.asking.remove(id) {
                    if wire::text(line, "\"optionId\":\"") != Some(b"allow") {
                        wire::error(
                            &mut self.output,
                            &pending.id,
                            "a question was answered with something else",
                        );
                        return Ok(());
                    }
                    pending.order.questions -= 1;
                    self.begin(pending)?;
                }
            }
            (_, Some(id)) => wire::error(&mut self.output, id, "no such method"),
            (_, None) => {}
        }
        Ok(())
    }

    fn begin(&mut self, pending: Pending) -> anyhow::Result<()> {
        if pending.order.questions > 0 {
            wire::question(&mut self.output, self.questions, &pending.session);
            self.asking.insert(self.questions.to_string().into_bytes(), pending);
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
        let filling = ".".repeat(order.size as usize);
        for number in 0..order.updates {
            wire::update(&mut self.output, session, order.first + number, &filling);
            if self.output.len() >= WRITE {
                self.flush()?;
            }
        }
        wire::answer(&mut self.output, id, r#"{"stopReason":"end_turn"}"#);
        for number in order.updates..order.updates + order.later {
            wire::update(&mut self.output, session, order.first + number, &filling);
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
