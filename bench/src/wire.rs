//! The messages that agent and client exchange: written by hand and found again by looking for keys, so that neither is what is
//! measured. A prompt says in its text what the agent shall do.

use memchr::memmem;
use std::fmt::Display;
use std::io::Write as _;

/// What each proxy that edits prompts puts before one.
const BLOCK: &str = r#"{"type":"text","text":"a block of context"},"#;

/// What updates consist of beyond their number.
const CHUNK: &str = "and what an agent may say in a chunk";

/// What prompts are filled with.
pub(crate) const FILLING: u8 = b'x';

/// How far keys are looked for at either end of a line: past the blocks of proxies, but not through 16 MiB.
pub(crate) const HEAD: usize = 16 << 10;

/// The parameters of `initialize`.
pub(crate) const INITIALIZE: &str = r#"{"protocolVersion":1,"clientCapabilities":{}}"#;

/// The answer to it.
pub(crate) const INITIALIZED: &str =
    r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":true},"agentInfo":{"name":"bench","version":"1"}}"#;

/// The parameters of `session/new`.
pub(crate) const NEW_SESSION: &str = r#"{"cwd":"/","mcpServers":[]}"#;

/// The answer to a prompt.
pub(crate) const END_OF_TURN: &str = r#"{"stopReason":"end_turn"}"#;

/// The answer to a question for permission.
pub(crate) const ALLOWED: &str = r#"{"outcome":{"outcome":"selected","optionId":"allow"}}"#;

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
    /// 1: not answered until one comes with 2.
    pub(crate) keep: u64,
}

impl Order {
    pub(crate) fn fields(&mut self) -> [&mut u64; 8] {
        [
            &mut self.updates,
            &mut self.later,
            &mut self.first,
            &mut self.size,
            &mut self.questions,
            &mut self.blocks,
            &mut self.filling,
            &mut self.keep,
        ]
    }
}

/// A request.
pub(crate) fn request(line: &mut Vec<u8>, id: u64, method: &str, params: &str) {
    let _ = writeln!(
        line,
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#
    );
}

/// A prompt behind so many blocks, with so many bytes of filling.
pub(crate) fn prompt(line: &mut Vec<u8>, id: impl Display, session: &str, order: Order, blocks: u64, filling: u64) {
    let _ = write!(
        line,
        r#"{{"jsonrpc":"2.0","id":{id},"method":"session/prompt","params":{{"sessionId":"{session}","prompt":["#
    );
    for _ in 0..blocks {
        line.extend_from_slice(BLOCK.as_bytes());
    }
    line.extend_from_slice(br#"{"type":"text","text":"#);
    prompt_text(line, order, filling);
    line.extend_from_slice(b"}]}}\n");
}

/// The text of a prompt, with its quotes.
pub(crate) fn prompt_text(line: &mut Vec<u8>, mut order: Order, filling: u64) {
    line.extend_from_slice(b"\"[[");
    for (number, field) in order.fields().into_iter().enumerate() {
        let _ = write!(line, "{}{field}", if number == 0 { "" } else { " " });
    }
    line.extend_from_slice(b"]]");
    line.resize(line.len() + filling as usize, FILLING);
    line.extend_from_slice(b"<end>\"");
}

/// An update with edits before its text.
pub(crate) fn update(line: &mut Vec<u8>, session: &str, edits: &str, number: u64, filling: &str) {
    let _ = write!(
        line,
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{session}","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"#
    );
    update_text(line, session, edits, number, filling);
    line.extend_from_slice(b"}}}}\n");
}

/// The filling of an update.
pub(crate) fn update_filling(size: u64) -> String {
    ".".repeat(size as usize)
}

/// The text of an update, with its quotes.
pub(crate) fn update_text(line: &mut Vec<u8>, session: &str, edits: &str, number: u64, filling: &str) {
    let _ = write!(line, "\"{edits}{session}:{number} {CHUNK}{filling}\"");
}

/// A question for permission with edits before its title.
pub(crate) fn question(line: &mut Vec<u8>, id: impl Display, number: u64, session: &str, edits: &str) {
    let _ = writeln!(
        line,
        r#"{{"jsonrpc":"2.0","id":{id},"method":"session/request_permission","params":{{"sessionId":"{session}","toolCall":{{"toolCallId":"t{number}","title":"{edits}May I?"}},"options":[{{"optionId":"allow","name":"Allow","kind":"allow_once"}}]}}}}"#
    );
}

/// An answer with a result.
pub(crate) fn answer(line: &mut Vec<u8>, id: impl Display, result: &str) {
    let _ = writeln!(line, r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
}

/// An answer with an error.
pub(crate) fn error(line: &mut Vec<u8>, id: impl Display, message: &str) {
    let message = serde_json::Value::from(message);
    let _ = writeln!(
        line,
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32603,"message":{message}}}}}"#
    );
}

/// A message, as far as it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    /// As JSON.
    pub(crate) id: Option<&'a str>,
    pub(crate) method: Option<&'a [u8]>,
}

impl<'a> Message<'a> {
    /// Reads a line. Nothing that is exchanged here has `"id"` or `"method"` anywhere else than in the envelope.
    pub(crate) fn read(line: &'a [u8]) -> Self {
        let (head, tail) = match line.len() > 2 * HEAD {
            true => (&line[..HEAD], &line[line.len() - HEAD..]),
            false => (line, &line[..0]),
        };
        let find = |key: &str| value(head, key).or_else(|| value(tail, key));
        let id = find("\"id\"").and_then(|rest| {
            let text = rest.first() == Some(&b'"');
            let end = match text {
                true => rest[1..].iter().position(|byte| *byte == b'"').map(|at| at + 2),
                false => rest.iter().position(|byte| matches!(byte, b',' | b'}')),
            };
            std::str::from_utf8(&rest[..end.unwrap_or(rest.len())]).ok()
        });
        let method = find("\"method\"").and_then(text);
        Self { id, method }
    }
}

/// What follows a key.
fn value<'a>(line: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let rest = &line[memmem::find(line, key.as_bytes())? + key.len()..];
    Some(rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start())
}

/// The string that is first in something, as far as it is written without escapes.
fn text(rest: &[u8]) -> Option<&[u8]> {
    let text = rest.strip_prefix(b"\"")?;
    Some(&text[..memchr::memchr(b'"', text)?])
}

/// The session of a line.
pub(crate) fn session(line: &[u8]) -> Option<&str> {
    let name = value(line, "\"sessionId\"").and_then(text)?;
    std::str::from_utf8(name).ok()
}

/// As much of a line as an error has to show.
pub(crate) fn quoted(line: &[u8]) -> String {
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

    #[test]
    fn ids_of_all_kinds_are_found_wherever_they_are() {
        for (line, id) in [
            (r#"{"jsonrpc":"2.0","id":"a-b","result":{}}"#, "\"a-b\""),
            (r#"{"jsonrpc":"2.0","result":{},"id":17}"#, "17"),
            (r#"{"id":null,"result":{}}"#, "null"),
            (r#"{"result": {}, "id" : 17}"#, "17"),
        ] {
            assert_eq!(Message::read(line.as_bytes()).id, Some(id));
        }
        let long = format!(r#"{{"params":"{}","id":3}}"#, "x".repeat(100_000));
        assert_eq!(Message::read(long.as_bytes()).id, Some("3"));
    }
}
