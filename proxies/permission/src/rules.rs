//! Rules: how the configuration writes them, and what they say of a tool call. Owns when a rule matches; knows nothing of messages.

use std::fmt;

use consort_proxy::Json;
use consort_proxy::glob::Case;
use serde::Deserialize;
use serde::de::{self, DeserializeOwned, IgnoredAny, SeqAccess, Visitor, value};

use crate::call::{Call, Field, Kind};
use crate::command::{Command, Pattern};
use crate::options::{Decision, Wanted};
use crate::path::{Path, PathGlob};

/// More rules than anyone writes, few enough to be tried on every question.
const MAX_RULES: usize = 256;
const MAX_PATTERN: usize = 256;

/// The configuration.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    /// Read one by one, so that a mistake is told with the rule's number.
    rules: IgnoredAny,
    default: Decision,
    directory: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rules: IgnoredAny,
            default: Decision::Ask,
            directory: None,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleConfig {
    decide: Decision,
    kind: Option<Several<Kind>>,
    title: Option<Several<String>>,
    path: Option<Several<String>>,
    command: Option<Several<String>>,
    option: Option<String>,
    #[serde(default)]
    remember: bool,
}

/// One, or a list of them.
struct Several<T>(Vec<T>);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Several<T> {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrList<T>(std::marker::PhantomData<T>);

        impl<'de, T: DeserializeOwned> Visitor<'de> for OneOrList<T> {
            type Value = Several<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or a list of strings")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                T::deserialize(value::StrDeserializer::new(text)).map(|one| Several(vec![one]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(value::SeqAccessDeserializer::new(list)).map(Several)
            }
        }

        deserializer.deserialize_any(OneOrList(std::marker::PhantomData))
    }
}

/// A rule. A condition without patterns is none.
#[derive(Debug)]
struct Rule {
    wanted: Wanted,
    kinds: Vec<Kind>,
    titles: Vec<Pattern>,
    paths: Vec<PathGlob>,
    commands: Vec<Pattern>,
}

/// Whether something matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    No,
    /// The tool call does not say enough.
    Perhaps,
    Yes,
}

/// All rules.
#[derive(Debug)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
    default: Wanted,
}

/// What the rules say of a tool call.
#[derive(Debug)]
pub(crate) enum Verdict<'r> {
    /// The rule with this number (the first is 1) matches.
    Rule(usize, &'r Wanted),
    /// A rule allows it, but the call does not say whether one before that, with this number, forbids it.
    Unclear(usize),
    /// No rule matches.
    Default(&'r Wanted),
}

impl Rules {
    /// # Errors
    /// A sentence for the user that says what is wrong with the configuration.
    pub(crate) fn new(config: &Json) -> Result<Self, String> {
        let Config { default, directory, .. } = config.decode()?;
        let count = match config.size("/rules") {
            Some(_) => config.decode_at::<Vec<IgnoredAny>>("/rules")?.len(),
            None => 0,
        };
        if default == Decision::Allow {
            return Err("default: \"allow\" would allow what no rule is about; say \"ask\" or \"deny\"".to_owned());
        }
        if count > MAX_RULES {
            return Err(format!("there are {count} rules; {MAX_RULES} are the most"));
        }
        if let Some(directory) = &directory
            && (PathGlob::new(directory, None).is_err() || directory.contains(['*', '?']))
        {
            return Err(format!(
                "directory: {directory:?} is not an absolute path without `..` and wildcards"
            ));
        }
        let mut rules = Vec::new();
        for index in 0..count {
            let rule: Result<RuleConfig, _> = config.decode_at(&format!("/rules/{index}"));
            let rule = rule
                .map_err(String::from)
                .and_then(|rule| Rule::new(rule, directory.as_deref()));
            rules.push(rule.map_err(|error| format!("rule {}: {error}", index + 1))?);
        }
        let default = Wanted {
            decision: default,
            option: None,
            remember: false,
        };
        Ok(Self { rules, default })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub(crate) fn judge(&self, call: &Call) -> Verdict<'_> {
        let mut unclear = None;
        for (number, rule) in (1..).zip(&self.rules) {
            match (rule.matches(call), rule.wanted.decision, unclear) {
                (Match::Yes, Decision::Allow, Some(earlier)) => return Verdict::Unclear(earlier),
                (Match::Yes, ..) => return Verdict::Rule(number, &rule.wanted),
                (Match::Perhaps, Decision::Deny | Decision::Ask, None) => unclear = Some(number),
                (Match::Perhaps | Match::No, ..) => {}
            }
        }
        Verdict::Default(&self.default)
    }
}

impl Rule {
    fn new(config: RuleConfig, directory: Option<&str>) -> Result<Self, String> {
        let path = |pattern: String| PathGlob::new(&pattern, directory).map_err(|error| format!("path: {error}"));
        let wanted = Wanted {
            decision: config.decide,
            option: config.option,
            remember: config.remember,
        };
        let rule = Self {
            wanted,
            kinds: condition("kind", config.kind)?,
            titles: patterns("title", config.title)?
                .iter()
                .map(|title| Pattern::new(title))
                .collect(),
            paths: patterns("path", config.path)?
                .into_iter()
                .map(path)
                .collect::<Result<_, _>>()?,
            commands: patterns("command", config.command)?
                .iter()
                .map(|command| Pattern::new(command))
                .collect(),
        };
        if rule.kinds.is_empty() && rule.titles.is_empty() && rule.paths.is_empty() && rule.commands.is_empty() {
            return Err("it has no condition; name a kind, title, path or command, or set `default`".to_owned());
        }
        if rule.wanted.decision == Decision::Ask && (rule.wanted.option.is_some() || rule.wanted.remember) {
            return Err("where the client is asked, `option` and `remember` mean nothing".to_owned());
        }
        if rule.wanted.decision == Decision::Allow && rule.commands.iter().any(Pattern::allows_nothing) {
            return Err(
                "command: a pattern with a wildcard allows only commands without characters that a shell \
                        takes apart (such as `;`, `|`, `&`, `$`, `>`, `\\`) and without `..`, so this one allows \
                        nothing; write the command without a wildcard"
                    .to_owned(),
            );
        }
        Ok(rule)
    }

    fn matches(&self, call: &Call) -> Match {
        let all = match self.wanted.decision {
            Decision::Allow => [
                self.allows_kind(&call.kind),
                self.allows_title(call),
                self.allows_paths(call),
                self.allows_commands(call),
            ],
            Decision::Deny | Decision::Ask => [
                self.concerns_kind(&call.kind),
                self.concerns_title(call),
                self.concerns_paths(call),
                self.concerns_commands(call),
            ],
        };
        all.into_iter().min().unwrap_or(Match::No)
    }

    /// A kind that does more than look has to be named, unless the rule says what command it is.
    fn allows_kind(&self, kind: &Field<Kind>) -> Match {
        let Field::Is(kind) = kind else {
            return Match::No;
        };
        certain(match (self.kinds.is_empty(), self.commands.is_empty()) {
            (false, _) => self.kinds.contains(kind),
            (true, false) => *kind == Kind::Execute,
            (true, true) => matches!(kind, Kind::Read | Kind::Search | Kind::Think),
        })
    }

    fn allows_title(&self, call: &Call) -> Match {
        if self.titles.is_empty() {
            return Match::Yes;
        }
        let Field::Is(title) = &call.title else {
            return Match::No;
        };
        // Agents make titles out of commands.
        let command = (call.kind == Field::Is(Kind::Execute)).then(|| Command::title(title));
        certain(self.titles.iter().any(|pattern| match &command {
            Some(command) => command.matches(pattern),
            None => pattern.matches_text(title, Case::Exact),
        }))
    }

    fn allows_paths(&self, call: &Call) -> Match {
        let found = &call.found;
        let matches = |path: &String| {
            let path = Path::new(path);
            self.paths.iter().any(|pattern| pattern.matches(&path))
        };
        certain(
            self.paths.is_empty() || !found.paths.is_empty() && !found.more_paths && found.paths.iter().all(matches),
        )
    }

    fn allows_commands(&self, call: &Call) -> Match {
        let found = &call.found;
        let matches = |command: &Command| self.commands.iter().any(|pattern| command.matches(pattern));
        certain(
            self.commands.is_empty()
                || !found.commands.is_empty() && !found.more_commands && found.commands.iter().all(matches),
        )
    }

    fn concerns_kind(&self, kind: &Field<Kind>) -> Match {
        match kind {
            _ if self.kinds.is_empty() => Match::Yes,
            Field::Is(kind) => certain(self.kinds.contains(kind)),
            // What version 1 of ACP says of kinds that one does not know.
            Field::Unknown => certain(self.kinds.contains(&Kind::Other)),
            Field::Absent => Match::Perhaps,
        }
    }

    fn concerns_title(&self, call: &Call) -> Match {
        match &call.title {
            _ if self.titles.is_empty() => Match::Yes,
            Field::Is(title) => certain(self.titles.iter().any(|pattern| {
                pattern.matches_text(title, Case::Ignored)
                    || call.kind == Field::Is(Kind::Execute) && Command::title(title).may_match(pattern)
            })),
            Field::Absent | Field::Unknown => Match::Perhaps,
        }
    }

    fn concerns_paths(&self, call: &Call) -> Match {
        let found = &call.found;
        let concerns = |path: &String| {
            let path = Path::new(path);
            self.paths.iter().any(|pattern| pattern.may_match(&path))
        };
        // A call that works on files has a path even if it does not say so.
        let is_hidden = || match &call.kind {
            Field::Is(Kind::Read | Kind::Edit | Kind::Delete | Kind::Move | Kind::Search) => found.paths.is_empty(),
            Field::Is(Kind::Execute | Kind::Think | Kind::Fetch | Kind::SwitchMode) => false,
            Field::Is(Kind::Other) | Field::Absent | Field::Unknown => found.paths.is_empty() && !call.has_input,
        };
        match () {
            () if self.paths.is_empty() || found.paths.iter().any(concerns) => Match::Yes,
            () if found.more_paths || is_hidden() => Match::Perhaps,
            () => Match::No,
        }
    }

    fn concerns_commands(&self, call: &Call) -> Match {
        let found = &call.found;
        let concerns = |command: &Command| self.commands.iter().any(|pattern| command.may_match(pattern));
        let executes = call.kind == Field::Is(Kind::Execute);
        let is_hidden = || match &call.kind {
            Field::Is(Kind::Execute) => found.commands.is_empty(),
            Field::Is(Kind::Other) | Field::Absent | Field::Unknown => found.commands.is_empty() && !call.has_input,
            Field::Is(_) => false,
        };
        match () {
            () if self.commands.is_empty() || found.commands.iter().any(concerns) => Match::Yes,
            () if executes && call.title_as_command().is_some_and(|title| concerns(&title)) => Match::Yes,
            () if found.more_commands || is_hidden() => Match::Perhaps,
            () => Match::No,
        }
    }
}

fn certain(matches: bool) -> Match {
    match matches {
        true => Match::Yes,
        false => Match::No,
    }
}

/// A condition that is there has something in it.
fn condition<T>(name: &str, several: Option<Several<T>>) -> Result<Vec<T>, String> {
    match several {
        None => Ok(Vec::new()),
        Some(Several(list)) if list.is_empty() => Err(format!("{name}: the list is empty, so it would never match")),
        Some(Several(list)) => Ok(list),
    }
}

fn patterns(name: &str, several: Option<Several<String>>) -> Result<Vec<String>, String> {
    let patterns = condition(name, several)?;
    for pattern in &patterns {
        if pattern.trim().is_empty() {
            return Err(format!("{name}: a pattern is empty"));
        }
        if pattern.len() > MAX_PATTERN {
            return Err(format!(
                "{name}: a pattern has {} bytes; {MAX_PATTERN} are the most",
                pattern.len()
            ));
        }
    }
    Ok(patterns)
}
