//! Commands of tool calls. Owns what a pattern may match in one: to allow, only a command that a shell does not take apart; to deny,
//! any part that a shell may run. Knows nothing of rules.

use consort_proxy::glob::{self, Case, Glob};

/// Besides letters and digits, what a shell takes as it is (or looks for files with). All else may begin another command.
const PLAIN: &str = " _-./,:=+@~'\"*?[]";
/// What begins another command, or may do so. `$` and the brackets stand for all that is replaced by something else.
const SEPARATORS: &str = ";|&\n\r(){}<>$`!";
/// Programs that run a command which stands behind them, with options of their own in between.
const RUNNERS: [&str; 28] = [
    "bash", "builtin", "busybox", "command", "dash", "doas", "env", "eval", "exec", "find", "fish", "ionice", "ksh",
    "nice", "nohup", "parallel", "setsid", "sh", "ssh", "stdbuf", "strace", "su", "sudo", "time", "timeout", "watch",
    "xargs", "zsh",
];
const SHELLS: [&str; 5] = ["bash", "dash", "ksh", "sh", "zsh"];

/// A pattern for commands and titles.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: String,
    glob: Glob,
    is_wild: bool,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            glob: Glob::new(&one_space(text)),
            is_wild: glob::is_wild(text),
        }
    }

    /// Whether no command can match this for certain, since one with such characters is only allowed word for word.
    pub(crate) fn allows_nothing(&self) -> bool {
        self.is_wild && plain(&self.text).is_none()
    }

    /// Whether it matches all of a text that is not a command.
    pub(crate) fn matches_text(&self, text: &str, case: Case) -> bool {
        self.glob.matches(&one_space(text), case)
    }
}

/// A command as a tool call names it.
#[derive(Debug)]
pub(crate) struct Command {
    text: String,
    /// The text, if no shell takes it apart.
    plain: Option<String>,
    /// What a shell may run of it.
    parts: Vec<Part>,
}

/// Text, and the characters in it that a command may begin with.
#[derive(Debug)]
struct Part {
    text: String,
    begins: Vec<bool>,
}

impl Command {
    /// A line for a shell.
    pub(crate) fn line(text: &str) -> Self {
        let unquoted = text.replace(['\'', '"', '\\', '^'], "");
        let mut parts: Vec<Part> = unquoted
            .split(|character| SEPARATORS.contains(character))
            .map(Part::simple)
            .collect();
        parts.extend([Part::sequence(text), Part::sequence(&unquoted)]);
        Self {
            text: text.to_owned(),
            plain: plain(text),
            parts,
        }
    }

    /// A program and its arguments. What a shell gets as a script is taken as if it stood there alone.
    pub(crate) fn words(words: &[&str]) -> Self {
        match words {
            [shell, "-c" | "-lc", script] if SHELLS.contains(&program(shell)) => Self::line(script),
            words => Self::line(&words.join(" ")),
        }
    }

    /// What a tool call says of itself where it has nothing but a title: agents put the command there, some of them as code.
    pub(crate) fn title(text: &str) -> Self {
        let code = text.strip_prefix('`').and_then(|text| text.strip_suffix('`'));
        Self::line(code.unwrap_or(text))
    }

    /// Whether the pattern matches for certain.
    pub(crate) fn matches(&self, pattern: &Pattern) -> bool {
        let plain = self.plain.as_deref();
        match pattern.is_wild {
            true => plain.is_some_and(|plain| pattern.glob.matches(plain, Case::Exact)),
            false => self.text == pattern.text || plain == Some(&pattern.text),
        }
    }

    /// Whether the pattern matches something that may be run.
    pub(crate) fn may_match(&self, pattern: &Pattern) -> bool {
        self.parts.iter().any(|part| part.matches(&pattern.glob))
    }
}

impl Part {
    /// A command without separators. It may begin behind assignments and programs that run others, and without its folder.
    fn simple(text: &str) -> Self {
        let text = one_space(text);
        let mut begins = vec![false; text.chars().count() + 1];
        let (mut at, mut is_begin, mut runs) = (0, true, false);
        for word in text.split(' ') {
            let length = word.chars().count();
            if is_begin || runs {
                begins[at] = true;
                begins[at + length - program(word).chars().count()] = true;
                runs |= RUNNERS.contains(&program(word));
                is_begin = word.contains('=');
            }
            at += length + 1;
        }
        Self { text, begins }
    }

    /// Several commands as they stand there, from any of them to the end.
    fn sequence(text: &str) -> Self {
        let text = one_space(text);
        let mut begins = vec![false; text.chars().count() + 1];
        let mut is_begin = true;
        for (at, character) in text.chars().enumerate() {
            begins[at] = is_begin;
            is_begin = SEPARATORS.contains(character) || is_begin && character == ' ';
        }
        Self { text, begins }
    }

    fn matches(&self, glob: &Glob) -> bool {
        let begins = |before: usize| self.begins.get(before).copied().unwrap_or(false);
        // `rm *` also means `rm`, behind which a shell may put what is not seen here.
        !self.text.is_empty()
            && (glob.matches_from(&self.text, Case::Ignored, begins)
                || glob.matches_from(&format!("{} ", self.text), Case::Ignored, begins))
    }
}

/// The text with single spaces, if no shell would do anything with it but run it. Going up to other folders is not plain: it would
/// lead out of those that a pattern names.
fn plain(text: &str) -> Option<String> {
    let is_plain = |character: char| character.is_alphanumeric() || PLAIN.contains(character);
    let goes_up = || {
        text.split(|character| " /,:='\"".contains(character))
            .any(|part| part == "..")
    };
    (!text.trim().is_empty() && text.chars().all(is_plain) && !goes_up()).then(|| one_space(text))
}

fn one_space(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A program's name without its folder.
fn program(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, command: &str) -> bool {
        Command::line(command).matches(&Pattern::new(pattern))
    }

    fn may_match(pattern: &str, command: &str) -> bool {
        Command::line(command).may_match(&Pattern::new(pattern))
    }

    #[test]
    fn only_plain_commands_match_a_wildcard() {
        for command in [
            "cargo test",
            "cargo test --all  -- 'a b' \"c\"",
            " cargo test src/*.rs x=1 ",
        ] {
            assert!(matches("cargo test*", command), "{command}");
        }
        for command in [
            "cargo test; rm -rf /",
            "cargo test && rm x",
            "cargo test | sh",
            "cargo test & x",
            "cargo test `x`",
            "cargo test $(x)",
            "cargo test $X",
            "cargo test > /etc/passwd",
            "cargo test < x",
            "cargo test\nrm x",
            "cargo test\rrm x",
            "cargo test \\\nx",
            "cargo test\0",
            "cargo test\u{2028}x",
            "cargo test {a,b}",
            "cargo test !x",
            "cargo test %X%",
            "cargo test ^& x",
            "cargo test ../x",
            "cargo test --path=..",
            "cargo tes",
            "",
        ] {
            assert!(!matches("cargo test*", command), "{command:?}");
            assert!(!matches("*", command) || command == "cargo tes", "{command:?}");
        }
    }

    #[test]
    fn what_stands_there_word_for_word_matches() {
        for command in ["make && make install", "../x", "echo $HOME", "a\nb"] {
            assert!(matches(command, command));
            assert!(!matches(command, &format!("{command} ")) && !matches(command, &format!("{command};x")));
        }
        assert!(Pattern::new("make* && x").allows_nothing());
        assert!(Pattern::new("../*").allows_nothing());
        assert!(!Pattern::new("make && x").allows_nothing());
        assert!(!Pattern::new("make *").allows_nothing());
    }

    #[test]
    fn a_part_is_found() {
        for command in [
            "rm -rf /",
            "rm",
            "RM x",
            "cd /x && rm -rf y",
            "true;rm x",
            "ls | xargs rm -f",
            "ls | xargs -0 -n 1 rm -f",
            "echo $(rm x)",
            "echo `rm x`",
            "(rm x)",
            "a\nrm x",
            "sudo -u root rm x",
            "A=1 B=2 rm x",
            "/bin/rm x",
            "sudo /bin/rm x",
            "\"rm\" x",
            "r\\m x",
            "r''m x",
            "bash -c 'rm x'",
            "/bin/sh -c \"cd y; rm x\"",
            "find . -name x -exec rm {} +",
            "rm$IFS-rf",
            "rm>x",
        ] {
            assert!(may_match("rm *", command), "{command}");
        }
        for command in ["git rm x", "echo rm x", "rmdir x", "ls", ""] {
            assert!(!may_match("rm *", command), "{command}");
        }
        assert!(may_match("curl * | sh*", "cd x && curl http://x -o - | sh -s"));
        assert!(may_match("git push*", "cd x; git  push --force"));
    }

    #[test]
    fn a_shell_s_script_is_the_command() {
        let pattern = Pattern::new("cargo test*");
        for words in [
            &["bash", "-lc", "cargo test x"][..],
            &["/bin/sh", "-c", "cargo test"],
            &["cargo", "test"],
        ] {
            assert!(Command::words(words).matches(&pattern), "{words:?}");
        }
        for words in [
            &["bash", "-lc", "cargo test; x"][..],
            &["bash", "-c", "x", "cargo test"],
            &["x", "-c", "cargo test"],
        ] {
            assert!(!Command::words(words).matches(&pattern), "{words:?}");
        }
        assert!(Command::title("`cargo test`").matches(&pattern));
        assert!(!Command::title("`cargo test` `x`").matches(&pattern));
    }

    proptest! {
        #[test]
        fn what_matches_for_certain_also_may_match(pattern in " ?[ab*=/;&'.][ab *=/;&'.]{0,5}", command in "[ab =/;&'.]{1,8}") {
            let (pattern, command) = (Pattern::new(&pattern), Command::line(&command));
            prop_assert!(!command.matches(&pattern) || command.may_match(&pattern), "{pattern:?} {command:?}");
        }

        #[test]
        fn nothing_that_a_shell_takes_apart_matches_a_wildcard(command in ".*[;|&$`<>()\n\\\\].*") {
            prop_assert!(!matches("*", &command));
        }

        #[test]
        fn a_part_between_separators_is_found(before in "[a-z =;]{0,8}", separator in "[;|&\n(]", after in "[;|&\n)]") {
            let command = format!("{before}{separator} rm x {after} y");
            prop_assert!(may_match("rm x", &command), "{command}");
        }
    }
}
