//! Where Consort keeps what is the user's. Must not know what that is.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The folder for what outlives a run and is no configuration: `$XDG_STATE_HOME/consort`, or `~/.local/state/consort`. None where
/// neither is set.
pub fn state() -> Option<PathBuf> {
    folder("XDG_STATE_HOME", ".local/state")
}

/// The folder for what can be made anew: `$XDG_CACHE_HOME/consort`, or `~/.cache/consort`. None where neither is set.
pub fn cache() -> Option<PathBuf> {
    folder("XDG_CACHE_HOME", ".cache")
}

fn folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute(variable).or_else(|| Some(absolute("HOME")?.join(below_home)))?;
    Some(base.join("consort"))
}

/// A path with the home directory in the place of a leading `~/`: editors start programs without a shell, which would do it.
pub fn expand_home(path: PathBuf) -> PathBuf {
    expand(path, env::var_os("HOME"))
}

fn expand(path: PathBuf, home: Option<OsString>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) if !rest.as_os_str().is_empty() && !home.is_empty() => Path::new(&home).join(rest),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_leading_tilde_and_slash_is_the_home_directory() {
        let expanded = |text: &str| expand(text.into(), Some("/home/me".into()));
        assert_eq!(expanded("~/a/b.wasm"), Path::new("/home/me/a/b.wasm"));
        for path in ["a/~/b", "~you/a", "~", "/a", ""] {
            assert_eq!(expanded(path), Path::new(path));
        }
        for home in [None, Some(OsString::new())] {
            assert_eq!(expand("~/a".into(), home), Path::new("~/a"));
        }
    }
}
