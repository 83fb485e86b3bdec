//! What a line is searched for. Owns the patterns and their bounds: a pattern of the agent's must not keep the proxy busy.

use consort_proxy::glob::Glob;
use regex_lite::{Regex, RegexBuilder};

/// Bytes of a pattern.
const MAX_PATTERN: usize = 1_000;

/// Bytes of a compiled pattern: with those, a file of the largest size is searched in seconds.
const MAX_COMPILED: usize = 16 << 10;

/// Bytes of a line that are looked at; longer ones were not written by a person.
const MAX_LINE: usize = 4_000;

/// What to look for.
pub(crate) enum Wanted {
    Text(String),
    Pattern(Regex),
}

impl Wanted {
    /// # Errors
    /// What is wrong with it, for the agent's model.
    pub(crate) fn new(query: &str, regex: bool, ignore_case: bool) -> Result<Self, String> {
        if query.is_empty() || query.len() > MAX_PATTERN {
            return Err(format!("`query` has to have between 1 and {MAX_PATTERN} bytes"));
        }
        if query.contains('\n') {
            return Err("`query` cannot have line breaks: lines are searched one by one".into());
        }
        if !regex && !ignore_case {
            return Ok(Self::Text(query.to_owned()));
        }
        let pattern = match regex {
            true => query.to_owned(),
            false => regex_lite::escape(query),
        };
        RegexBuilder::new(&pattern)
            .case_insensitive(ignore_case)
            .size_limit(MAX_COMPILED)
            .nest_limit(30)
            .build()
            .map(Self::Pattern)
            .map_err(|error| format!("the regular expression cannot be used: {error}"))
    }

    /// The lines that have it: their numbers, from 1 on, and their texts.
    pub(crate) fn lines<'t>(&self, text: &'t str) -> impl Iterator<Item = (usize, &'t str)> {
        let numbered = text.lines().enumerate().map(|(before, line)| (before + 1, line));
        numbered.filter(|(_, line)| {
            let line = &line[..line.floor_char_boundary(MAX_LINE)];
            match self {
                Self::Text(wanted) => line.contains(wanted),
                Self::Pattern(pattern) => pattern.is_match(line),
            }
        })
    }
}

/// A pattern for names of files.
///
/// # Errors
/// What is wrong with it, for the agent's model.
pub(crate) fn names(pattern: &str) -> Result<Glob, String> {
    match pattern.is_empty() || pattern.len() > MAX_PATTERN || pattern.contains('/') {
        true => Err("`files` has to be a pattern for names, such as `*.rs`; use `path` for a folder".into()),
        false => Ok(Glob::new(pattern)),
    }
}

#[cfg(test)]
mod tests {
    use consort_proxy::glob::Case;

    use super::*;

    fn found(query: &str, regex: bool, ignore_case: bool, text: &str) -> Vec<usize> {
        let wanted = Wanted::new(query, regex, ignore_case).unwrap();
        wanted.lines(text).map(|(number, _)| number).collect()
    }

    #[test]
    fn lines_are_found_by_text_and_by_pattern() {
        let text = "a.c\nabc\r\nABC\n\nü.";
        assert_eq!(found("a.c", false, false, text), [1]);
        assert_eq!(found("a.c", true, false, text), [1, 2]);
        assert_eq!(found("a.c", true, true, text), [1, 2, 3]);
        assert_eq!(found("A.C", false, true, text), [1]);
        assert_eq!(found("^$", true, false, text), [4]);
        assert_eq!(found("c$", true, false, text), [1, 2], "a line has no end of its own");
        let long = format!("{}needle", "ü".repeat(4_000));
        assert_eq!(found("needle", false, false, &long), [0; 0]);
    }

    #[test]
    fn patterns_that_are_none_or_too_much_are_named() {
        for (query, regex, said) in [
            ("", false, "between 1"),
            (&*"x".repeat(1_001), false, "between 1"),
            ("a\nb", false, "line breaks"),
            ("(", true, "cannot be used"),
            ("a{1000}{1000}", true, "cannot be used"),
            (&*"(".repeat(200), true, "cannot be used"),
        ] {
            let error = Wanted::new(query, regex, false).err().unwrap();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn globs_match_names() {
        for (pattern, name, matches) in [
            ("*.rs", "a.rs", true),
            ("*.rs", "a.rs.bak", false),
            ("a?c*", "abcd", true),
            ("a?c*", "ac", false),
            ("*a*b", "xaxb", true),
            ("*a*b", "xbxa", false),
            ("**", "", true),
            ("?", "ü", true),
        ] {
            let matched = names(pattern).unwrap().matches(name, Case::Exact);
            assert_eq!(matched, matches, "{pattern} {name}");
        }
        assert!(!names(&"*a".repeat(400)).unwrap().matches(&"a".repeat(399), Case::Exact));
    }

    #[test]
    fn patterns_for_names_have_no_folders_and_an_end() {
        for (pattern, good) in [
            ("*.rs", true),
            ("src/*.rs", false),
            ("", false),
            (&*"x".repeat(1_001), false),
        ] {
            assert_eq!(names(pattern).is_ok(), good, "{pattern}");
        }
    }
}
