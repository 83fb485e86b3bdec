//! A line is the message that a naive tree says it is, or is refused with the code that it has to be; written again, in whatever
//! portions, it is the same message, with params, result and error byte for byte; wrapped for another conductor, it is so again
//! behind the unwrapping. What is skimmed of a line agrees with that.
//!
//! Input: sizes of writes, a separator, and lines.

use crate::feed;
use crate::tree::{self, Kind, Node};
use crate::wire::envelope::{self, Id, Incoming};
use crate::wire::output::Output;
use crate::wire::skim::Skim;
use crate::wire::text::Text;
use bytes::Bytes;
use std::io::IoSlice;

/// Checks one input.
pub fn check(data: &[u8]) {
    let (writes, content) = match data.iter().position(|&byte| byte == feed::SEPARATOR) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (&[][..], data),
    };
    let content = Bytes::from(feed::expand(content));
    let mut output = Output::default();
    let mut sizes = writes.iter().cycle();
    let mut written = Vec::new();
    let mut messages = Vec::new();
    for line in content.split(|&byte| byte == b'\n') {
        let line = content.slice_ref(line);
        skim(&line, writes);
        let Some(message) = parse(&line) else { continue };
        wrap(&message);
        write(&mut output, &message);
        messages.push(message);
        if let Some(&size) = sizes.next() {
            take(&mut output, &mut written, usize::from(size) * 37);
        }
    }
    while output.waiting() > 0 {
        let size = sizes.next().map_or(1_000_000, |&size| 1 + usize::from(size) * 37);
        take(&mut output, &mut written, size);
    }
    assert_eq!(output.slices(&mut [IoSlice::new(&[])]), 0, "more is there than waits");

    let mut lines = written.split_inclusive(|&byte| byte == b'\n');
    for message in &messages {
        let line = lines.next().expect("a message is written");
        let line = Bytes::copy_from_slice(line.strip_suffix(b"\n").expect("a line has an end"));
        let again = parse(&line).unwrap_or_else(|| panic!("{message:?} was written as {line:?}"));
        assert!(same(message, &again), "{message:?} was written as {line:?}");
        assert!(!line.contains(&b'\r'), "{line:?}");
    }
    assert_eq!(lines.next(), None);
}

/// What is skimmed of a line does not depend on its pieces, and is what a tree says if it is an object whose keys are written plainly.
fn skim(line: &[u8], cuts: &[u8]) {
    let whole = Skim::of(line);
    let found = (whole.asked(), whole.answered());
    let mut pieces = Skim::default();
    let mut rest = line;
    for &cut in cuts {
        let (piece, behind) = rest.split_at(usize::from(cut).min(rest.len()));
        pieces.feed(piece);
        rest = behind;
    }
    pieces.feed(rest);
    assert_eq!((pieces.asked(), pieces.answered()), found, "{line:?} in {cuts:?}");
    if line.first() == Some(&b'{') {
        let all: Vec<_> = Skim::all_of(line)
            .iter()
            .map(|skim| (skim.asked(), skim.answered()))
            .collect();
        assert_eq!(all, std::slice::from_ref(&found), "{line:?}");
    }

    let Some(text) = std::str::from_utf8(line).ok().filter(|text| tree::is_json(text)) else {
        return;
    };
    let Kind::Object(members) = tree::parse(text).kind else {
        assert_eq!(found, (None, None), "{text}");
        return;
    };
    let raw = |wanted: &str| -> Vec<&str> {
        let plain = members.iter().filter(|member| text[member.start..].starts_with(wanted));
        plain.map(|member| &text[member.value.span.clone()]).collect()
    };
    let ids = raw("\"id\"");
    // Of several ids, and of long ones, nothing is promised.
    let [id] = ids.as_slice() else { return };
    if id.len() > 1_000 {
        return;
    }
    let calls = !raw("\"method\"").is_empty();
    let id = Some(*id).filter(|id| !id.starts_with(['{', '[']));
    let asked = id.filter(|_| calls).and_then(Id::parse);
    let number = |id: &str| id.strip_suffix(".0").unwrap_or(id).parse().ok();
    // A line of a log may have an id as well.
    let message = ["\"result\"", "\"error\"", "\"jsonrpc\""]
        .iter()
        .any(|key| !raw(key).is_empty());
    let answered = id.filter(|_| message && !calls).and_then(number);
    assert_eq!(found, (asked, answered), "{text}");
}

/// In an envelope and out of it again, a call is what it was.
fn wrap(message: &Incoming) {
    let (Incoming::Request { method, params, .. } | Incoming::Notification { method, params }) = message else {
        return;
    };
    let mut output = Output::default();
    output.wrapped_call(None, "proxy/successor", method, params.as_ref());
    let mut line = Vec::new();
    take(&mut output, &mut line, usize::MAX);
    while output.waiting() > 0 {
        take(&mut output, &mut line, usize::MAX);
    }
    line.pop();
    let Some(Incoming::Notification {
        params: Some(wrapped), ..
    }) = parse(&Bytes::from(line))
    else {
        panic!("{message:?} was lost in its envelope");
    };
    match envelope::unwrap(&wrapped) {
        Ok((name, inner)) => {
            let again = Incoming::Notification {
                method: name,
                params: inner,
            };
            let plain = Incoming::Notification {
                method: method.clone(),
                params: params.clone(),
            };
            assert!(
                same(&plain, &again),
                "{message:?} came out of its envelope as {again:?}"
            );
        }
        Err(why) => panic!("{message:?} does not come out of its envelope: {why:?}"),
    }
}

/// Writes at most so many bytes.
fn take(output: &mut Output, written: &mut Vec<u8>, most: usize) {
    let mut slices = [IoSlice::new(&[]); 3];
    let waiting = output.waiting();
    let count = output.slices(&mut slices);
    assert_eq!(count == 0, waiting == 0, "{waiting} bytes wait in {count} slices");
    let before = written.len();
    for slice in &slices[..count] {
        let left = most - (written.len() - before);
        written.extend_from_slice(&slice[..slice.len().min(left)]);
    }
    let taken = written.len() - before;
    output.written(taken);
    assert_eq!(output.waiting(), waiting - taken);
}

fn write(output: &mut Output, message: &Incoming) {
    match message {
        Incoming::Request { id, method, params } => output.call(Some(id.as_json()), method, params.as_ref()),
        Incoming::Notification { method, params } => output.call(None, method, params.as_ref()),
        Incoming::Response { id, outcome } => output.response(id, outcome),
    }
}

/// The same, apart from line ends in JSON text, which are written as spaces.
fn same(one: &Incoming, other: &Incoming) -> bool {
    fn text(text: &Text) -> String {
        text.to_text().replace(['\r', '\n'], " ")
    }
    let params = |one: &Option<Text>, other: &Option<Text>| one.as_ref().map(text) == other.as_ref().map(text);
    match (one, other) {
        (
            Incoming::Request {
                id,
                method,
                params: one,
            },
            Incoming::Request {
                id: other_id,
                method: other_method,
                params: other,
            },
        ) => id == other_id && method == other_method && params(one, other),
        (
            Incoming::Notification { method, params: one },
            Incoming::Notification {
                method: other_method,
                params: other,
            },
        ) => method == other_method && params(one, other),
        (
            Incoming::Response { id, outcome },
            Incoming::Response {
                id: other_id,
                outcome: other,
            },
        ) => {
            let outcomes = match (outcome, other) {
                (Ok(one), Ok(other)) | (Err(one), Err(other)) => text(one) == text(other),
                _ => false,
            };
            id == other_id && outcomes
        }
        _ => false,
    }
}

/// Parses a line and compares with the reference.
fn parse(line: &Bytes) -> Option<Incoming> {
    let parsed = envelope::parse(line);
    let Ok(text) = std::str::from_utf8(line) else {
        assert_eq!(parsed.as_ref().err().map(|malformed| malformed.code), Some(-32700));
        return None;
    };
    match (&parsed, reference(text)) {
        (_, Expected::Either) => {}
        (Err(malformed), Expected::Refused(code, id)) => {
            assert_eq!(
                (malformed.code, malformed.id.as_json()),
                (code, id.as_deref().unwrap_or("null")),
                "{text}"
            );
        }
        (Ok(Incoming::Request { id, method, params }), Expected::Call(Some(expected), name, part)) => {
            assert_eq!((id.as_json(), &**method), (&*expected, &*name), "{text}");
            assert_eq!(params.as_ref().map(Text::to_text).as_deref(), part, "{text}");
        }
        (Ok(Incoming::Notification { method, params }), Expected::Call(None, name, part)) => {
            assert_eq!(&**method, name, "{text}");
            assert_eq!(params.as_ref().map(Text::to_text).as_deref(), part, "{text}");
        }
        (Ok(Incoming::Response { id, outcome }), Expected::Response(expected, part)) => {
            assert_eq!(id.as_json(), expected, "{text}");
            assert_eq!(
                outcome.as_ref().map(Text::to_text).map_err(Text::to_text),
                part.map(Into::into).map_err(Into::into),
                "{text}"
            );
        }
        (parsed, expected) => panic!("{text} is {parsed:?} and not {expected:?}"),
    }
    parsed.ok()
}

/// What a line has to be.
#[derive(Debug)]
enum Expected<'a> {
    /// A request or notification.
    Call(Option<String>, String, Option<&'a str>),
    /// A response.
    Response(String, Result<&'a str, &'a str>),
    /// Refused, with a code, and an id if it is not null.
    Refused(i64, Option<String>),
    /// A key or method that is no Unicode: whether that is no JSON or no message is a matter of taste.
    Either,
}

fn reference(text: &str) -> Expected<'_> {
    if !tree::is_json(text) {
        return Expected::Refused(-32700, None);
    }
    let invalid = Expected::Refused(-32600, None);
    let tree = tree::parse(text);
    let Kind::Object(members) = &tree.kind else {
        return invalid;
    };
    if members.iter().any(|member| member.key.is_none()) {
        return Expected::Either;
    }
    let count = |key: &str| {
        members
            .iter()
            .filter(|member| member.key.as_deref() == Some(key))
            .count()
    };
    let twice = ["jsonrpc", "id", "method", "params", "result", "error"]
        .into_iter()
        .any(|key| count(key) > 1);
    let raw = |key: &str| tree.child(key).map(|node: &Node| &text[node.span.clone()]);
    let method = match raw("method") {
        None | Some("null") => None,
        Some(method) if method.starts_with('"') => match serde_json::from_str::<String>(method) {
            Ok(method) => Some(method),
            Err(_) => return Expected::Either,
        },
        Some(_) => return invalid,
    };
    if twice || raw("jsonrpc").is_some_and(|version| version != "\"2.0\"") {
        return invalid;
    }
    let id = match raw("id") {
        None => None,
        Some(id) => match Id::parse(id) {
            Some(id) => Some(id.as_json().to_owned()),
            None => return invalid,
        },
    };
    let params = raw("params");
    match (method, id, raw("result"), raw("error")) {
        (Some(_), id, _, _) if params.is_some_and(|params| params != "null" && !params.starts_with(['[', '{'])) => {
            Expected::Refused(-32602, id)
        }
        (Some(method), id, _, _) => Expected::Call(id, method, params),
        (None, Some(id), Some(result), None | Some("null")) => Expected::Response(id, Ok(result)),
        (None, Some(id), None | Some("null"), Some(error)) => Expected::Response(id, Err(error)),
        _ => invalid,
    }
}
