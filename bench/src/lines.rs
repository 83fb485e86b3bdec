//! Lines out of large reads.

use rustix::fd::AsFd;
use rustix::io::Errno;
use std::ops::Range;

/// Bytes asked for in one read.
const READ: usize = 256 << 10;

/// What was read, and how far it was looked at.
#[derive(Default)]
pub(crate) struct Lines {
    buffer: Vec<u8>,
    start: usize,
    searched: usize,
    end: usize,
}

impl Lines {
    /// Reads once; the number of bytes, 0 at the end.
    pub(crate) fn read(&mut self, from: impl AsFd) -> Result<usize, Errno> {
        if self.buffer.len() - self.end < READ {
            self.buffer.copy_within(self.start..self.end, 0);
            self.searched -= self.start;
            self.end -= self.start;
            self.start = 0;
            if self.buffer.len() - self.end < READ {
                let size = (self.buffer.len() * 2).max(2 * READ);
                self.buffer.resize(size, 0);
            }
        }
        let end = (self.end + READ).min(self.buffer.len());
        let count = rustix::io::retry_on_intr(|| rustix::io::read(&from, &mut self.buffer[self.end..end]))?;
        self.end += count;
        Ok(count)
    }

    /// The next whole line without its end, to be looked at with [`Self::bytes`] before the next read.
    pub(crate) fn next(&mut self) -> Option<Range<usize>> {
        match memchr::memchr(b'\n', &self.buffer[self.searched..self.end]) {
            Some(at) => {
                let line = self.start..self.searched + at;
                self.start = line.end + 1;
                self.searched = self.start;
                Some(line)
            }
            None => {
                self.searched = self.end;
                None
            }
        }
    }

    pub(crate) fn bytes(&self, line: Range<usize>) -> &[u8] {
        &self.buffer[line]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_of_any_length_come_whole() {
        let (read, write) = std::io::pipe().unwrap();
        let writer = std::thread::spawn(move || {
            let mut write = write;
            for length in [0, 1, 5_000, 3 << 20, 7] {
                write.write_all(&vec![b'x'; length]).unwrap();
                write.write_all(b"\n").unwrap();
            }
        });
        let mut lines = Lines::default();
        let mut lengths = Vec::new();
        loop {
            while let Some(line) = lines.next() {
                assert!(lines.bytes(line.clone()).iter().all(|byte| *byte == b'x'));
                lengths.push(line.len());
            }
            if lines.read(&read).unwrap() == 0 {
                break;
            }
        }
        assert_eq!(lengths, [0, 1, 5_000, 3 << 20, 7]);
        writer.join().unwrap();
    }
}
