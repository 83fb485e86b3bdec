//! What counts as a secret: the table of formats, and the search for them. Knows nothing of messages or chunks.
//!
//! All rules are one lazy DFA, because a DFA can also say whether text that ends here may go on to be a match: that is what
//! has to be held back of a stream. Patterns are ASCII: `\w`, `\d`, `\b` and `(?i)` know ASCII letters only.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use regex_automata::hybrid::dfa;
use regex_automata::hybrid::regex::{Cache, Regex};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

/// Memory for the states of each of the two DFAs; they begin anew when it is full.
const DFA_BYTES: usize = 1 << 20;
/// Memory for configured patterns before anything is searched; a pattern that needs more is a mistake.
const NFA_BYTES: usize = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The match is the secret.
    Token,
    /// The match only says that a secret follows.
    Label(Label),
    /// The match begins a PEM block.
    Block,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    /// `password=`, `"api_key": "`.
    Assignment,
    /// `Bearer `.
    Authorization,
    /// `://user:`, with a password if an `@` follows.
    Url,
}

impl Label {
    /// Whether a character can be part of the value.
    pub(crate) fn takes(self, character: char) -> bool {
        match self {
            Self::Assignment => !character.is_whitespace() && !"\"'`<>(){}[],;&|\\".contains(character),
            Self::Authorization => character.is_ascii_alphanumeric() || "._~+/=-".contains(character),
            Self::Url => !character.is_whitespace() && !"\"'`<>/@\\".contains(character),
        }
    }

    /// Whether a value is a secret rather than code or a placeholder. `label` is what stands before it, `rest` what follows.
    pub(crate) fn is_secret(self, label: &str, value: &str, rest: &str) -> bool {
        let digits = value.bytes().any(|byte| byte.is_ascii_digit());
        match self {
            // A variable (`token: String`, `password=$PASSWORD`, `api_key = key()`) is no secret, a literal with a digit is, and so is
            // any longer one in quotes.
            Self::Assignment => {
                let quoted = label.ends_with(['"', '\'', '`']);
                let call = rest.starts_with(['(', '[', '{']);
                let variable = value.starts_with(['$', '%']);
                !call && !variable && value.len() >= 6 && (digits || quoted && value.len() >= 8)
            }
            Self::Authorization => digits && value.len() >= 16,
            Self::Url => !value.is_empty() && rest.starts_with('@'),
        }
    }
}

/// Name, kind and pattern. Where two match at the same place, the first wins.
const BUILT_IN: &[(&str, Kind, &str)] = &[
    (
        "private-key",
        Kind::Block,
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----",
    ),
    (
        "github-token",
        Kind::Token,
        r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})",
    ),
    (
        "gitlab-token",
        Kind::Token,
        r"\bgl(?:pat|oas|dt|rt|cbt|ptt|ft|soat|imt|agent)-[A-Za-z0-9_-]{20,}",
    ),
    ("stripe-key", Kind::Token, r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    ("api-key", Kind::Token, r"\bsk-[A-Za-z0-9_-]{20,}"),
    ("aws-key", Kind::Token, r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("slack-token", Kind::Token, r"\b(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,}"),
    (
        "slack-webhook",
        Kind::Token,
        r"\bhttps://hooks\.slack\.com/services/[A-Za-z0-9/_-]{20,}",
    ),
    (
        "google-key",
        Kind::Token,
        r"\b(?:AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,})",
    ),
    ("npm-token", Kind::Token, r"\bnpm_[A-Za-z0-9]{36,}"),
    ("pypi-token", Kind::Token, r"\bpypi-[A-Za-z0-9_-]{50,}"),
    ("huggingface-token", Kind::Token, r"\bhf_[A-Za-z0-9]{30,}"),
    (
        "sendgrid-key",
        Kind::Token,
        r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    ),
    (
        "jwt",
        Kind::Token,
        r"\beyJ[A-Za-z0-9_-]{6,}\.eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]*",
    ),
    (
        "token",
        Kind::Label(Label::Authorization),
        r"(?i)\b(?:bearer|basic)[ \t]{1,4}",
    ),
    ("url-password", Kind::Label(Label::Url), r#"://[^\s/:@"'`<>]{1,64}:"#),
    (
        "secret",
        Kind::Label(Label::Assignment),
        concat!(
            r"(?i)(?:passwords?|passwd|pwd|secret|secret[_-]?key|api[_-]?key|access[_-]?key(?:[_-]?id)?|auth[_-]?key|private[_-]?key",
            r#"|(?:auth|access|refresh|session|api|bearer|bot|client)?[_-]?token)(?:\\?["'`])?[ \t]{0,4}(?:=|:|:=|=>)[ \t]{0,4}(?:\\?["'`])?"#
        ),
    ),
];

/// A place where a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) rule: usize,
}

/// The rules in force.
pub(crate) struct Rules {
    rules: Vec<(String, Kind)>,
    regex: Regex,
    cache: RefCell<Cache>,
}

impl Rules {
    /// The built-in rules but those in `off`, and configured patterns by name.
    ///
    /// # Errors
    /// A sentence that names the name or pattern that is no good.
    pub(crate) fn new(off: &[String], configured: &BTreeMap<String, String>) -> Result<Self, String> {
        if let Some(unknown) = off
            .iter()
            .find(|name| !BUILT_IN.iter().any(|(built_in, ..)| built_in == name))
        {
            let known: Vec<_> = BUILT_IN.iter().map(|(name, ..)| *name).collect();
            return Err(format!(
                "off: there is no rule {unknown:?}; the rules are {}",
                known.join(", ")
            ));
        }
        for (name, pattern) in configured {
            let bad = |reason: &dyn fmt::Display| Err(format!("patterns: {name:?} is not usable: {reason}"));
            match build(&[pattern.as_str()]) {
                Err(error) => return bad(&error),
                Ok(regex) if regex.is_match(&mut regex.create_cache(), "") => {
                    return bad(&"it matches where there is no text at all");
                }
                Ok(_) => {}
            }
        }
        // Whoever configures a pattern means it: it comes first.
        let own = configured
            .iter()
            .map(|(name, pattern)| (name.as_str(), Kind::Token, pattern.as_str()));
        let built_in = BUILT_IN
            .iter()
            .copied()
            .filter(|(name, ..)| !off.iter().any(|off| off == name));
        let all: Vec<_> = own.chain(built_in).collect();
        let patterns: Vec<_> = all.iter().map(|(.., pattern)| *pattern).collect();
        let regex = build(&patterns).map_err(|error| format!("patterns: {error}"))?;
        let cache = RefCell::new(regex.create_cache());
        Ok(Self {
            rules: all.iter().map(|(name, kind, _)| ((*name).to_owned(), *kind)).collect(),
            regex,
            cache,
        })
    }

    pub(crate) fn kind(&self, found: Found) -> Kind {
        self.rules.get(found.rule).map_or(Kind::Token, |(_, kind)| *kind)
    }

    /// What stands in the place of a secret.
    pub(crate) fn mask(&self, found: Found) -> String {
        format!(
            "[redacted:{}]",
            self.rules.get(found.rule).map_or("secret", |(name, _)| name)
        )
    }

    /// The first match at or behind `from`, on character boundaries.
    pub(crate) fn find(&self, text: &str, from: usize) -> Option<Found> {
        self.search(text, Input::new(text).range(from..))
    }

    /// A match that begins exactly at `from`.
    pub(crate) fn find_at(&self, text: &str, from: usize) -> Option<Found> {
        self.search(text, Input::new(text).range(from..).anchored(Anchored::Yes))
    }

    fn search(&self, text: &str, input: Input<'_>) -> Option<Found> {
        // The search has no reason to give up: no byte makes it quit, and it may clear its cache as often as it likes.
        let found = self.regex.try_search(&mut self.cache.borrow_mut(), &input).ok()??;
        let (mut start, mut end) = (found.start(), found.end());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        while !text.is_char_boundary(end) {
            end += 1;
        }
        Some(Found {
            start: start.max(input.start()),
            end,
            rule: found.pattern().as_usize(),
        })
    }

    /// The first position in `from..=to` from where all the text to its end may be the beginning of a match, or of a longer one.
    pub(crate) fn first_open(&self, text: &str, from: usize, to: usize) -> Option<usize> {
        let mut cache = self.cache.borrow_mut();
        let open = |at: usize, cache: &mut Cache| self.is_open(text, at, cache.forward_mut());
        (from..=to.min(text.len().saturating_sub(1))).find(|at| text.is_char_boundary(*at) && open(*at, &mut cache))
    }

    fn is_open(&self, text: &str, at: usize, cache: &mut dfa::Cache) -> bool {
        let forward = self.regex.forward();
        let input = Input::new(text).range(at..).anchored(Anchored::Yes);
        let Ok(mut state) = forward.start_state_forward(cache, &input) else {
            return true;
        };
        for byte in text.as_bytes().iter().skip(at) {
            match forward.next_state(cache, state, *byte) {
                Ok(next) if next.is_dead() => return false,
                Ok(next) => state = next,
                Err(_) => return true,
            }
        }
        true
    }
}

fn build(patterns: &[&str]) -> Result<Regex, String> {
    Regex::builder()
        .syntax(syntax::Config::new().unicode(false).utf8(false))
        .thompson(thompson::Config::new().utf8(false).nfa_size_limit(Some(NFA_BYTES)))
        .dfa(
            dfa::Config::new()
                .cache_capacity(DFA_BYTES)
                .skip_cache_capacity_check(true),
        )
        .build_many(patterns)
        .map_err(|error| {
            // The reason of a syntax error is two errors down, and of several lines; the last says what is wrong.
            let mut error: &dyn std::error::Error = &error;
            while let Some(source) = error.source() {
                error = source;
            }
            let text = error.to_string();
            text.lines()
                .last()
                .unwrap_or_default()
                .trim_start_matches("error: ")
                .to_owned()
        })
}
