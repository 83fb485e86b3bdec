//! The file, which several processes may write at the same time: a line is one write at the end of it, and when it is full it becomes
//! `FILE.1`. So it takes two files of bounded size, and nobody's line is torn.

use crate::private_file::{MODE, is_standard_output, old};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of one file.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// What each line begins with. What begins with anything else is somebody's file and left alone.
const BEGINNING: &[u8] = b"{\"time\":\"";

/// How long another process may take to put a full file aside.
const LOCK_TIME: Duration = Duration::from_secs(1);

/// How often a lock that another process has is tried.
const LOCK_RETRY: Duration = Duration::from_millis(5);

/// How often a file that others put aside is opened anew for one line.
const MAX_TRIES: usize = 10;

/// An audit file that is opened with its first line.
pub(super) struct AuditFile {
    path: PathBuf,
    most: u64,
    open: Option<Open>,
}

struct Open {
    file: File,
    /// Its last line has no end: somebody's disk was full.
    torn: bool,
}

impl AuditFile {
    pub(super) fn new(path: &Path) -> Self {
        Self::with(path, MAX_BYTES)
    }

    fn with(path: &Path, most: u64) -> Self {
        let path = path.to_owned();
        Self { path, most, open: None }
    }

    /// Adds a line.
    pub(super) fn append(&mut self, line: &str) -> io::Result<()> {
        let most = self.most;
        for _ in 0..MAX_TRIES {
            let open = match self.open.take() {
                Some(open) => open,
                None => open(&self.path)?,
            };
            let now = open.file.metadata()?;
            // Another process has put it aside, or the user has removed it.
            if !is_same(&self.path, &now) {
                continue;
            }
            if now.len() > 0 && now.len() + line.len() as u64 + 1 > most {
                self.put_aside(&open.file)?;
                continue;
            }
            return self.open.insert(open).append(line);
        }
        Err(io::Error::other("others replace it all the time"))
    }

    fn put_aside(&self, file: &File) -> io::Result<()> {
        lock(file)?;
        // The lock is let go of with the file. Whoever had it before has done this already.
        if is_same(&self.path, &file.metadata()?) {
            let old = old(&self.path);
            if !is_ours(&old)? {
                return Err(io::Error::other(format!(
                    "it is full, and {} is no audit file",
                    old.display()
                )));
            }
            std::fs::rename(&self.path, old)?;
        }
        Ok(())
    }
}

impl Open {
    fn append(&mut self, line: &str) -> io::Result<()> {
        let begin = if self.torn { "\n" } else { "" };
        let bytes = format!("{begin}{line}\n").into_bytes();
        // More than one write might have another process's line in the middle.
        let written = loop {
            match self.file.write(&bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => break written?,
            }
        };
        self.torn = written < bytes.len() && (written > 0 || self.torn);
        match written == bytes.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::StorageFull.into()),
        }
    }
}

fn open(path: &Path) -> io::Result<Open> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    if !is_ours(path)? {
        return Err(io::Error::other(
            "it is there already and is no audit file; name another file, or remove it",
        ));
    }
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .mode(MODE)
        .open(path)?;
    if is_standard_output(&file) {
        return Err(io::Error::other(
            "it is standard output, which carries the protocol; name another file",
        ));
    }
    let metadata = file.metadata()?;
    if metadata.mode() & 0o777 != MODE {
        // The mode above is that of a new file only.
        file.set_permissions(Permissions::from_mode(MODE))?;
    }
    // What has no end yet may be a line that another process is writing.
    let mut torn = has_open_end(&file)?;
    if torn {
        std::thread::sleep(LOCK_RETRY);
        torn = has_open_end(&file)?;
    }
    Ok(Open { file, torn })
}

fn has_open_end(file: &File) -> io::Result<bool> {
    let mut last = [b'\n'];
    let length = file.metadata()?.len();
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    Ok(last != [b'\n'])
}

/// Whether a file is an audit file, empty, or not there.
fn is_ours(path: &Path) -> io::Result<bool> {
    // A pipe in its place must not be waited for.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Ok(false);
    }
    let mut beginning = [0; BEGINNING.len()];
    let length = file.read_at(&mut beginning, 0)?;
    Ok(length == 0 || beginning[..length] == *BEGINNING)
}

/// Whether this is the file that the path leads to.
fn is_same(path: &Path, file: &std::fs::Metadata) -> bool {
    path.metadata()
        .is_ok_and(|there| (there.dev(), there.ino()) == (file.dev(), file.ino()))
}

fn lock(file: &File) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if begun.elapsed() < LOCK_TIME => std::thread::sleep(LOCK_RETRY),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs;
    use std::thread;

    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("consort-audit-file-{test}-{}", std::process::id()));
            // What a test that failed has left under this number.
            let _ = fs::remove_dir_all(&folder);
            Self(folder)
        }

        fn path(&self) -> PathBuf {
            self.0.join("deep/audit.jsonl")
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.0.join("deep").join(name)).unwrap_or_default()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn line(text: &str) -> String {
        format!("{{\"time\":\"{text}\"}}")
    }

    #[test]
    fn a_full_file_is_put_aside_once() {
        let folder = Folder::new("full");
        let mut file = AuditFile::with(&folder.path(), 30);
        for text in ["1", "2", "3", "4", "5"] {
            file.append(&line(text)).unwrap();
        }
        assert_eq!(folder.read("audit.jsonl"), format!("{}\n", line("5")));
        assert_eq!(folder.read("audit.jsonl.1"), format!("{}\n{}\n", line("3"), line("4")));
        let mode = fs::metadata(folder.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        // A line that is longer than a file has one of its own.
        file.append(&line(&"x".repeat(100))).unwrap();
        assert_eq!(folder.read("audit.jsonl").lines().count(), 1);
    }

    #[test]
    fn several_writers_tear_no_line_and_lose_none_that_is_kept() {
        let folder = Folder::new("several");
        // One rotation, so that nothing is gone.
        let most = 4 * 200 * (line("0-000").len() as u64 + 1) * 2 / 3;
        thread::scope(|scope| {
            for writer in 0..4 {
                let mut file = AuditFile::with(&folder.path(), most);
                scope.spawn(move || {
                    for number in 0..200 {
                        file.append(&line(&format!("{writer}-{number:03}"))).unwrap();
                    }
                });
            }
        });
        let text = folder.read("audit.jsonl.1") + &folder.read("audit.jsonl");
        let mut lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|found| found.len() == line("0-000").len()), "{text}");
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 4 * 200);
    }

    #[test]
    fn a_file_that_was_removed_is_begun_anew() {
        let folder = Folder::new("removed");
        let mut file = AuditFile::new(&folder.path());
        file.append(&line("1")).unwrap();
        fs::remove_file(folder.path()).unwrap();
        file.append(&line("2")).unwrap();
        assert_eq!(folder.read("audit.jsonl"), format!("{}\n", line("2")));
    }

    #[test]
    fn a_line_that_was_cut_off_stays_alone() {
        let folder = Folder::new("torn");
        fs::create_dir_all(folder.path().parent().unwrap()).unwrap();
        fs::write(folder.path(), "{\"time\":\"20").unwrap();
        let mut file = AuditFile::new(&folder.path());
        file.append(&line("1")).unwrap();
        file.append(&line("2")).unwrap();
        assert_eq!(
            folder.read("audit.jsonl"),
            format!("{{\"time\":\"20\n{}\n{}\n", line("1"), line("2"))
        );
    }

    #[test]
    fn what_is_no_audit_file_is_left_alone() {
        let folder = Folder::new("foreign");
        fs::create_dir_all(folder.path().parent().unwrap()).unwrap();
        fs::write(folder.path(), "notes").unwrap();
        assert!(AuditFile::new(&folder.path()).append(&line("1")).is_err());
        assert_eq!(folder.read("audit.jsonl"), "notes");
        // Neither is what stands where a full file would go.
        fs::remove_file(folder.path()).unwrap();
        fs::write(old(&folder.path()), "notes").unwrap();
        let mut file = AuditFile::with(&folder.path(), 30);
        file.append(&line("1")).unwrap();
        file.append(&line("2")).unwrap();
        assert!(file.append(&line("3")).is_err());
        assert_eq!(folder.read("audit.jsonl.1"), "notes");
        // A pipe is not waited for.
        fs::remove_file(folder.path()).unwrap();
        mknodat(CWD, folder.path(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(file.append(&line("4")).is_err());
    }
}
