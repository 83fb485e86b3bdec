//! The messages that agent and client exchange: written by hand and found again by looking for keys, so that neither is what is
//! measured. A prompt says in its text what the agent shall do.

use anyhow::{Context, bail};
use memchr::memmem;
use std::io::Write as _;

/// What comes before each prompt whose proxies put one there.
pub(crate) const BLOCK: &str = "a block of context";

/// What updates consist of beyond their number.
const CHUNK: &str = "and what an agent may say in a chunk";

/// Where a prompt's order is looked for: behind blocks of proxies, but not in 16 MiB.
const HEAD: usize = 16 << 10;

/// What the agent shall do with a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    /// Updates before the answer.
    pub(crate) updates: u64,
    /// Updates behind the answer, in the same write.
    pub(crate) later: u64,
    /// The number of the first update.
    pub(crate) first: u64,
    /// Bytes of filling in each update.
    pub(crate) size: u64,
    /// Questions for permission, one after the other, before anything else.
    pub(crate) questions: u64,
    /// Blocks that proxies have put in front of the prompt.
    pub(crate) blocks: u64,
    /// Bytes of filling in the prompt.
    pub(crate) filling: u64,
    /// Whether the filling is looked at byte by byte.
    pub(crate) look: u64,
    /// 1: not answered until one comes with 2.
    pub(crate) keep: u64,
}

impl Order {
    fn fields(&mut self) -> [&mut u64; 9] {
        [
            &mut self.updates,
            &mut self.later,
            &mut self.first,
            &mut self.size,
            &mut self.questions,
            &mut self.blocks,
            &mut self.filling,
            &mut self.look,
            &mut self.keep,
        ]
    }

    /// The order in a prompt's line.
    pub(crate) fn find(line: &[u8]) -> anyhow::Result<Self> {
        let head = &line[..line.len().min(HEAD)];
        let start = memmem::find(head, b"[[").context("the prompt has no order")? + 2;
        let length = memmem::find(&head[start..], b"]]").context("the prompt's order does not end")?;
        let text = std::str::from_utf8(&head[start..start + length])?;
        let mut order = Self::default();
        let mut words = text.split(' ');
        for field in order.fields() {
            *field = words.next().context("the prompt's order is too short")?.parse()?;
        }
        Ok(order)
    }

    /// Checks that what the order says about the prompt itself is so.
    pub(crate) fn check(&self, line: &[u8]) -> anyhow::Result<()> {
        let head = &line[..line.len().min(HEAD)];
        let blocks = memmem::find_iter(head, BLOCK.as_bytes()).count() as u64;
        if blocks != self.blocks {
            bail!("a prompt came with {blocks} added blocks instead of {}", self.blocks);
        }
        let tail = &line[line.len().saturating_sub(HEAD)..];
        let length = line.len() as u64;
        if memmem::find(tail, b"<end>").is_none() || length < self.filling || length > self.filling + HEAD as u64 {
            bail!("a prompt with {} bytes of filling came as {length} bytes", self.filling);
        }
        if self.look == 1 {
            let start = memmem::find(head, b"]]").unwrap_or_default() + 2;
            let filling = line[start..].iter().take_while(|byte| **byte == b'x').count() as u64;
            if filling != self.filling {
                bail!(
                    "a prompt came with {filling} bytes of filling instead of {}",
                    self.filling
                );
            }
        }
        Ok(())
    }
}

/// A prompt.
pub(crate) fn prompt(line: &mut Vec<u8>, id: u64, session: usize, mut order: Order) {
    let fields = order.fields().map(|field| field.to_string()).join(" ");
    let _ = write!(
        line,
        r#"{{"jsonrpc":"2.0","id":{id},"method":"session/prompt","params":{{"sessionId":"s{session}","prompt":[{{"type":"text","text":"[[{fields}]]"#
    );
    line.resize(line.len() + order.filling as usize, b'x');
    line.extend_from_slice(b"<end>\"}]}}\n");
}

/// An update.
pub(crate) fn update(line: &mut Vec<u8>, session: &str, number: u64, filling: &str) {
    let _ = writeln!(
        line,
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{session}","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{session}:{number} {CHUNK}{filling}"}}}}}}}}"#
    );
}

/// A question for permission.
pub(crate) fn question(line: &mut Vec<u8>, id: u64, session: &str) {
    let _ = writeln!(
        line,
        r#"{{"jsonrpc":"2.0","id":{id},"method":"session/request_permission","params":{{"sessionId":"{session}","toolCall":{{"toolCallId":"t{id}","title":"May I?"}},"options":[{{"optionId":"allow","name":"Allow","kind":"allow_once"}}]}}}}"#
    );
}

/// An answer with a result.
pub(crate) fn answer(line: &mut Vec<u8>, id: &[u8], result: &str) {
    line.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    line.extend_from_slice(id);
    let _ = writeln!(line, r#","result":{result}}}"#);
}

/// An answer with an error.
pub(crate) fn error(line: &mut Vec<u8>, id: &[u8], message: &str) {
    line.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    line.extend_from_slice(id);
    let message = serde_json::Value::from(message);
    let _ = writeln!(line, r#","error":{{"code":-32603,"message":{message}}}}}"#);
}

/// A message, as far as it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) id: Option<&'a [u8]>,
    pub(crate) method: Option<&'a [u8]>,
}

impl<'a> Message<'a> {
    /// Reads a line. Nothing that is exchanged here has `"id":` or `"method":` anywhere else than in the envelope.
    pub(crate) fn read(line: &'a [u8]) -> Self {
        let (head, tail) = match line.len() > 2 * HEAD {
            true => (&line[..HEAD], &line[line.len() - HEAD..]),
            false => (line, &line[..0]),
        };
        let find = |key: &str| value(head, key).or_else(|| value(tail, key));
        let id = find("\"id\":").map(|rest| {
            let text = rest.first() == Some(&b'"');
            let end = match text {
                true => rest[1..].iter().position(|byte| *byte == b'"').map(|at| at + 2),
                false => rest.iter().position(|byte| matches!(byte, b',' | b'}')),
            };
            &rest[..end.unwrap_or(rest.len())]
        });
        let method = find("\"method\":\"").map(until_quote);
        Self { id, method }
    }
}

/// What follows a key.
fn value<'a>(line: &'a [u8], key: &str) -> Option<&'a [u8]> {
    memmem::find(line, key.as_bytes()).map(|at| &line[at + key.len()..])
}

fn until_quote(rest: &[u8]) -> &[u8] {
    &rest[..memchr::memchr(b'"', rest).unwrap_or(rest.len())]
}

/// The text behind a key; none if it is not there.
pub(crate) fn text<'a>(line: &'a [u8], key: &str) -> Option<&'a [u8]> {
    value(line, key).map(until_quote)
}

/// The session of a line.
pub(crate) fn session(line: &[u8]) -> Option<&str> {
    text(line, "\"sessionId\":\"").and_then(|name| std::str::from_utf8(name).ok())
}

/// The arrows, the session, the number and the filling's length of an update; none if anything else is in it.
pub(crate) fn read_update(line: &[u8]) -> Option<(usize, &str, u64, usize)> {
    let text = text(line, "\"text\":\"")?;
    let arrows = text.iter().take_while(|byte| **byte == b'>').count();
    let text = std::str::from_utf8(&text[arrows..]).ok()?;
    let (name, rest) = text.split_once(':')?;
    let (number, rest) = rest.split_once(' ')?;
    let filling = rest.strip_prefix(CHUNK)?;
    let number = number.parse().ok()?;
    (session(line)? == name).then_some((arrows, name, number, filling.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_comes_as_it_was_written() {
        let order = Order {
            updates: 3,
            first: 12,
            filling: 40_000,
            look: 1,
            ..Order::default()
        };
        let mut line = Vec::new();
        prompt(&mut line, 7, 2, order);
        assert_eq!(Order::find(&line).unwrap(), order);
        order.check(&line).unwrap();
        let message = Message::read(&line);
        assert_eq!(message.id, Some(&b"7"[..]));
        assert_eq!(message.method, Some(&b"session/prompt"[..]));
        assert_eq!(session(&line), Some("s2"));
        let error = Order { blocks: 1, ..order }.check(&line).unwrap_err();
        assert_eq!(error.to_string(), "a prompt came with 0 added blocks instead of 1");
        let hole = line.iter().rposition(|byte| *byte == b'x').unwrap();
        line[hole - 5] = b'y';
        assert!(
            order
                .check(&line)
                .unwrap_err()
                .to_string()
                .contains("39994 bytes of filling")
        );
    }

    #[test]
    fn an_update_is_read_back_and_nothing_else_is() {
        let mut line = Vec::new();
        update(&mut line, "s5", 41, "abc");
        assert_eq!(read_update(&line), Some((0, "s5", 41, 3)));
        let line = String::from_utf8(line).unwrap();
        let edited = line.replace("\"s5:", "\">>s5:");
        assert_eq!(read_update(edited.as_bytes()), Some((2, "s5", 41, 3)));
        assert_eq!(read_update(line.replace("\"s5:", "\"s6:").as_bytes()), None);
        assert_eq!(read_update(line.replace("may say", "must say").as_bytes()), None);
    }

    #[test]
    fn ids_of_all_kinds_are_found_wherever_they_are() {
        for (line, id) in [
            (r#"{"jsonrpc":"2.0","id":"a-b","result":{}}"#, "\"a-b\""),
            (r#"{"jsonrpc":"2.0","result":{},"id":17}"#, "17"),
            (r#"{"id":null,"result":{}}"#, "null"),
        ] {
            assert_eq!(Message::read(line.as_bytes()).id, Some(id.as_bytes()));
        }
        let long = format!(r#"{{"params":"{}","id":3}}"#, "x".repeat(100_000));
        assert_eq!(Message::read(long.as_bytes()).id, Some(&b"3"[..]));
    }
}
