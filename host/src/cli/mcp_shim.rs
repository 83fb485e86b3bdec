//! `consort mcp-shim`: what an agent starts as an MCP server that it reaches over standard input and output. Comes back to the Consort that
//! told the agent of it, and passes lines on. Must not know what they say.

use super::exit;
use crate::bridge::SECRET;
use clap::Args;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;

/// Bytes that are passed on at a time.
const PIECE: usize = 64 * 1024;

/// Stands for an MCP server of a proxy, for agents that start their servers: Consort tells them to
#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// The socket of the Consort that this belongs to
    socket: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let Some(secret) = std::env::var_os(SECRET) else {
        anyhow::bail!("{SECRET} is not set: agents start this, with what `consort run` has told them");
    };
    let mut there = come_back(&arguments.socket)?;
    there.write_all(secret.as_encoded_bytes())?;
    there.write_all(b"\n")?;
    let mut here = there.try_clone()?;
    thread::spawn(move || {
        // Whichever side ends, the other one hears of it.
        let _ = pass_on(&mut io::stdin().lock(), &mut here);
        let _ = here.shutdown(std::net::Shutdown::Write);
    });
    pass_on(&mut there, &mut io::stdout().lock())?;
    Ok(exit::SUCCESS)
}

fn come_back(socket: &Path) -> anyhow::Result<UnixStream> {
    UnixStream::connect(socket).map_err(|error| {
        anyhow::anyhow!(
            "the Consort that this MCP server belongs to cannot be reached at {}, it may have ended: {error}",
            socket.display()
        )
    })
}

/// Passes on what comes, as soon as it does.
fn pass_on(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let read = from.read(&mut piece)?;
        if read == 0 {
            return Ok(());
        }
        to.write_all(&piece[..read])?;
        to.flush()?;
    }
}
