//! One agent process and its group.

use super::{AgentCommand, environment};
use crate::log::printable;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::pin::Pin;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Lines of standard error that are kept for an error message.
const TAIL_LINES: usize = 20;

/// Bytes of one line of standard error.
const LINE_BYTES: usize = 2 * 1024;

/// How long an agent may take to end by itself after its input has ended.
const CLOSE_WAIT: Duration = Duration::from_millis(500);

/// How long an agent may take after it was asked to end.
const TERM_WAIT: Duration = Duration::from_secs(2);

/// Why the agent could not be started.
#[derive(Clone, Debug)]
pub struct StartError {
    /// There is no such program: the shell's exit code for it is 127.
    pub missing: bool,
    /// The sentence for a person.
    pub sentence: String,
}

/// A running agent.
pub struct Agent {
    name: String,
    /// What goes to its standard input; none once it is closed.
    pub input: Option<pipe::Sender>,
    /// What comes from its standard output.
    pub output: pipe::Receiver,
    group: KillOnDrop,
    exited: watch::Receiver<Option<ExitStatus>>,
    errors: Arc<Mutex<Tail>>,
    reading: JoinHandle<()>,
}

/// The process group. Its number is forgotten when the leader is reaped, so that nobody else's process is ever signalled.
struct Group {
    leader: Mutex<Option<Pid>>,
}

#[derive(Default)]
struct Tail {
    lines: VecDeque<String>,
}

impl Agent {
    /// Starts the agent.
    ///
    /// # Errors
    ///
    /// A sentence that names the command, and for a missing one where it was looked for.
    pub fn start(command: &AgentCommand) -> Result<Self, StartError> {
        let name = printable(&command.program.to_string_lossy());
        let failed = |error: std::io::Error| StartError {
            missing: false,
            sentence: format!("the agent `{name}` cannot be started: {error}"),
        };
        let mut child = spawn(command).map_err(|error| describe(command, &error))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let group = Arc::new(Group {
            leader: Mutex::new(pid),
        });
        // From here on the group is ended whatever happens.
        let group = KillOnDrop(group);
        let (Some(input), Some(output), Some(errors)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(failed(std::io::Error::other("its pipes are missing")));
        };
        let input = pipe::Sender::from_owned_fd(OwnedFd::from(input)).map_err(failed)?;
        let output = pipe::Receiver::from_owned_fd(OwnedFd::from(output)).map_err(failed)?;
        let errors = pipe::Receiver::from_owned_fd(OwnedFd::from(errors)).map_err(failed)?;
        let (report, exited) = watch::channel(None);
        let watched = group.0.clone();
        std::thread::Builder::new()
            .name("consort-agent".into())
            .spawn(move || wait(child, pid, &watched, &report))
            .map_err(failed)?;
        let tail = Arc::new(Mutex::new(Tail::default()));
        let reading = tokio::spawn(read_errors(errors, tail.clone(), name.clone()));
        Ok(Self {
            name,
            input: Some(input),
            output,
            group,
            exited,
            errors: tail,
            reading,
        })
    }

    /// The command's name for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until the process has ended.
    pub async fn exited(&mut self) -> ExitStatus {
        loop {
            if let Some(status) = *self.exited.borrow_and_update() {
                return status;
            }
            if self.exited.changed().await.is_err() {
                // The thread that waits cannot end without a report; an unknown status is the honest answer.
                return ExitStatus::from_raw(0);
            }
        }
    }

    /// A future of its own that ends with the process.
    pub(crate) fn watch(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut exited = self.exited.clone();
        Box::pin(async move {
            // An error means that the thread that waits has ended, and the process with it.
            let _ = exited.wait_for(Option::is_some).await;
        })
    }

    /// How it ended, if it has.
    pub fn status(&self) -> Option<ExitStatus> {
        *self.exited.borrow()
    }

    /// The last lines of its standard error, once all of it was read or `wait` is over.
    pub async fn last_errors(&mut self, wait: Duration) -> Vec<String> {
        // Whether it ended or not, what is there is told.
        let _ = tokio::time::timeout(wait, &mut self.reading).await;
        let tail = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        tail.lines.iter().cloned().collect()
    }

    /// Ends the agent: its input is closed, then it is asked, then its whole group is killed.
    pub async fn stop(mut self) {
        self.input = None;
        if self.status().is_none() && tokio::time::timeout(CLOSE_WAIT, self.exited()).await.is_err() {
            self.group.0.signal(Signal::TERM);
            let _ = tokio::time::timeout(TERM_WAIT, self.exited()).await;
        }
        // Dropping kills what is left of the group.
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // A process that has left the group may keep the other end open.
        self.reading.abort();
    }
}

impl Group {
    fn signal(&self, signal: Signal) {
        let leader = self.leader.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(leader) = *leader {
            // An error means that nobody is left.
            let _ = rustix::process::kill_process_group(leader, signal);
        }
    }
}

struct KillOnDrop(Arc<Group>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.signal(Signal::KILL);
    }
}

fn spawn(command: &AgentCommand) -> std::io::Result<Child> {
    let mut process = Command::new(&command.program);
    process
        .args(&command.arguments)
        .env_clear()
        .envs(environment::environment(command))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    if let Some(directory) = &command.directory {
        process.current_dir(directory);
    }
    process.spawn()
}

fn describe(command: &AgentCommand, error: &std::io::Error) -> StartError {
    let program = &command.program;
    let name = printable(&program.to_string_lossy());
    let missing = error.kind() == std::io::ErrorKind::NotFound;
    let mut sentence = format!("the agent `{name}` cannot be started: {error}");
    if let Some(directory) = command.directory.as_ref().filter(|directory| !directory.is_dir()) {
        sentence = format!(
            "the agent `{name}` cannot be started: its working directory {} does not exist",
            directory.display()
        );
    } else if missing && !is_path(program) {
        let path = std::env::var("PATH").unwrap_or_default();
        sentence = format!(
            "the agent `{name}` was not found in PATH ({path}); install it, or name it by its absolute path \
             (editors often start programs with a shorter PATH than a terminal has)"
        );
    } else if missing && std::path::Path::new(program).exists() {
        sentence = format!(
            "the agent `{name}` cannot be started: the interpreter that its first line names, or the loader that it needs, \
             does not exist"
        );
    } else if missing {
        sentence = format!("the agent `{name}` does not exist; check the path");
    } else if error.kind() == std::io::ErrorKind::PermissionDenied {
        sentence =
            format!("the agent `{name}` cannot be executed: {error}; is it a program with the executable bit set?");
    }
    StartError { missing, sentence }
}

fn is_path(program: &OsStr) -> bool {
    program.to_string_lossy().contains('/')
}

/// Waits for the leader, ends what is left of its group, and only then lets the system forget its number.
fn wait(mut child: Child, pid: Option<Pid>, group: &Group, report: &watch::Sender<Option<ExitStatus>>) {
    if let Some(pid) = pid {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(
            rustix::process::waitid(WaitId::Pid(pid), options),
            Err(rustix::io::Errno::INTR)
        ) {}
    }
    let mut leader = group.leader.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(leader) = leader.take() {
        let _ = rustix::process::kill_process_group(leader, Signal::KILL);
    }
    let status = child.wait().unwrap_or_default();
    drop(leader);
    // Nobody may be waiting any more.
    let _ = report.send(Some(status));
}

async fn read_errors(mut errors: pipe::Receiver, tail: Arc<Mutex<Tail>>, name: String) {
    let mut lines = crate::wire::lines::LineBuffer::new(LINE_BYTES);
    loop {
        let read = errors.read_buf(lines.room()).await;
        let ended = !matches!(read, Ok(1..));
        while let Some(line) = lines.next_line().or_else(|| ended.then(|| lines.last_line()).flatten()) {
            let text = match line {
                crate::wire::lines::Line::Whole(line) => printable(String::from_utf8_lossy(&line).trim_end()),
                crate::wire::lines::Line::TooLong(_) => format!("(a line of more than {LINE_BYTES} bytes)"),
            };
            tracing::info!(target: "agent", "{name}: {text}");
            let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
            if tail.lines.len() == TAIL_LINES {
                tail.lines.pop_front();
            }
            tail.lines.push_back(text);
        }
        if ended {
            return;
        }
    }
}

/// How a process ended, in words.
pub(crate) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => {
            let name = match signal {
                1 => " (SIGHUP)",
                2 => " (SIGINT)",
                6 => " (SIGABRT)",
                9 => " (SIGKILL)",
                11 => " (SIGSEGV)",
                13 => " (SIGPIPE)",
                15 => " (SIGTERM)",
                _ => "",
            };
            format!("was ended by signal {signal}{name}")
        }
        (None, None) => "ended".into(),
    }
}
