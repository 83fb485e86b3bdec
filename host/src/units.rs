//! Sizes, times and dates as people write them.

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

/// Year, month and day (UTC) of a day since 1970.
pub fn date(day: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that the day that comes and goes is the last one; an era has 400 of them.
    let shifted = day + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let date = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, date)
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
