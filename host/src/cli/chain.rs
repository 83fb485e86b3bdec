//! The options of `run` and `prompt` that say what the chain is made of, and what comes of them and the configuration file.

use super::exit;
use crate::agent::AgentCommand;
use crate::config::{self, Configuration};
use crate::connection::{ConnectionOptions, ProxyOptions};
use anyhow::{Context, bail};
use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueHint};
use serde_json::value::RawValue;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

/// How many seconds pending requests may go on after the end of the client's input; from the design.
const DEFAULT_GRACE: u64 = 30;

/// Paths of options, of which a shell expands `--proxy ~/x`, but not `--proxy=~/x`, and an editor neither.
fn path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(config::expand_home)
}

#[derive(Args, Debug)]
pub(super) struct ChainArguments {
    /// A proxy; may be given several times, the client's side first. Takes the place of the configured proxies
    #[arg(long = "proxy", value_name = "FILE.wasm", value_parser = path(), value_hint = ValueHint::FilePath)]
    proxies: Vec<PathBuf>,
    /// All *.wasm files of a directory in the order of their names, behind those of --proxy
    #[arg(long = "proxies", value_name = "DIR", value_parser = path(), value_hint = ValueHint::DirPath)]
    directories: Vec<PathBuf>,
    /// What a proxy gets as its configuration: JSON, or a file that holds it. NAME is the file's name without `.wasm`
    #[arg(long = "proxy-config", value_name = "NAME=JSON|NAME=@FILE")]
    configurations: Vec<String>,
    /// The configuration file [default: ~/.config/consort/consort.toml, if it is there]
    #[arg(long, value_name = "FILE", value_parser = path(), value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// Use no configuration file
    #[arg(long, conflicts_with = "config")]
    no_config: bool,
    /// A variable for the agent: set to VALUE, or inherited (also `PREFIX_*`)
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = clap::value_parser!(OsString))]
    env: Vec<OsString>,
    /// The working directory of the agent [default: the current one]
    #[arg(long, value_name = "DIR", value_parser = path(), value_hint = ValueHint::DirPath)]
    pub(super) cwd: Option<PathBuf>,
    /// How long pending requests may go on when the client's input has ended [default: 30]
    #[arg(long, value_name = "SECONDS")]
    grace: Option<u64>,
}

/// What was asked for, by options and configuration together.
pub(super) struct Chain {
    pub(super) proxies: Vec<ProxyOptions>,
    /// None if nobody named an agent.
    pub(super) agent: Option<AgentCommand>,
    environment: Environment,
    grace: Duration,
}

/// What `--env` says.
#[derive(Default)]
struct Environment {
    set: Vec<(OsString, OsString)>,
    inherit: Vec<String>,
}

impl ChainArguments {
    /// Puts options, configuration file and the agent's command line together.
    pub(super) fn resolve(&self, command: &[OsString]) -> anyhow::Result<Chain> {
        let configuration = self.configuration()?;
        let environment = self.environment()?;
        let agent = agent(command, configuration.agent);
        let mut proxies = if self.proxies.is_empty() && self.directories.is_empty() {
            configuration.proxies
        } else {
            self.named_proxies()?
        };
        for option in &self.configurations {
            configure(&mut proxies, option)?;
        }
        let grace = self.grace.or(configuration.grace_seconds).unwrap_or(DEFAULT_GRACE);
        let mut chain = Chain {
            proxies,
            agent: None,
            environment,
            grace: Duration::from_secs(grace),
        };
        chain.agent = agent.map(|agent| chain.equip(agent, self.cwd.as_deref()));
        Ok(chain)
    }

    fn configuration(&self) -> anyhow::Result<Configuration> {
        if self.no_config {
            return Ok(Configuration::default());
        }
        if let Some(file) = &self.config {
            return Configuration::read(file);
        }
        match config::user_file() {
            Some(file) if file.exists() => Configuration::read(&file),
            _ => Ok(Configuration::default()),
        }
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

    fn named_proxies(&self) -> anyhow::Result<Vec<ProxyOptions>> {
        let mut files = self.proxies.clone();
        for file in &files {
            if file.is_dir() {
                bail!(
                    "--proxy {} is a directory; --proxies takes all proxies of a directory",
                    file.display()
                );
            }
        }
        for directory in &self.directories {
            files.extend(components_of(directory)?);
        }
        let mut proxies: Vec<ProxyOptions> = Vec::with_capacity(files.len());
        for file in files {
            let name = config::name_of(&file, |name| proxies.iter().any(|proxy| proxy.name == name));
            proxies.push(ProxyOptions {
                name,
                file,
                configuration: config::NO_CONFIGURATION.to_owned(),
                memory: config::DEFAULT_MEMORY,
            });
        }
        Ok(proxies)
    }
}

impl Chain {
    /// Gives an agent what `--env` and `--cwd` say.
    pub(super) fn equip(&self, mut agent: AgentCommand, directory: Option<&Path>) -> AgentCommand {
        agent.environment.extend(self.environment.set.iter().cloned());
        agent.inherit.extend(self.environment.inherit.iter().cloned());
        if let Some(directory) = directory {
            agent.directory = Some(directory.to_owned());
        }
        agent
    }

    /// What a connection with this agent is made of.
    pub(super) fn connection(self, agent: AgentCommand) -> ConnectionOptions {
        ConnectionOptions {
            proxies: self.proxies,
            agent,
            grace: self.grace,
            tap: None,
            progress: std::io::stderr().is_terminal(),
        }
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

fn components_of(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot read the proxy directory {}", directory.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let file = entry
            .with_context(|| format!("cannot read the proxy directory {}", directory.display()))?
            .path();
        if file.extension().is_some_and(|extension| extension == "wasm") && !file.is_dir() {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        // To go on without would be to hand on what a proxy should have kept back.
        bail!(
            "no proxies: {} has no *.wasm file; name another directory, or leave --proxies out",
            directory.display()
        );
    }
    Ok(files)
}

fn configure(proxies: &mut [ProxyOptions], option: &str) -> anyhow::Result<()> {
    let Some((name, value)) = option.split_once('=') else {
        bail!("--proxy-config wants NAME=JSON or NAME=@FILE, not {option:?}");
    };
    let Some(proxy) = proxies.iter_mut().find(|proxy| proxy.name == name) else {
        bail!(
            "--proxy-config: no proxy is named {name:?}; there {}",
            match proxies {
                [] => "are none".to_owned(),
                _ => format!(
                    "are {}",
                    proxies
                        .iter()
                        .map(|proxy| proxy.name.as_str())
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
            }
        );
    };
    let text = match value.strip_prefix('@') {
        Some(file) => fs::read_to_string(config::expand_home(file.into()))
            .with_context(|| format!("cannot read the configuration of proxy {name:?}, {file}"))?,
        None => value.to_owned(),
    };
    let json: &RawValue =
        serde_json::from_str(&text).with_context(|| format!("the configuration of proxy {name:?} is not JSON"))?;
    proxy.configuration = json.get().to_owned();
    Ok(())
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

    #[test]
    fn a_proxy_is_configured_by_its_name() {
        let mut proxies = vec![ProxyOptions {
            name: "redact".into(),
            file: "redact.wasm".into(),
            configuration: config::NO_CONFIGURATION.into(),
            memory: config::DEFAULT_MEMORY,
        }];
        configure(&mut proxies, r#"redact= {"a": 1.10} "#).unwrap();
        assert_eq!(proxies[0].configuration, r#"{"a": 1.10}"#);
        let error = configure(&mut proxies, "redcat={}").unwrap_err();
        assert!(error.to_string().contains("are redact"), "{error}");
        assert!(configure(&mut proxies, "redact={").is_err());
    }
}
