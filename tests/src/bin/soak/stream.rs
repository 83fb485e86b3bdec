//! The client's pipes: lines out, lines in, and the last of both for whoever has to find out what went wrong.

use crate::Result;
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How many lines are remembered.
const RECENT: usize = 400;

/// How much of a line is remembered.
const BEGINNING: usize = 240;

/// How long a client that has stalled reads nothing.
const STALL: Duration = Duration::from_millis(1_500);

/// Both pipes.
pub(crate) struct Stream {
    input: ChildStdin,
    lines: Receiver<Vec<u8>>,
    stalls: Arc<AtomicBool>,
    recent: VecDeque<String>,
}

impl Stream {
    pub(crate) fn new(child: &mut Child) -> Result<Self> {
        let input = child.stdin.take().ok_or("no input")?;
        let output = child.stdout.take().ok_or("no output")?;
        let (sender, lines) = mpsc::channel();
        let stalls = Arc::<AtomicBool>::default();
        let stalled = stalls.clone();
        // Reads on while the client writes, as a client has to.
        thread::spawn(move || {
            let lines = BufReader::new(output).split(b'\n');
            for line in lines.map_while(std::io::Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
                if stalled.swap(false, Ordering::Relaxed) {
                    thread::sleep(STALL);
                }
            }
        });
        Ok(Self {
            input,
            lines,
            stalls,
            recent: VecDeque::new(),
        })
    }

    /// Reads nothing for a while.
    pub(crate) fn stall(&self) {
        self.stalls.store(true, Ordering::Relaxed);
    }

    pub(crate) fn send(&mut self, message: &Value) -> Result<()> {
        self.send_line(message.to_string().as_bytes())
    }

    pub(crate) fn send_line(&mut self, line: &[u8]) -> Result<()> {
        self.remember("client → ", line);
        self.input.write_all(line)?;
        Ok(self.input.write_all(b"\n")?)
    }

    /// The next line, if one comes in time.
    pub(crate) fn next(&mut self, patience: Duration) -> Result<Option<Vec<u8>>> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => {
                self.remember("client ← ", &line);
                Ok(Some(line))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err("the output has ended".into()),
        }
    }

    /// Ends the client's side, and returns what still comes, until the end.
    pub(crate) fn close(self) -> Vec<Vec<u8>> {
        drop(self.input);
        self.lines.iter().collect()
    }

    /// What went to and fro last.
    pub(crate) fn recent(&self) -> impl Iterator<Item = &String> {
        self.recent.iter()
    }

    fn remember(&mut self, way: &str, line: &[u8]) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        let beginning = String::from_utf8_lossy(&line[..line.len().min(BEGINNING)]);
        self.recent.push_back(format!("{way}{beginning}"));
    }
}
