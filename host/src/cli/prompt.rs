//! `consort prompt`: one prompt through a chain that runs in this process, for people and scripts.

mod client;
mod conversation;
mod question;
mod show;

use super::agent::{self, AgentArguments};
use super::chain::ChainArguments;
use super::{exit, run};
use crate::connection::{self, ClientStreams, ConnectionOptions, Ending};
use anyhow::{Context, bail};
use clap::{Args, ValueHint};
pub(super) use question::Policy;
use serde_json::Value;
pub(super) use show::Audience;

use client::{ChainEnded, Client};
use conversation::{Conversation, Outcome};

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;
use std::time::Duration;

/// What the streams between the client and the chain hold, in bytes.
const BUFFER: usize = 256 * 1024;

/// How long the agent may take to end by itself once the turn is over; it may want to save its session.
const FAREWELL: Duration = Duration::from_secs(2);

/// Send one prompt through the chain and show what comes back
#[derive(Args, Debug)]
#[command(after_help = "\
The answer goes to standard output; thoughts, tool calls, plans and questions go to standard error. Characters that a \
terminal would obey are left out; --json passes everything as it came.

The first word after the options is the prompt and what follows is the agent: to name an agent and pipe the prompt, \
write `-` for it. Standard input is only read if the prompt is `-`, or left out where something is piped in. Without any agent, the demo agent \
answers.

Permissions are asked for on the terminal. Where there is none they are rejected, unless --yes is given. Ctrl-C cancels \
the turn; a second one ends the program.

Exit status:
    0  the turn ended                      5  the agent refused
    1  an error                            6  a stop reason that Consort does not know
    2  called wrongly                    127  the agent's command is not there
    3  the agent ran out of tokens       130  cancelled or interrupted
    4  the agent made too many requests  143  terminated

Examples:
  consort prompt \"Show me a /plan and a /tool\"
  consort prompt --proxy redact.wasm \"What does this project do?\" -- claude-agent-acp
  git diff | consort prompt --no - -- claude-agent-acp
  consort prompt --json --yes \"Fix the tests\" | jq -r '.update.sessionUpdate // empty'")]
pub(super) struct Arguments {
    #[command(flatten)]
    chain: ChainArguments,
    #[command(flatten)]
    agent_options: AgentArguments,
    /// Allow whatever the agent asks for, once
    #[arg(long, conflicts_with = "no")]
    yes: bool,
    /// Reject whatever the agent asks for
    #[arg(long)]
    no: bool,
    /// Print each update as a line of JSON, and the result of the prompt as the last one
    #[arg(long)]
    json: bool,
    /// The prompt; `-` reads it from standard input, as does leaving it out unless that is a terminal
    #[arg(value_name = "TEXT")]
    text: Option<String>,
    /// The agent's command and its arguments
    #[arg(value_name = "AGENT", trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    agent: Vec<OsString>,
}

/// What is to be asked, and how.
pub(super) struct Request {
    pub(super) text: String,
    /// The working directory of the session.
    pub(super) directory: PathBuf,
    pub(super) audience: Audience,
    pub(super) policy: Policy,
}

pub(super) fn run(arguments: Arguments) -> anyhow::Result<u8> {
    let mut chain = arguments.chain.resolve()?;
    let agent = arguments.agent_options.agent(&arguments.agent, chain.agent.take())?;
    let directory = match &arguments.agent_options.cwd {
        Some(directory) => std::fs::canonicalize(directory)
            .with_context(|| format!("there is no directory {}", directory.display()))?,
        None => std::env::current_dir().context("there is no current directory")?,
    };
    let request = Request {
        text: prompt_text(arguments.text)?,
        directory,
        audience: if arguments.json {
            Audience::Script
        } else {
            Audience::Person
        },
        policy: match (arguments.yes, arguments.no) {
            (true, _) => Policy::Allow,
            (_, true) => Policy::Reject,
            _ => Policy::Ask,
        },
    };
    let agent = match agent {
        Some(agent) => agent,
        None => {
            exit::complain("no agent is named or configured, so the demo agent answers");
            arguments.agent_options.equip(agent::demo_agent()?)?
        }
    };
    let options = chain.connection(Some(agent))?;
    let audit = options.audit.clone();
    let runtime = run::start_runtime()?;
    let outcome = runtime.block_on(converse(options, request));
    runtime.shutdown_timeout(run::SHUTDOWN);
    if let Some(audit) = audit {
        audit.flush();
    }
    outcome
}

fn prompt_text(argument: Option<String>) -> anyhow::Result<String> {
    let text = match argument {
        Some(text) if text != "-" => text,
        None if io::stdin().is_terminal() => {
            return Err(exit::failure(
                exit::USAGE,
                "nothing to ask: give the prompt as an argument or through a pipe",
            ));
        }
        _ => {
            let mut text = String::new();
            io::stdin()
                .read_to_string(&mut text)
                .context("cannot read the prompt from standard input")?;
            if text.ends_with('\n') {
                text.pop();
            }
            text
        }
    };
    if text.trim().is_empty() {
        return Err(exit::failure(exit::USAGE, "the prompt is empty"));
    }
    Ok(text)
}

/// Runs the chain and talks to it.
pub(super) async fn converse(options: ConnectionOptions, request: Request) -> anyhow::Result<u8> {
    // One stream for each direction: dropping an end tells the other one.
    let (to_chain, input) = tokio::io::duplex(BUFFER);
    let (output, from_chain) = tokio::io::duplex(BUFFER);
    let streams = ClientStreams {
        input: Box::pin(input),
        output: Box::pin(output),
        gone: None,
    };
    let mut chain = Box::pin(connection::serve(options, streams));
    let conversation = Conversation::new(Client::new(to_chain, from_chain), request)?;
    let mut conversation = Box::pin(conversation.run());
    let (outcome, ended) = tokio::select! {
        outcome = &mut conversation => (outcome, None),
        // What it said last is still to be read, and may be the reason.
        ended = &mut chain => (conversation.as_mut().await, Some(ended)),
    };
    // Ends the chain's input.
    drop(conversation);
    if let Ok(Outcome::Aborted(status)) = outcome {
        return Ok(status);
    }
    let ended = match ended {
        Some(ended) => Some(ended),
        None => tokio::time::timeout(FAREWELL, chain).await.ok(),
    };
    match (outcome, ended.transpose()) {
        (Ok(outcome), Ok(_)) => Ok(outcome.status()),
        (Ok(outcome), Err(error)) => {
            tracing::warn!("the chain ended with an error: {error:#}");
            Ok(outcome.status())
        }
        (Err(error), Err(cause)) if error.is::<ChainEnded>() => Err(cause),
        (Err(error), ended) => Err(match ended.ok().flatten() {
            // Says the same as the error that was sent for it, without the wrapping.
            Some(Ending {
                failure: Some(sentence),
                agent_missing,
            }) => exit::failure(if agent_missing { exit::NOT_FOUND } else { exit::FAILURE }, sentence),
            _ => error,
        }),
    }
}

/// The JSON-RPC error of a request, for a person.
fn rpc_failure(method: &str, error: &agent_client_protocol_schema::v1::Error) -> anyhow::Error {
    let mut sentence = format!("{method} failed: {}", error.message);
    if let Some(data) = error.data.as_ref().filter(|data| !is_told(data, &error.message)) {
        let details = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
        sentence.push_str(": ");
        sentence.push_str(&super::text::shortened(&details, 1000));
    }
    let code = i32::from(error.code);
    if code == LOGIN_REQUIRED {
        sentence.push_str("; log in with the agent's own command first");
    }
    anyhow::anyhow!("{sentence} (code {code})")
}

/// Whether the data of an error says nothing that its message does not say: it is the same text, empty, or what Consort itself puts
/// beside its sentences for programs.
fn is_told(data: &Value, message: &str) -> bool {
    match data {
        Value::Null => true,
        Value::String(text) => message.contains(text.trim()),
        Value::Object(fields) => {
            let has = |keys: &[&str]| keys.iter().all(|&key| fields.contains_key(key));
            fields.is_empty() || has(&["agent", "stderr"]) || has(&["proxy", "phase", "class", "cause"])
        }
        _ => false,
    }
}

/// ACP's code for "authentication required".
const LOGIN_REQUIRED: i32 = -32000;

/// Fails for a version of ACP that this client does not speak.
fn check_version(version: u16) -> anyhow::Result<()> {
    if version != 1 {
        bail!("the agent speaks version {version} of ACP; consort prompt speaks version 1");
    }
    Ok(())
}
