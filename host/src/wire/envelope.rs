//! The JSON-RPC envelope: one line to one message, the inner JSON text untouched.

use super::text::Text;
use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;

/// Bytes of the longest id that is taken: it is remembered as long as its request waits. Peers in use take numbers and UUIDs.
pub const MAX_ID: usize = 4096;

/// A request id as its peer wrote it; equal only to the same id of the same JSON type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id(Arc<str>);

impl Id {
    /// The id `null`, also for answers to what has no readable id.
    pub fn null() -> Self {
        Self("null".into())
    }

    /// The JSON text.
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// The number, if it is one that Consort could have given out.
    pub fn as_number(&self) -> Option<u64> {
        self.0.parse().ok()
    }

    /// Takes an id from JSON text: a string, an integer or null, of no more than [`MAX_ID`] bytes.
    pub fn parse(raw: &str) -> Option<Self> {
        if raw.len() > MAX_ID {
            return None;
        }
        match raw.as_bytes().first()? {
            b'"' if raw.contains('\\') => {
                let plain: String = serde_json::from_str(raw).ok()?;
                Some(Self(serde_json::to_string(&plain).ok()?.into()))
            }
            b'"' => Some(Self(raw.into())),
            b'n' => Some(Self::null()),
            b'-' | b'0'..=b'9' if !raw.contains(['.', 'e', 'E']) => Some(Self(raw.into())),
            _ => None,
        }
    }
}

/// One message from a line.
#[derive(Clone, Debug)]
pub enum Incoming {
    /// A request.
    Request {
        /// The sender's id.
        id: Id,
        /// The method.
        method: Arc<str>,
        /// The text of `params`, if there.
        params: Option<Text>,
    },
    /// A notification.
    Notification {
        /// The method.
        method: Arc<str>,
        /// The text of `params`, if there.
        params: Option<Text>,
    },
    /// A response.
    Response {
        /// The id of the request that it answers.
        id: Id,
        /// The text of `result` or of `error`.
        outcome: Result<Text, Text>,
    },
}

/// Why a line is no message.
#[derive(Clone, Debug)]
pub struct Malformed {
    /// The JSON-RPC code: -32700, -32600 or -32602.
    pub code: i64,
    /// The id to answer to; null if there is none or the line is no request.
    pub id: Id,
    /// What is wrong.
    pub reason: String,
}

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Tells a member that is `null` from one that is absent.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Reads one line.
///
/// # Errors
///
/// What to answer if the line is no JSON, no message, or a batch.
pub fn parse(line: &Bytes) -> Result<Incoming, Malformed> {
    let text = std::str::from_utf8(line).map_err(|error| Malformed {
        code: -32700,
        id: Id::null(),
        reason: format!("the line is not UTF-8 at byte {}", error.valid_up_to()),
    })?;
    let raw = read(text)?;
    if raw.jsonrpc.is_some_and(|version| version.get() != "\"2.0\"") {
        return Err(invalid("`jsonrpc` is not \"2.0\""));
    }
    let id = match raw.id {
        None => None,
        Some(raw) => Some(
            Id::parse(raw.get())
                .ok_or_else(|| invalid("`id` is neither a string, nor an integer, nor null, or too long"))?,
        ),
    };
    let part = |raw: &RawValue| slice(line, text, raw);
    if let Some(method) = raw.method {
        let method: Arc<str> = method.as_ref().into();
        if let Some(params) = raw.params
            && !params.get().starts_with(['{', '[', 'n'])
        {
            return Err(Malformed {
                code: -32602,
                id: id.unwrap_or_else(Id::null),
                reason: "`params` is neither an object nor an array".into(),
            });
        }
        let params = raw.params.map(part);
        return Ok(match id {
            Some(id) => Incoming::Request { id, method, params },
            None => Incoming::Notification { method, params },
        });
    }
    let outcome = match (raw.result, raw.error) {
        (Some(result), None) => Ok(part(result)),
        (None, Some(error)) => Err(part(error)),
        // Some peers write out the one that does not hold as null.
        (Some(result), Some(error)) if error.get() == "null" => Ok(part(result)),
        (Some(result), Some(error)) if result.get() == "null" => Err(part(error)),
        (Some(_), Some(_)) => return Err(invalid("a response has both `result` and `error`")),
        (None, None) => return Err(invalid("there is neither `method` nor `result` nor `error`")),
    };
    match id {
        Some(id) => Ok(Incoming::Response { id, outcome }),
        None => Err(invalid("a response has no `id`")),
    }
}

#[derive(Deserialize)]
struct RawEnvelope<'a> {
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
}

/// Takes the call out of the params of a `proxy/successor`.
///
/// # Errors
///
/// The JSON-RPC code and the reason if there is none.
pub fn unwrap(params: &Text) -> Result<(Arc<str>, Option<Text>), (i64, String)> {
    let line = match params.pieces() {
        [piece] => piece.clone(),
        _ => Bytes::from(params.to_vec()),
    };
    // Whole lines are checked for UTF-8 when they come in.
    let text = std::str::from_utf8(&line).map_err(|_| (-32600, "the envelope is not UTF-8".to_owned()))?;
    if !text.starts_with('{') {
        return Err((-32602, "the envelope is not an object with a `method`".into()));
    }
    let raw: RawEnvelope<'_> = serde_json::from_str(text).map_err(|error| {
        let reason = error.to_string();
        let reason = reason.split(" at line").next().unwrap_or_default();
        let code = if reason.starts_with("duplicate") {
            -32600
        } else {
            -32602
        };
        (code, format!("the envelope has a wrong member: {reason}"))
    })?;
    let Some(method) = raw.method else {
        return Err((-32602, "the envelope has no `method`".into()));
    };
    let method: Cow<'_, str> = serde_json::from_str(method.get())
        .map_err(|_| (-32602, "the envelope's `method` is not a string".to_owned()))?;
    match raw.params {
        Some(params) if !params.get().starts_with(['{', '[', 'n']) => Err((
            -32602,
            "the envelope's `params` is neither an object nor an array".into(),
        )),
        params => Ok((method.as_ref().into(), params.map(|params| slice(&line, text, params)))),
    }
}

fn read(text: &str) -> Result<Raw<'_>, Malformed> {
    // Some runtimes begin what they write with a byte order mark.
    let text = text.trim_start_matches('\u{feff}');
    let trimmed = text.trim_start_matches([' ', '\t', '\r', '\n']);
    if trimmed.starts_with('{') {
        match serde_json::from_str(trimmed) {
            Ok(raw) => return Ok(raw),
            Err(error) if error.is_data() => {
                let reason = error.to_string();
                let reason = reason.split(" at line").next().unwrap_or_default();
                check_syntax(trimmed)?;
                return Err(invalid(reason));
            }
            Err(error) => return Err(syntax(&error)),
        }
    }
    check_syntax(trimmed)?;
    Err(invalid(if trimmed.starts_with('[') {
        "batches are not part of ACP: send one message a line"
    } else {
        "the line is JSON, but not an object"
    }))
}

fn check_syntax(text: &str) -> Result<(), Malformed> {
    serde_json::from_str::<&RawValue>(text)
        .map(drop)
        .map_err(|error| syntax(&error))
}

fn syntax(error: &serde_json::Error) -> Malformed {
    Malformed {
        code: -32700,
        id: Id::null(),
        reason: format!("the line is not JSON: {error}"),
    }
}

fn invalid(reason: &str) -> Malformed {
    Malformed {
        code: -32600,
        id: Id::null(),
        reason: reason.into(),
    }
}

/// The part of the line that a raw value stands for, sharing the line's buffer unless it is little of it.
fn slice(line: &Bytes, text: &str, raw: &RawValue) -> Text {
    let start = raw.get().as_ptr() as usize - text.as_ptr() as usize;
    Text::trusted_part(line, start..start + raw.get().len())
}

/// The text of a JSON-RPC error object.
pub fn error_text(code: i64, message: &str, data: Option<serde_json::Value>) -> Text {
    let mut error = serde_json::Map::new();
    error.insert("code".into(), code.into());
    error.insert("message".into(), message.into());
    if let Some(data) = data {
        error.insert("data".into(), data);
    }
    Text::of(&error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<Incoming, Malformed> {
        parse(&Bytes::copy_from_slice(text.as_bytes()))
    }

    fn code(text: &str) -> i64 {
        match line(text) {
            Ok(message) => panic!("{text} was taken for {message:?}"),
            Err(malformed) => malformed.code,
        }
    }

    #[test]
    fn keeps_params_byte_for_byte() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"x","params": {"n":1.10, "big":12345678901234567890123,"u":"\u00e9\ud800"} }"#;
        let Ok(Incoming::Request { params, .. }) = line(text) else {
            panic!("no request");
        };
        assert_eq!(
            params.map(|params| params.to_text()).as_deref(),
            Some(r#"{"n":1.10, "big":12345678901234567890123,"u":"\u00e9\ud800"}"#)
        );
    }

    #[test]
    fn tells_null_from_absent() {
        assert!(matches!(
            line(r#"{"id":null,"method":"x"}"#),
            Ok(Incoming::Request { .. })
        ));
        assert!(matches!(line(r#"{"method":"x"}"#), Ok(Incoming::Notification { .. })));
        assert!(matches!(
            line(r#"{"id":1,"result":null}"#),
            Ok(Incoming::Response { outcome: Ok(_), .. })
        ));
    }

    #[test]
    fn a_message_with_id_and_method_is_a_request() {
        assert!(matches!(
            line(r#"{"id":1,"method":"x","result":{}}"#),
            Ok(Incoming::Request { .. })
        ));
    }

    #[test]
    fn says_what_is_wrong() {
        assert_eq!(code("{"), -32700);
        assert_eq!(code("nonsense"), -32700);
        assert_eq!(code("1"), -32600);
        assert_eq!(code("[]"), -32600);
        assert_eq!(code("[1,"), -32700);
        assert_eq!(code(r#"{"id":1.5,"method":"x"}"#), -32600);
        assert_eq!(code(r#"{"id":1e0,"method":"x"}"#), -32600);
        assert_eq!(code(r#"{"id":{},"method":"x"}"#), -32600);
        assert_eq!(code(r#"{"id":1,"id":2,"method":"x"}"#), -32600);
        assert_eq!(code(r#"{"id":1,"id":2,"method":"#), -32700);
        assert_eq!(code(r#"{"id":1,"method":7}"#), -32600);
        assert_eq!(code(r#"{"id":1,"method":"x","params":7}"#), -32602);
        assert_eq!(code(r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#), -32600);
        assert_eq!(code(r#"{"id":1}"#), -32600);
        assert_eq!(code(r#"{"id":1,"result":1,"error":{}}"#), -32600);
        assert_eq!(code("{} x"), -32700);
    }

    #[test]
    fn envelopes_are_opened() {
        let open = |text: &str| unwrap(&Text::trusted(text.to_owned()));
        let (method, params) = open(r#"{"_meta":{"a":1},"params": {"n":1.10} ,"method":"x\/y"}"#).unwrap();
        assert_eq!(
            (&*method, params.map(|params| params.to_text()).as_deref()),
            ("x/y", Some(r#"{"n":1.10}"#))
        );
        assert!(open(r#"{"method":"x"}"#).unwrap().1.is_none());
        let code = |text: &str| open(text).unwrap_err().0;
        assert_eq!(code(r#"{"params":{}}"#), -32602);
        assert_eq!(code(r#"{"method":null}"#), -32602);
        assert_eq!(code(r#"{"method":7}"#), -32602);
        assert_eq!(code(r#"{"method":"x","params":7}"#), -32602);
        assert_eq!(code(r#"["x"]"#), -32602);
        assert_eq!(code("null"), -32602);
        assert_eq!(code(r#"{"method":"x","method":"y"}"#), -32600);
        assert_eq!(code(r#"{"method":"x","params":{},"params":{}}"#), -32600);
    }

    #[test]
    fn null_stands_for_absent_where_the_other_one_is_there() {
        assert!(matches!(
            line(r#"{"id":1,"result":{},"error":null}"#),
            Ok(Incoming::Response { outcome: Ok(_), .. })
        ));
        assert!(matches!(
            line(r#"{"id":1,"result":null,"error":{"code":1,"message":""}}"#),
            Ok(Incoming::Response { outcome: Err(_), .. })
        ));
    }

    #[test]
    fn ids_keep_their_type() {
        assert_ne!(Id::parse("1"), Id::parse("\"1\""));
        assert_eq!(Id::parse("\"\\u0061\""), Id::parse("\"a\""));
        assert_eq!(Id::parse("18446744073709551616").and_then(|id| id.as_number()), None);
        assert_eq!(Id::parse("true"), None);
    }
}
