//! What an MCP client sends, as far as it has to be understood, and the answers to it.

use super::Room;
use crate::message::Outcome;
use crate::wire::edit::{self, Edit};
use crate::wire::envelope::error_text;
use crate::wire::text::Text;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashMap;

/// Bytes of a message, or of a batch: as much as a message of ACP has.
pub(super) const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// Messages of a batch.
const MAX_BATCH: usize = 256;

/// What is wrong: JSON-RPC's code and a sentence.
pub(super) type Wrong = (i64, String);

/// What is sent at a time.
pub(super) enum Sent {
    One(Message),
    /// Revision 2025-03-26 has that.
    Batch(Vec<Message>),
}

/// One message.
#[derive(Deserialize)]
pub(super) struct Message {
    /// Its id, if it has one.
    #[serde(default, deserialize_with = "there")]
    id: Option<Box<RawValue>>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "there")]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<Box<RawValue>>,
}

/// A member that is there, even if it is null.
fn there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// What it is.
pub(super) enum Kind {
    Request(Request),
    Notification(Notification),
    /// An answer to a request with this id, if it is one that was given out, and what it takes of the room for large messages.
    Response(Option<u64>, Outcome, Room),
}

/// A notification of a client.
pub(super) struct Notification {
    pub(super) method: String,
    pub(super) params: Option<Box<RawValue>>,
    /// What it takes of the room for large messages.
    pub(super) room: Room,
}

/// A request of a client.
pub(super) struct Request {
    pub(super) id: Box<RawValue>,
    pub(super) method: String,
    pub(super) params: Option<Box<RawValue>>,
    /// What it takes of the room for large messages.
    pub(super) room: Room,
}

impl Sent {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Wrong> {
        let unreadable = |error| (-32700, format!("this is no JSON-RPC message: {error}"));
        if !bytes.trim_ascii_start().starts_with(b"[") {
            return serde_json::from_slice(bytes).map(Self::One).map_err(unreadable);
        }
        let batch: Vec<Message> = serde_json::from_slice(bytes).map_err(unreadable)?;
        match batch.len() {
            1..=MAX_BATCH => Ok(Self::Batch(batch)),
            _ => Err((
                -32600,
                format!("a batch has one message at least and {MAX_BATCH} at most"),
            )),
        }
    }

    /// The id of a single message, if it has one.
    pub(super) fn id(&self) -> Option<&RawValue> {
        match self {
            Self::One(message) => message.id.as_deref(),
            Self::Batch(_) => None,
        }
    }

    /// The messages, and whether they are a batch.
    ///
    /// # Errors
    ///
    /// If they are a batch from somebody whose revision has none, or one of them is no message, or `initialize` is among others.
    pub(super) fn parts(self, takes_batches: bool, room: &Room) -> Result<(Vec<Kind>, bool), Wrong> {
        let (messages, is_batch) = match self {
            Self::One(message) => (vec![message], false),
            Self::Batch(_) if !takes_batches => {
                let reason = "only MCP 2025-03-26 has batches, and this client has not agreed on that: send one message at a time";
                return Err((-32600, reason.to_owned()));
            }
            Self::Batch(messages) => (messages, true),
        };
        let begins = |message: &Message| message.method.as_deref() == Some("initialize");
        if is_batch && messages.iter().any(begins) {
            return Err((-32600, "`initialize` must not be part of a batch".to_owned()));
        }
        let kinds: Result<Vec<Kind>, Wrong> = messages.into_iter().map(|message| message.kind(room)).collect();
        Ok((kinds?, is_batch))
    }
}

impl Message {
    fn kind(self, room: &Room) -> Result<Kind, Wrong> {
        let text = |value: Box<RawValue>| Text::trusted(String::from(Box::<str>::from(value)));
        let response = |id: Box<RawValue>, outcome| Kind::Response(id.get().parse().ok(), outcome, room.clone());
        let (params, room) = (self.params, room.clone());
        match (self.method, self.id, self.result, self.error) {
            (Some(_), Some(id), _, _) if id.get() == "null" => {
                Err((-32600, "the `id` of a request must not be null".to_owned()))
            }
            (Some(method), Some(id), _, _) => Ok(Kind::Request(Request {
                id,
                method,
                params,
                room,
            })),
            (Some(method), None, _, _) => Ok(Kind::Notification(Notification { method, params, room })),
            (None, Some(id), Some(result), _) => Ok(response(id, Ok(text(result)))),
            (None, Some(id), None, Some(error)) => Ok(response(id, Err(text(error)))),
            (None, _, _, _) => Err((
                -32600,
                "this is neither a request nor a notification nor an answer".to_owned(),
            )),
        }
    }
}

/// The answer to a request with this id.
pub(super) fn answer(id: &str, outcome: &Outcome) -> String {
    let (name, text) = match outcome {
        Ok(result) => ("result", result),
        Err(error) => ("error", error),
    };
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"{name}\":{}}}", text.to_text())
}

/// An error for whoever has sent something.
pub(super) fn failure(id: &str, (code, reason): &Wrong) -> String {
    answer(id, &Err(error_text(*code, reason, None)))
}

/// Answers as they are sent: one by itself, those of a batch together.
pub(super) fn together(answers: &[String], is_batch: bool) -> String {
    match answers {
        [answer] if !is_batch => answer.clone(),
        answers => format!("[{}]", answers.join(",")),
    }
}

/// The JSON text of a member.
pub(super) fn member(object: &RawValue, name: &str) -> Option<String> {
    let members: HashMap<&str, &RawValue> = serde_json::from_str(object.get()).ok()?;
    members.get(name).map(|value| value.get().to_owned())
}

/// The same params with another token.
pub(super) fn with_token(params: &RawValue, token: &Value) -> Box<RawValue> {
    let put = Edit::Replace("/_meta/progressToken".to_owned(), Text::of(token));
    let edited = edit::one(&Text::trusted(params.get().to_owned()), &put);
    let edited = edited.ok().and_then(|text| RawValue::from_string(text.to_text()).ok());
    edited.unwrap_or_else(|| params.to_owned())
}

/// The token under which a request's progress is to be told.
pub(super) fn progress_token(params: &RawValue) -> Option<Value> {
    let meta = member(params, "_meta")?;
    serde_json::from_str::<Value>(&meta).ok()?.get("progressToken").cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str, takes_batches: bool) -> Option<i64> {
        let parts = Sent::read(text.as_bytes()).and_then(|sent| sent.parts(takes_batches, &None));
        parts.err().map(|(code, _)| code)
    }

    #[test]
    fn batches_are_for_whoever_has_agreed_on_them() {
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let batch = |count: usize| format!(" [{}]", vec![ping; count].join(","));
        assert_eq!(wrong(ping, false), None);
        assert_eq!(wrong(&batch(1), false), Some(-32600));
        for (text, code) in [
            (batch(MAX_BATCH), None),
            (batch(MAX_BATCH + 1), Some(-32600)),
            ("[]".to_owned(), Some(-32600)),
            (format!("[{ping},{{}}]"), Some(-32600)),
            (format!("[{ping},7]"), Some(-32700)),
            (format!(r#"[{ping},{{"id":2,"method":"initialize"}}]"#), Some(-32600)),
        ] {
            assert_eq!(wrong(&text, true), code, "{text}");
        }
    }

    #[test]
    fn null_is_a_result_and_no_id_of_a_request() {
        assert_eq!(wrong(r#"{"id":null,"method":"ping"}"#, false), Some(-32600));
        let answer = Sent::read(br#"{"id":7,"result":null}"#).and_then(|sent| sent.parts(false, &None));
        let (kinds, _) = answer.unwrap();
        let [Kind::Response(Some(7), Ok(result), _)] = &kinds[..] else {
            panic!("it is an answer");
        };
        assert_eq!(result.to_text(), "null");
    }

    #[test]
    fn answers_of_a_batch_stay_together() {
        let answers = ["1".to_owned(), "2".to_owned()];
        assert_eq!(together(&answers, true), "[1,2]");
        assert_eq!(together(&answers[..1], true), "[1]");
        assert_eq!(together(&answers[..1], false), "1");
    }
}
