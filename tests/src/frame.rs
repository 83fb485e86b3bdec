//! What a test and its scripted agent say to each other over their socket: a kind, a length, and bytes.

use std::io::{self, Read, Write};

/// What a frame means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From the agent, first: its process id.
    Hello,
    /// From the agent: a line of its standard input, line end included.
    Line,
    /// From the agent: its standard input has ended.
    End,
    /// To the agent: bytes for standard output.
    Output,
    /// To the agent: bytes for standard error.
    Error,
    /// To the agent: exit with this status.
    Exit,
}

const KINDS: [Kind; 6] = [
    Kind::Hello,
    Kind::Line,
    Kind::End,
    Kind::Output,
    Kind::Error,
    Kind::Exit,
];

/// Writes a frame.
///
/// # Errors
///
/// When the other side is gone.
pub fn write(stream: &mut impl Write, kind: Kind, payload: &[u8]) -> io::Result<()> {
    let number = KINDS.iter().position(|other| *other == kind).unwrap_or(0);
    let mut frame = vec![u8::try_from(number).map_err(io::Error::other)?];
    frame.extend(u32::try_from(payload.len()).map_err(io::Error::other)?.to_be_bytes());
    frame.extend(payload);
    stream.write_all(&frame)
}

/// Reads a frame.
///
/// # Errors
///
/// When the other side is gone.
pub fn read(stream: &mut impl Read) -> io::Result<(Kind, Vec<u8>)> {
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let [number, length @ ..] = head;
    let kind = KINDS
        .get(usize::from(number))
        .ok_or_else(|| io::Error::other("a frame of an unknown kind"))?;
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(io::Error::other)?;
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload)?;
    Ok((*kind, payload))
}
