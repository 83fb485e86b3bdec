//! Reading a file for a proxy, inside of a session's directory and nowhere else.

use std::io::Read as _;
use std::path::{Component, Path};

/// Reads at most `max_bytes` of a file below `directory`; says whether there was more. Blocks.
pub(super) fn read(directory: &Path, path: &str, max_bytes: u64) -> std::io::Result<(Vec<u8>, bool)> {
    let directory = cap_std::fs::Dir::open_ambient_dir(directory, cap_std::ambient_authority())?;
    // Asked before opening: opening a pipe would wait for its other end.
    if !directory.metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a file"));
    }
    let hidden = |path: &Path| {
        path.components()
            .any(|part| part.as_os_str().to_string_lossy().starts_with('.') && part != Component::CurDir)
    };
    // What begins with a dot is granted by its own name only, not through a link with another one.
    if !hidden(Path::new(path)) && hidden(&directory.canonicalize(path)?) {
        return Err(std::io::Error::other("it is a link to what begins with a dot"));
    }
    let mut bytes = Vec::new();
    directory
        .open(path)?
        .take(max_bytes.saturating_add(1))
        .read_to_end(&mut bytes)?;
    let limit = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    let truncated = bytes.len() > limit;
    bytes.truncate(limit);
    Ok((bytes, truncated))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_inside_and_says_when_it_cut() {
        let folder = std::env::temp_dir().join(format!("consort-files-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("inner")).unwrap();
        std::fs::write(folder.join("secret"), "secret").unwrap();
        std::fs::write(folder.join("inner/plain"), "12345").unwrap();
        std::os::unix::fs::symlink("../secret", folder.join("inner/link")).unwrap();
        let inner = folder.join("inner");
        assert_eq!(read(&inner, "plain", 5).unwrap(), (b"12345".to_vec(), false));
        assert_eq!(read(&inner, "plain", 4).unwrap(), (b"1234".to_vec(), true));
        assert!(read(&inner, "link", 10).is_err());
        assert!(read(&inner, ".", 10).is_err());
        std::fs::write(inner.join(".env"), "secret").unwrap();
        std::os::unix::fs::symlink(".env", inner.join("harmless")).unwrap();
        std::os::unix::fs::symlink("plain", inner.join("alias")).unwrap();
        assert!(read(&inner, "harmless", 10).is_err());
        assert_eq!(read(&inner, ".env", 10).unwrap().0, b"secret");
        assert_eq!(read(&inner, "./alias", 10).unwrap().0, b"12345");
        let missing = read(&inner, "none", 10).unwrap_err();
        assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
