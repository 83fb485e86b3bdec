//! `consort proxy`: the chain as one proxy of another conductor.

use super::chain::ChainArguments;
use super::{exit, run};
use crate::connection::Role;
use clap::Args;
use std::io::{self, IsTerminal};

/// Be a proxy for another conductor: runs its own chain of proxies, in one process, between that conductor's client and agent
#[derive(Args, Debug)]
#[command(after_help = "\
Speaks the proxy protocol on standard input and output, in the dialect that it is addressed in: `proxy/initialize` and \
`proxy/successor`, or the same with an underscore. Takes the options of `consort run` except for those of an agent, \
--env and --cwd; a configured agent is left alone.

A chain of Consort needs no other conductor, and a [groups] section in consort.toml makes chains of chains in one process.

Exit status: 0 at the end of input, 1 if the chain could not be set up, 2 if called wrongly, 128 + N after signal N.

Examples:
  agent-client-protocol-conductor agent \"consort proxy --proxy redact.wasm\" my-agent
  agent-client-protocol-conductor agent \"consort proxy --group safety\" another-proxy my-agent")]
pub(super) struct Arguments {
    #[command(flatten)]
    chain: ChainArguments,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    if io::stdin().is_terminal() {
        return Err(exit::failure(
            exit::USAGE,
            "a proxy is started by a conductor, which speaks to it through pipes; `consort run` is what an editor starts, \
             and `consort prompt` what a person does",
        ));
    }
    let options = arguments.chain.resolve().and_then(|chain| chain.connection(None));
    run::serve_chain(Role::Proxy, options)
}
