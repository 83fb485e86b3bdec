//! Edits do what they do to a naive tree, byte for byte, and mean what another crate makes of them; all or none.
//!
//! Input: JSON text, and segments with an edit each: a byte for what it does, the pointer, the byte `0xfc`, the content.

use crate::feed;
use crate::scan;
use crate::tree::{self, Kind, Node};
use crate::wire::edit::{self, Edit};
use crate::wire::text::Text;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::Value;
use std::ops::Range;

/// Ends the pointer.
const CONTENT: u8 = 0xfc;

/// Edits that one input makes at most.
const MOST: usize = 12;

/// Checks one input.
pub fn check(data: &[u8]) {
    let mut segments = feed::segments(data);
    let Some(json) = segments.next().and_then(feed::expand_text) else {
        return;
    };
    let Some((text, tree)) = scan::parse(&json) else { return };
    let json = tree::trim(&json);
    let edits: Vec<Edit> = segments.filter_map(read).take(MOST).collect();
    let edited = edit::apply(&text, &edits);
    assert!(text.to_text() == json, "an edit changed the text that it was given");

    let expected = edits
        .iter()
        .try_fold(json.to_owned(), |text, edit| reference(&text, edit));
    match (&edited, &expected) {
        (Ok(edited), Some(expected)) => {
            let edited = edited.to_text();
            assert!(edited == *expected, "{edits:?} made\n{edited}\nand not\n{expected}");
            assert!(tree::is_json(&edited), "{edits:?} made {edited}");
        }
        (Err(_), None) => {}
        _ => panic!("{edits:?} on {json} made {edited:?}, and not {expected:?}"),
    }
    if let Ok(edited) = &edited {
        assert_eq!(edited.len(), edited.to_vec().len());
    }
    meaning(&tree, json, &edits, edited.ok());
}

fn read(segment: &[u8]) -> Option<Edit> {
    let (&what, rest) = segment.split_first()?;
    let (pointer, content) = match rest.iter().position(|&byte| byte == CONTENT) {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, &[][..]),
    };
    let pointer = feed::expand_text(pointer)?;
    let content = || Some(scan::parse(&feed::expand_text(content)?)?.0);
    Some(match what % 3 {
        0 => Edit::Add(pointer, content()?),
        1 => Edit::Replace(pointer, content()?),
        _ => Edit::Remove(pointer),
    })
}

/// One edit on text, through a tree.
fn reference(text: &str, edit: &Edit) -> Option<String> {
    let tree = tree::parse(text);
    let (pointer, content) = match edit {
        Edit::Add(pointer, content) | Edit::Replace(pointer, content) => (pointer, Some(content.to_text())),
        Edit::Remove(pointer) => (pointer, None),
    };
    let tokens = tree::tokens(pointer)?;
    let Some((last, parents)) = tokens.split_last() else {
        return content;
    };
    let parent = tree.at(parents)?;
    let put = |range: Range<usize>, put: &str| Some(format!("{}{put}{}", &text[..range.start], &text[range.end..]));
    let found = parent.child(last);
    // Where each member or element begins, and where its value ends.
    let spans: Vec<Range<usize>> = match &parent.kind {
        Kind::Object(members) => members
            .iter()
            .map(|member| member.start..member.value.span.end)
            .collect(),
        Kind::Array(elements) => elements.iter().map(|element| element.span.clone()).collect(),
        Kind::Scalar => return None,
    };
    let is_object = matches!(parent.kind, Kind::Object(_));
    match (edit, content, found) {
        (Edit::Add(..), Some(content), Some(found)) if !is_object => {
            put(found.span.start..found.span.start, &format!("{content},"))
        }
        (_, Some(content), Some(found)) => put(found.span.clone(), &content),
        (Edit::Add(..), Some(content), None) => {
            if !is_object && last != "-" && tree::index(last) != Some(spans.len()) {
                return None;
            }
            let (at, comma) = match spans.last() {
                Some(span) => (span.end, ","),
                None => (parent.span.start + 1, ""),
            };
            let key = match is_object {
                true => format!("{}:", Value::from(last.as_str())),
                false => String::new(),
            };
            put(at..at, &format!("{comma}{key}{content}"))
        }
        (_, None, Some(found)) => {
            let index = spans.iter().position(|span| span.end == found.span.end)?;
            let range = match (index.checked_sub(1), spans.get(index + 1)) {
                (_, Some(next)) => spans[index].start..next.start,
                (Some(previous), None) => spans[previous].end..spans[index].end,
                (None, None) => spans[index].clone(),
            };
            put(range, "")
        }
        _ => None,
    }
}

/// Compares with what `json-patch` makes of decoded values, for text in which every key has a meaning.
fn meaning(tree: &Node, json: &str, edits: &[Edit], edited: Option<Text>) {
    let plain = |text: &str| tree::parse(text).is_plain();
    let Ok(mut value) = serde_json::from_str::<Value>(json) else {
        return;
    };
    let mut operations = Vec::new();
    for edit in edits {
        let (Edit::Add(pointer, _) | Edit::Replace(pointer, _) | Edit::Remove(pointer)) = edit;
        let Ok(path) = PointerBuf::parse(pointer.clone()) else {
            assert!(edited.is_none(), "{edit:?}");
            return;
        };
        let content = match edit {
            Edit::Add(_, content) | Edit::Replace(_, content) => {
                if !plain(&content.to_text()) {
                    return;
                }
                let Some(value) = content.decode() else { return };
                value
            }
            Edit::Remove(_) => Value::Null,
        };
        operations.push(match edit {
            Edit::Add(..) => PatchOperation::Add(AddOperation { path, value: content }),
            Edit::Replace(..) => PatchOperation::Replace(ReplaceOperation { path, value: content }),
            Edit::Remove(_) => PatchOperation::Remove(RemoveOperation { path }),
        });
    }
    if !tree.is_plain() {
        return;
    }
    let patched = json_patch::patch(&mut value, &operations);
    assert_eq!(patched.is_ok(), edited.is_some(), "{edits:?} on {json}: {patched:?}");
    if let Some(edited) = edited {
        let Some(edited) = edited.decode::<Value>() else { return };
        assert!(edited == value, "{edits:?} on {json} mean {edited}, and not {value}");
    }
}
