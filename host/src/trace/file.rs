//! The file of a trace: bounded, with the newest lines kept.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes of one file. When it is full it becomes `FILE.1` and a new one is begun, so a trace takes twice as much at most.
const MAX_BYTES: u64 = 128 * 1024 * 1024;

/// A file that is written from its beginning.
pub(super) struct TraceFile {
    path: PathBuf,
    file: BufWriter<File>,
    written: u64,
    /// None for what is no plain file, a pipe for example: nothing of it is kept.
    most: Option<u64>,
}

impl TraceFile {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        Self::with(path, MAX_BYTES)
    }

    fn with(path: &Path, most: u64) -> io::Result<Self> {
        let file = open(path)?;
        let plain = file.metadata()?.is_file();
        Ok(Self {
            path: path.to_owned(),
            file: BufWriter::new(file),
            written: 0,
            most: plain.then_some(most),
        })
    }

    /// Writes a line.
    pub(super) fn line(&mut self, line: &str) -> io::Result<()> {
        let length = line.len() as u64 + 1;
        if self.written > 0 && self.most.is_some_and(|most| self.written + length > most) {
            self.file.flush()?;
            let mut old = self.path.clone().into_os_string();
            old.push(".1");
            std::fs::rename(&self.path, old)?;
            self.file = BufWriter::new(open(&self.path)?);
            self.written = 0;
        }
        self.written += length;
        self.file.write_all(line.as_bytes())?;
        self.file.write_all(b"\n")
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_are_kept() {
        let folder = std::env::temp_dir().join(format!("consort-trace-file-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("t");
        let mut file = TraceFile::with(&path, 8).unwrap();
        for line in ["one", "two", "three", "a line that is longer than a file"] {
            file.line(line).unwrap();
        }
        file.flush().unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(
            (read("t").as_str(), read("t.1").as_str()),
            ("a line that is longer than a file\n", "three\n")
        );
        std::fs::remove_dir_all(folder).unwrap();
    }
}
