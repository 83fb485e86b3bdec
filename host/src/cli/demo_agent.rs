//! `consort demo-agent`: the demo agent on standard input and output.

use super::exit;
use crate::demo_agent;
use anyhow::Context;
use clap::Args;
use std::io::{self, BufReader};
use std::time::Duration;

/// A small agent for trying things out: speaks ACP on standard input and output, needs no key and no network
#[derive(Args, Debug)]
#[command(after_help = "\
It repeats what it is sent. These words in a prompt make it do more:
  /plan     show a plan and tick it off
  /tool     call a tool after asking for permission
  /secret   print something that looks like a token
  /refuse   refuse to go on
  /wait     wait until the turn is cancelled

Examples:
  consort run --proxy redact.wasm -- consort demo-agent
  consort prompt \"Show me a /plan and a /tool\" -- consort demo-agent --delay 50")]
pub(super) struct Arguments {
    /// Wait so long before each thing that it does, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    delay: u64,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let input = BufReader::new(io::stdin());
    let outcome = demo_agent::serve(input, io::stdout().lock(), Duration::from_millis(arguments.delay));
    match outcome {
        // Whoever started the agent does not want it any more.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(exit::SUCCESS),
        outcome => {
            outcome.context("the demo agent cannot write to standard output")?;
            Ok(exit::SUCCESS)
        }
    }
}
