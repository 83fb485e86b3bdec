//! Conductors on top of each other, as one command that a client starts and an agent that stands at its end.

use crate::{AgentListener, consort, program};
use std::path::PathBuf;
use std::process::Command;

/// A command of several words.
pub type Words = Vec<String>;

/// A chain of conductors around a scripted agent.
pub struct Stack {
    /// What it is, for messages.
    pub name: &'static str,
    /// Whether a conductor in it parses what passes and writes it anew, so that not every byte stays.
    pub rewrites: bool,
    build: fn(Words) -> Words,
}

impl Stack {
    /// The same with a conductor in it that writes anew what passes.
    #[must_use]
    pub fn rewriting(self) -> Self {
        Self { rewrites: true, ..self }
    }

    /// The command of the outermost conductor, in front of this agent.
    pub fn command(&self, listener: &AgentListener) -> Command {
        let agent = listener
            .command()
            .into_iter()
            .map(|word| word.into_string().expect("test paths are UTF-8"))
            .collect();
        let words = (self.build)(agent);
        // Consort in the middle of a stack must not see the user's configuration either.
        let mut command = crate::command::command(&[] as &[&str]);
        let environment: Vec<_> = command
            .get_envs()
            .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)))
            .collect();
        command = Command::new(&words[0]);
        command.args(&words[1..]);
        for (name, value) in environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }
}

/// `consort run` with proxies in front of an agent.
pub fn run(proxies: &[PathBuf], agent: Words) -> Words {
    let mut words = with_proxies("run", proxies);
    // The environment of what is below is reduced.
    words.extend(["--env", "XDG_*", "--"].map(str::to_owned));
    words.extend(agent);
    words
}

/// `consort proxy` with proxies.
pub fn proxy(proxies: &[PathBuf]) -> Words {
    with_proxies("proxy", proxies)
}

fn with_proxies(mode: &str, proxies: &[PathBuf]) -> Words {
    let mut words = vec![text(consort()), mode.to_owned()];
    for proxy in proxies {
        words.extend(["--proxy".to_owned(), text(proxy.clone())]);
    }
    words
}

/// The scripted conductor in a dialect, with proxies and an agent.
pub fn scripted(dialect: &str, components: &[Words]) -> Words {
    let mut words = vec![text(program("scripted-conductor")), dialect.to_owned()];
    words.extend(
        components
            .iter()
            .map(|component| serde_json::to_string(component).expect("words are JSON")),
    );
    words
}

/// A path as a word.
pub fn text(path: PathBuf) -> String {
    path.into_os_string().into_string().expect("test paths are UTF-8")
}

/// A stack.
pub fn stack(name: &'static str, build: fn(Words) -> Words) -> Stack {
    Stack {
        name,
        rewrites: false,
        build,
    }
}

/// A command in one word, as a shell reads it.
pub fn quoted(words: &[String]) -> String {
    let quoted: Vec<String> = words
        .iter()
        .map(|word| format!("'{}'", word.replace('\'', "'\\''")))
        .collect();
    quoted.join(" ")
}
