//! The options that say what a chain is made of, and what comes of them and the configuration file.

use crate::agent::AgentCommand;
use crate::audit::{self, Audit, Level};
use crate::config::{self, Configuration};
use crate::connection::{ConnectionOptions, DEFAULT_MAX_LINE, ProxyOptions};
use crate::grants::Grant;
use crate::message::OnFailure;
use crate::tap::OptionalTap;
use crate::trace::Trace;
use anyhow::{Context, bail};
use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueHint};
use serde_json::value::RawValue;
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How many seconds pending requests may go on after the end of the client's input; from the design.
const DEFAULT_GRACE: u64 = 30;

/// Paths of options, of which a shell expands `--proxy ~/x`, but not `--proxy=~/x`, and an editor neither.
pub(super) fn path() -> impl TypedValueParser<Value = PathBuf> {
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
    /// A group of proxies of the configuration file, behind those of --proxy and --proxies
    #[arg(long = "group", value_name = "NAME", conflicts_with = "no_config")]
    groups: Vec<String>,
    /// What a proxy gets as its configuration: JSON, or a file that holds it. NAME is the file's name without `.wasm`, or
    /// GROUP/NAME
    #[arg(long = "proxy-config", value_name = "NAME=JSON|NAME=@FILE")]
    configurations: Vec<String>,
    /// What a proxy may do beyond the ordinary things that it asks for; `consort inspect` shows what it would like. NAME can be
    /// `*` for every proxy
    #[arg(long = "grant", value_name = "NAME=GRANT,...")]
    grants: Vec<String>,
    /// What becomes of a proxy's messages when it fails: they go past it, or nothing does [default: what its manifest says, or bypass]
    #[arg(long = "on-failure", value_name = "NAME=bypass|closed")]
    failures: Vec<String>,
    /// The configuration file [default: ~/.config/consort/consort.toml, if it is there]
    #[arg(long, value_name = "FILE", value_parser = path(), value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// Use no configuration file
    #[arg(long, conflicts_with = "config")]
    no_config: bool,
    /// How long pending requests may go on when the client's input has ended [default: 30]
    #[arg(long, value_name = "SECONDS")]
    grace: Option<u64>,
    /// Tell of a proxy's fault in the session that it concerns, as text of the agent: editors hide what is logged
    #[arg(long)]
    notices: bool,
    /// The longest line that is taken from either side, such as `16 MiB` [default: 64 MiB]
    #[arg(long, value_name = "SIZE", value_parser = line_size)]
    max_line: Option<usize>,
    /// Write all traffic to a file, as JSON lines that the trace viewer of the reference conductor opens. Prompts and files
    /// are in it; credentials that the protocol marks as such are masked. 256 MiB at most: FILE and, before it, FILE.1
    #[arg(long, value_name = "FILE", value_parser = path(), value_hint = ValueHint::FilePath)]
    trace: Option<PathBuf>,
    /// The file for what proxies were granted, denied and failed at, as JSON lines [default: ~/.local/state/consort/audit.jsonl].
    /// 32 MiB at most: FILE and, before it, FILE.1
    #[arg(long, value_name = "FILE", value_parser = path(), value_hint = ValueHint::FilePath)]
    audit: Option<PathBuf>,
    /// Write no audit file
    #[arg(long, conflicts_with = "audit")]
    no_audit: bool,
}

/// What was asked for, by options and configuration together.
pub(super) struct Chain {
    proxies: Vec<ProxyOptions>,
    /// The configured agent.
    pub(super) agent: Option<AgentCommand>,
    grace: Duration,
    max_line: usize,
    notices: bool,
    trace: Option<PathBuf>,
    audit: Option<(PathBuf, Level)>,
}

impl ChainArguments {
    /// Puts options and configuration file together.
    pub(super) fn resolve(&self) -> anyhow::Result<Chain> {
        let mut configuration = self.configuration()?;
        let named = !self.proxies.is_empty() || !self.directories.is_empty() || !self.groups.is_empty();
        let mut proxies = if named {
            self.named_proxies(&configuration)?
        } else {
            std::mem::take(&mut configuration.proxies)
        };
        for option in &self.configurations {
            configure(&mut proxies, option)?;
        }
        for option in &self.failures {
            let (proxy, value) = proxy_of(&mut proxies, "--on-failure", "NAME=bypass or NAME=closed", option)?;
            let on_failure = OnFailure::named(value)
                .with_context(|| format!("--on-failure wants NAME=bypass or NAME=closed, not {option:?}"))?;
            proxy.on_failure = Some(on_failure);
        }
        for option in &self.grants {
            grant(&mut proxies, option)?;
        }
        let grace = self.grace.or(configuration.grace_seconds).unwrap_or(DEFAULT_GRACE);
        Ok(Chain {
            proxies,
            agent: configuration.agent,
            grace: Duration::from_secs(grace),
            max_line: self.max_line.or(configuration.max_line).unwrap_or(DEFAULT_MAX_LINE),
            notices: self.notices || configuration.notices,
            trace: self.trace.clone(),
            audit: self.audit(configuration.audit, configuration.audit_file),
        })
    }

    /// The audit file and what is written to it. A file that is named here is wanted, whatever is configured.
    fn audit(&self, level: Option<Level>, file: Option<PathBuf>) -> Option<(PathBuf, Level)> {
        let level = level.unwrap_or_default();
        match (&self.audit, level) {
            _ if self.no_audit => None,
            (Some(named), Level::Off) => Some((named.clone(), Level::default())),
            (Some(named), level) => Some((named.clone(), level)),
            (None, Level::Off) => None,
            (None, level) => {
                let file = file.or_else(audit::default_file);
                if file.is_none() {
                    tracing::info!("there is no audit file, since neither XDG_STATE_HOME nor HOME is set");
                }
                Some((file?, level))
            }
        }
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

    fn named_proxies(&self, configuration: &Configuration) -> anyhow::Result<Vec<ProxyOptions>> {
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
                grants: Vec::new(),
                common_grants: Vec::new(),
                limits: Vec::new(),
                on_failure: None,
            });
        }
        for name in &self.groups {
            let Some(group) = configuration.groups.get(name) else {
                let known: Vec<&str> = configuration.groups.keys().map(String::as_str).collect();
                bail!(
                    "--group {name}: the configuration file has no such group; it has {}",
                    match known.as_slice() {
                        [] => "none".to_owned(),
                        known => known.join(", "),
                    }
                );
            };
            config::join(name, group, &mut proxies);
        }
        Ok(proxies)
    }
}

impl Chain {
    /// What a connection with this agent is made of; without one the chain is a proxy of another conductor.
    pub(super) fn connection(self, agent: Option<AgentCommand>) -> anyhow::Result<ConnectionOptions> {
        let tap: OptionalTap = match &self.trace {
            Some(file) => Some(Arc::new(Trace::create(file)?)),
            None => None,
        };
        let audit = self.audit.and_then(|(file, level)| {
            let started = Audit::start(&file, level);
            // What cannot be recorded must not keep anybody from working.
            started.inspect_err(|error| tracing::warn!("{error:#}")).ok()
        });
        Ok(ConnectionOptions {
            proxies: self.proxies,
            sandbox: None,
            agent,
            max_line: self.max_line,
            grace: self.grace,
            tap,
            notices: self.notices,
            retry: None,
            audit: audit.map(Arc::new),
            progress: std::io::stderr().is_terminal(),
        })
    }
}

fn line_size(text: &str) -> Result<usize, String> {
    let bytes = config::size(text, config::LINES)?;
    usize::try_from(bytes).map_err(|error| error.to_string())
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

/// The proxy that an option of the form `NAME=VALUE` is about, and the value.
fn proxy_of<'a, 'b>(
    proxies: &'a mut [ProxyOptions],
    option: &str,
    form: &str,
    argument: &'b str,
) -> anyhow::Result<(&'a mut ProxyOptions, &'b str)> {
    let Some((name, value)) = argument.split_once('=') else {
        bail!("{option} wants {form}, not {argument:?}");
    };
    let known: Vec<&str> = proxies.iter().map(|proxy| proxy.name.as_str()).collect();
    let known = match known.as_slice() {
        [] => "none".to_owned(),
        known => known.join(", "),
    };
    match proxies.iter_mut().find(|proxy| proxy.name == name) {
        Some(proxy) => Ok((proxy, value)),
        None => bail!("{option}: no proxy is named {name:?}; there are {known}"),
    }
}

/// Grants to one proxy, or to all.
fn grant(proxies: &mut [ProxyOptions], option: &str) -> anyhow::Result<()> {
    let form = "NAME=GRANT,...";
    let base = std::env::current_dir().context("there is no current directory")?;
    let grants = |value: &str| -> anyhow::Result<Vec<Grant>> {
        value
            .split(',')
            .map(|grant| match grant.trim().parse::<Grant>() {
                Ok(grant) => Ok(grant.based(&base)),
                Err(reason) => bail!("--grant {option}: {reason}"),
            })
            .collect()
    };
    if let Some(value) = option.strip_prefix("*=") {
        let grants = grants(value)?;
        proxies
            .iter_mut()
            .for_each(|proxy| proxy.common_grants.extend(grants.clone()));
        return Ok(());
    }
    let (proxy, value) = proxy_of(proxies, "--grant", form, option)?;
    proxy.grants.extend(grants(value)?);
    Ok(())
}

fn configure(proxies: &mut [ProxyOptions], option: &str) -> anyhow::Result<()> {
    let (proxy, value) = proxy_of(proxies, "--proxy-config", "NAME=JSON or NAME=@FILE", option)?;
    proxy.configuration = json_or_file(&format!("the configuration of proxy {:?}", proxy.name), value)?;
    Ok(())
}

/// The JSON text that an option holds, or after `@` a file.
pub(super) fn json_or_file(what: &str, value: &str) -> anyhow::Result<String> {
    let text = match value.strip_prefix('@') {
        Some(file) => fs::read_to_string(config::expand_home(file.into()))
            .with_context(|| format!("cannot read {what}, {file}"))?,
        None => value.to_owned(),
    };
    let json: &RawValue = serde_json::from_str(&text).with_context(|| format!("{what} is not JSON"))?;
    Ok(json.get().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_configured_by_its_name() {
        let mut proxies = vec![ProxyOptions {
            name: "redact".into(),
            file: "redact.wasm".into(),
            configuration: config::NO_CONFIGURATION.into(),
            grants: Vec::new(),
            common_grants: Vec::new(),
            limits: Vec::new(),
            on_failure: None,
        }];
        configure(&mut proxies, r#"redact= {"a": 1.10} "#).unwrap();
        assert_eq!(proxies[0].configuration, r#"{"a": 1.10}"#);
        let error = configure(&mut proxies, "redcat={}").unwrap_err();
        assert!(error.to_string().contains("are redact"), "{error}");
        assert!(configure(&mut proxies, "redact={").is_err());
    }
}
