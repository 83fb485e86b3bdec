//! Whatever the cuts of the input, the lines are those that splitting all of it at once gives; what is over the cap is told
//! and never kept, but skimmed to its end.
//!
//! Input: the cap (two bytes), sizes of reads, a separator, and what is read.

use crate::feed;
use crate::wire::envelope::Id;
use crate::wire::lines::{Line, LineBuffer};
use crate::wire::skim::Skim;

/// The largest cap: above what is copied out of the read buffer.
const MOST: usize = 40_000;

/// Checks one input.
pub fn check(data: &[u8]) {
    let (header, content) = match data.iter().position(|&byte| byte == feed::SEPARATOR) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (&[][..], data),
    };
    let (cap, reads) = match header {
        [low, high, reads @ ..] => (usize::from(u16::from_le_bytes([*low, *high])) % MOST, reads),
        _ => (64, &[][..]),
    };
    let content = feed::expand(content);
    assert_eq!(
        read(&content, cap, reads),
        reference(&content, cap),
        "cap {cap}, reads {reads:?}"
    );
}

/// What is handed out.
#[derive(Debug, PartialEq)]
enum Seen {
    /// A line.
    Whole(Vec<u8>),
    /// A line that is too long, and what was made out of it.
    TooLong(Option<Id>, Option<u64>),
}

fn read(mut content: &[u8], cap: usize, reads: &[u8]) -> Vec<Seen> {
    let mut buffer = LineBuffer::new(cap);
    let mut seen = Vec::new();
    let mut sizes = reads.iter().cycle();
    let endless = reads.iter().all(|&read| read == 0);
    while !content.is_empty() {
        let size = match sizes.next() {
            _ if endless => content.len(),
            Some(&size @ ..128) => usize::from(size),
            Some(&size) => (usize::from(size) - 127) * 300,
            None => content.len(),
        };
        let (read, rest) = content.split_at(size.min(content.len()));
        content = rest;
        buffer.room().extend_from_slice(read);
        while let Some(line) = buffer.next_line() {
            seen.push(told(line));
        }
        assert!(
            buffer.room().len() <= cap + 1,
            "more than the cap and a carriage return waits for its end"
        );
    }
    seen.extend(buffer.last_line().map(told));
    assert!(buffer.last_line().is_none());
    seen
}

fn told(line: Line) -> Seen {
    match line {
        Line::Whole(bytes) => Seen::Whole(bytes.to_vec()),
        Line::TooLong(skipped) => Seen::TooLong(skipped.skim.asked(), skipped.skim.answered()),
    }
}

/// A carriage return before the line's end does not count.
fn length(line: &[u8]) -> usize {
    line.strip_suffix(b"\r").unwrap_or(line).len()
}

fn reference(content: &[u8], cap: usize) -> Vec<Seen> {
    content
        .split(|&byte| byte == b'\n')
        .filter(|line| length(line) > cap || !line.trim_ascii().is_empty())
        .map(|line| {
            if length(line) <= cap {
                return Seen::Whole(line.to_vec());
            }
            let skim = Skim::of(line);
            Seen::TooLong(skim.asked(), skim.answered())
        })
        .collect()
}
