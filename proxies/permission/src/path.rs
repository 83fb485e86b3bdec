//! Paths of tool calls, and patterns for them. Owns what a path means without a look at any file: `.` and `..` are resolved by the
//! text alone, links are not known. Knows nothing of rules.

use consort_proxy::glob::{self, Case, Glob, Token};

/// A path as a tool call names it, with `.` and `..` resolved.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Path<'t> {
    absolute: bool,
    segments: Vec<&'t str>,
    /// Whether it goes up from where it begins, or has characters in it that not all programs take for the same thing.
    strange: bool,
}

impl<'t> Path<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let mut segments = Vec::new();
        let mut strange =
            text.is_empty() || text.contains(|character: char| character == '\\' || character.is_control());
        for segment in text.split('/') {
            match segment {
                "" | "." => {}
                ".." => strange |= segments.pop().is_none(),
                segment => segments.push(segment),
            }
        }
        Self {
            absolute: text.starts_with('/'),
            segments,
            strange,
        }
    }
}

/// A pattern for paths: in a segment `*` is any number of characters and `?` is one; a segment `**` is any number of segments.
#[derive(Debug)]
pub(crate) struct PathGlob {
    /// Begins with `/`, or (with `**`) anywhere.
    absolute: bool,
    segments: Vec<Token<Glob>>,
}

impl PathGlob {
    /// A pattern, relative to a directory if it does not say where it begins.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub(crate) fn new(pattern: &str, directory: Option<&str>) -> Result<Self, String> {
        let floats = pattern == "**" || pattern.starts_with("**/");
        let absolute = match (pattern.starts_with('/') || floats, directory) {
            (true, _) => pattern.to_owned(),
            (false, _) if pattern.starts_with('~') => {
                return Err(format!("{pattern:?}: `~` is not known here; write the whole path"));
            }
            (false, Some(directory)) => format!("{directory}/{pattern}"),
            (false, None) => {
                return Err(format!(
                    "{pattern:?} is relative, and to what is not known here; begin it with `/` or `**/`, or set `directory`"
                ));
            }
        };
        if pattern.contains('\\') {
            return Err(format!(
                "{pattern:?} has a `\\` in it; separate the parts of a path with `/`"
            ));
        }
        let mut segments = Vec::new();
        for segment in absolute.split('/') {
            match segment {
                "" | "." => {}
                ".." => return Err(format!("{pattern:?} has a `..` in it; write the path that it leads to")),
                "**" if segments.last() == Some(&Token::Many) => {}
                "**" => segments.push(Token::Many),
                glued if glued.contains("**") => {
                    return Err(format!("{pattern:?}: `**` has to stand alone between slashes"));
                }
                segment => segments.push(Token::One(Glob::new(segment))),
            }
        }
        Ok(Self {
            absolute: !floats,
            segments,
        })
    }

    /// Whether it matches a path for certain.
    pub(crate) fn matches(&self, path: &Path<'_>) -> bool {
        // One that floats matches a relative path wherever that begins.
        !path.strange && (path.absolute || !self.absolute) && self.run(path, Case::Exact, glob::whole)
    }

    /// Whether it may match a path: a relative one may begin anywhere, and there are file systems that ignore case.
    pub(crate) fn may_match(&self, path: &Path<'_>) -> bool {
        let unknown_begin = !path.absolute;
        let enter = |before, place| before == 0 && (place == 0 || unknown_begin);
        if self.run(path, Case::Ignored, enter) {
            return true;
        }
        // For some programs `\` separates too.
        let Some(windows) = path
            .segments
            .iter()
            .any(|segment| segment.contains('\\'))
            .then(|| path.segments.join("/"))
        else {
            return false;
        };
        let windows = windows.replace('\\', "/");
        self.run(&Path::new(&windows), Case::Ignored, |before, _| before == 0)
    }

    fn run(&self, path: &Path<'_>, case: Case, enter: impl Fn(usize, usize) -> bool) -> bool {
        glob::matches(&self.segments, &path.segments, enter, |glob, segment| {
            glob.matches(segment, case)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn glob(pattern: &str) -> PathGlob {
        PathGlob::new(pattern, Some("/project")).unwrap()
    }

    #[test]
    fn paths_match_by_segments() {
        for (pattern, path, matches) in [
            ("/a/*.rs", "/a/b.rs", true),
            ("/a/*.rs", "/a/b/c.rs", false),
            ("/a/**", "/a/b/c", true),
            ("/a/**", "/a", true),
            ("/a/**", "/ab", false),
            ("/a/**/c", "/a/c", true),
            ("/a/**/c", "/a/x/y/c", true),
            ("/a/?", "/a/é", true),
            ("/a//./b/", "/a/b", true),
            ("**/src/**", "/x/src/y", true),
            ("**/src/**", "src/y", true),
            ("**/src/**", "/x/srcs/y", false),
            ("**", "/etc/passwd", true),
            ("src/**", "/project/src/a", true),
            ("src/**", "src/a", false),
            ("/a/**", "/a/../etc/passwd", false),
            ("/a/**", "/b/../a/c", true),
            ("**/a", "../a", false),
            ("**/a", "/../a", false),
            ("**/a", "x/../../a", false),
            ("**", "", false),
            ("**", "/a\\b", false),
            ("**", "/a\nb", false),
            ("/a", "/A", false),
        ] {
            assert_eq!(glob(pattern).matches(&Path::new(path)), matches, "{pattern} {path}");
        }
    }

    #[test]
    fn what_may_match_is_wider() {
        for (pattern, path, matches) in [
            ("/a/*.rs", "/a/b.rs", true),
            ("/a/*.rs", "/a/b/c.rs", false),
            ("**/.env", "/x/.ENV", true),
            ("/home/me/.ssh/**", ".ssh/id", true),
            ("/home/me/.ssh/**", "../../.ssh/id", true),
            ("/home/me/.ssh/**", "/other/.ssh/id", false),
            ("/home/me/.ssh/**", "id", true),
            ("/etc/*", "/../etc/passwd", true),
            ("**/.env", "C:\\x\\.env", true),
            ("**/.env", "/x/env", false),
        ] {
            assert_eq!(glob(pattern).may_match(&Path::new(path)), matches, "{pattern} {path}");
        }
    }

    #[test]
    fn wrong_patterns_are_named() {
        for (pattern, named) in [
            ("src/**", "`directory`"),
            ("~/x", "`~`"),
            ("/a/../b", "`..`"),
            ("/a/b**", "stand alone"),
            ("/a\\b", "separate"),
        ] {
            let error = PathGlob::new(pattern, None).unwrap_err();
            assert!(
                error.contains(named) && error.contains(&format!("{pattern:?}")),
                "{error}"
            );
        }
    }

    proptest! {
        #[test]
        fn what_matches_for_certain_also_may_match(pattern in "/?([ab*?]{1,2}/|\\*\\*/){0,4}[ab*?]", path in "/?([ab.]{1,2}/){0,5}[ab]") {
            let Ok(glob) = PathGlob::new(&pattern, Some("/a")) else { return Ok(()); };
            let path = Path::new(&path);
            prop_assert!(!glob.matches(&path) || glob.may_match(&path));
        }

        #[test]
        fn nothing_outside_of_a_directory_is_in_it(path in "(\\.\\./|\\./|/|[ab]/){0,8}[ab.]{1,2}") {
            let path = format!("/a/{path}");
            let resolved = Path::new(&path);
            prop_assert_eq!(
                PathGlob::new("/a/**", None).unwrap().matches(&resolved),
                !resolved.strange && resolved.segments.first() == Some(&"a")
            );
        }
    }
}
