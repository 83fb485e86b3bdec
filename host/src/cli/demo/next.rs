//! What a person may type after the demo: a command that can be pasted into the shell that this program was started from.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The name under which this program is installed.
const NAME: &str = "consort";

/// The command that puts the proxies of a folder in front of the demo agent.
pub(super) fn command(folder: &Path) -> String {
    let program = if on_path(env::var_os("PATH").as_deref()) {
        PathBuf::from(NAME)
    } else {
        env::current_exe().unwrap_or_else(|_| NAME.into())
    };
    let here = env::current_dir().ok();
    let word = |path: &Path| quoted(&from(here.as_deref(), path).to_string_lossy());
    format!("{} prompt --proxies {} Hello", word(&program), word(folder))
}

fn on_path(path: Option<&OsStr>) -> bool {
    path.is_some_and(|path| env::split_paths(path).any(|folder| folder.join(NAME).is_file()))
}

/// A path as seen from a folder, if it is in it. What would be a single word there stays as it is: shells look it up in PATH.
fn from(here: Option<&Path>, path: &Path) -> PathBuf {
    here.and_then(|here| path.strip_prefix(here).ok())
        .filter(|short| short.components().count() > 1)
        .map_or_else(|| path.to_owned(), Path::to_owned)
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "/._-+:,@%".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_such_that_a_shell_takes_them() {
        assert_eq!(quoted("target/proxies"), "target/proxies");
        assert_eq!(quoted("it's here"), r"'it'\''s here'");
        assert_eq!(quoted("$HOME"), "'$HOME'");
    }

    #[test]
    fn paths_are_short_where_they_can_be() {
        let here = Some(Path::new("/src"));
        assert_eq!(
            from(here, Path::new("/src/target/consort")),
            Path::new("target/consort")
        );
        assert_eq!(from(here, Path::new("/src/consort")), Path::new("/src/consort"));
        assert_eq!(from(here, Path::new("/opt/consort")), Path::new("/opt/consort"));
        assert_eq!(from(here, Path::new(NAME)), Path::new(NAME));
    }
}
