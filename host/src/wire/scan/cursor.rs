//! A place in JSON text, and how to get on from there: over spaces, strings and values, and down a pointer. Knows nothing of what is looked for.

use super::{Slot, decode, index, tokens};
use bytes::Bytes;
use memchr::memchr2;
use std::borrow::Cow;
use std::ops::Range;

/// A token of a pointer was looked up.
pub(super) enum Step {
    /// The cursor stands at the value. Where its key (or itself) begins, and where the value before it ends.
    Found { start: usize, previous_end: Option<usize> },
    /// It is not there.
    Missing(Slot),
}

/// A position in a rope.
pub(super) struct Cursor<'a> {
    pieces: &'a [Bytes],
    piece: &'a [u8],
    index: usize,
    base: usize,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(pieces: &'a [Bytes]) -> Self {
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

    pub(super) fn offset(&self) -> usize {
        self.base + self.at
    }

    /// Moves on to the next piece that has something left.
    pub(super) fn settle(&mut self) {
        while self.at >= self.piece.len() && self.index + 1 < self.pieces.len() {
            self.at -= self.piece.len();
            self.base += self.piece.len();
            self.index += 1;
            self.piece = &self.pieces[self.index];
        }
    }

    pub(super) fn seek(&mut self, offset: usize) {
        if offset < self.base {
            self.index = 0;
            self.base = 0;
            self.piece = self.pieces.first().map_or(&[], |piece| piece);
        }
        self.at = offset - self.base;
        self.settle();
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.piece.get(self.at).copied()
    }

    pub(super) fn forward(&mut self, by: usize) {
        self.at += by;
        self.settle();
    }

    pub(super) fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.forward(1);
        }
    }

    /// From the opening quote to behind the closing one; says whether there was an escape.
    pub(super) fn skip_string(&mut self) -> bool {
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
    pub(super) fn skip_value(&mut self) {
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
    pub(super) fn string(&mut self) -> (Cow<'a, [u8]>, bool) {
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
    pub(super) fn key_is(&mut self, token: &str) -> bool {
        let (raw, escaped) = self.string();
        key_matches(&raw, escaped, token)
    }

    /// Goes to the value at a pointer, if there is one; says where the last token was looked up, if the pointer has one.
    pub(super) fn descend(&mut self, pointer: &str) -> Option<Option<usize>> {
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
    pub(super) fn child(&mut self, token: &str) -> Option<Slot> {
        Some(match self.step(token)? {
            Step::Found { start, previous_end } => self.found(start, previous_end),
            Step::Missing(slot) => slot,
        })
    }

    /// Goes to the value of a token in the container at the cursor; none if there is no container.
    pub(super) fn step(&mut self, token: &str) -> Option<Step> {
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
    pub(super) fn rest_has(&mut self, mut wanted: impl FnMut(&[u8], Range<usize>) -> bool) -> bool {
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

    pub(super) fn found(&mut self, start: usize, previous_end: Option<usize>) -> Slot {
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

pub(super) fn key_matches(raw: &[u8], escaped: bool, token: &str) -> bool {
    if escaped {
        serde_json::from_slice::<String>(raw).is_ok_and(|key| key == token)
    } else {
        raw.len() == token.len() + 2 && &raw[1..raw.len() - 1] == token.as_bytes()
    }
}
