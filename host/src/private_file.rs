//! What the files have in common that Consort writes what it sees to: only the user reads them, they are of bounded size, and they
//! are never standard output. Must not know what is in them.

use rustix::fs::{FileType, fstat};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Only the user reads and writes it.
pub(crate) const MODE: u32 = 0o600;

/// Where a file goes that is full.
pub(crate) fn old(path: &Path) -> PathBuf {
    let mut old = path.to_owned().into_os_string();
    old.push(".1");
    old.into()
}

/// Whether a file is what standard output is, by this name or another. Devices may be shared.
pub(crate) fn is_standard_output(file: &File) -> bool {
    let (Ok(file), Ok(output)) = (fstat(file), fstat(io::stdout())) else {
        return false;
    };
    let device = FileType::from_raw_mode(file.st_mode) == FileType::CharacterDevice;
    !device && (file.st_dev, file.st_ino) == (output.st_dev, output.st_ino)
}
