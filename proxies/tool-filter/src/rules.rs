//! The rules: what is to be done about a server, or about a tool of one. Owns the configuration of them. To allow, a rule has to know; to
//! hide or deny, it need only suspect.

use consort_proxy::glob::{self, Case, Glob};
use serde::Deserialize;

use crate::strict::folded;

const MAX_RULES: usize = 256;
const MAX_PATTERNS: usize = 256;
const MAX_PATTERN: usize = 256;

/// Bytes of a name. A longer one is nobody's.
const MAX_NAME: usize = 256;

/// What is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    Allow,
    /// As if it were not there.
    Hide,
    /// It is there, but cannot be used.
    Deny,
}

/// The configuration.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    rules: Vec<RuleConfig>,
    otherwise: Action,
    pub(crate) unfiltered: Unfiltered,
    /// Methods beyond those of MCP that may pass.
    pub(crate) methods: Vec<String>,
}

/// What becomes of servers whose tools there are rules about, but that the agent does not reach over ACP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unfiltered {
    Keep,
    Drop,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            otherwise: Action::Allow,
            unfiltered: Unfiltered::Keep,
            methods: Vec::new(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleConfig {
    #[serde(rename = "do")]
    action: Action,
    #[serde(default)]
    server: Option<Names>,
    #[serde(default)]
    tool: Option<Names>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Names {
    One(String),
    Several(Vec<String>),
}

/// The rules in their order.
pub(crate) struct Rules {
    rules: Vec<Rule>,
    otherwise: Action,
}

struct Rule {
    action: Action,
    server: Option<Vec<Pattern>>,
    tool: Option<Vec<Pattern>>,
}

/// What is known of a server: all the names that it has had; nothing if it was never seen.
pub(crate) type Known<'k> = Option<&'k [String]>;

impl Rules {
    /// # Errors
    /// Which rule is wrong, and how.
    pub(crate) fn new(config: &Config) -> Result<Self, String> {
        if config.rules.len() > MAX_RULES {
            return Err(format!(
                "there are {} rules, but there can be {MAX_RULES} at most",
                config.rules.len()
            ));
        }
        let rules = config
            .rules
            .iter()
            .enumerate()
            .map(|(before, rule)| Rule::new(rule).map_err(|error| format!("rule {}: {error}", before + 1)));
        Ok(Self {
            rules: rules.collect::<Result<_, _>>()?,
            otherwise: config.otherwise,
        })
    }

    /// What is done about a server as a whole. One that has a tool which a rule allows stays.
    pub(crate) fn server(&self, server: Known<'_>) -> Action {
        let odd = server.is_some_and(|names| names.iter().any(|name| !is_plain(name, true)));
        let decided = self.rules.iter().find(|rule| match rule.action {
            Action::Allow => rule.knows_server(server, odd),
            Action::Hide | Action::Deny => rule.tool.is_none() && rule.suspects_server(server),
        });
        match decided {
            Some(rule) => rule.action,
            None if odd => Action::Hide,
            None => self.otherwise,
        }
    }

    /// What is done about a tool of a server.
    pub(crate) fn tool(&self, server: Known<'_>, tool: &str) -> Action {
        let odd = !is_plain(tool, false);
        let decided = self.rules.iter().find(|rule| match rule.action {
            Action::Allow => {
                let knows = match &rule.tool {
                    None => !odd,
                    Some(patterns) => patterns.iter().any(|pattern| pattern.knows(tool, odd)),
                };
                knows && rule.knows_server(server, false)
            }
            Action::Hide | Action::Deny => {
                let suspects = match &rule.tool {
                    None => true,
                    Some(patterns) => patterns.iter().any(|pattern| pattern.suspects(tool)),
                };
                suspects && rule.suspects_server(server)
            }
        });
        match decided {
            Some(rule) => rule.action,
            None if odd => Action::Hide,
            None => self.otherwise,
        }
    }

    /// Whether there are rules about tools of this server.
    pub(crate) fn are_about_tools_of(&self, server: Known<'_>) -> bool {
        self.rules
            .iter()
            .any(|rule| rule.tool.is_some() && rule.suspects_server(server))
    }
}

impl Rule {
    fn new(config: &RuleConfig) -> Result<Self, String> {
        if config.server.is_none() && config.tool.is_none() {
            return Err("it has neither `server` nor `tool`; for all that no rule names there is `otherwise`".into());
        }
        Ok(Self {
            action: config.action,
            server: config.server.as_ref().map(Names::patterns).transpose()?,
            tool: config.tool.as_ref().map(Names::patterns).transpose()?,
        })
    }

    fn knows_server(&self, server: Known<'_>, odd: bool) -> bool {
        match (&self.server, server) {
            (None, _) => !odd,
            (Some(_), None) => false,
            (Some(patterns), Some(names)) => names.iter().all(|name| {
                let odd = !is_plain(name, true);
                patterns.iter().any(|pattern| pattern.knows(name, odd))
            }),
        }
    }

    fn suspects_server(&self, server: Known<'_>) -> bool {
        match (&self.server, server) {
            (None, _) | (_, None) => true,
            (Some(patterns), Some(names)) => names.iter().any(|name| {
                let numbered = without_number(name);
                patterns
                    .iter()
                    .any(|pattern| pattern.suspects(name) || pattern.suspects(numbered))
            }),
        }
    }
}

impl Names {
    fn patterns(&self) -> Result<Vec<Pattern>, String> {
        let texts = match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Several(texts) => texts,
        };
        if texts.is_empty() || texts.len() > MAX_PATTERNS {
            return Err(format!(
                "a list of names has to have between 1 and {MAX_PATTERNS} of them"
            ));
        }
        match texts.iter().find(|text| text.is_empty() || text.len() > MAX_PATTERN) {
            Some(text) => Err(format!("{text:?} has to have between 1 and {MAX_PATTERN} bytes")),
            None => Ok(texts.iter().map(|text| Pattern::new(text)).collect()),
        }
    }
}

/// A pattern for names: `*` is any number of characters, `?` is one.
struct Pattern {
    text: String,
    exact: Glob,
    folded: Glob,
}

impl Pattern {
    fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            exact: Glob::new(text),
            folded: Glob::new(&folded(text)),
        }
    }

    /// Whether it means this very name. An odd one has to be written out.
    fn knows(&self, name: &str, odd: bool) -> bool {
        match odd {
            true => self.text == name && !glob::is_wild(name),
            false => self.exact.matches(name, Case::Exact),
        }
    }

    /// Whether it may mean this name, to somebody who does not regard case.
    fn suspects(&self, name: &str) -> bool {
        self.folded.matches(&folded(name), Case::Exact)
    }
}

/// Whether a name can be taken for no other: visible ASCII. Names of servers may have spaces inside.
fn is_plain(name: &str, spaces: bool) -> bool {
    let inside = |character: char| character.is_ascii_graphic() || (spaces && character == ' ');
    !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(inside) && name.trim() == name
}

/// A name without the number that is put behind one that is taken.
fn without_number(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((before, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => before,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use Action::{Allow, Deny, Hide};

    fn rules(config: Value) -> Rules {
        Rules::new(&serde_json::from_value(config).unwrap()).unwrap()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = rules(json!({"rules": [
            {"do": "allow", "server": "files", "tool": ["read_*", "list"]},
            {"do": "deny", "server": "files", "tool": "write_*"},
            {"do": "hide", "server": ["files", "evil*"]},
            {"do": "hide", "tool": "secret"},
        ]}));
        for (server, tool, action) in [
            ("files", "read_file", Allow),
            ("files", "list", Allow),
            ("files", "write_file", Deny),
            ("files", "delete", Hide),
            ("evil-3", "read_file", Hide),
            ("other", "secret", Hide),
            ("other", "write_file", Allow),
        ] {
            assert_eq!(rules.tool(Some(&names(&[server])), tool), action, "{server} {tool}");
        }
        for (server, action) in [("files", Allow), ("evil", Hide), ("other", Allow)] {
            assert_eq!(rules.server(Some(&names(&[server]))), action, "{server}");
        }
        assert!(rules.are_about_tools_of(Some(&names(&["other"]))));
    }

    #[test]
    fn what_is_not_known_is_suspected_and_not_allowed() {
        let rules = rules(json!({"otherwise": "deny", "rules": [
            {"do": "hide", "server": "evil"},
            {"do": "hide", "tool": "delete_*"},
            {"do": "allow", "server": "good", "tool": ["get", "größe", "p?t*"]},
        ]}));
        let good = names(&["good"]);
        for (tool, action) in [
            ("get", Allow),
            ("größe", Allow),
            ("put", Allow),
            ("GET", Deny),
            ("Delete_All", Hide),
            ("DELETE_", Hide),
            ("pät", Hide),
            ("ｇｅｔ", Hide),
            ("get ", Hide),
            ("get\u{200b}", Hide),
            ("", Hide),
            (&*"p".repeat(300), Hide),
        ] {
            assert_eq!(rules.tool(Some(&good), tool), action, "{tool}");
        }
        for (known, action) in [
            (&["good"][..], Allow),
            (&["good", "better"], Deny),
            (&["good", "evil"], Hide),
            (&["EVIL"], Hide),
            (&["evil-2"], Hide),
            (&["evil-x"], Deny),
            (&["g\u{200b}ood"], Hide),
        ] {
            assert_eq!(rules.server(Some(&names(known))), action, "{known:?}");
        }
        assert_eq!((rules.server(None), rules.tool(None, "get")), (Hide, Hide));
    }

    #[test]
    fn wrong_rules_are_named() {
        for (rule, said) in [
            (json!({"do": "deny"}), "rule 1: it has neither"),
            (json!({"do": "deny", "server": []}), "between 1 and 256"),
            (json!({"do": "deny", "tool": ""}), "between 1 and 256"),
            (json!({"do": "deny", "tool": "x".repeat(257)}), "between 1 and 256"),
        ] {
            let config = serde_json::from_value(json!({"rules": [rule]})).unwrap();
            let error = Rules::new(&config).err().unwrap();
            assert!(error.contains(said), "{error}");
        }
    }

    /// What a pattern means, without regard to time.
    fn meaning(pattern: &[char], text: &[char]) -> bool {
        match (pattern, text) {
            ([], text) => text.is_empty(),
            (['*', pattern @ ..], []) => meaning(pattern, text),
            (['*', rest @ ..], [_, later @ ..]) => meaning(rest, text) || meaning(pattern, later),
            (['?', pattern @ ..], [_, text @ ..]) => meaning(pattern, text),
            ([wanted, pattern @ ..], [found, text @ ..]) => wanted == found && meaning(pattern, text),
            (_, []) => false,
        }
    }

    proptest! {
        #[test]
        fn a_pattern_means_what_it_says(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            let known = Pattern::new(&pattern).knows(&text, false);
            prop_assert_eq!(known, meaning(&letters(&pattern), &letters(&text)));
        }
    }
}
