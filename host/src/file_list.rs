//! Lists of the files in a session's directory, for a proxy: what it could read, and nothing else. Owns the bounds and the order of a list.
//! Must not know who asks, or how the answer travels.

use crate::grants::Policy;
use crate::wire::text::Text;
use cap_std::fs::Dir;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Entries in a list if the proxy does not say how many.
const DEFAULT_ENTRIES: usize = 1_000;

/// The most entries in one list.
const MAX_ENTRIES: usize = 10_000;

/// The most bytes of one list.
pub(crate) const MAX_BYTES: usize = 1024 * 1024;

/// How deep folders are entered at most: deeper than any project's, and no danger to the stack.
pub(crate) const MAX_DEPTH: u32 = 32;

/// Names that are looked at for one list, whether they are shown or not.
const MAX_SEEN: usize = 100_000;

/// Names of folders that are not entered.
pub(crate) const MAX_SKIPPED: usize = 256;

/// How long a list may take; what has been found until then is the answer.
const TIME: Duration = Duration::from_secs(5);

/// What to list.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct Request {
    /// The folder, relative to the session's directory; empty for that itself.
    pub path: String,
    /// How deep: 1 for what stands in the folder itself.
    pub depth: Option<u32>,
    /// Names of folders that are not entered.
    pub skip: Vec<String>,
    /// Only what comes behind this path.
    pub after: Option<String>,
    /// The most entries.
    pub max_entries: Option<usize>,
}

#[derive(Serialize)]
struct Entry<'a> {
    path: &'a str,
    #[serde(rename = "type")]
    kind: Kind,
    /// Bytes, of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// A link, which is not entered.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    link: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    File,
    Directory,
}

/// Lists what a proxy with these rights may know of. Blocks.
pub(crate) fn list(directory: &Path, request: &Request, policy: &Policy) -> io::Result<Text> {
    let root = Dir::open_ambient_dir(directory, cap_std::ambient_authority())?;
    let path = clean(&request.path);
    let folder = match path.as_str() {
        "" => root.try_clone()?,
        path => {
            if !is_hidden(path) && is_hidden(&root.canonicalize(path)?.to_string_lossy()) {
                return Err(io::Error::other("it is a link to what begins with a dot"));
            }
            // Asked before opening, as for files: opening a pipe would wait.
            if !root.metadata(path)?.is_dir() {
                return Err(io::Error::other("it is not a folder"));
            }
            root.open_dir(path)?
        }
    };
    let mut walk = Walk {
        root: &root,
        policy,
        request,
        after: request.after.as_deref().map(clean),
        most: request.max_entries.unwrap_or(DEFAULT_ENTRIES).clamp(1, MAX_ENTRIES),
        until: Instant::now() + TIME,
        seen: 0,
        count: 0,
        text: r#"{"entries":["#.to_owned(),
        truncated: false,
    };
    walk.folder(&folder, &path, request.depth.unwrap_or(1).clamp(1, MAX_DEPTH))?;
    let Walk {
        mut text, truncated, ..
    } = walk;
    text.push_str(if truncated {
        r#"],"truncated":true}"#
    } else {
        r#"],"truncated":false}"#
    });
    Ok(Text::trusted(text))
}

/// A list under way.
struct Walk<'a> {
    root: &'a Dir,
    policy: &'a Policy,
    request: &'a Request,
    after: Option<String>,
    most: usize,
    until: Instant,
    seen: usize,
    count: usize,
    text: String,
    truncated: bool,
}

impl Walk<'_> {
    /// Lists a folder, and what is below it.
    fn folder(&mut self, folder: &Dir, path: &str, depth: u32) -> io::Result<()> {
        for (name, kind) in self.names(folder)? {
            if self.truncated {
                break;
            }
            if Instant::now() > self.until {
                self.truncated = true;
                break;
            }
            let path = match path {
                "" => name.clone(),
                path => format!("{path}/{name}"),
            };
            let (shown, below) = match &self.after {
                None => (true, true),
                Some(after) => (
                    order(&path, after) == Ordering::Greater,
                    order(&path, after) == Ordering::Greater || is_below(after, &path),
                ),
            };
            if !below && !shown {
                continue;
            }
            let Some(entry) = self.entry(&path, kind) else { continue };
            let enter = entry.kind == Kind::Directory && !entry.link && depth > 1 && !self.request.skip.contains(&name);
            if shown && !self.add(&entry) {
                break;
            }
            if enter {
                // One that is gone by now, or closed to this user, is not a fault of the whole list.
                let entered = folder
                    .open_dir(&name)
                    .and_then(|inner| self.folder(&inner, &path, depth - 1));
                if let Err(error) = entered {
                    tracing::debug!("`{}` is left out of a list: {error}", crate::log::named(&path));
                }
            }
        }
        Ok(())
    }

    /// The names in a folder that JSON can carry, in their order.
    fn names(&mut self, folder: &Dir) -> io::Result<Vec<(String, cap_std::fs::FileType)>> {
        let mut names = Vec::new();
        for entry in folder.entries()? {
            self.seen += 1;
            if self.seen > MAX_SEEN {
                self.truncated = true;
                break;
            }
            let entry = entry?;
            let Ok(kind) = entry.file_type() else { continue };
            if let Ok(name) = entry.file_name().into_string() {
                names.push((name, kind));
            }
        }
        names.sort_by(|(one, _), (two, _)| one.cmp(two));
        Ok(names)
    }

    /// What is to be said of a path, if the proxy may know of it.
    fn entry<'p>(&self, path: &'p str, kind: cap_std::fs::FileType) -> Option<Entry<'p>> {
        let may_be = self.policy.may_list(path) || self.policy.may_list_below(path);
        if !may_be {
            return None;
        }
        let link = kind.is_symlink();
        // This follows a link only if it stays inside.
        let metadata = self.root.metadata(path).ok()?;
        let kind = match metadata {
            ref file if file.is_file() => Kind::File,
            ref folder if folder.is_dir() => Kind::Directory,
            _ => return None,
        };
        let allowed = match kind {
            Kind::File => self.policy.may_list(path),
            Kind::Directory => self.policy.may_list_below(path),
        };
        let target_is_hidden = || {
            let target = self.root.canonicalize(path);
            target.is_ok_and(|target| is_hidden(&target.to_string_lossy()))
        };
        if !allowed || (link && !is_hidden(path) && target_is_hidden()) {
            return None;
        }
        let size = (kind == Kind::File).then(|| metadata.len());
        Some(Entry { path, kind, size, link })
    }

    /// Adds an entry; says whether there was room for it.
    fn add(&mut self, entry: &Entry<'_>) -> bool {
        let text = Text::of(entry).to_text();
        // With room for what closes the list.
        self.truncated = self.count >= self.most || self.text.len() + text.len() + 64 > MAX_BYTES;
        if !self.truncated {
            if self.count > 0 {
                self.text.push(',');
            }
            self.text.push_str(&text);
            self.count += 1;
        }
        !self.truncated
    }
}

/// A relative path without `.` parts.
fn clean(path: &str) -> String {
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    parts.collect::<Vec<_>>().join("/")
}

/// The order of a list: a folder before what is in it, and names by their bytes.
fn order(one: &str, two: &str) -> Ordering {
    one.split('/').cmp(two.split('/'))
}

fn is_below(path: &str, folder: &str) -> bool {
    path == folder || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

fn is_hidden(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with('.') && part != ".")
}

#[cfg(test)]
mod tests;
