//! The command under test, run to its end.

use crate::{PATIENCE, consort, root};
use rustix::process::{Pid, test_kill_process};
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// What came of a command.
#[derive(Debug)]
pub struct Outcome {
    /// The exit status; none if a signal ended it.
    pub status: Option<i32>,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub error: String,
}

/// What a test grants to its proxies if it does not say.
const GRANTS: &str = "*=everything,file:**";

/// A command line of the command under test that sees nothing of the user's configuration. Proxies may do everything, unless the
/// test says what they may.
pub fn command(arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut arguments: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
    let with_proxies = arguments
        .first()
        .is_some_and(|first| ["run", "proxy", "prompt"].iter().any(|name| first == name));
    if with_proxies && !arguments.iter().any(|argument| *argument == "--grant") {
        arguments.splice(1..1, ["--grant", GRANTS].map(OsStr::new));
    }
    ungranted(&arguments)
}

/// The same with proxies that may do nothing but the ordinary things that they ask for.
pub fn ungranted(arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(consort());
    command
        .args(arguments)
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env("XDG_CACHE_HOME", cache())
        .env("XDG_STATE_HOME", state())
        .env_remove("CONSORT_LOG")
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE");
    command
}

/// Where the commands under test keep compiled proxies: common to all tests, and not the user's own.
pub fn cache() -> PathBuf {
    root().join("target/test-cache")
}

/// Where the commands under test keep what outlives a run: a folder of this process of tests, and not the user's own. What is to be
/// told apart needs one of its own.
pub fn state() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let all = root().join("target/test-state");
        // What processes of tests have left that are over; this one's number may have been used before.
        for entry in fs::read_dir(&all).into_iter().flatten().flatten() {
            let process = Path::new("/proc").join(entry.file_name());
            if !process.exists() || process.ends_with(std::process::id().to_string()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let own = all.join(std::process::id().to_string());
        fs::create_dir_all(&own).expect("a folder can be made");
        own
    })
}

/// Runs the command under test with nothing on its standard input.
pub fn run(arguments: &[impl AsRef<OsStr>]) -> Outcome {
    run_with_input(arguments, b"")
}

/// Runs the command under test with these bytes on its standard input.
pub fn run_with_input(arguments: &[impl AsRef<OsStr>], input: &[u8]) -> Outcome {
    finish(command(arguments), input)
}

/// Runs a command to its end.
pub fn finish(mut command: Command, input: &[u8]) -> Outcome {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command can be started");
    let mut stdin = child.stdin.take().expect("it is piped");
    let input = input.to_vec();
    // It is no fault of the command to end before it has read all of it.
    thread::spawn(move || stdin.write_all(&input).unwrap_or_default());
    let output = collect(child.stdout.take().expect("it is piped"));
    let error = collect(child.stderr.take().expect("it is piped"));
    let status = wait(&mut child);
    let text = |receiver: mpsc::Receiver<Vec<u8>>| {
        let bytes = receiver.recv_timeout(PATIENCE).expect("output ends with the command");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Outcome {
        status: status.code(),
        output: text(output),
        error: text(error),
    }
}

/// Waits for a process, which is killed if that takes too long.
pub fn wait(child: &mut Child) -> ExitStatus {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            return status;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    panic!("the command does not end");
}

/// Waits until a process is not there any more, whoever its parent is.
pub fn wait_until_gone(pid: u32) {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .expect("it is a process id");
    let begun = Instant::now();
    while test_kill_process(pid).is_ok() {
        // What nobody has waited for yet is gone as well.
        let status = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        if status.is_ok_and(|status| status.contains(") Z ")) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "the process is still there");
        thread::sleep(Duration::from_millis(5));
    }
}

fn collect(mut stream: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    receiver
}

/// Takes the next thing from a channel; none if its sender has ended.
pub(crate) fn take<T>(receiver: &mpsc::Receiver<T>, complaint: impl FnOnce() -> String) -> Option<T> {
    match receiver.recv_timeout(PATIENCE) {
        Ok(value) => Some(value),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => panic!("{}", complaint()),
    }
}
