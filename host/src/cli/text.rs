//! Text for people: colours only where they are wanted, and nothing in it that a terminal would obey.

use std::env;
use std::fmt::Write;
use std::io::{self, IsTerminal};

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

/// A line as one or more that are no wider than so many columns, broken at spaces where there are some. What follows the first is
/// indented by two more than it. A character counts as one column.
pub(super) fn wrapped(line: &str, columns: usize) -> Vec<String> {
    let indent = line.chars().take_while(|&character| character == ' ').count() + 2;
    // Leaves room for something where there is hardly any.
    let indent = indent.min(columns / 2);
    let mut lines = Vec::new();
    let mut rest: Vec<char> = line.chars().collect();
    while rest.len() > columns.max(1) {
        // The space itself may stand behind the last column.
        let first_word = rest.iter().take_while(|&&character| character == ' ').count();
        let space = (first_word..=columns)
            .rev()
            .find(|&index| rest.get(index) == Some(&' '));
        let end = space.unwrap_or(columns.max(1));
        lines.push(rest[..end].iter().collect());
        let next = rest[end..].iter().skip_while(|&&character| character == ' ');
        rest = std::iter::repeat_n(' ', indent).chain(next.copied()).collect();
    }
    lines.push(rest.into_iter().collect());
    lines
}

/// How many columns a terminal is taken to have that does not know.
const TERMINAL_WIDTH: usize = 80;
/// How many columns text has that goes elsewhere.
const PIPED_WIDTH: usize = 100;
/// The fewest columns that text is fitted into.
const LEAST_WIDTH: usize = 40;

/// How many columns there are for text on standard output.
pub(super) fn width() -> usize {
    if !io::stdout().is_terminal() {
        return PIPED_WIDTH;
    }
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col).max(LEAST_WIDTH),
        _ => TERMINAL_WIDTH,
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
    fn lines_are_broken_at_spaces_where_there_are_some() {
        assert_eq!(wrapped("one two", 7), ["one two"]);
        assert_eq!(wrapped("one two three", 8), ["one two", "  three"]);
        assert_eq!(wrapped("one two three", 7), ["one two", "  three"]);
        assert_eq!(wrapped(" a bcdefgh", 6), [" a", "   bcd", "   efg", "   h"]);
        assert_eq!(wrapped("äöüäöüäöü", 4), ["äöüä", "  öü", "  äö", "  ü"]);
        assert_eq!(wrapped("", 4), [""]);
    }

    #[test]
    fn sizes_are_rounded_for_people() {
        assert_eq!(size(12), "12 bytes");
        assert_eq!(size(1025), "2 KiB");
        assert_eq!(size(3 * 1024 * 1024 / 2), "1.5 MiB");
    }
}
