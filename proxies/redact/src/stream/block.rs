//! How far a private key goes once its `-----BEGIN` was seen. Knows how keys are quoted, numbered and cut in what people and tools
//! write; knows nothing of rules or chunks.
//!
//! A block is taken line by line, each with whatever stands in front of the key and behind it. It goes on to its `-----END`, or
//! to a line that clearly is not part of a key. All lengths are in bytes.

/// No more text than that is looked at to tell what a line is.
const MAX_LINE: usize = super::MAX_HELD;
const END: &str = "-----END";
const DASHES: &str = "-----";
/// What stands between the two, and the second of them, are not longer than that.
const MAX_NAME: usize = 72;

/// Base64 that is shorter is as good as any word.
const SHORT_RUN: usize = 16;
/// No word is that long. Base64 that is shorter nearly always has a digit.
const LONG_RUN: usize = 40;

/// Lines that may stand before the first one of the key: more than there are headers.
const MAX_BEFORE: u8 = 8;
/// Lines that may follow one of the key without being one: its short end, or a note that something is left out.
const MAX_BEHIND: u8 = 1;

/// What PEM and OpenPGP put in front of the key.
const HEADERS: [&str; 7] = [
    "Proc-Type:",
    "DEK-Info:",
    "Version:",
    "Comment:",
    "Hash:",
    "Charset:",
    "MessageID:",
];

/// The inside of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    /// Whether a line of the key was there.
    key: bool,
    /// Lines with words that were there since.
    others: u8,
    /// Whether the text that comes next goes on with a line of the key.
    in_line: bool,
}

/// What the beginning of a text is to a block.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// So much belongs to the block, which goes on.
    Inside(Block, usize),
    /// So much belongs to the block, which ends.
    End(usize),
    /// Only more text can tell.
    Wait,
}

impl Block {
    /// Takes one line, or what is there of it. With `last`, no more text comes.
    pub(super) fn step(self, text: &str, last: bool) -> Step {
        let (content, end) = line_end(text).unwrap_or((text.len(), text.len()));
        let line = first(text, if self.in_line { end } else { end.min(MAX_LINE) });
        let whole = content < end && line.len() == end;
        let decided = whole || last || line.len() < end;
        let content = first(line, content);

        if let Some((at, step)) = find_end(content, decided) {
            return match step {
                Step::Wait if self.in_line && at > 0 => Step::Inside(self, at),
                step => step,
            };
        }
        if self.in_line || has_key(content) || decided && is_one_run(content) {
            let length = line.len() - if decided { 0 } else { beginning_of_end(line) };
            let block = Self {
                key: true,
                others: 0,
                in_line: !whole,
            };
            return match length {
                0 => Step::Wait,
                _ => Step::Inside(block, length),
            };
        }
        match decided {
            true => self.other_line(content, line.len()),
            false => Step::Wait,
        }
    }

    fn other_line(self, content: &str, length: usize) -> Step {
        let words = words(content).take(2).count();
        if words == 0 {
            return Step::Inside(self, length);
        }
        let short_end = content
            .split(|character| !is_base64(character) && character != '=')
            .any(is_padded);
        let left_out = content.contains("...") || content.contains('…');
        let header = HEADERS.iter().any(|header| content.contains(header));
        let most = if self.key { MAX_BEHIND } else { MAX_BEFORE };
        if self.others < most && (words == 1 || short_end || left_out || header) {
            let others = self.others + 1;
            return Step::Inside(Self { others, ..self }, length);
        }
        Step::End(0)
    }
}

/// The beginning of a text, of at most that length.
fn first(text: &str, length: usize) -> &str {
    text.get(..text.floor_char_boundary(length)).unwrap_or(text)
}

/// Where the first end of a line begins and ends. In source code it may be written as an escape.
fn line_end(text: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    loop {
        let rest = text.get(from..)?;
        let at = from + rest.find(['\n', '\r', '\\'])?;
        match text.as_bytes().get(at..)? {
            [b'\\', b'n' | b'r', ..] => return Some((at, at + 2)),
            [b'\\', ..] => from = at + 1,
            _ => return Some((at, at + 1)),
        }
    }
}

/// Where an `-----END` begins in a line, and what it means. One that is cut off is as good as a whole one.
fn find_end(content: &str, decided: bool) -> Option<(usize, Step)> {
    let at = content.find(END)?;
    let name = at + END.len();
    let behind = first(content.get(name..)?, MAX_NAME);
    let step = match behind.find(DASHES) {
        Some(dashes) => Step::End(name + dashes + DASHES.len()),
        None if decided || behind.len() == MAX_NAME => Step::End(name + behind.len()),
        None => Step::Wait,
    };
    Some((at, step))
}

/// How much of the end of a line may be the beginning of `-----END`, or of the line's end.
fn beginning_of_end(line: &str) -> usize {
    let dashes = (1..END.len()).rev().find(|length| line.ends_with(first(END, *length)));
    dashes.unwrap_or_else(|| usize::from(line.ends_with('\\')))
}

fn is_base64(character: char) -> bool {
    character.is_ascii_alphanumeric() || "+/".contains(character)
}

/// Whether this is base64 with what fills it up.
fn is_padded(run: &str) -> bool {
    let content = run.trim_end_matches('=').len();
    run.len().is_multiple_of(4) && (1..=2).contains(&(run.len() - content)) && content > 0
}

/// What has letters in it. Numbers are those of lines.
fn words(content: &str) -> impl Iterator<Item = &str> {
    content
        .split(|character: char| !character.is_alphanumeric() && !is_base64(character))
        .filter(|word| word.contains(char::is_alphabetic))
}

/// Whether there is base64 in a line that is no word, whatever else is there.
fn has_key(content: &str) -> bool {
    content.split(|character| !is_base64(character)).any(|run| {
        let unlike_a_word = run.len() >= LONG_RUN || run.contains(|character: char| "0123456789+".contains(character));
        run.len() >= SHORT_RUN && unlike_a_word
    })
}

/// Whether a line has nothing but what may be base64 in it.
fn is_one_run(content: &str) -> bool {
    let mut words = words(content);
    words
        .next()
        .is_some_and(|word| word.len() >= SHORT_RUN && word.chars().all(is_base64))
        && words.next().is_none()
}
