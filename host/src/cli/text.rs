//! Text for people: colours only where they are wanted, and nothing in it that a terminal would obey.

use std::env;
use std::fmt::Write;

/// Whether to use colours on a stream, after `NO_COLOR`, `CLICOLOR_FORCE` and `TERM`.
pub(super) fn colour(terminal: bool) -> bool {
    let set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    if set("NO_COLOR") {
        return false;
    }
    if env::var_os("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0") {
        return true;
    }
    terminal && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// How a piece of text looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
}

impl Look {
    fn code(self) -> &'static str {
        match self {
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Red => "31",
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Cyan => "36",
        }
    }
}

/// Paints text, or leaves it as it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint(pub(super) bool);

impl Paint {
    pub(super) fn text(self, look: Look, text: &str) -> String {
        if self.0 && !text.is_empty() {
            format!("\x1b[{}m{text}\x1b[0m", look.code())
        } else {
            text.to_owned()
        }
    }
}

/// Takes out what a terminal could obey or be fooled by: control characters other than newline and tab, and characters
/// that change the direction of writing.
pub(super) fn plain(text: &str) -> String {
    text.chars()
        .filter(|&character| {
            matches!(character, '\n' | '\t') || !(character.is_control() || changes_direction(character))
        })
        .collect()
}

/// The same for text that has to stay on one line: line ends and tabs become spaces, and what is taken out elsewhere is shown as an
/// escape.
pub(super) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => line.push(' '),
            _ if character.is_control() || changes_direction(character) => {
                // Writing to a string cannot fail.
                let _ = write!(line, "{}", character.escape_unicode());
            }
            _ => line.push(character),
        }
    }
    line
}

fn changes_direction(character: char) -> bool {
    matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{061c}')
}

/// The beginning of a text, at most so many characters, with an ellipsis if something was left out.
pub(super) fn shortened(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A size for people.
pub(super) fn size(bytes: u64) -> String {
    const KIB: u64 = 1024;
    const MIB: u64 = KIB * KIB;
    if bytes < KIB {
        format!("{bytes} bytes")
    } else if bytes < MIB {
        format!("{} KiB", bytes.div_ceil(KIB))
    } else {
        // One digit after the point is all that a person wants.
        let tenths = bytes * 10 / MIB;
        format!("{}.{} MiB", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_for_the_terminal_is_left() {
        assert_eq!(plain("a\x1b[31mb\u{9b}2J\r\n\tc\u{7f}\u{202e}d"), "a[31mb2J\n\tcd");
        assert_eq!(one_line("a\nb\x1b[0m"), "a b\\u{1b}[0m");
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(shortened("äöü", 2), "äö…");
        assert_eq!(shortened("äöü", 3), "äöü");
    }

    #[test]
    fn sizes_are_rounded_for_people() {
        assert_eq!(size(12), "12 bytes");
        assert_eq!(size(1025), "2 KiB");
        assert_eq!(size(3 * 1024 * 1024 / 2), "1.5 MiB");
    }
}
