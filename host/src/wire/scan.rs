//! Finds parts of JSON text without decoding it. The text is known to be valid; nothing here changes it.

use super::text::Text;
use bytes::Bytes;
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

/// A token of a pointer was looked up.
enum Step {
    /// The cursor stands at the value. Where its key (or itself) begins, and where the value before it ends.
    Found { start: usize, previous_end: Option<usize> },
    /// It is not there.
    Missing(Slot),
}

/// A position in a rope.
struct Cursor<'a> {
    pieces: &'a [Bytes],
    piece: &'a [u8],
    index: usize,
    base: usize,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn new(pieces: &'a [Bytes]) -> Self {
        let mut cursor = Self {
            pieces,
            piece: pieces.first().map_or(&[], |piece| piece),
            index: 0,
            base: 0,
            at: 0,
        };
        cursor.settle();
        cursor
    }

    fn offset(&self) -> usize {
        self.base + self.at
    }

    /// Moves on to the next piece that has something left.
    fn settle(&mut self) {
        while self.at >= self.piece.len() && self.index + 1 < self.pieces.len() {
            self.at -= self.piece.len();
            self.base += self.piece.len();
            self.index += 1;
            self.piece = &self.pieces[self.index];
        }
    }

    fn seek(&mut self, offset: usize) {
        if offset < self.base {
            self.index = 0;
            self.base = 0;
            self.piece = self.pieces.first().map_or(&[], |piece| piece);
        }
        self.at = offset - self.base;
        self.settle();
    }

    fn peek(&self) -> Option<u8> {
        self.piece.get(self.at).copied()
    }

    fn forward(&mut self, by: usize) {
        self.at += by;
        self.settle();
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.forward(1);
        }
    }

    /// From the opening quote to behind the closing one; says whether there was an escape.
    fn skip_string(&mut self) -> bool {
        self.forward(1);
        let mut escaped = false;
        while self.at < self.piece.len() {
            match quote_or_escape(&self.piece[self.at..]) {
                None => self.forward(self.piece.len() - self.at),
                Some(found) => {
                    let quote = self.piece[self.at + found] == b'"';
                    self.forward(found + 1);
                    if quote {
                        return escaped;
                    }
                    escaped = true;
                    self.forward(1);
                }
            }
        }
        escaped
    }

    /// Over one value, whatever it is.
    fn skip_value(&mut self) {
        let mut open = 0usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => {
                    self.skip_string();
                    if open == 0 {
                        return;
                    }
                    continue;
                }
                b'{' | b'[' => open += 1,
                b'}' | b']' => {
                    if open == 0 {
                        return;
                    }
                    open -= 1;
                    if open == 0 {
                        self.forward(1);
                        return;
                    }
                }
                b',' | b' ' | b'\t' | b'\n' | b'\r' if open == 0 => return,
                _ if open > 0 => {
                    let rest = &self.piece[self.at..];
                    let is_plain = |byte: &u8| !matches!(byte, b'"' | b'{' | b'[' | b'}' | b']');
                    let plain = rest.iter().take_while(|byte| is_plain(byte)).count();
                    self.forward(plain);
                    continue;
                }
                _ => {}
            }
            self.forward(1);
        }
    }

    /// The string at the cursor with its quotes, and whether there is an escape in it; leaves the cursor behind it.
    fn string(&mut self) -> (Cow<'a, [u8]>, bool) {
        let start = self.offset();
        let (piece, at) = (self.piece, self.at);
        let escaped = self.skip_string();
        let end = self.offset();
        let len = end - start;
        if let Some(raw) = piece.get(at..at + len) {
            return (Cow::Borrowed(raw), escaped);
        }
        let mut raw = Vec::with_capacity(len);
        let mut back = Cursor::new(self.pieces);
        back.seek(start);
        while back.offset() < end {
            raw.extend(back.peek());
            back.forward(1);
        }
        (Cow::Owned(raw), escaped)
    }

    /// Whether the string at the cursor, a key, is the token; leaves the cursor behind it.
    fn key_is(&mut self, token: &str) -> bool {
        let (raw, escaped) = self.string();
        key_matches(&raw, escaped, token)
    }

    /// Goes to the value at a pointer, if there is one; says where the last token was looked up, if the pointer has one.
    fn descend(&mut self, pointer: &str) -> Option<Option<usize>> {
        self.skip_space();
        let mut container = None;
        for token in tokens(pointer)? {
            container = Some(self.offset());
            match self.step(&decode(token)?)? {
                Step::Found { .. } => {}
                Step::Missing(_) => return None,
            }
        }
        Some(container)
    }

    /// Looks a token up in the container at the cursor; none if there is no container. Ends behind what it has looked at.
    fn child(&mut self, token: &str) -> Option<Slot> {
        Some(match self.step(token)? {
            Step::Found { start, previous_end } => self.found(start, previous_end),
            Step::Missing(slot) => slot,
        })
    }

    /// Goes to the value of a token in the container at the cursor; none if there is no container.
    fn step(&mut self, token: &str) -> Option<Step> {
        let object = match self.peek()? {
            b'{' => true,
            b'[' => false,
            _ => return None,
        };
        let wanted = if object { None } else { index(token) };
        self.forward(1);
        let mut insert_at = self.offset();
        let mut previous_end = None;
        let mut count = 0;
        loop {
            self.skip_space();
            match self.peek()? {
                b'}' | b']' => {
                    return Some(Step::Missing(Slot::Missing {
                        insert_at,
                        empty: count == 0,
                        count,
                    }));
                }
                b',' => {
                    self.forward(1);
                    continue;
                }
                _ => {}
            }
            let start = self.offset();
            let mut found = wanted == Some(count);
            if object {
                found = self.key_is(token);
                self.skip_space();
                self.forward(1);
                self.skip_space();
            }
            if found {
                return Some(Step::Found { start, previous_end });
            }
            self.skip_value();
            insert_at = self.offset();
            previous_end = Some(insert_at);
            count += 1;
        }
    }

    /// Whether a key that is wanted stands in the rest of an object, from the beginning of a key on. It is asked about each one as it
    /// is written, with the place of the whole member.
    fn rest_has(&mut self, mut wanted: impl FnMut(&[u8], Range<usize>) -> bool) -> bool {
        loop {
            match self.peek() {
                None | Some(b'}') => return false,
                _ => {}
            }
            let start = self.offset();
            let (raw, _) = self.string();
            self.skip_space();
            self.forward(1);
            self.skip_space();
            self.skip_value();
            if wanted(&raw, start..self.offset()) {
                return true;
            }
            self.skip_space();
            self.forward(1);
            self.skip_space();
        }
    }

    fn found(&mut self, start: usize, previous_end: Option<usize>) -> Slot {
        let value_start = self.offset();
        self.skip_value();
        let value = value_start..self.offset();
        self.skip_space();
        let next_start = (self.peek() == Some(b',')).then(|| {
            self.forward(1);
            self.skip_space();
            self.offset()
        });
        Slot::Found {
            start,
            value,
            previous_end,
            next_start,
        }
    }
}

/// The first quote or backslash. Keys and most values are so short that a call of a search for long texts costs more than the search.
fn quote_or_escape(text: &[u8]) -> Option<usize> {
    const NEAR: usize = 4;
    let (words, _) = text.as_chunks::<8>();
    for (number, word) in words.iter().take(NEAR).enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = zero_bytes(word ^ repeated(b'"')) | zero_bytes(word ^ repeated(b'\\'));
        if found != 0 {
            return Some(number * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let looked_at = words.len().min(NEAR) * 8;
    memchr2(b'"', b'\\', &text[looked_at..]).map(|found| looked_at + found)
}

/// A byte in all eight places.
const fn repeated(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// The topmost bit of the lowest byte that is zero, and perhaps of some above it.
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(repeated(1)) & !word & repeated(0x80)
}

fn key_matches(raw: &[u8], escaped: bool, token: &str) -> bool {
    if escaped {
        serde_json::from_slice::<String>(raw).is_ok_and(|key| key == token)
    } else {
        raw.len() == token.len() + 2 && &raw[1..raw.len() - 1] == token.as_bytes()
    }
}

#[cfg(test)]
mod tests;
