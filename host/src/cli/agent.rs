//! The options that say which agent is started, and what comes of them and the configured one.

use super::chain::path;
use super::exit;
use crate::agent::AgentCommand;
use anyhow::{Context, bail};
use clap::{Args, ValueHint};
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(super) struct AgentArguments {
    /// A variable for the agent: set to VALUE, or inherited (also `PREFIX_*`)
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = clap::value_parser!(OsString))]
    env: Vec<OsString>,
    /// The working directory of the agent [default: the current one]
    #[arg(long, value_name = "DIR", value_parser = path(), value_hint = ValueHint::DirPath)]
    pub(super) cwd: Option<PathBuf>,
}

/// What `--env` says.
#[derive(Default)]
struct Environment {
    set: Vec<(OsString, OsString)>,
    inherit: Vec<String>,
}

impl AgentArguments {
    /// The agent of the command line, else the configured one, with what these options give it; none if there is neither.
    pub(super) fn agent(
        &self,
        command: &[OsString],
        configured: Option<AgentCommand>,
    ) -> anyhow::Result<Option<AgentCommand>> {
        agent(command, configured).map(|agent| self.equip(agent)).transpose()
    }

    /// Gives an agent what `--env` and `--cwd` say.
    pub(super) fn equip(&self, mut agent: AgentCommand) -> anyhow::Result<AgentCommand> {
        let environment = self.environment()?;
        agent.environment.extend(environment.set);
        agent.inherit.extend(environment.inherit);
        if let Some(directory) = &self.cwd {
            agent.directory = Some(directory.clone());
        }
        Ok(agent)
    }

    fn environment(&self) -> anyhow::Result<Environment> {
        let mut environment = Environment::default();
        for option in &self.env {
            let bytes = option.as_bytes();
            match bytes.iter().position(|&byte| byte == b'=') {
                Some(0) => bail!("--env wants NAME or NAME=VALUE, not {option:?}"),
                Some(end) => environment.set.push((
                    OsStr::from_bytes(&bytes[..end]).to_owned(),
                    OsStr::from_bytes(&bytes[end + 1..]).to_owned(),
                )),
                None => match option.to_str() {
                    Some(name) if !name.is_empty() => environment.inherit.push(name.to_owned()),
                    _ => bail!("--env wants NAME or NAME=VALUE, not {option:?}"),
                },
            }
        }
        Ok(environment)
    }
}

/// The agent of the command line, else the configured one. Arguments alone (the first one begins with `-`) are added to
/// the configured agent's: editors append some for a login.
fn agent(command: &[OsString], configured: Option<AgentCommand>) -> Option<AgentCommand> {
    let Some((program, arguments)) = command.split_first() else {
        return configured;
    };
    if let Some(mut agent) = configured
        && program.as_bytes().starts_with(b"-")
    {
        agent.arguments.extend(command.iter().cloned());
        return Some(agent);
    }
    Some(AgentCommand {
        program: program.clone(),
        arguments: arguments.to_vec(),
        environment: Vec::new(),
        inherit: Vec::new(),
        directory: None,
    })
}

/// The demo agent as an agent process of its own.
pub(super) fn demo_agent() -> anyhow::Result<AgentCommand> {
    let program = env::current_exe().context("cannot find the program that is running")?;
    Ok(AgentCommand {
        program: program.into_os_string(),
        arguments: vec!["demo-agent".into()],
        environment: Vec::new(),
        inherit: Vec::new(),
        directory: None,
    })
}

/// The error of a command that needs an agent and has none.
pub(super) fn no_agent() -> anyhow::Error {
    exit::failure(
        exit::USAGE,
        "no agent to start: name its command at the end (consort run [OPTIONS] -- AGENT [ARG]...) or as `agent.command` in consort.toml",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn an_agent_on_the_command_line_takes_the_place_of_the_configured_one() {
        let configured = AgentCommand {
            program: "configured".into(),
            arguments: words(&["--acp"]),
            environment: vec![("KEY".into(), "secret".into())],
            inherit: Vec::new(),
            directory: None,
        };
        let named = agent(&words(&["other", "--x"]), Some(configured.clone())).unwrap();
        assert_eq!(named.program, "other");
        assert!(named.environment.is_empty(), "another agent's keys are not handed on");
        let extended = agent(&words(&["--login"]), Some(configured)).unwrap();
        assert_eq!(extended.program, "configured");
        assert_eq!(extended.arguments, words(&["--acp", "--login"]));
    }
}
