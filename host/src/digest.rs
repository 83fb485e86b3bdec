//! SHA-256 as people compare it: `sha256sum` shows the same.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// The digest of these parts one after the other, in hexadecimal digits.
pub(crate) fn sha256<T: AsRef<[u8]>>(parts: impl IntoIterator<Item = T>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.as_ref());
    }
    hasher.finalize().iter().fold(String::new(), |mut digest, byte| {
        // Writing to a string cannot fail.
        let _ = write!(digest, "{byte:02x}");
        digest
    })
}
