//! An agent process that a test drives: what arrives on standard input goes to the test, and what the test says is done. The test
//! listens on the Unix socket that is the only argument; a second argument `stay` makes the agent ignore the end of its
//! input.

use consort_tests::frame::{self, Kind};
use std::env;
use std::io::{self, BufRead, Write};
use std::os::unix::net::UnixStream;
use std::process;
use std::thread;

fn main() -> io::Result<()> {
    let mut arguments = env::args_os().skip(1);
    let path = arguments.next().ok_or_else(|| io::Error::other("no socket is named"))?;
    let stays = arguments.next().is_some();
    let mut socket = UnixStream::connect(path)?;
    frame::write(&mut socket, Kind::Hello, &process::id().to_be_bytes())?;

    let mut reports = socket.try_clone()?;
    thread::spawn(move || {
        let mut input = io::stdin().lock();
        loop {
            let mut line = Vec::new();
            match input.read_until(b'\n', &mut line) {
                Ok(1..) => frame::write(&mut reports, Kind::Line, &line).unwrap_or_default(),
                Ok(0) | Err(_) => break,
            }
        }
        frame::write(&mut reports, Kind::End, &[]).unwrap_or_default();
        if !stays {
            process::exit(0);
        }
    });

    // Ends with the test's end of the socket.
    while let Ok((kind, payload)) = frame::read(&mut socket) {
        match kind {
            Kind::Output => {
                let mut output = io::stdout().lock();
                output.write_all(&payload)?;
                output.flush()?;
            }
            Kind::Error => io::stderr().write_all(&payload)?,
            Kind::Exit => process::exit(payload.first().copied().map_or(0, i32::from)),
            Kind::Hello | Kind::Line | Kind::End => {}
        }
    }
    Ok(())
}
