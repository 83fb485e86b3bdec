//! JSON text that is shared, not copied: one buffer, or a rope of slices once it is large. Owns how text is stored; what
//! is in it concerns the scanner.

use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;

/// Above this many bytes an edit makes a rope instead of a copy. Below, copying costs less than keeping pieces (about
/// 1 µs for 16 KiB).
pub const ROPE_FROM: usize = 16 * 1024;

/// Slices up to this size are copied out of larger buffers.
const COPY_UP_TO: usize = 1024;

/// A text keeps at most so many times its own length in buffers alive; what would keep more is copied. So whoever counts lengths
/// is never wrong by more than that, and a copy never costs more than the search for what is copied.
const KEEPS_AT_MOST: usize = 2;

/// A rope of more pieces than this is made into one buffer again, so that a scan stays fast.
const MAX_PIECES: usize = 256;

/// Neighbouring pieces below this size are joined while a rope is built.
const JOIN_BELOW: usize = 2048;

/// Valid UTF-8 JSON text of one value, cheap to clone.
#[derive(Clone, Debug)]
pub struct Text {
    pieces: Pieces,
    len: usize,
    /// Bytes of the buffers that it keeps alive, or more.
    kept: usize,
}

#[derive(Clone, Debug)]
enum Pieces {
    One(Bytes),
    Many(Arc<[Bytes]>),
}

impl Text {
    /// Takes text that is known to be one JSON value.
    pub(crate) fn trusted(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self {
            len: bytes.len(),
            kept: bytes.len(),
            pieces: Pieces::One(bytes),
        }
    }

    /// Takes a part of a buffer that is known to be one JSON value.
    pub(crate) fn trusted_part(buffer: &Bytes, range: Range<usize>) -> Self {
        let part = &buffer[range.clone()];
        match fits(part.len(), buffer.len()) {
            true => Self {
                len: part.len(),
                kept: buffer.len(),
                pieces: Pieces::One(buffer.slice(range)),
            },
            false => Self::trusted(Bytes::copy_from_slice(part)),
        }
    }

    /// The text of a serialisable value.
    pub fn of(value: &impl serde::Serialize) -> Self {
        // Serialising a value made of maps with string keys cannot fail; `null` stands in for a type that breaks that rule.
        Self::trusted(serde_json::to_vec(value).unwrap_or_else(|_| b"null".to_vec()))
    }

    /// Checks text that comes from outside. White space around the value is dropped.
    ///
    /// # Errors
    ///
    /// Says why if it is not exactly one JSON value or nests deeper than `max_depth`.
    pub fn parse(text: &str, max_depth: usize) -> Result<Self, String> {
        let raw: &serde_json::value::RawValue =
            serde_json::from_str(text).map_err(|error| format!("not one JSON value: {error}"))?;
        if super::scan::depth(raw.get().as_bytes()) > max_depth {
            return Err(format!("nested deeper than {max_depth} levels"));
        }
        Ok(Self::trusted(Bytes::copy_from_slice(raw.get().as_bytes())))
    }

    /// Bytes of text.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory that it keeps alive, shared or not.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Whether there is no text, which no JSON value has.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it is the same text; quick where it is the same buffer.
    pub fn is(&self, other: &Self) -> bool {
        if self.len != other.len {
            return false;
        }
        let (mut ours, mut theirs) = (self.pieces().iter(), other.pieces().iter());
        let (mut one, mut two): (&[u8], &[u8]) = (&[], &[]);
        loop {
            if one.is_empty() {
                let Some(next) = ours.next() else { return true };
                one = next;
            }
            if two.is_empty() {
                let Some(next) = theirs.next() else { return true };
                two = next;
            }
            let len = one.len().min(two.len());
            if one.as_ptr() != two.as_ptr() && one[..len] != two[..len] {
                return false;
            }
            (one, two) = (&one[len..], &two[len..]);
        }
    }

    /// The pieces, in order.
    pub fn pieces(&self) -> &[Bytes] {
        match &self.pieces {
            Pieces::One(bytes) => std::slice::from_ref(bytes),
            Pieces::Many(pieces) => pieces,
        }
    }

    /// The text in one buffer of its own.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len);
        for piece in self.pieces() {
            all.extend_from_slice(piece);
        }
        all
    }

    /// The text as a string.
    pub fn to_text(&self) -> String {
        String::from_utf8(self.to_vec()).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// Decodes the text.
    pub fn decode<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        match self.pieces() {
            [one] => serde_json::from_slice(one).ok(),
            _ => serde_json::from_slice(&self.to_vec()).ok(),
        }
    }

    /// A part of the text. The range must lie on the bounds of a JSON value.
    pub(crate) fn slice(&self, range: Range<usize>) -> Self {
        if range.start == 0 && range.end == self.len {
            return self.clone();
        }
        let len = range.end - range.start;
        if len <= COPY_UP_TO || !fits(len, self.kept) {
            let mut copy = Vec::with_capacity(len);
            self.each_part(range, |part| copy.extend_from_slice(&part));
            return Self::trusted(copy);
        }
        let mut parts = Vec::new();
        self.each_part(range, |part| parts.push(part));
        Self::of_pieces(parts, len, self.kept)
    }

    /// The text with `range` replaced by the pieces given, which keep so many bytes alive.
    pub(crate) fn splice(&self, range: Range<usize>, put: &[Bytes], put_kept: usize) -> Self {
        let put_len: usize = put.iter().map(Bytes::len).sum();
        let len = self.len - (range.end - range.start) + put_len;
        if len <= ROPE_FROM {
            let mut all = Vec::with_capacity(len);
            self.each_part(0..range.start, |part| all.extend_from_slice(&part));
            for piece in put {
                all.extend_from_slice(piece);
            }
            self.each_part(range.end..self.len, |part| all.extend_from_slice(&part));
            return Self::trusted(all);
        }
        let mut parts = Vec::with_capacity(self.pieces().len() + put.len() + 1);
        self.each_part(0..range.start, |part| parts.push(part));
        parts.extend_from_slice(put);
        self.each_part(range.end..self.len, |part| parts.push(part));
        let (parts, joined) = join_small(parts);
        Self::of_pieces(parts, len, self.kept + put_kept + joined)
    }

    fn of_pieces(mut pieces: Vec<Bytes>, len: usize, kept: usize) -> Self {
        let many = pieces.len() > MAX_PIECES;
        let pieces = match pieces.len() {
            1 => Pieces::One(pieces.swap_remove(0)),
            _ => Pieces::Many(pieces.into()),
        };
        let text = Self { pieces, len, kept };
        if many || !fits(len, kept) {
            return Self::trusted(text.to_vec());
        }
        text
    }

    fn each_part(&self, range: Range<usize>, mut take: impl FnMut(Bytes)) {
        let mut base = 0;
        for piece in self.pieces() {
            let from = range.start.max(base);
            let to = range.end.min(base + piece.len());
            if from < to {
                take(piece.slice(from - base..to - base));
            }
            base += piece.len();
            if base >= range.end {
                break;
            }
        }
    }
}

/// Whether a text of so many bytes may keep so many alive.
fn fits(len: usize, kept: usize) -> bool {
    kept <= COPY_UP_TO.max(len.saturating_mul(KEEPS_AT_MOST))
}

/// Joins runs of small neighbours, so that many small edits do not make many small pieces. Tells the bytes of new buffers as well.
fn join_small(parts: Vec<Bytes>) -> (Vec<Bytes>, usize) {
    let mut joined: Vec<Bytes> = Vec::with_capacity(parts.len());
    let mut new = 0;
    for part in parts {
        if let Some(last) = joined.last_mut()
            && last.len() + part.len() <= JOIN_BELOW
        {
            let mut both = Vec::with_capacity(last.len() + part.len());
            both.extend_from_slice(last);
            both.extend_from_slice(&part);
            new += both.len();
            *last = both.into();
            continue;
        }
        if !part.is_empty() {
            joined.push(part);
        }
    }
    (joined, new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splices_small_text_into_one_buffer() {
        let text = Text::trusted("[1,2,3]");
        let edited = text.splice(3..4, &[Bytes::from_static(b"\"two\"")], 5);
        assert_eq!(edited.to_text(), "[1,\"two\",3]");
        assert_eq!(edited.pieces().len(), 1);
        assert_eq!(text.to_text(), "[1,2,3]");
    }

    #[test]
    fn splices_large_text_without_copying_it() {
        let big = format!("[\"{}\",1]", "x".repeat(100_000));
        let text = Text::trusted(big.clone());
        let edited = text.splice(1..1, &[Bytes::from_static(b"0,")], 2);
        assert_eq!(edited.len(), text.len() + 2);
        assert_eq!(edited.to_text(), format!("[0,{}", &big[1..]));
        assert!(
            edited
                .pieces()
                .iter()
                .any(|piece| piece.as_ptr() == text.pieces()[0][1..].as_ptr())
        );
    }

    #[test]
    fn many_edits_stay_one_text() {
        let mut text = Text::trusted(format!("[\"{}\"]", "y".repeat(50_000)));
        let mut model = text.to_text();
        for number in 0..2_000 {
            let put = format!("{number},");
            let at = 1;
            text = text.splice(at..at, &[Bytes::from(put.clone())], put.len());
            model.insert_str(at, &put);
            assert!(fits(text.len(), text.kept()));
        }
        assert_eq!(text.to_text(), model);
        assert!(text.pieces().len() <= MAX_PIECES);
    }

    #[test]
    fn little_of_much_keeps_little_alive() {
        let size = 1 << 20;
        let big = Bytes::from(format!("[\"{}\",\"{}\"]", "x".repeat(size), "y".repeat(2_000)));
        let text = Text::trusted(big.clone());
        let place = size + 4..size + 4 + 2_002;
        for part in [text.slice(place.clone()), Text::trusted_part(&big, place)] {
            assert_eq!(part.kept(), part.len());
            assert!(part.to_text().starts_with("\"yy"));
            assert!(!big.as_ptr_range().contains(&part.pieces()[0].as_ptr()), "it is a copy");
        }
        // Most of it is shared.
        let most = text.slice(1..size + 3);
        assert_eq!((most.len(), most.kept()), (size + 2, big.len()));
        assert!(big.as_ptr_range().contains(&most.pieces()[0].as_ptr()));
        // What is left of a rope counts as well.
        let rope = text.splice(1..1, &[Bytes::from(vec![b' '; 40_000])], 40_000);
        assert!(rope.pieces().len() > 1 && rope.kept() >= big.len() + 40_000);
        let left = rope.splice(40_001..40_001 + size + 3, &[], 0);
        assert_eq!((left.kept(), left.len()), (left.pieces()[0].len(), left.len()));
    }

    #[test]
    fn the_same_text_is_the_same_in_whatever_pieces() {
        let text = Text::trusted(format!("[\"{}\"]", "z".repeat(60_000)));
        let spaces = |text: &Text, at: usize| text.splice(at..at, &[Bytes::from_static(b" ")], 1);
        let (one, two) = (spaces(&spaces(&text, 1), 60_000), spaces(&spaces(&text, 60_000), 1));
        assert!(!one.is(&two) && one.len() == two.len());
        let (one, two) = (spaces(&spaces(&text, 1), 60_001), spaces(&spaces(&text, 60_000), 1));
        assert!(one.pieces().len() > 1 && one.is(&two) && two.is(&one));
        assert!(one.is(&Text::trusted(one.to_vec())));
        assert!(!text.is(&one));
    }

    #[test]
    fn parse_checks_value_and_depth() {
        assert!(Text::parse("{\"a\":1} x", 128).is_err());
        assert!(Text::parse("", 128).is_err());
        assert!(Text::parse(&format!("{}{}", "[".repeat(129), "]".repeat(129)), 128).is_err());
        assert!(Text::parse(&format!("{}{}", "[".repeat(128), "]".repeat(128)), 128).is_ok());
        assert_eq!(
            Text::parse(" 1e400 ", 128).map(|text| text.to_text()),
            Ok("1e400".into())
        );
    }
}
