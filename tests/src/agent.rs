//! An agent process that says exactly what a test wants it to say.

use crate::command::take;
use crate::directory::Directory;
use crate::frame::{self, Kind};
use crate::program;
use crate::transcript::Transcript;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc;
use std::thread;

/// How many lines are read ahead of the test. Behind them the agent is a stalled reader.
const AHEAD: usize = 1024;

/// Waits for scripted agents to be started.
pub struct AgentListener {
    directory: Directory,
    stays: bool,
    connections: mpsc::Receiver<UnixStream>,
    transcript: Transcript,
}

impl AgentListener {
    /// For agents that end with their input.
    pub fn new() -> Self {
        Self::with(false)
    }

    /// For agents that ignore the end of their input.
    pub fn staying() -> Self {
        Self::with(true)
    }

    fn with(stays: bool) -> Self {
        let directory = Directory::new();
        let listener = UnixListener::bind(directory.path().join("agent")).expect("a socket can be made");
        let (sender, connections) = mpsc::sync_channel(1);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                if sender.send(connection).is_err() {
                    break;
                }
            }
        });
        Self {
            directory,
            stays,
            connections,
            transcript: Transcript::default(),
        }
    }

    /// The command line that starts such an agent.
    pub fn command(&self) -> Vec<OsString> {
        let mut command = vec![
            program("scripted-agent").into_os_string(),
            self.directory.path().join("agent").into_os_string(),
        ];
        if self.stays {
            command.push("stay".into());
        }
        command
    }

    /// What was said; shared with a client in front of the agent.
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// The next agent that is started.
    pub fn accept(&self) -> Agent {
        let socket = take(&self.connections, || {
            format!("no agent was started\n{}", self.transcript)
        })
        .expect("the listener goes on");
        let mut reader = socket.try_clone().expect("a socket can be cloned");
        let pid = match frame::read(&mut reader) {
            Ok((Kind::Hello, pid)) => u32::from_be_bytes(pid.try_into().expect("four bytes")),
            other => panic!("the agent did not say hello: {other:?}"),
        };
        let (sender, lines) = mpsc::sync_channel(AHEAD);
        thread::spawn(move || {
            // Ends with the frame that says so, or with the process.
            while let Ok((Kind::Line, line)) = frame::read(&mut reader) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Agent {
            socket,
            pid,
            lines,
            transcript: self.transcript.clone(),
        }
    }
}

impl Default for AgentListener {
    fn default() -> Self {
        Self::new()
    }
}

/// A scripted agent that runs. It ends when it is dropped.
pub struct Agent {
    socket: UnixStream,
    pid: u32,
    lines: mpsc::Receiver<Vec<u8>>,
    transcript: Transcript,
}

impl Agent {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// A second voice, to say something while the agent listens. Two that speak at once may interrupt each other.
    pub fn voice(&self) -> Voice {
        Voice(self.socket.try_clone().expect("a socket can be cloned"))
    }

    /// Writes bytes to its standard output as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.transcript.note("  agent →", bytes);
        self.order(Kind::Output, bytes);
    }

    /// Writes a line to its standard output.
    pub fn send(&mut self, line: &str) {
        self.send_raw(format!("{line}\n").as_bytes());
    }

    /// Writes a JSON value as a line.
    pub fn send_json(&mut self, value: &Value) {
        self.send(&value.to_string());
    }

    /// Answers a request.
    pub fn answer(&mut self, request: &Value, result: &Value) {
        self.send_json(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }

    /// Writes a line to its standard error.
    pub fn complain(&mut self, line: &str) {
        self.order(Kind::Error, format!("{line}\n").as_bytes());
    }

    /// Makes it exit.
    pub fn exit(&mut self, status: u8) {
        self.transcript.note("  agent →", b"(exits)");
        self.order(Kind::Exit, &[status]);
    }

    /// The next line of its standard input as it came, without its line end.
    pub fn expect_raw(&mut self) -> Vec<u8> {
        match self.next() {
            Some(line) => line,
            None => panic!("the agent's input ended where a line was expected\n{}", self.transcript),
        }
    }

    /// The next line as text.
    pub fn expect_line(&mut self) -> String {
        String::from_utf8(self.expect_raw()).expect("input is UTF-8")
    }

    /// The next line as JSON.
    pub fn expect(&mut self) -> Value {
        let line = self.expect_line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("not JSON ({error}): {line}\n{}", self.transcript))
    }

    /// The next line as JSON; none at the end of its standard input.
    pub fn listen(&mut self) -> Option<Value> {
        let line = self.next()?;
        Some(serde_json::from_slice(&line).expect("input is JSON"))
    }

    /// The next line as JSON, if it has come already.
    pub fn heard(&mut self) -> Option<Value> {
        let line = self.lines.try_recv().ok()?;
        self.transcript.note("  agent ←", &line);
        Some(serde_json::from_slice(&line).expect("input is JSON"))
    }

    /// Whether nothing has come that was not taken yet.
    pub fn is_quiet(&self) -> bool {
        matches!(self.lines.try_recv(), Err(mpsc::TryRecvError::Empty))
    }

    /// The end of its standard input; a line is a failure.
    pub fn expect_end(&mut self) {
        if let Some(line) = self.next() {
            panic!(
                "the agent expected no line, but {}\n{}",
                String::from_utf8_lossy(&line),
                self.transcript
            );
        }
    }

    fn order(&mut self, kind: Kind, payload: &[u8]) {
        // An agent that has been killed takes no orders; the test will notice what it waits for.
        let _ = frame::write(&mut self.socket, kind, payload);
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut line = take(&self.lines, || {
            format!("nothing came to the agent\n{}", self.transcript)
        })?;
        self.transcript.note("  agent ←", &line);
        if line.ends_with(b"\n") {
            line.pop();
        }
        Some(line)
    }
}

/// What an agent says, apart from what it hears.
pub struct Voice(UnixStream);

impl Voice {
    /// Writes bytes to the agent's standard output as they are, and waits until it has begun to.
    pub fn say(&mut self, bytes: &[u8]) {
        // An agent that has been killed says nothing; the test will notice what it waits for.
        let _ = frame::write(&mut self.0, Kind::Output, bytes);
    }
}
