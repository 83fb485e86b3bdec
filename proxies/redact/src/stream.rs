//! Masks text that comes in pieces. Owns what is held back between pieces; knows nothing of messages.

mod block;

use std::borrow::Cow;

use block::{Block, Step};

use crate::rules::{Found, Kind, Label, Rules};

/// No more text than that, in bytes, is held back: as much as the longest tokens in use.
const MAX_HELD: usize = 4096;

/// What the text that comes next is part of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Text,
    /// A PEM block whose mask is out.
    Block(Block),
    /// A token whose mask is out, longer than what can be held back.
    Token,
    /// A value whose mask is out, longer than what can be held back.
    Value(Label),
}

/// One stream of text.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    mode: Mode,
    /// The tail that may be the beginning of a secret.
    held: String,
    /// The character before it: patterns look back to see where a word begins.
    before: Option<char>,
}

/// Masks a text that is whole. None if there is nothing to mask.
pub(crate) fn mask(rules: &Rules, text: &str) -> Option<String> {
    let masked = Stream::default().push(rules, text, true);
    (masked != text).then_some(masked)
}

impl Stream {
    /// Whether something is held back.
    pub(crate) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether the text that comes next is part of a secret whose mask is out.
    pub(crate) fn is_inside(&self) -> bool {
        self.mode != Mode::Text
    }

    /// The tail that is held back, masked as it is. What comes next is a new text, unless it is inside of a secret.
    pub(crate) fn pause(&mut self, rules: &Rules) -> String {
        let before = self.mode;
        let (tail, after) = self.walk(rules, "", true);
        *self = Self::default();
        self.mode = match (before, after) {
            (Mode::Block(_), Mode::Block(_)) => after,
            (Mode::Block(_), _) => Mode::Text,
            _ => before,
        };
        tail
    }

    /// Takes the next piece and gives what can go out. With `last`, that is all.
    pub(crate) fn push(&mut self, rules: &Rules, piece: &str, last: bool) -> String {
        let (out, mode) = self.walk(rules, piece, last);
        match last {
            true => *self = Self::default(),
            false => self.mode = mode,
        }
        out
    }

    /// Gives what can go out, and what the text that comes next is part of.
    fn walk(&mut self, rules: &Rules, piece: &str, last: bool) -> (String, Mode) {
        let skipped = self.before.map_or(0, char::len_utf8);
        let text = match (self.before, self.held.is_empty()) {
            (None, true) => Cow::Borrowed(piece),
            (before, _) => {
                let mut text = before.map(String::from).unwrap_or_default();
                text.push_str(&self.held);
                text.push_str(piece);
                Cow::Owned(text)
            }
        };
        let mut pass = Pass {
            rules,
            text: &text,
            at: skipped,
            last,
            out: String::new(),
        };
        let mut mode = self.mode;
        while let Some(next) = pass.step(mode) {
            mode = next;
        }
        // Held text is text of the mode that it was looked at in.
        self.held = text.get(pass.at..).unwrap_or_default().to_owned();
        self.before = text.get(..pass.at).and_then(|done| done.chars().next_back());
        (pass.out, mode)
    }
}

/// One walk over what was held and the new piece.
struct Pass<'a> {
    rules: &'a Rules,
    text: &'a str,
    /// Everything before is done with.
    at: usize,
    last: bool,
    out: String,
}

impl Pass<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn keep_until(&mut self, end: usize) {
        self.out.push_str(self.text.get(self.at..end).unwrap_or_default());
        self.at = end;
    }

    /// Goes on as far as one mode reaches. None when the text is used up, or the rest is to be held.
    fn step(&mut self, mode: Mode) -> Option<Mode> {
        if self.rest().is_empty() {
            return None;
        }
        match mode {
            Mode::Text => self.text_step(),
            Mode::Block(block) => self.block_step(block),
            Mode::Token => self.skip(is_token),
            Mode::Value(label) => self.skip(|character| label.takes(character)),
        }
    }

    fn skip(&mut self, takes: impl Fn(char) -> bool) -> Option<Mode> {
        let rest = self.rest();
        let length = rest.find(|character| !takes(character)).unwrap_or(rest.len());
        self.at += length;
        (!self.rest().is_empty()).then_some(Mode::Text)
    }

    fn text_step(&mut self) -> Option<Mode> {
        let found = self.rules.find(self.text, self.at);
        let end = found.map_or(self.text.len(), |found| found.start);
        // What is further back cannot be held.
        let reach = self.text.len().saturating_sub(MAX_HELD).max(self.at);
        if !self.last
            && let Some(open) = self.rules.first_open(self.text, reach, end)
        {
            self.keep_until(open);
            return None;
        }
        self.keep_until(end);
        let found = found?;
        match self.rules.kind(found) {
            Kind::Block => {
                self.mask(found, found.end);
                Some(Mode::Block(Block::default()))
            }
            Kind::Token => {
                self.mask(found, found.end);
                Some(if found.end == self.text.len() {
                    Mode::Token
                } else {
                    Mode::Text
                })
            }
            Kind::Label(label) => self.label_step(found, label, reach),
        }
    }

    fn label_step(&mut self, found: Found, label: Label, reach: usize) -> Option<Mode> {
        let after = self.text.get(found.end..).unwrap_or_default();
        let length = after.find(|character| !label.takes(character)).unwrap_or(after.len());
        let (value, rest) = after.split_at(length);
        let open = rest.is_empty() && !self.last;
        // The beginning of a private key goes on behind what a label takes.
        let begins = || self.rules.first_open(self.text, found.end, found.end).is_some();
        if !self.last && found.start >= reach && (open || begins()) {
            return None;
        }
        // A format of its own says more than the label does.
        let token = self
            .rules
            .find_at(self.text, found.end)
            .filter(|found| matches!(self.rules.kind(*found), Kind::Token | Kind::Block));
        let name = self.text.get(found.start..found.end).unwrap_or_default();
        let secret = token.is_none() && (open || label.is_secret(name, value, rest));
        self.keep_until(found.end);
        if secret {
            self.mask(found, found.end + length);
        }
        Some(if secret && open { Mode::Value(label) } else { Mode::Text })
    }

    fn block_step(&mut self, block: Block) -> Option<Mode> {
        let (length, mode) = match block.step(self.rest(), self.last) {
            Step::Inside(block, length) => (length, Mode::Block(block)),
            Step::End(length) => (length, Mode::Text),
            Step::Wait => return None,
        };
        self.at += length;
        Some(mode)
    }

    fn mask(&mut self, found: Found, end: usize) {
        self.out.push_str(&self.rules.mask(found));
        self.at = end;
    }
}

fn is_token(character: char) -> bool {
    character.is_ascii_alphanumeric() || "._~+/=-".contains(character)
}

#[cfg(test)]
mod tests;
