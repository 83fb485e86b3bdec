//! JSON strings that need no escapes, which is nearly all that a proxy reads and writes: their quotes come off and on without a decoder, and
//! they are looked through eight bytes at a time, since WebAssembly's own search goes byte by byte.

/// Takes the quotes off a JSON string; gives it back as it was if it has escapes or is no string.
pub(crate) fn off(mut text: String) -> Result<String, String> {
    if !is_string(&text) || any(&text, |word| zero(word ^ each(b'\\'))) {
        return Err(text);
    }
    text.pop();
    text.remove(0);
    Ok(text)
}

/// Whether it is a JSON string, as far as its ends tell.
pub(crate) fn is_string(text: &str) -> bool {
    text.len() >= 2 && text.starts_with('"') && text.ends_with('"')
}

/// Makes a JSON string of a text; none if something in it has to be escaped.
pub(crate) fn on(text: &str) -> Option<String> {
    let special = |word| below_space(word) | zero(word ^ each(b'"')) | zero(word ^ each(b'\\'));
    if any(text, special) {
        return None;
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    quoted.push_str(text);
    quoted.push('"');
    Some(quoted)
}

/// Whether two texts are the same.
pub(crate) fn same(one: &str, two: &str) -> bool {
    if one.len() != two.len() {
        return false;
    }
    let ((words, rest), (others, other_rest)) = (one.as_bytes().as_chunks::<8>(), two.as_bytes().as_chunks::<8>());
    words
        .iter()
        .zip(others)
        .all(|(word, other)| u64::from_ne_bytes(*word) == u64::from_ne_bytes(*other))
        && rest.iter().zip(other_rest).all(|(byte, other)| byte == other)
}

/// Whether something is found in one of the words of a text. What fills the last one up is found by nobody.
fn any(text: &str, found: impl Fn(u64) -> u64) -> bool {
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let mut last = [b' '; 8];
    last[..rest.len()].copy_from_slice(rest);
    words
        .iter()
        .chain([&last])
        .any(|word| found(u64::from_le_bytes(*word)) != 0)
}

/// A byte in all eight places.
const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Not zero if one of the bytes is.
fn zero(word: u64) -> u64 {
    word.wrapping_sub(each(1)) & !word & each(0x80)
}

/// Not zero if one of the bytes is a control character.
fn below_space(word: u64) -> u64 {
    word.wrapping_sub(each(b' ')) & !word & each(0x80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_go_on_where_nothing_is_to_be_escaped() {
        for byte in 0..=char::MAX as u32 {
            let Some(character) = char::from_u32(byte).filter(|character| u32::from(*character) < 0x3000) else {
                continue;
            };
            for before in [0, 3, 7, 8, 30] {
                for after in [0, 1, 6, 13] {
                    let text = format!("{}{character}{}", "é".repeat(before), "x".repeat(after));
                    let json = serde_json::to_string(&text).unwrap();
                    let plain = json.len() == text.len() + 2;
                    assert_eq!(on(&text), plain.then(|| json.clone()), "{json}");
                    assert_eq!(
                        off(json.clone()),
                        if json.contains('\\') { Err(json) } else { Ok(text) }
                    );
                }
            }
        }
    }

    #[test]
    fn what_is_no_string_keeps_its_quotes() {
        for text in ["", "\"", "1", "[\"a\"]", "{\"a\":\"b\"}", "\"a", "a\""] {
            assert_eq!(off(text.to_owned()), Err(text.to_owned()));
        }
    }

    #[test]
    fn texts_are_compared_to_the_last_byte() {
        let text = "agent_message_chunk, and more";
        for len in 0..=text.len() {
            assert!(same(&text[..len], &text[..len]));
            for at in 0..len {
                let mut other = text[..len].to_owned();
                other.replace_range(at..=at, "#");
                assert!(!same(&text[..len], &other), "{other}");
            }
            assert!(len == 0 || !same(&text[..len], &text[..len - 1]));
        }
    }
}
