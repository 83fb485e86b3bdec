//! `consort run`: the chain on standard input and output, for editors.

use super::agent::{AgentArguments, no_agent};
use super::chain::{Chain, ChainArguments};
use super::{exit, stdio};
use crate::agent::AgentCommand;
use crate::connection::{self, ClientStreams, ConnectionOptions, Ending, Role};
use anyhow::Context;
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::future::Future;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

/// Threads that run chains: one for each direction of a conversation keeps two cores busy, and more than one is what lets a spinning
/// proxy be moved out of the way of others.
const WORKERS: usize = 2;

/// How long whoever reads standard output may take for the end of it: at most 128 KiB.
const LAST_WRITE: Duration = Duration::from_secs(10);

/// The number of SIGXFSZ.
const FILE_TOO_LARGE: i32 = rustix::process::Signal::XFSZ.as_raw();

/// The signal that asks for proxies that rest to be tried again.
const RETRY: SignalKind = SignalKind::user_defined1();

/// How long what is left in the background may take to stop once the command is done.
pub(super) const SHUTDOWN: Duration = Duration::from_secs(1);

/// Put proxies in front of an agent: speaks ACP on standard input and output, for editors
#[derive(Args, Debug)]
#[command(after_help = "\
Proxies and agent can be named in consort.toml as well; what is named here wins. An agent that is named here takes the \
place of the configured one with all its settings.

On a terminal (standard input and output both), this speaks no ACP: it becomes the agent's command, with the arguments \
that were given, in the whole environment of the caller and without proxies. That is what editors do for a login. \
Arguments alone, such as `run -- --login`, are added to those of the configured agent.

The agent inherits PATH, HOME, language, network and runtime settings, and the variables of known agents that its \
command line names (ANTHROPIC_* for claude, and so on). --env passes on or sets others.

What keeps the chain from being set up is told on standard error and, through pipes, also as the answer to `initialize`.

Exit status: 0 at the end of input, 1 if the chain could not be set up, 2 if called wrongly, 127 if the agent's command \
is not there, 128 + N after signal N.

Examples:
  consort run -- claude-agent-acp
  consort run --proxy context.wasm --proxy redact.wasm -- npx -y some-agent --acp
  consort run --proxies ~/proxies --env 'OPENAI_*' --env MODE=fast -- my-agent
  consort run --proxy redact.wasm \\
    --proxy-config 'redact={\"patterns\":{\"acme\":\"ACME-[0-9]+\"}}' -- my-agent
  consort run                        with agent and proxies from ~/.config/consort/consort.toml")]
pub(super) struct Arguments {
    #[command(flatten)]
    chain: ChainArguments,
    #[command(flatten)]
    agent_options: AgentArguments,
    /// The agent's command and its arguments
    #[arg(value_name = "AGENT", trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    agent: Vec<OsString>,
}

pub(super) fn run(arguments: Arguments) -> anyhow::Result<u8> {
    match set_up(&arguments) {
        Ok((_, agent)) if io::stdin().is_terminal() && io::stdout().is_terminal() => Err(hand_over(&agent)),
        set_up => serve_chain(
            Role::Agent,
            set_up.and_then(|(chain, agent)| chain.connection(Some(agent))),
        ),
    }
}

/// Has a connection with a chain, or tells why there is none.
pub(super) fn serve_chain(role: Role, options: anyhow::Result<ConnectionOptions>) -> anyhow::Result<u8> {
    match options {
        Ok(mut options) => {
            let retry = Arc::new(Notify::new());
            options.retry = Some(retry.clone());
            let audit = options.audit.clone();
            let status = serve(|streams| async {
                let asked = tokio::spawn(retry_on_signal(
                    signal(RETRY).context("cannot listen for signals")?,
                    retry,
                ));
                let ending = connection::serve(options, streams).await;
                asked.abort();
                Ok(ending_status(&ending?))
            });
            if let Some(audit) = audit {
                audit.flush();
            }
            status
        }
        Err(error) if io::stdin().is_terminal() => Err(error),
        // An editor shows the answer to its request; what stands on standard error it may only keep in a log.
        Err(error) => {
            let sentence = format!("{error:#}");
            let status = exit::report(Err(error));
            serve(|streams| async move { connection::serve_failure(role, sentence, streams).await.map(|_| status) })
        }
    }
}

/// Asks for proxies that rest to be tried again whenever the signal comes.
async fn retry_on_signal(mut signals: Signal, retry: Arc<Notify>) {
    while signals.recv().await.is_some() {
        retry.notify_one();
    }
}

/// Puts together what was asked for.
fn set_up(arguments: &Arguments) -> anyhow::Result<(Chain, AgentCommand)> {
    let mut chain = arguments.chain.resolve()?;
    let agent = arguments
        .agent_options
        .agent(&arguments.agent, chain.agent.take())?
        .ok_or_else(no_agent)?;
    Ok((chain, agent))
}

/// Has a connection with standard input and output, until it or a signal ends it.
fn serve<F>(connection: impl FnOnce(ClientStreams) -> F) -> anyhow::Result<u8>
where
    F: Future<Output = anyhow::Result<u8>>,
{
    let runtime = start_runtime()?;
    let status = runtime.block_on(async {
        let (streams, finish) = stdio::open()?;
        let served = async {
            let status = connection(streams).await;
            let written = finish.wait(LAST_WRITE).await;
            let status = status?;
            written.map(|()| status)
        };
        tokio::select! {
            status = served => status,
            status = ended_by_signal() => status,
        }
    });
    runtime.shutdown_timeout(SHUTDOWN);
    status
}

/// The runtime that chains run in.
pub(super) fn start_runtime() -> anyhow::Result<Runtime> {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .context("cannot start the threads that a chain runs in")?;
    // Listened to once, it never ends the program: a trace that grows beyond a limit on files is an error to whoever writes it.
    runtime
        .block_on(async { signal(SignalKind::from_raw(FILE_TOO_LARGE)).map(drop) })
        .context("cannot listen for signals")?;
    Ok(runtime)
}

/// The exit status after a connection. What went wrong was logged when it happened.
fn ending_status(ending: &Ending) -> u8 {
    match ending {
        Ending {
            agent_missing: true, ..
        } => exit::NOT_FOUND,
        Ending { failure: Some(_), .. } => exit::FAILURE,
        _ => exit::SUCCESS,
    }
}

/// Waits for a signal that asks the program to end, and returns the exit status that goes with it.
async fn ended_by_signal() -> anyhow::Result<u8> {
    let listen = |kind| signal(kind).context("cannot listen for signals");
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    let kind = tokio::select! {
        _ = interrupt.recv() => SignalKind::interrupt(),
        _ = terminate.recv() => SignalKind::terminate(),
        _ = hangup.recv() => SignalKind::hangup(),
    };
    Ok(signal_status(kind))
}

/// The exit status of a program that a signal ended.
pub(super) fn signal_status(kind: SignalKind) -> u8 {
    u8::try_from(kind.as_raw_value()).map_or(exit::FAILURE, |number| exit::SIGNAL.saturating_add(number))
}

/// Becomes the agent's command, and returns only if that fails. An editor runs the configured command on a terminal when a person has
/// to log in, with arguments and variables of the agent's choosing; the conversation is between the person and the agent.
fn hand_over(agent: &AgentCommand) -> anyhow::Error {
    exit::complain("this is a terminal, so the agent gets it as it is, for logging in; ACP is spoken through pipes");
    let mut command = std::process::Command::new(&agent.program);
    command
        .args(&agent.arguments)
        .envs(agent.environment.iter().map(|(name, value)| (name, value)));
    if let Some(directory) = &agent.directory {
        command.current_dir(directory);
    }
    let error = command.exec();
    let status = match error.kind() {
        io::ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::NOT_STARTED,
    };
    exit::failure(
        status,
        format!("cannot start the agent {}: {error}", agent.program.to_string_lossy()),
    )
}
