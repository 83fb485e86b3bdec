//! Pointers and keys lead where they lead in a naive tree, in one buffer as in a rope that was cut anywhere.
//!
//! Input: JSON text, pointers and keys as segments; the first two bytes say where a large text is cut.

use crate::feed;
use crate::tree::{self, Kind, Node};
use crate::wire::scan;
use crate::wire::text::Text;
use bytes::Bytes;

/// What a text may nest at most.
const DEPTH: usize = 128;

/// Checks one input.
pub fn check(data: &[u8]) {
    let [first, second, data @ ..] = data else { return };
    let mut segments = feed::segments(data);
    let Some(json) = segments.next().and_then(feed::expand_text) else {
        return;
    };
    let Some((text, tree)) = parse(&json) else { return };
    let json = tree::trim(&json);
    let rope = cut(json, *first, *second);
    assert_eq!(rope.len(), json.len());
    assert!(rope.to_text() == json, "a rope has other text");
    for word in segments.filter_map(feed::expand_text).take(8) {
        for text in [&text, &rope] {
            pointer(text, json, &tree, &word);
            key(text, json, &tree, &word);
        }
    }
}

/// Reads text from outside as Consort does, and says whether that was right.
pub(crate) fn parse(json: &str) -> Option<(Text, Node)> {
    let text = Text::parse(json, DEPTH);
    if !tree::is_json(json) {
        assert!(text.is_err(), "{json:?} was taken for JSON");
        return None;
    }
    let json = tree::trim(json);
    let tree = tree::parse(json);
    assert_eq!(scan::depth(json.as_bytes()), tree.depth(), "{json}");
    assert_eq!(text.is_ok(), tree.depth() <= DEPTH, "{json}");
    let text = text.ok()?;
    assert!(text.to_text() == json, "{json} was changed");
    Some((text, tree))
}

/// The same text, of pieces if it is large enough for that. Where a byte of the text is cut does not matter to the scanner,
/// and a cut may part the bytes of a letter.
fn cut(json: &str, first: u8, second: u8) -> Text {
    let place = |byte: u8| json.len() * usize::from(byte) / 256;
    let (from, to) = (place(first.min(second)), place(first.max(second)));
    let bytes = json.as_bytes();
    let ends = Text::trusted([&bytes[..from], &bytes[to..]].concat());
    ends.splice(from..from, &[Bytes::copy_from_slice(&bytes[from..to])], to - from)
}

fn pointer(text: &Text, json: &str, tree: &Node, pointer: &str) {
    let expected = tree::tokens(pointer).and_then(|tokens| Some(tree.at(&tokens)?.span.clone()));
    let found = scan::find(text, pointer);
    assert_eq!(found, expected, "{pointer:?} in {json}");
    if let Some(range) = found {
        let part = text.slice(range.clone());
        assert_eq!(part.len(), range.len());
        assert!(part.to_text() == json[range], "the part at {pointer:?} in {json}");
    }
}

fn key(text: &Text, json: &str, tree: &Node, key: &str) {
    let Kind::Object(members) = &tree.kind else {
        assert!(!scan::is_twice(text, key), "{json}");
        return;
    };
    let found: Vec<_> = members
        .iter()
        .filter(|member| member.key.as_deref() == Some(key))
        .collect();
    assert_eq!(scan::is_twice(text, key), found.len() > 1, "{key:?} in {json}");
    let string = found
        .first()
        .and_then(|member| serde_json::from_str::<String>(&json[member.value.span.clone()]).ok());
    let found = scan::string_member(text, key).map(|found| found.into_owned());
    assert_eq!(found, string, "{key:?} in {json}");
}
