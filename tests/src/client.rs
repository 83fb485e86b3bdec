//! A client that says exactly what a test wants it to say.

use crate::PATIENCE;
use crate::agent::AgentListener;
use crate::command::{self, take};
use crate::transcript::Transcript;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How many lines are read ahead of the test. Behind them the client is a stalled reader.
const AHEAD: usize = 1024;

/// How long a process may take to end when its test is over.
const LAST_TIME: Duration = Duration::from_secs(3);

/// A client with `consort run` as its agent.
pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    lines: mpsc::Receiver<Vec<u8>>,
    error: Arc<Mutex<String>>,
    error_reader: thread::JoinHandle<()>,
    transcript: Transcript,
}

impl Client {
    /// Starts `consort run OPTIONS -- AGENT`.
    pub fn start(options: &[impl AsRef<OsStr>], agent: &[impl AsRef<OsStr>]) -> Self {
        Self::spawn(run_command(options, agent), Transcript::default())
    }

    /// Starts `consort run OPTIONS` in front of a scripted agent, with a common transcript.
    pub fn in_front_of(agent: &AgentListener, options: &[impl AsRef<OsStr>]) -> Self {
        Self::spawn(run_command(options, &agent.command()), agent.transcript().clone())
    }

    /// Starts any command as the agent of this client.
    pub fn spawn(mut command: Command, transcript: Transcript) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command can be started");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = mpsc::sync_channel(AHEAD);
        thread::spawn(move || {
            loop {
                let mut line = Vec::new();
                match output.read_until(b'\n', &mut line) {
                    Ok(1..) if sender.send(line).is_ok() => {}
                    _ => break,
                }
            }
        });
        let error = Arc::new(Mutex::new(String::new()));
        let (mut stream, text) = (child.stderr.take().expect("it is piped"), Arc::clone(&error));
        let error_reader = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                text.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        });
        Self {
            input: child.stdin.take(),
            child,
            lines,
            error,
            error_reader,
            transcript,
        }
    }

    /// The id of the process that the client talks to.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What the process has said on standard error so far.
    pub fn standard_error(&self) -> String {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until standard error has this text, and returns all of it so far.
    pub fn expect_standard_error(&self, text: &str) -> String {
        let begun = Instant::now();
        loop {
            let said = self.standard_error();
            if said.contains(text) {
                return said;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "standard error never had {text:?}\n{}",
                self.report()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the process's input, waits for its end, and returns all that it has said on standard error.
    pub fn end(&mut self) -> String {
        self.input = None;
        self.wait();
        let begun = Instant::now();
        while !self.error_reader.is_finished() {
            assert!(
                begun.elapsed() < PATIENCE,
                "standard error does not end\n{}",
                self.report()
            );
            thread::sleep(Duration::from_millis(5));
        }
        self.standard_error()
    }

    /// Sends bytes as they are, without a line end. A process that does not read them any more is no failure here.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.transcript.note("client  →", bytes);
        let input = self.input.as_mut().expect("the input is open");
        if let Err(error) = input.write_all(bytes).and_then(|()| input.flush()) {
            self.transcript
                .note("client  →", format!("(not read: {error})").as_bytes());
        }
    }

    /// Sends a line.
    pub fn send(&mut self, line: &str) {
        self.send_raw(format!("{line}\n").as_bytes());
    }

    /// Sends a JSON value as a line.
    pub fn send_json(&mut self, value: &Value) {
        self.send(&value.to_string());
    }

    /// Ends the process's input.
    pub fn close_input(&mut self) {
        self.transcript.note("client  →", b"(end of input)");
        self.input = None;
    }

    /// The next line as it came, without its line end.
    pub fn expect_raw(&mut self) -> Vec<u8> {
        match self.next() {
            Some(line) => line,
            None => panic!(
                "the process ended its output where a line was expected\n{}",
                self.report()
            ),
        }
    }

    /// The next line as text.
    pub fn expect_line(&mut self) -> String {
        String::from_utf8(self.expect_raw()).expect("output is UTF-8")
    }

    /// The next line as JSON.
    pub fn expect(&mut self) -> Value {
        let line = self.expect_line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("not JSON ({error}): {line}\n{}", self.report()))
    }

    /// The next line as JSON; none at the end of the process's output.
    pub fn listen(&mut self) -> Option<Value> {
        let line = self.next()?;
        Some(serde_json::from_slice(&line).expect("output is JSON"))
    }

    /// The most memory that the process has had so far, in KiB; none if it is over.
    pub fn peak_memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// The next line as JSON, if it has come already.
    pub fn heard(&mut self) -> Option<Value> {
        let line = self.lines.try_recv().ok()?;
        self.transcript.note("client  ←", &line);
        Some(serde_json::from_slice(&line).expect("output is JSON"))
    }

    /// The process's input, to be written while the client reads. Nothing else can be sent with it.
    pub fn take_input(&mut self) -> ChildStdin {
        self.input.take().expect("the input is open")
    }

    /// The end of the process's output; a line is a failure.
    pub fn expect_end(&mut self) {
        if let Some(line) = self.next() {
            panic!(
                "no line was expected, but {}\n{}",
                String::from_utf8_lossy(&line),
                self.report()
            );
        }
    }

    /// Waits for the end of the process.
    pub fn wait(&mut self) -> ExitStatus {
        command::wait(&mut self.child)
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut line = take(&self.lines, || {
            format!("nothing came from the process\n{}", self.report())
        })?;
        self.transcript.note("client  ←", &line);
        if line.ends_with(b"\n") {
            line.pop();
        }
        Some(line)
    }

    fn report(&self) -> String {
        format!("{}\n{}", self.transcript, self.standard_error())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.input = None;
        // It gets the time to clear up behind itself; it may have ended already.
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), Pid::from_raw(self.child.id().cast_signed())) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < LAST_TIME {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run_command(options: &[impl AsRef<OsStr>], agent: &[impl AsRef<OsStr>]) -> Command {
    let mut arguments: Vec<OsString> = vec!["run".into()];
    arguments.extend(options.iter().map(|option| option.as_ref().to_owned()));
    arguments.push("--".into());
    arguments.extend(agent.iter().map(|word| word.as_ref().to_owned()));
    command::command(&arguments)
}
