//! Exit statuses, and how a failure is told.

use super::text;
use anyhow::anyhow;
use std::fmt;
use std::io::{self, Write};

/// The command did what it was asked to do.
pub(super) const SUCCESS: u8 = 0;
/// It could not.
pub(super) const FAILURE: u8 = 1;
/// It was called wrongly; clap uses the same.
pub(super) const USAGE: u8 = 2;
/// A command was found but could not be started, as shells have it.
pub(super) const NOT_STARTED: u8 = 126;
/// A command was not found, as shells have it; editors show it as such.
pub(super) const NOT_FOUND: u8 = 127;
/// What shells show for a program that ended by a signal: this and the signal's number.
pub(super) const SIGNAL: u8 = 128;

/// A failure with an exit status of its own.
#[derive(Debug)]
struct Failure {
    status: u8,
    sentence: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.sentence)
    }
}

impl std::error::Error for Failure {}

/// Whoever read standard output is gone. Nothing is said about it, as usual in pipes.
#[derive(Debug)]
struct OutputGone;

impl fmt::Display for OutputGone {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("nobody reads standard output any more")
    }
}

impl std::error::Error for OutputGone {}

/// An error that ends the program with a certain status.
pub(super) fn failure(status: u8, sentence: impl Into<String>) -> anyhow::Error {
    anyhow!(Failure {
        status,
        sentence: sentence.into(),
    })
}

/// Tells a failure on standard error and returns the status to exit with.
pub(super) fn report(outcome: anyhow::Result<u8>) -> u8 {
    let error = match outcome {
        Ok(status) => return status,
        Err(error) => error,
    };
    if error.is::<OutputGone>() {
        // 13 is SIGPIPE.
        return SIGNAL + 13;
    }
    complain(&format!("{error:#}"));
    error
        .downcast_ref::<Failure>()
        .map_or(FAILURE, |failure| failure.status)
}

/// Writes one line of the program's own to standard error.
pub(super) fn complain(sentence: &str) {
    // There is nowhere left to say that standard error is gone.
    let _ = writeln!(io::stderr(), "consort: {}", text::one_line(sentence));
}

/// Writes to standard output at once.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(anyhow!(OutputGone)),
        Err(error) => Err(anyhow!("cannot write to standard output: {error}")),
    }
}
