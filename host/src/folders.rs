//! Where Consort keeps what is the user's. Must not know what that is.

use std::env;
use std::path::PathBuf;

/// The folder for what outlives a run and is no configuration: `$XDG_STATE_HOME/consort`, or `~/.local/state/consort`. None where
/// neither is set.
pub fn state() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(base.join("consort"))
}
