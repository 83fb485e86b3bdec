//! One grant, as manifests, configurations and options write it.

use super::pattern::Pattern;
use super::profile::{Profile, Right};
use crate::message::Peer;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// Something that a proxy wishes for or is granted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Grant {
    /// A set of rights with a name.
    Profile(Profile),
    /// One right about messages.
    Raw {
        /// The kind of right.
        right: Right,
        /// Where the messages come from; of the right to originate, where they go.
        peer: Peer,
        /// Which methods.
        pattern: Pattern,
    },
    /// Reading files of a session's working directory.
    File(FileGrant),
    /// A directory of this computer.
    Directory {
        /// Where it is. In a manifest, the name by which the proxy finds it.
        host: PathBuf,
        /// The name by which the proxy finds it, if another.
        guest: Option<String>,
        /// Whether it may be written to.
        write: bool,
    },
    /// A variable of the environment.
    Environment {
        /// Its name.
        name: String,
        /// Its value; none: that of Consort's own environment.
        value: Option<String>,
    },
}

/// Files that may be read, relative to a session's working directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FileGrant {
    /// This file.
    Named(String),
    /// All files below this folder; the empty one is the working directory.
    Below(String),
}

impl FileGrant {
    fn parse(text: &str) -> Result<Self, String> {
        let (path, below) = match text.strip_suffix("**") {
            Some("") => return Ok(Self::Below(String::new())),
            Some(folder) if folder.ends_with('/') => (folder, true),
            _ => (text, false),
        };
        if path.contains('*') {
            return Err(format!(
                "in `file:{text}` a `*` can only stand as `**` at the end, alone or after a folder"
            ));
        }
        match (plain(path), below) {
            (Some(path), false) => Ok(Self::Named(path)),
            (Some(path), true) => Ok(Self::Below(path)),
            (None, _) => Err(format!("`file:{text}` is not a relative path without `..`")),
        }
    }

    /// Whether a file may be read. The path is relative.
    pub fn allows(&self, path: &str) -> bool {
        let Some(path) = plain(path) else { return false };
        match self {
            Self::Named(named) => path == *named,
            Self::Below(folder) if folder.is_empty() => true,
            Self::Below(folder) => path
                .strip_prefix(folder.as_str())
                .is_some_and(|rest| rest.starts_with('/')),
        }
    }

    /// Whether a file is shown in lists: it may be read, and what of its path begins with a dot stands in the grant.
    pub fn lists(&self, path: &str) -> bool {
        let Some(path) = plain(path) else { return false };
        match self {
            Self::Named(named) => path == *named,
            Self::Below(folder) => below(&path, folder).is_some_and(|rest| !rest.is_empty() && !is_hidden(rest)),
        }
    }

    /// Whether lists may show something that is below a folder; the empty one is the working directory.
    pub fn lists_below(&self, folder: &str) -> bool {
        let path = match folder.split('/').all(|part| matches!(part, "" | ".")) {
            true => String::new(),
            false => match plain(folder) {
                Some(path) => path,
                None => return false,
            },
        };
        let (Self::Named(granted) | Self::Below(granted)) = self;
        let on_the_way = below(granted, &path).is_some_and(|rest| !rest.is_empty());
        match self {
            Self::Named(_) => on_the_way,
            Self::Below(granted) => on_the_way || below(&path, granted).is_some_and(|rest| !is_hidden(rest)),
        }
    }

    fn meet(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Named(path), pattern) | (pattern, Self::Named(path)) => {
                pattern.allows(path).then(|| Self::Named(path.clone()))
            }
            (Self::Below(one), Self::Below(two)) if one == two || self.allows(two) => Some(other.clone()),
            (Self::Below(one), Self::Below(_)) if other.allows(one) => Some(self.clone()),
            (Self::Below(_), Self::Below(_)) => None,
        }
    }
}

impl fmt::Display for FileGrant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(path) => formatter.write_str(path),
            Self::Below(folder) if folder.is_empty() => formatter.write_str("**"),
            Self::Below(folder) => write!(formatter, "{folder}/**"),
        }
    }
}

/// What of a plain path is below a folder, if it is that or below it.
fn below<'p>(path: &'p str, folder: &str) -> Option<&'p str> {
    if folder.is_empty() {
        return Some(path);
    }
    match path.strip_prefix(folder)? {
        "" => Some(""),
        rest => rest.strip_prefix('/'),
    }
}

/// Whether a part of a plain path begins with a dot: that is for programs, and often a secret.
fn is_hidden(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with('.'))
}

/// A relative path without `.` and `..`, its parts joined by `/`.
fn plain(path: &str) -> Option<String> {
    let mut parts = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            _ => return None,
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

impl Grant {
    /// Whether a proxy that the user named gets it by asking for it: it cannot do more harm than words.
    pub fn is_ordinary(&self) -> bool {
        match self {
            Self::Profile(profile) => profile.is_ordinary(),
            Self::Raw { right, peer, pattern } => Profile::ALL
                .iter()
                .any(|profile| profile.is_ordinary() && profile.gives(*right, *peer, pattern)),
            Self::File(FileGrant::Named(path)) => !is_hidden(path),
            Self::File(FileGrant::Below(_)) | Self::Directory { .. } | Self::Environment { .. } => false,
        }
    }

    /// What it means for a person, after "it".
    pub fn sentence(&self) -> String {
        match self {
            Self::Profile(profile) => profile.sentence().to_owned(),
            Self::Raw { right, peer, pattern } => {
                let peer = match peer {
                    Peer::Client => "the editor",
                    Peer::Agent => "the agent",
                    Peer::Host => "Consort",
                };
                match right {
                    Right::Observe => format!("sees `{pattern}` from {peer}"),
                    Right::Intercept => format!("sees and changes `{pattern}` from {peer}"),
                    Right::Answer => format!("answers `{pattern}` from {peer}"),
                    Right::Originate => format!("sends `{pattern}` to {peer}"),
                }
            }
            Self::File(FileGrant::Named(path)) => format!("reads the file {path} of your project"),
            Self::File(FileGrant::Below(folder)) if folder.is_empty() => "reads every file of your project".into(),
            Self::File(FileGrant::Below(folder)) => format!("reads every file below {folder} of your project"),
            Self::Directory { host, write: false, .. } => format!("reads the directory {}", host.display()),
            Self::Directory { host, write: true, .. } => format!("reads and writes the directory {}", host.display()),
            Self::Environment { name, .. } => format!("knows the environment variable {name}"),
        }
    }

    /// As it is written, without the value of a variable, which may be a secret.
    pub fn without_value(&self) -> String {
        match self {
            Self::Environment { name, .. } => format!("environment:{name}"),
            other => other.to_string(),
        }
    }

    /// What is left of a wish when only the other one is granted.
    pub fn meet(&self, granted: &Self) -> Option<Self> {
        let everything = Self::Profile(Profile::Everything);
        match (self, granted) {
            (one, two) if one == two => Some(one.clone()),
            (Self::Raw { .. } | Self::Profile(_), two) if *two == everything => Some(self.clone()),
            (one, Self::Raw { .. } | Self::Profile(_)) if *one == everything => Some(granted.clone()),
            (
                Self::Raw { right, peer, pattern },
                Self::Raw {
                    right: other_right,
                    peer: other_peer,
                    pattern: other,
                },
            ) if right == other_right && peer == other_peer => Some(Self::Raw {
                right: *right,
                peer: *peer,
                pattern: pattern.meet(other)?,
            }),
            (Self::Profile(profile), Self::Raw { right, peer, pattern })
            | (Self::Raw { right, peer, pattern }, Self::Profile(profile)) => {
                profile.gives(*right, *peer, pattern).then(|| Self::Raw {
                    right: *right,
                    peer: *peer,
                    pattern: pattern.clone(),
                })
            }
            (Self::File(wished), Self::File(granted)) => Some(Self::File(wished.meet(granted)?)),
            (
                Self::Directory {
                    host: wished, write, ..
                },
                Self::Directory {
                    host,
                    guest,
                    write: granted_write,
                },
            ) => {
                let found = guest.as_deref().map_or(host.as_path(), Path::new);
                (found == wished).then(|| Self::Directory {
                    host: host.clone(),
                    guest: guest.clone(),
                    write: *write && *granted_write,
                })
            }
            (Self::Environment { name: wished, .. }, Self::Environment { name, .. }) => {
                (wished == name).then(|| granted.clone())
            }
            _ => None,
        }
    }

    /// The same with paths of directories made absolute: `~/` is the home directory, others are relative to `base`.
    #[must_use]
    pub fn based(self, base: &Path) -> Self {
        match self {
            Self::Directory { host, guest, write } => {
                // A proxy finds it by the name that the user wrote.
                let guest = guest.or_else(|| Some(host.to_string_lossy().into_owned()));
                let host = base.join(crate::folders::expand_home(host));
                Self::Directory { host, guest, write }
            }
            other => other,
        }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Profile(profile) => formatter.write_str(profile.name()),
            Self::Raw { right, peer, pattern } => write!(formatter, "{}:{}:{pattern}", right.name(), peer.name()),
            Self::File(file) => write!(formatter, "file:{file}"),
            Self::Directory { host, guest, write } => {
                let kind = if *write { "directory-write" } else { "directory" };
                write!(formatter, "{kind}:{}", host.display())?;
                match guest {
                    Some(guest) => write!(formatter, "={guest}"),
                    None => Ok(()),
                }
            }
            Self::Environment { name, value } => match value {
                Some(value) => write!(formatter, "environment:{name}={value}"),
                None => write!(formatter, "environment:{name}"),
            },
        }
    }
}

impl FromStr for Grant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(unseen) = text.chars().find(|character| crate::log::is_unseen(*character)) {
            return Err(format!(
                "the grant `{}` has a character in it that cannot be seen: {}",
                crate::log::named(text),
                unseen.escape_unicode()
            ));
        }
        if let Some(profile) = Profile::ALL.into_iter().find(|profile| profile.name() == text) {
            return Ok(Self::Profile(profile));
        }
        let Some((kind, rest)) = text.split_once(':') else {
            return Err(unknown(text));
        };
        let directory = |write| {
            let (host, guest) = match rest.split_once('=') {
                Some((host, guest)) => (host, Some(guest.to_owned())),
                None => (rest, None),
            };
            if host.is_empty() || guest.as_deref() == Some("") {
                return Err(format!("`{text}` names no directory"));
            }
            let host = host.into();
            Ok(Self::Directory { host, guest, write })
        };
        match kind {
            "file" => FileGrant::parse(rest).map(Self::File),
            "directory" => directory(false),
            "directory-write" => directory(true),
            "environment" => {
                let (name, value) = match rest.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (rest, None),
                };
                if name.is_empty() || text.contains('\0') {
                    return Err(format!("`{text}` names no variable"));
                }
                let name = name.to_owned();
                Ok(Self::Environment { name, value })
            }
            _ => raw(text, kind, rest),
        }
    }
}

fn raw(text: &str, kind: &str, rest: &str) -> Result<Grant, String> {
    let Some(right) = Right::ALL.into_iter().find(|right| right.name() == kind) else {
        return Err(unknown(text));
    };
    let form = || {
        format!(
            "`{text}` must have the form {kind}:PEER:METHOD, with client, agent or host as PEER and a method, `prefix/*` or `*` as METHOD"
        )
    };
    let (peer, method) = rest.split_once(':').ok_or_else(form)?;
    let peer = [Peer::Client, Peer::Agent, Peer::Host]
        .into_iter()
        .find(|known| known.name() == peer)
        .ok_or_else(form)?;
    if method.is_empty() || (peer == Peer::Host && right != Right::Originate) {
        return Err(form());
    }
    let pattern = Pattern::new(method);
    Ok(Grant::Raw { right, peer, pattern })
}

fn unknown(text: &str) -> String {
    let names: Vec<&str> = Profile::ALL.iter().map(|profile| profile.name()).collect();
    format!(
        "there is no grant `{}`; there are {}, file:PATH, directory:PATH, directory-write:PATH, environment:NAME and RIGHT:PEER:METHOD",
        crate::log::named(text),
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(text: &str) -> Grant {
        text.parse().unwrap()
    }

    fn met(wish: &str, granted: &str) -> Option<String> {
        grant(wish).meet(&grant(granted)).map(|grant| grant.to_string())
    }

    #[test]
    fn what_is_written_is_read_again() {
        for text in [
            "read-prompts",
            "everything",
            "intercept:client:session/*",
            "originate:host:host/state/*",
            "observe:agent:*",
            "file:AGENTS.md",
            "file:docs/**",
            "file:**",
            "directory:/a b",
            "directory-write:~/notes=/notes",
            "environment:LANG",
            "environment:LANG=de=x",
        ] {
            assert_eq!(grant(text).to_string(), text);
        }
        for text in [
            "",
            "reads-prompts",
            "intercept",
            "intercept:session/prompt",
            "intercept:host:x",
            "intercept:client:",
            "file:",
            "file:../x",
            "file:/etc/passwd",
            "file:*.md",
            "directory:",
            "environment:=x",
            "nonsense:client:x",
            "observe:client:\u{1b}[2J",
            "directory:/a\nb",
            "file:a\u{202e}b",
        ] {
            assert!(text.parse::<Grant>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_words_are_ordinary() {
        for text in [
            "change-prompts",
            "file:a/b.md",
            "observe:client:session/prompt",
            "intercept:agent:session/update",
            "originate:client:session/update",
        ] {
            assert!(grant(text).is_ordinary(), "{text}");
        }
        for text in [
            "decide-permissions",
            "everything",
            "file:**",
            "file:docs/**",
            "file:.env",
            "file:config/.secrets/token",
            "directory:/tmp",
            "environment:LANG",
            "observe:client:*",
            "intercept:agent:session/*",
            "intercept:agent:session/request_permission",
            "answer:agent:session/request_permission",
            "originate:client:terminal/create",
            "intercept:client:initialize",
        ] {
            assert!(!grant(text).is_ordinary(), "{text}");
        }
    }

    #[test]
    fn what_is_wished_and_granted_is_given() {
        let same = |text: &str| Some(text.to_owned());
        assert_eq!(met("change-prompts", "everything"), same("change-prompts"));
        assert_eq!(met("everything", "change-prompts"), same("change-prompts"));
        assert_eq!(met("change-prompts", "read-prompts"), None);
        assert_eq!(
            met("editor-files", "originate:client:fs/read_text_file"),
            same("originate:client:fs/read_text_file")
        );
        assert_eq!(met("editor-files", "originate:client:terminal/create"), None);
        assert_eq!(
            met("intercept:client:session/*", "intercept:client:session/new"),
            same("intercept:client:session/new")
        );
        assert_eq!(met("file:**", "file:docs/x.md"), same("file:docs/x.md"));
        assert_eq!(met("file:docs/**", "file:**"), same("file:docs/**"));
        assert_eq!(met("file:AGENTS.md", "file:docs/**"), None);
        assert_eq!(met("file:**", "everything"), None, "files are no messages");
        assert_eq!(
            met("directory-write:/notes", "directory:/home/me=/notes"),
            same("directory:/home/me=/notes")
        );
        assert_eq!(met("directory:/notes", "directory:/etc"), None);
        assert_eq!(
            met("environment:LANG", "environment:LANG=de"),
            same("environment:LANG=de")
        );
    }

    #[test]
    fn lists_show_what_begins_with_a_dot_only_if_the_grant_names_it() {
        for (text, shown, entered) in [
            ("file:**", &["a", "a/b", "ab"][..], &["", "./", "a", "a/b", "ab"][..]),
            ("file:.a/**", &[".a/b", "./.a/b"], &["", "./", ".a", ".a/b"]),
            ("file:a/b/**", &[], &["", "./", "a", "a/b"]),
            ("file:a/.b", &["a/.b"], &["", "./", "a"]),
        ] {
            let Grant::File(file) = grant(text) else {
                panic!("it is one")
            };
            for path in [
                "", "./", "a", "a/b", "a/.b", ".a", ".a/b", "./.a/b", ".a/.b", "a/../b", "/a", "ab", ".git/x",
            ] {
                assert_eq!(file.lists(path), shown.contains(&path), "{text} {path}");
            }
            for path in [
                "", "./", "a", "a/b", "a/.b", ".a", ".a/b", ".a/.b", "a/..", "ab", ".git",
            ] {
                assert_eq!(file.lists_below(path), entered.contains(&path), "{text} {path}");
            }
        }
    }

    #[test]
    fn file_grants_stay_below_their_folder() {
        let Grant::File(docs) = grant("file:docs/**") else {
            panic!("it is one")
        };
        assert!(docs.allows("docs/a.md") && docs.allows("./docs/b/c"));
        assert!(
            !docs.allows("docs2/a") && !docs.allows("docs/../x") && !docs.allows("/docs/a") && !docs.allows("docs")
        );
    }
}
