//! What fuzzed bytes mean: segments, and runs that make small input large. Uses bytes that no UTF-8 has.

/// Ends a segment.
pub const SEPARATOR: u8 = 0xfd;

/// Followed by a number: so many times 256 letters.
const LETTERS: u8 = 0xff;

/// Followed by a number: so many times 64 escapes and letters of two bytes, as they may stand in a JSON string.
const ESCAPES: u8 = 0xfe;

/// The most that a segment grows to.
const MOST: usize = 64 * 1024;

/// Cuts input into segments.
pub fn segments(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    data.split(|&byte| byte == SEPARATOR)
}

/// Writes out the runs in a segment.
pub fn expand(segment: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(segment.len());
    let mut bytes = segment.iter();
    while let Some(&byte) = bytes.next() {
        let (unit, times) = match byte {
            LETTERS => (&b"x"[..], 256),
            ESCAPES => ("\\\"é".as_bytes(), 64),
            other => {
                out.push(other);
                continue;
            }
        };
        let count = bytes.next().map_or(0, |&count| usize::from(count)) * times;
        if out.len() + count * unit.len() <= MOST {
            out.extend(unit.repeat(count));
        }
    }
    out
}

/// The same as text, if it is text.
pub fn expand_text(segment: &[u8]) -> Option<String> {
    String::from_utf8(expand(segment)).ok()
}
