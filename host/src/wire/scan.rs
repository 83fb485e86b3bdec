//! Finds parts of JSON text without decoding it. The text is known to be valid; nothing here changes it.

mod cursor;

use super::text::Text;
use cursor::{Cursor, Step, key_matches};
use memchr::memchr2;
use std::borrow::Cow;
use std::ops::Range;

/// How deeply a text nests: 0 for a scalar.
pub fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0usize);
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => {
                at += 1;
                while let Some(found) = text.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
                    at += found;
                    if text[at] == b'"' {
                        break;
                    }
                    at += 2;
                }
            }
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    deepest
}

/// Where a token of a pointer leads inside its container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// The member or element is there.
    Found {
        /// Where the key (or the element) begins.
        start: usize,
        /// The value.
        value: Range<usize>,
        /// Where the value before it ends, if it is not the first.
        previous_end: Option<usize>,
        /// Where the key or element after it begins, if it is not the last.
        next_start: Option<usize>,
    },
    /// It is not there.
    Missing {
        /// Where the last value ends, or right behind the opening bracket.
        insert_at: usize,
        /// Whether the container has no member.
        empty: bool,
        /// How many elements an array has.
        count: usize,
    },
}

/// What kind of value stands somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// An object.
    Object,
    /// An array.
    Array,
    /// Anything else.
    Scalar,
}

/// A pointer's tokens, not decoded; none if it does not begin with a slash.
pub(crate) fn tokens(pointer: &str) -> Option<impl Iterator<Item = &str>> {
    let mut rest = match pointer.strip_prefix('/') {
        Some(rest) => Some(rest),
        None if pointer.is_empty() => None,
        None => return None,
    };
    Some(std::iter::from_fn(move || {
        let from = rest?;
        match from.bytes().position(|byte| byte == b'/') {
            Some(at) => {
                rest = Some(&from[at + 1..]);
                Some(&from[..at])
            }
            None => rest.take(),
        }
    }))
}

/// Decodes a token; none if it has a `~` that RFC 6901 does not know.
pub(crate) fn decode(token: &str) -> Option<Cow<'_, str>> {
    if token.bytes().all(|byte| byte != b'~') {
        return Some(Cow::Borrowed(token));
    }
    let mut parts = token.split('~');
    let mut decoded = parts.next()?.to_owned();
    for part in parts {
        decoded.push(match part.as_bytes().first()? {
            b'0' => '~',
            b'1' => '/',
            _ => return None,
        });
        decoded.push_str(&part[1..]);
    }
    Some(Cow::Owned(decoded))
}

/// An array index as RFC 6901 writes it: digits without a leading zero.
pub(crate) fn index(token: &str) -> Option<usize> {
    let plain = token.bytes().all(|byte| byte.is_ascii_digit());
    (plain && (token == "0" || !token.starts_with('0'))).then(|| token.parse().ok())?
}

/// Where a pointer leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Where the container begins that its last token was looked up in; that of the value if there is no token.
    pub(crate) container: usize,
    /// The value.
    pub(crate) value: Range<usize>,
}

/// Finds the value at a pointer. Looks at each byte once at most: on the way down no level is read to its end.
pub(crate) fn find(text: &Text, pointer: &str) -> Option<Range<usize>> {
    find_from(text, 0, pointer).map(|found| found.value)
}

/// The same from the beginning of a value inside the text.
pub(crate) fn find_from(text: &Text, from: usize, pointer: &str) -> Option<Found> {
    let mut cursor = Cursor::new(text.pieces());
    cursor.seek(from);
    let Some(container) = cursor.descend(pointer)? else {
        return Some(Found {
            container: from,
            value: from..text.len(),
        });
    };
    let start = cursor.offset();
    cursor.skip_value();
    Some(Found {
        container,
        value: start..cursor.offset(),
    })
}

/// Where the value at a pointer begins.
pub(crate) fn find_start(text: &Text, pointer: &str) -> Option<usize> {
    let mut cursor = Cursor::new(text.pieces());
    cursor.descend(pointer)?;
    Some(cursor.offset())
}

/// The decoded string at a pointer of one plain token, as messages carry session ids.
pub fn string_member<'t>(text: &'t Text, key: &str) -> Option<Cow<'t, str>> {
    let mut cursor = Cursor::new(text.pieces());
    cursor.skip_space();
    let Step::Found { .. } = cursor.step(key)? else {
        return None;
    };
    if cursor.peek()? != b'"' {
        return None;
    }
    // Nearly all are short and plain, and are looked up as they stand there.
    match cursor.string() {
        (Cow::Borrowed(raw), false) => {
            let plain = raw.get(1..raw.len() - 1)?;
            std::str::from_utf8(plain).ok().map(Cow::Borrowed)
        }
        (raw, _) => serde_json::from_slice(&raw).ok().map(Cow::Owned),
    }
}

/// Whether an object has a key more than once.
pub fn is_twice(text: &Text, key: &str) -> bool {
    let mut cursor = Cursor::new(text.pieces());
    cursor.skip_space();
    if cursor.peek() != Some(b'{') {
        return false;
    }
    let first = cursor.child(key);
    matches!(
        first,
        Some(Slot::Found {
            next_start: Some(_),
            ..
        })
    ) && cursor.rest_has(|raw, _| key_matches(raw, raw.contains(&b'\\'), key))
}

/// Whether a text is an object.
pub fn is_object(text: &Text) -> bool {
    let mut cursor = Cursor::new(text.pieces());
    cursor.skip_space();
    cursor.peek() == Some(b'{')
}

/// Members of an object whose keys are not this one, but which some readers take for it, as they are written: there are readers that
/// do not tell upper from lower case, and such that know a key under a second name with underscores.
pub fn lookalikes(text: &Text, key: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut cursor = Cursor::new(text.pieces());
    cursor.skip_space();
    if cursor.peek() != Some(b'{') {
        return found;
    }
    cursor.forward(1);
    cursor.skip_space();
    let wanted = folded(key);
    cursor.rest_has(|raw, range| {
        let name: Option<String> = serde_json::from_slice(raw).ok();
        if name.is_some_and(|name| name != key && folded(&name) == wanted) {
            found.push(text.slice(range).to_vec());
        }
        false
    });
    found
}

/// A name without what careless readers do not look at.
fn folded(name: &str) -> String {
    let letters = name.chars().filter(|letter| !matches!(letter, '_' | '-'));
    letters
        .flat_map(char::to_lowercase)
        .flat_map(char::to_uppercase)
        .collect()
}

/// What stands at a position, and the slot of a token in it.
pub(crate) fn slot(text: &Text, container: usize, token: &str) -> (Shape, Option<Slot>) {
    let mut cursor = Cursor::new(text.pieces());
    cursor.seek(container);
    cursor.skip_space();
    let shape = match cursor.peek() {
        Some(b'{') => Shape::Object,
        Some(b'[') => Shape::Array,
        _ => Shape::Scalar,
    };
    let slot = cursor.child(token);
    (shape, slot)
}

#[cfg(test)]
mod tests;
