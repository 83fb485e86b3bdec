//! A chain's processes: started with pipes, in a process group of their own, and ended with all that they have started, also when
//! this program is interrupted.

use crate::tree;
use anyhow::Context;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use tokio::signal::unix::{SignalKind, signal};

/// The processes to be ended when this program is.
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// A process with what it has started.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command with its standard error in a file.
    pub(crate) fn start(mut command: Command, log: &Path) -> anyhow::Result<(Self, ChildStdin, ChildStdout)> {
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(file)
            .process_group(0);
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        running.push(child.id());
        drop(running);
        let input = child.stdin.take().context("the process has no input")?;
        let output = child.stdout.take().context("the process has no output")?;
        let log = log.to_owned();
        Ok((Self { child, log }, input, output))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it said last on standard error.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(2000)..]);
        match text.trim() {
            "" => "it wrote nothing to its standard error".to_owned(),
            text => format!("it wrote to its standard error: {text}"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|pid| *pid != self.child.id());
        tree::kill(self.child.id());
        // It was killed.
        let _ = self.child.wait();
    }
}

/// Ends everything on Ctrl-C and the like.
pub(crate) fn end_on_signals() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) =
        runtime.block_on(async { anyhow::Ok((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)) })?;
    thread::spawn(move || {
        let number = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => 2,
                _ = terminate.recv() => 15,
            }
        });
        // Held to the end, so that nothing is started any more.
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.iter().copied().for_each(tree::kill);
        eprintln!("\nconsort-bench: interrupted");
        std::process::exit(128 + number);
    });
    Ok(())
}
