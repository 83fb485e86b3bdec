//! The command under test on a terminal of the test's own.

use crate::PATIENCE;
use crate::command::{command, wait};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

/// How many pieces of what is shown are read ahead of the test.
const AHEAD: usize = 16;

/// A terminal of the test's own, and the end of it for a command's standard input or output.
pub fn open() -> (File, Stdio) {
    let (terminal, name) = new();
    let other = open_other(&name);
    (terminal, other)
}

fn new() -> (File, String) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are terminals");
    grantpt(&terminal).expect("a terminal can be granted");
    unlockpt(&terminal).expect("a terminal can be unlocked");
    let name = ptsname(&terminal, Vec::new()).expect("a terminal has a name");
    (File::from(terminal), name.into_string().expect("its name is text"))
}

fn open_other(name: &str) -> Stdio {
    let file = OpenOptions::new().read(true).write(true).open(name);
    Stdio::from(file.expect("a terminal can be opened"))
}

/// Runs the command under test on a terminal, types an answer whenever the text before it has been shown, and returns the
/// exit status and all that was shown. A terminal shows what is typed as well, and ends lines with `\r\n`.
pub fn run(arguments: &[impl AsRef<OsStr>], answers: &[(&str, &str)]) -> (Option<i32>, String) {
    let (mut terminal, name) = new();
    let open = || open_other(&name);
    let mut command = command(arguments);
    command.env("NO_COLOR", "1").stdin(open()).stdout(open()).stderr(open());
    let mut child = command.spawn().expect("the command can be started");
    // The test keeps no end of the terminal that would keep it open.
    drop(command);

    let mut screen = terminal.try_clone().expect("a file can be cloned");
    let (sender, pieces) = mpsc::sync_channel(AHEAD);
    thread::spawn(move || {
        let mut buffer = [0; 1024];
        // A terminal that nobody has open any more ends with an error.
        while let Ok(length @ 1..) = screen.read(&mut buffer) {
            if sender.send(buffer[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    let mut shown = String::new();
    let mut answers = answers.iter();
    let mut next = answers.next();
    let mut seen = 0;
    loop {
        let piece = match pieces.recv_timeout(PATIENCE) {
            Ok(piece) => piece,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let _ = child.kill();
                panic!("{next:?} does not come: {shown}");
            }
        };
        shown.push_str(&String::from_utf8_lossy(&piece));
        while let Some((question, answer)) = next
            && let Some(position) = shown[seen..].find(question)
        {
            seen += position + question.len();
            terminal.write_all(answer.as_bytes()).expect("a terminal takes input");
            next = answers.next();
        }
    }
    assert!(next.is_none(), "{next:?} was not seen in {shown}");
    (wait(&mut child).code(), shown)
}
