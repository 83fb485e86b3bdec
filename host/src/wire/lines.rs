//! Bytes to lines: a read buffer that finds line ends and caps a line's length.

use super::skim::Skim;
use bytes::{Bytes, BytesMut};
use memchr::memchr;

/// How many bytes one read asks for. A quarter MiB is where pipe throughput stopped growing.
pub const READ_SIZE: usize = 256 * 1024;

/// Lines up to this size are copied out of the read buffer, so that a message does not keep far more than itself alive.
const COPY_UP_TO: usize = READ_SIZE / 2;

/// Bytes that are kept of a line that is too long.
const BEGINNING: usize = 4 * 1024;

/// One line, or the news that one was too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line without its end.
    Whole(Bytes),
    /// A line longer than the cap; it was skipped.
    TooLong(Box<Skipped>),
}

/// What is left of a line that was too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its beginning.
    pub beginning: Bytes,
    /// What could be made out of all of it.
    pub skim: Skim,
}

/// Collects what was read and hands out lines.
#[derive(Debug)]
pub struct LineBuffer {
    buffer: BytesMut,
    scanned: usize,
    /// A line that is being skipped.
    skipping: Option<Box<Skipped>>,
    cap: usize,
}

impl LineBuffer {
    /// A buffer for lines of at most `cap` bytes without their ends.
    pub fn new(cap: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            scanned: 0,
            skipping: None,
            cap,
        }
    }

    /// Room to read into.
    pub fn room(&mut self) -> &mut BytesMut {
        if self.buffer.capacity() - self.buffer.len() < READ_SIZE / 4 {
            self.buffer.reserve(READ_SIZE);
        }
        &mut self.buffer
    }

    /// The next line; none until more was read. Blank lines are left out.
    pub fn next_line(&mut self) -> Option<Line> {
        loop {
            let Some(found) = memchr(b'\n', &self.buffer[self.scanned..]) else {
                self.scanned = self.buffer.len();
                if self.is_too_long(self.scanned) {
                    let skipped = self.skip(self.scanned);
                    self.skipping = Some(skipped);
                    // What was read of it is given back, not only emptied.
                    self.buffer = BytesMut::new();
                    self.scanned = 0;
                }
                return None;
            };
            let end = self.scanned + found;
            self.scanned = 0;
            if self.is_too_long(end) {
                let skipped = self.skip(end);
                bytes::Buf::advance(&mut self.buffer, end + 1);
                return Some(Line::TooLong(skipped));
            }
            let line = if end <= COPY_UP_TO {
                let line = Bytes::copy_from_slice(&self.buffer[..end]);
                bytes::Buf::advance(&mut self.buffer, end + 1);
                line
            } else {
                let mut line = self.buffer.split_to(end + 1);
                line.truncate(end);
                if self.buffer.len() <= end.max(READ_SIZE) {
                    // What follows must not keep the buffer of a long line alive.
                    self.buffer = BytesMut::from(&self.buffer[..]);
                }
                line.freeze()
            };
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Some(Line::Whole(line));
            }
        }
    }

    /// Whether a line that is in the buffer up to `end`, or in it and before it, is longer than the cap.
    fn is_too_long(&self, end: usize) -> bool {
        // A carriage return is, or may become, the beginning of the line's end.
        let length = match self.buffer[..end] {
            [.., b'\r'] => end - 1,
            _ => end,
        };
        self.skipping.is_some() || length > self.cap
    }

    /// Looks at the part of a line that is too long which is in the buffer up to `end`.
    fn skip(&mut self, end: usize) -> Box<Skipped> {
        let part = &self.buffer[..end];
        let mut skipped = self.skipping.take().unwrap_or_else(|| {
            Box::new(Skipped {
                beginning: Bytes::copy_from_slice(&part[..part.len().min(BEGINNING)]),
                skim: Skim::default(),
            })
        });
        skipped.skim.feed(part);
        skipped
    }

    /// What is left at the end of the input: a line without an end.
    pub fn last_line(&mut self) -> Option<Line> {
        self.scanned = 0;
        if self.is_too_long(self.buffer.len()) {
            let skipped = self.skip(self.buffer.len());
            self.buffer = BytesMut::new();
            return Some(Line::TooLong(skipped));
        }
        let rest = std::mem::take(&mut self.buffer).freeze();
        (!rest.iter().all(u8::is_ascii_whitespace)).then_some(Line::Whole(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_lines_whatever_the_reads() {
        let input = b"one\r\n\n  \ntwo\nthree";
        for step in 1..input.len() {
            let mut lines = LineBuffer::new(100);
            let mut seen = Vec::new();
            for chunk in input.chunks(step) {
                lines.room().extend_from_slice(chunk);
                while let Some(line) = lines.next_line() {
                    seen.push(line);
                }
            }
            seen.extend(lines.last_line());
            let expected = [&b"one\r"[..], b"two", b"three"].map(|line| Line::Whole(Bytes::from_static(line)));
            assert_eq!(seen, expected, "in steps of {step}");
        }
    }

    #[test]
    fn a_line_does_not_keep_the_buffer_of_a_longer_one_alive() {
        let mut lines = LineBuffer::new(64 << 20);
        for size in [10, 8 << 20, 1_000, 200_000, READ_SIZE] {
            lines.room().extend_from_slice(&vec![b'x'; size]);
            lines.room().extend_from_slice(b"\n");
        }
        for most in [1_000, 64 << 20, 10_000, 1 << 20, 1 << 20] {
            let Some(Line::Whole(line)) = lines.next_line() else {
                panic!("a line of at most {most} bytes");
            };
            let kept = line.try_into_mut().map_or(0, |line| line.capacity());
            assert!(kept <= most, "{kept} for at most {most}");
        }
    }

    #[test]
    fn skips_a_line_over_the_cap_and_goes_on() {
        let mut lines = LineBuffer::new(10);
        lines.room().extend_from_slice(&[b'x'; 11]);
        assert_eq!(lines.next_line(), None);
        lines.room().extend_from_slice(b"xx\nok\n");
        let Some(Line::TooLong(skipped)) = lines.next_line() else {
            panic!("it is too long");
        };
        assert_eq!(skipped.beginning, [b'x'; 11].as_slice());
        assert_eq!(lines.next_line(), Some(Line::Whole(Bytes::from_static(b"ok"))));
        lines.room().extend_from_slice(&[b'y'; 12]);
        lines.room().extend_from_slice(b"\n");
        assert!(matches!(lines.next_line(), Some(Line::TooLong(_))));
        assert_eq!(lines.last_line(), None);
        lines.room().extend_from_slice(&[b'z'; 11]);
        assert!(matches!(lines.last_line(), Some(Line::TooLong(_))));
    }

    #[test]
    fn a_carriage_return_at_the_end_of_a_line_does_not_count() {
        let input = b"0123456789\r\n0123456789\n0123456789\rx\n0123456789\r\r\n0123456789x\r\n0123456789\r";
        for step in 1..input.len() {
            let mut lines = LineBuffer::new(10);
            let mut seen = Vec::new();
            for chunk in input.chunks(step) {
                lines.room().extend_from_slice(chunk);
                while let Some(line) = lines.next_line() {
                    seen.push(line);
                }
            }
            seen.extend(lines.last_line());
            let whole: Vec<bool> = seen.iter().map(|line| matches!(line, Line::Whole(_))).collect();
            assert_eq!(whole, [true, true, false, false, false, true], "in steps of {step}");
        }
    }

    #[test]
    fn the_id_of_a_line_that_is_too_long_is_found_at_its_end() {
        let mut lines = LineBuffer::new(10);
        for part in ["{\"result\":[1,2,3", ",4,{\"id\":2}]", ",\"i", "d\":71}\n"] {
            assert_eq!(lines.next_line(), None);
            lines.room().extend_from_slice(part.as_bytes());
        }
        let Some(Line::TooLong(skipped)) = lines.next_line() else {
            panic!("it is too long");
        };
        assert_eq!(skipped.skim.answered(), Some(71));
    }
}
