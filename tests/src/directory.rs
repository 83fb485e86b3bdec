//! A temporary directory that is removed at the end of a test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, process};

/// The directory.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Makes a new, empty one.
    #[expect(clippy::new_without_default, reason = "it is made on the disk")]
    pub fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("consort-test-{}-{number}", process::id()));
        fs::create_dir(&path).expect("a temporary directory can be made");
        Self(fs::canonicalize(path).expect("it is there"))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file in it and returns its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).expect("a file can be written");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
