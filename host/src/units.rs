//! Sizes and times as people write them.

use std::time::Duration;

/// A size such as `16 MiB`, `16MiB`, `512 KiB` or `1 GiB`.
pub fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|character: char| !character.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim_start() {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// A number of bytes for a person, in the largest unit that leaves a whole number.
pub fn shown(bytes: u64) -> String {
    for (unit, size) in [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= size && bytes.is_multiple_of(size) {
            return format!("{} {unit}", bytes / size);
        }
    }
    format!("{bytes} bytes")
}

/// A time such as `250 ms`, `10 s`, `5 min` or `2 h`, in milliseconds.
pub fn milliseconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|character: char| !character.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim_start() {
        "ms" => 1,
        "s" => 1_000,
        "min" => 60 * 1_000,
        "h" => 3_600 * 1_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// A time for a person, in seconds if it is a whole number of them.
pub fn time(time: Duration) -> String {
    match time.subsec_millis() {
        0 => format!("{} s", time.as_secs()),
        _ => format!("{} ms", time.as_millis()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, size) in [("16 MiB", 16 << 20), ("1GiB", 1 << 30), (" 3 KiB", 3 << 10)] {
            assert_eq!(bytes(text), Some(size));
            assert_eq!(bytes(&shown(size)), Some(size));
        }
        for text in ["16", "MiB", "1 TiB", "-1 KiB", "99999999999999999999 KiB"] {
            assert_eq!(bytes(text), None, "{text}");
        }
        assert_eq!(shown(1025), "1025 bytes");
    }
}
