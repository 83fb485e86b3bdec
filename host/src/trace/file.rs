//! The file of a trace: bounded, with the newest lines kept.

use crate::private_file::{MODE, is_standard_output, old};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
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
    /// Begins a trace. What an earlier one left is removed.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        Self::with(path, MAX_BYTES)
    }

    fn with(path: &Path, most: u64) -> io::Result<Self> {
        if !may_be_replaced(path) {
            return Err(io::Error::other(
                "it is there already and is no trace; name another file, or remove it",
            ));
        }
        let (file, plain) = open(path)?;
        if is_standard_output(&file) {
            return Err(io::Error::other(
                "it is standard output, which carries the protocol; name another file",
            ));
        }
        let old = old(path);
        if plain && may_be_replaced(&old) && old.symlink_metadata().is_ok_and(|old| old.is_file()) {
            std::fs::remove_file(&old)
                .map_err(|error| because(&error, &format!("{} cannot be removed", old.display())))?;
        }
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
            std::fs::rename(&self.path, old(&self.path))?;
            self.file = BufWriter::new(open(&self.path)?.0);
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

/// Whether a file is a trace, empty, not there, or no plain file.
fn may_be_replaced(path: &Path) -> bool {
    const BEGINNING: &[u8] = b"{\"type\":\"";
    if !path.is_file() {
        return true;
    }
    let mut beginning = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BEGINNING.len() as u64).read_to_end(&mut beginning));
    read.is_ok() && (beginning.is_empty() || beginning == BEGINNING)
}

/// Opens a file for writing from its beginning, and says whether it is a plain one.
fn open(path: &Path) -> io::Result<(File, bool)> {
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(MODE)
        // A pipe without a reader would be waited for, with nothing said.
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NXIO) => because(&error, "nobody reads from it"),
            _ => error,
        })?;
    // Writing may wait: a thread of its own does it.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    let plain = file.metadata()?.is_file();
    if plain {
        // The mode above is that of a new file only.
        file.set_permissions(Permissions::from_mode(MODE))
            .map_err(|error| because(&error, "it cannot be closed to other users"))?;
    }
    Ok((file, plain))
}

fn because(error: &io::Error, what: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::io::Read;

    fn folder(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("consort-trace-file-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn the_newest_lines_are_kept() {
        let folder = folder("newest");
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

    #[test]
    fn nothing_of_an_earlier_trace_is_left() {
        let folder = folder("earlier");
        let path = folder.join("t");
        for name in ["t", "t.1"] {
            std::fs::write(folder.join(name), "{\"type\":\"request\",\"of\":\"earlier\"}").unwrap();
            std::fs::set_permissions(folder.join(name), Permissions::from_mode(0o644)).unwrap();
        }
        TraceFile::create(&path).unwrap();
        let metadata = path.metadata().unwrap();
        assert_eq!((metadata.len(), metadata.permissions().mode() & 0o777), (0, MODE));
        assert!(!folder.join("t.1").exists());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_pipe_must_have_a_reader_and_is_waited_for_then() {
        let folder = folder("pipe");
        let path = folder.join("t");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        std::fs::write(folder.join("t.1"), "of somebody").unwrap();
        let error = TraceFile::create(&path).err().unwrap();
        assert!(error.to_string().contains("nobody reads"), "{error}");
        let mut reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut file = TraceFile::create(&path).unwrap();
        assert!(folder.join("t.1").exists(), "it is no part of the trace");
        // More than a pipe takes at once.
        let line = "x".repeat(1024 * 1024);
        let length = line.len() + 1;
        let reading = std::thread::spawn(move || {
            let mut text = vec![0; length];
            reader.read_exact(&mut text).unwrap();
            text
        });
        file.line(&line).unwrap();
        file.flush().unwrap();
        assert!(reading.join().unwrap() == format!("{line}\n").into_bytes());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
