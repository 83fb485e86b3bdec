//! The file of one proxy: read, replaced as a whole, locked against other processes. Knows nothing of what is in it.

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The largest file that is read: what the largest limit allows, and the proxy's name.
const MAX_FILE: u64 = super::MAX_LIMIT + 64 * 1024;

/// How long another process may keep the lock, which it needs for one change. Longer ones are stopped or have a broken disk.
const LOCK_TIME: Duration = Duration::from_secs(5);

/// How often a lock that another process has is tried.
const LOCK_RETRY: Duration = Duration::from_millis(5);

/// Letters of a proxy's name in its file's name.
const SHOWN: usize = 40;

/// Damaged files of one proxy that are kept.
const MAX_DAMAGED: u32 = 100;

/// The place of one proxy's file.
#[derive(Debug)]
pub(super) struct Store {
    folder: PathBuf,
    /// What its files' names begin with.
    name: String,
}

/// Nobody else changes the file while this is there.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Store {
    pub(super) fn new(folder: &Path, proxy: &str) -> Self {
        // A proxy's name can be anything. What is left of it is for people; what tells files apart is the hash.
        let plain = |letter: char| match letter {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' => letter,
            _ => '_',
        };
        let shown: String = proxy.chars().map(plain).take(SHOWN).collect();
        let hash = blake3::hash(proxy.as_bytes()).to_hex();
        Self {
            folder: folder.to_owned(),
            name: format!("{shown}-{}", &hash[..32]),
        }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn file(&self) -> PathBuf {
        self.with("json")
    }

    fn with(&self, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", self.name))
    }

    /// The file's content; none if there is no file. One that is too large comes cut, so it is taken for damaged.
    pub(super) fn read(&self) -> io::Result<Option<Vec<u8>>> {
        // A pipe in its place must not be waited for.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(self.file()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("what is in its place is not a file"));
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Waits until nobody else changes the file.
    pub(super) fn lock(&self) -> io::Result<Lock> {
        if !self.folder.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
            // New folders have to survive a crash as well: $XDG_STATE_HOME, and two in it.
            for above in self.folder.ancestors().skip(1).take(3) {
                File::open(above)?.sync_all()?;
            }
        }
        // Not the file itself, which is another one after each change.
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(self.with("lock"))?;
        let begun = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Lock { _file: file }),
                Err(Errno::WOULDBLOCK) if begun.elapsed() < LOCK_TIME => std::thread::sleep(LOCK_RETRY),
                Err(Errno::WOULDBLOCK) => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "another process has been changing it for seconds",
                    ));
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Puts a new file in the place of the old one. Whatever happens meanwhile, one of them is there, whole. Needs the lock.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let new = self.with("new");
        let written = write_new(&new, bytes).and_then(|()| fs::rename(&new, self.file()));
        if let Err(error) = written {
            // What is left is in nobody's way, and the next change writes over it.
            let _ = fs::remove_file(&new);
            return Err(error);
        }
        File::open(&self.folder)?.sync_all()
    }

    /// Gives the file a name under which it is left alone. Needs the lock.
    pub(super) fn put_aside(&self) -> io::Result<PathBuf> {
        let free = (1..=MAX_DAMAGED)
            .map(|number| self.with(&format!("damaged-{number}")))
            .find(|path| path.symlink_metadata().is_err())
            .ok_or_else(|| io::Error::other("it is damaged, as it often was; remove the damaged files"))?;
        fs::rename(self.file(), &free)?;
        Ok(free)
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
