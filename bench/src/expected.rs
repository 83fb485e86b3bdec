//! What has to come, and whether it does: every update of every session once, in order and with every proxy's edit; answers with
//! results.

use crate::wire::{self, Message, Order};
use anyhow::{Context, bail};

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
    Question { id: &'a [u8] },
}

/// Updates of a session.
#[derive(Default)]
struct Session {
    came: u64,
    ordered: u64,
    /// Bytes of filling in each.
    size: u64,
}

/// All that has to come through a chain.
pub(crate) struct Expected {
    changes: Changes,
    sessions: Vec<Session>,
}

impl Expected {
    pub(crate) fn new(changes: Changes) -> Self {
        let sessions = Vec::new();
        Self { changes, sessions }
    }

    /// How many sessions there are.
    pub(crate) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// There is one session more.
    pub(crate) fn open(&mut self) {
        self.sessions.push(Session::default());
    }

    /// Completes an order, and expects what comes of it.
    pub(crate) fn order(&mut self, session: usize, order: &mut Order) {
        let session = &mut self.sessions[session];
        order.first = session.ordered;
        order.blocks = self.changes.blocks as u64;
        session.ordered += order.updates + order.later;
        session.size = order.size;
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
        match (message.method, message.id) {
            (Some(b"session/update"), None) => self.update(line),
            (Some(b"session/request_permission"), Some(id)) => {
                let title = wire::text(line, "\"title\":\"").unwrap_or_default();
                let arrows = title.iter().take_while(|byte| **byte == b'>').count();
                let expected = self.changes.question_arrows;
                if arrows != expected || &title[arrows..] != b"May I?" {
                    bail!("a question came, with {expected} edits expected, as {}", quoted(line));
                }
                Ok(Came::Question { id })
            }
            (None, Some(id)) if memchr::memmem::find(line, b"\"result\":").is_some() => {
                let id = std::str::from_utf8(id).ok().and_then(|id| id.parse().ok());
                let id = id.with_context(|| format!("an answer to nothing came: {}", quoted(line)))?;
                Ok(Came::Answer { id })
            }
            _ => bail!("this came: {}", quoted(line)),
        }
    }

    fn update(&mut self, line: &[u8]) -> anyhow::Result<Came<'static>> {
        let found = wire::read_update(line).and_then(|(arrows, name, number, size)| {
            let session: usize = name.strip_prefix('s')?.parse().ok()?;
            (session < self.sessions.len()).then_some((arrows, session, number, size as u64))
        });
        let Some((arrows, name, number, size)) = found else {
            bail!("an update came as {}", quoted(line));
        };
        let session = &mut self.sessions[name];
        if number != session.came || number >= session.ordered {
            bail!(
                "of session s{name}, update {number} came instead of {} ({} were ordered)",
                session.came,
                session.ordered
            );
        }
        if arrows != self.changes.arrows {
            bail!(
                "update {number} of session s{name} came with {arrows} edits instead of {}",
                self.changes.arrows
            );
        }
        if size != session.size {
            bail!(
                "update {number} of session s{name} came with {size} bytes of filling instead of {}",
                session.size
            );
        }
        session.came += 1;
        Ok(Came::Update { session: name })
    }
}

fn quoted(line: &[u8]) -> String {
    const SHOWN: usize = 600;
    let text = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]);
    match line.len() > SHOWN {
        true => format!("{text}… ({} bytes)", line.len()),
        false => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes updates with these numbers, each with so many arrows, where four with one arrow are expected.
    fn take(updates: &[(u64, usize)]) -> Result<bool, String> {
        let mut expected = Expected::new(Changes {
            arrows: 1,
            ..Changes::default()
        });
        expected.open();
        expected.order(
            0,
            &mut Order {
                updates: 4,
                ..Order::default()
            },
        );
        for (number, arrows) in updates {
            let mut line = Vec::new();
            wire::update(&mut line, "s0", *number, "");
            let line = String::from_utf8(line).unwrap();
            let line = line.replace("\"s0:", &format!("\"{}s0:", ">".repeat(*arrows)));
            let came = expected.take(line.as_bytes()).map_err(|error| error.to_string())?;
            assert_eq!(came, Came::Update { session: 0 });
        }
        Ok(expected.is_complete(0))
    }

    #[test]
    fn whatever_is_not_as_it_has_to_be_is_told() {
        assert_eq!(take(&[(0, 1), (1, 1), (2, 1), (3, 1)]), Ok(true));
        assert_eq!(take(&[(0, 1), (1, 1), (2, 1)]), Ok(false));
        for (updates, sentence) in [
            (
                &[(0, 1), (2, 1)][..],
                "of session s0, update 2 came instead of 1 (4 were ordered)",
            ),
            (
                &[(0, 1), (0, 1)],
                "of session s0, update 0 came instead of 1 (4 were ordered)",
            ),
            (
                &[(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)],
                "of session s0, update 4 came instead of 4 (4 were ordered)",
            ),
            (&[(0, 0)], "update 0 of session s0 came with 0 edits instead of 1"),
            (&[(0, 2)], "update 0 of session s0 came with 2 edits instead of 1"),
        ] {
            assert_eq!(take(updates), Err(sentence.to_owned()));
        }
    }

    #[test]
    fn answers_have_results_and_ids_of_ours() {
        let mut expected = Expected::new(Changes::default());
        let answer = br#"{"jsonrpc":"2.0","id":7,"result":{"stopReason":"end_turn"}}"#;
        assert_eq!(expected.take(answer).unwrap(), Came::Answer { id: 7 });
        for line in [
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"no"}}"#,
            r#"{"jsonrpc":"2.0","id":"seven","result":{}}"#,
            r#"{"jsonrpc":"2.0","method":"session/update","params":{}}"#,
            "what",
        ] {
            assert!(expected.take(line.as_bytes()).unwrap_err().to_string().contains(line));
        }
    }

    #[test]
    fn questions_have_their_edits() {
        let mut line = Vec::new();
        wire::question(&mut line, 3, "s0");
        let mut none = Expected::new(Changes::default());
        assert_eq!(none.take(&line).unwrap(), Came::Question { id: b"3" });
        let mut one = Expected::new(Changes {
            question_arrows: 1,
            ..Changes::default()
        });
        assert!(
            one.take(&line)
                .unwrap_err()
                .to_string()
                .contains("with 1 edits expected")
        );
    }
}
