//! `consort completions`: what a shell needs to complete the command line.

use super::{Cli, exit};
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Print a completion script for a shell
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  consort completions bash > ~/.local/share/bash-completion/completions/consort
  consort completions zsh > ~/.zfunc/_consort
  consort completions fish > ~/.config/fish/completions/consort.fish")]
pub(super) struct Arguments {
    /// The shell
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "consort", &mut script);
    exit::print(&String::from_utf8_lossy(&script))?;
    Ok(exit::SUCCESS)
}
