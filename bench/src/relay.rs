//! The limit of what any conductor in a process of its own can reach: two threads that copy bytes.

use anyhow::Context;
use rustix::fd::AsFd;
use rustix::stdio::{stdin, stdout};
use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::thread;

/// Starts a command and relays its input and output.
pub(crate) fn run(command: &[OsString]) -> anyhow::Result<()> {
    let (program, arguments) = command.split_first().context("a command is missing")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let input = child.stdin.take().context("no input")?;
    let output = child.stdout.take().context("no output")?;
    let upwards = thread::spawn(move || copy(output, stdout()));
    // Either side going away ends it.
    let _ = copy(stdin(), &input);
    drop(input);
    let _ = upwards.join();
    child.wait()?;
    Ok(())
}

fn copy(from: impl AsFd, to: impl AsFd) -> rustix::io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        let count = rustix::io::retry_on_intr(|| rustix::io::read(&from, &mut buffer))?;
        if count == 0 {
            return Ok(());
        }
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            let count = rustix::io::retry_on_intr(|| rustix::io::write(&to, rest))?;
            rest = &rest[count..];
        }
    }
}
