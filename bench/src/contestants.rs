//! What is compared, and the command line of each with so many proxies.

use crate::components;
use anyhow::Context;
use serde::Serialize;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Something that stands between a client and the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Contestant {
    /// Nothing at all.
    Direct,
    /// Two threads that copy bytes.
    Relay,
    Consort,
    /// The reference conductor, with proxies that are processes.
    Reference,
}

impl Contestant {
    pub(crate) const ALL: [Self; 4] = [Self::Direct, Self::Relay, Self::Consort, Self::Reference];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "agent directly",
            Self::Relay => "plain relay",
            Self::Consort => "Consort",
            Self::Reference => "reference",
        }
    }

    /// Whether there can be proxies in it.
    pub(crate) fn has_proxies(self) -> bool {
        matches!(self, Self::Consort | Self::Reference)
    }
}

/// What each proxy of a chain edits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edits {
    /// The text of each chunk.
    Updates,
    /// Each prompt: a block is added.
    Prompts,
    /// Both, and questions for permission.
    All,
    /// Nothing of what is sent.
    Nothing,
}

impl Edits {
    fn name(self) -> &'static str {
        match self {
            Self::Updates => "updates",
            Self::Prompts => "prompts",
            Self::All => "all",
            Self::Nothing => "none",
        }
    }

    pub(crate) fn updates(self) -> bool {
        matches!(self, Self::Updates | Self::All)
    }

    pub(crate) fn prompts(self) -> bool {
        matches!(self, Self::Prompts | Self::All)
    }

    pub(crate) fn questions(self) -> bool {
        self == Self::All
    }

    /// The guest for it and its section of `consort.toml`.
    fn guest(self) -> (&'static str, &'static str) {
        match self {
            Self::Updates => ("arrow", ""),
            Self::Prompts => ("marker", "config = { prompts = true }"),
            Self::All => (
                "marker",
                "config = { prompts = true, updates = true, permissions = true }\ngrant = [\"decide-permissions\"]",
            ),
            // It takes part in something, but that never comes in these measures.
            Self::Nothing => (
                "marker",
                "config = { permissions = true }\ngrant = [\"decide-permissions\"]",
            ),
        }
    }
}

/// The programs that are needed.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// This one, which is the agent and the relay as well.
    pub(crate) own: PathBuf,
    pub(crate) consort: PathBuf,
    pub(crate) many: PathBuf,
    pub(crate) reference: PathBuf,
    pub(crate) native: PathBuf,
    /// The folder with the guests and the copies of them.
    pub(crate) guests: PathBuf,
    /// The folder for what the measured programs write.
    pub(crate) work: PathBuf,
}

impl Programs {
    /// The component of a chain's proxy, counted from 1.
    pub(crate) fn component(&self, guest: &str, number: usize) -> PathBuf {
        components::file(&self.guests, guest, number)
    }

    /// Consort's command with its folders in ours, and without anything of the user's.
    pub(crate) fn consort(&self, cache: &Path) -> Command {
        let mut command = Command::new(&self.consort);
        self.folders(&mut command, cache);
        command
    }

    pub(crate) fn folders(&self, command: &mut Command, cache: &Path) {
        command
            .env("XDG_CACHE_HOME", cache)
            .env("XDG_STATE_HOME", self.work.join("state"))
            .env("XDG_CONFIG_HOME", self.work.join("config"))
            .env_remove("CONSORT_LOG");
    }

    /// Compiled guests of earlier chains.
    pub(crate) fn cache(&self) -> PathBuf {
        self.work.join("cache")
    }

    /// The command line of a chain.
    pub(crate) fn chain(&self, contestant: Contestant, proxies: usize, edits: Edits) -> anyhow::Result<Command> {
        Ok(match contestant {
            Contestant::Direct => {
                let mut command = Command::new(&self.own);
                command.arg("agent");
                command
            }
            Contestant::Relay => {
                let mut command = Command::new(&self.own);
                command.arg("relay").arg("--").arg(&self.own).arg("agent");
                command
            }
            Contestant::Consort => {
                let mut command = self.consort(&self.cache());
                command.arg("run");
                match proxies {
                    0 => command.arg("--no-config"),
                    _ => command.arg("--config").arg(self.configuration(proxies, edits)?),
                };
                command.arg("--").arg(&self.own).arg("agent");
                command
            }
            Contestant::Reference => {
                let mut command = Command::new(&self.reference);
                command.arg("agent");
                for _ in 0..proxies {
                    command.arg(quoted(&self.native, edits.name())?);
                }
                command.arg(quoted(&self.own, "agent")?);
                command
            }
        })
    }

    fn configuration(&self, proxies: usize, edits: Edits) -> anyhow::Result<PathBuf> {
        let file = self.work.join(format!("{}-{proxies}.toml", edits.name()));
        let (guest, section) = edits.guest();
        let mut text = String::new();
        for number in 1..=proxies {
            let component = self.component(guest, number);
            let component = component.to_str().context("the guests' path is no UTF-8")?;
            text += &format!("[[proxies]]\nname = \"proxy-{number}\"\nfile = {component:?}\n{section}\n\n");
        }
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(file)
    }
}

/// A command line as the reference conductor takes it.
fn quoted(program: &Path, argument: &str) -> anyhow::Result<OsString> {
    let program = program.to_str().context("a program's path is no UTF-8")?;
    Ok(format!("'{}' {argument}", program.replace('\'', r"'\''")).into())
}
