//! Standard input and output as the client's end of a connection, as fast as what stands behind them allows.
//!
//! Whether a descriptor blocks is a property of the open file, which other processes may share: what this process sets
//! on a pipe that came as its standard input also holds for whoever else has the pipe's end. So a pipe is opened anew for itself, a
//! socket is used as it is only if it is not standard error's as well, and everything else is read and written by a
//! blocking thread.

use crate::connection::ClientStreams;
use anyhow::{Context, bail};
use rustix::fs::{FileType, Mode, OFlags, fstat};
use std::fs::File;
use std::future::Future;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as BlockingUnixStream;
use std::pin::Pin;
use std::thread;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// What a blocking thread reads or writes at a time, and what waits between it and the chain, in bytes.
const BUFFER: usize = 64 * 1024;

type Input = Pin<Box<dyn AsyncRead + Send>>;
type Output = Pin<Box<dyn AsyncWrite + Send>>;

/// The end of the thread that writes standard output, where there is one.
pub(super) struct Finish(Option<oneshot::Receiver<()>>);

impl Finish {
    /// Waits until everything is written. The output must have been dropped.
    ///
    /// # Errors
    ///
    /// When it takes longer than `limit`, since nobody reads: what is left is lost then.
    pub(super) async fn wait(self, limit: Duration) -> anyhow::Result<()> {
        let Some(written) = self.0 else { return Ok(()) };
        match tokio::time::timeout(limit, written).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => bail!("the thread that writes standard output has panicked"),
            Err(_) => bail!("nobody reads standard output any more, so the end of it is lost"),
        }
    }
}

/// Opens both. Must be called within the runtime.
pub(super) fn open() -> anyhow::Result<(ClientStreams, Finish)> {
    let stdin = io::stdin();
    let input = match input_without_thread(stdin.as_fd()) {
        Some(input) => input,
        None => read_by_thread(copy(stdin.as_fd())?)?,
    };
    let stdout = io::stdout();
    let (output, finish) = match output_without_thread(stdout.as_fd()) {
        Some(output) => (output, Finish(None)),
        None => write_by_thread(copy(stdout.as_fd())?)?,
    };
    let gone = reader_of_pipe(stdout.as_fd());
    Ok((ClientStreams { input, output, gone }, finish))
}

fn copy(descriptor: BorrowedFd<'_>) -> anyhow::Result<File> {
    Ok(File::from(
        descriptor
            .try_clone_to_owned()
            .context("cannot duplicate standard input or output")?,
    ))
}

fn input_without_thread(descriptor: BorrowedFd<'_>) -> Option<Input> {
    match file_type(descriptor)? {
        FileType::Fifo => {
            let file = reopen("/proc/self/fd/0", OFlags::RDONLY)?;
            Some(Box::pin(pipe::Receiver::from_file(file).ok()?))
        }
        FileType::Socket => Some(Box::pin(socket(descriptor)?)),
        _ => None,
    }
}

fn output_without_thread(descriptor: BorrowedFd<'_>) -> Option<Output> {
    match file_type(descriptor)? {
        FileType::Fifo => {
            let file = reopen("/proc/self/fd/1", OFlags::WRONLY)?;
            Some(Box::pin(pipe::Sender::from_file(file).ok()?))
        }
        FileType::Socket => Some(Box::pin(socket(descriptor)?)),
        _ => None,
    }
}

/// Ends when a pipe's last reader closes it.
fn reader_of_pipe(descriptor: BorrowedFd<'_>) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
    if file_type(descriptor)? != FileType::Fifo {
        return None;
    }
    let file = reopen("/proc/self/fd/1", OFlags::WRONLY)?;
    let watched = pipe::Sender::from_file(file).ok()?;
    Some(Box::pin(async move {
        if watched.ready(Interest::ERROR).await.is_err() {
            // It cannot be watched: the next write will tell.
            std::future::pending::<()>().await;
        }
    }))
}

fn file_type(descriptor: BorrowedFd<'_>) -> Option<FileType> {
    Some(FileType::from_raw_mode(fstat(descriptor).ok()?.st_mode))
}

/// Opens a pipe anew, so that not to block is a property of this process's end alone.
fn reopen(path: &str, access: OFlags) -> Option<File> {
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Some(File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?))
}

/// The descriptor as a Unix socket, if it is one and is not standard error's too. It cannot be opened anew.
fn socket(descriptor: BorrowedFd<'_>) -> Option<UnixStream> {
    let own = fstat(descriptor).ok()?;
    let error = fstat(io::stderr()).ok()?;
    if (own.st_dev, own.st_ino) == (error.st_dev, error.st_ino) {
        return None;
    }
    let stream = BlockingUnixStream::from(descriptor.try_clone_to_owned().ok()?);
    // Fails for other families of sockets.
    stream.local_addr().ok()?;
    stream.set_nonblocking(true).ok()?;
    match UnixStream::from_std(stream) {
        Ok(stream) => Some(stream),
        Err(error) => {
            tracing::debug!("a socket cannot be watched: {error}");
            None
        }
    }
}

fn read_by_thread(mut file: File) -> anyhow::Result<Input> {
    let (mut sender, receiver) = tokio::io::duplex(BUFFER);
    let runtime = Handle::current();
    // The thread is not waited for: it may be in the middle of a read that never ends.
    thread::Builder::new()
        .name("stdin".into())
        .spawn(move || {
            let mut buffer = vec![0; BUFFER];
            loop {
                match file.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(length) => {
                        if runtime.block_on(sender.write_all(&buffer[..length])).is_err() {
                            break;
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        tracing::warn!("standard input ends with an error: {error}");
                        break;
                    }
                }
            }
        })
        .context("cannot start a thread that reads standard input")?;
    Ok(Box::pin(receiver))
}

fn write_by_thread(mut file: File) -> anyhow::Result<(Output, Finish)> {
    let (sender, mut receiver): (DuplexStream, DuplexStream) = tokio::io::duplex(BUFFER);
    let (written, finish) = oneshot::channel();
    let runtime = Handle::current();
    // Not joined, as a write may never end.
    thread::Builder::new()
        .name("stdout".into())
        .spawn(move || {
            let mut buffer = vec![0; BUFFER];
            // When this ends by an error, the other end of the duplex is told by its next write.
            while let Ok(length @ 1..) = runtime.block_on(receiver.read(&mut buffer)) {
                if let Err(error) = file.write_all(&buffer[..length]) {
                    tracing::debug!("standard output ends with an error: {error}");
                    break;
                }
            }
            // Nobody may wait for it.
            let _ = written.send(());
        })
        .context("cannot start a thread that writes standard output")?;
    Ok((Box::pin(sender), Finish(Some(finish))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    /// More than fits into a pipe, less than fits into it and what stands before it.
    const LENGTH: usize = 2 * BUFFER + BUFFER / 2;

    #[tokio::test]
    async fn what_is_read_is_written_to_its_end() {
        let (mut reader, writer) = io::pipe().unwrap();
        let (mut output, finish) = write_by_thread(File::from(OwnedFd::from(writer))).unwrap();
        output.write_all(&vec![b'x'; LENGTH]).await.unwrap();
        drop(output);
        let reading = thread::spawn(move || {
            let mut text = Vec::new();
            reader.read_to_end(&mut text).unwrap();
            text.len()
        });
        finish.wait(Duration::from_secs(60)).await.unwrap();
        assert_eq!(reading.join().unwrap(), LENGTH);
    }

    #[tokio::test]
    async fn what_nobody_reads_is_not_waited_for_for_ever() {
        let (reader, writer) = io::pipe().unwrap();
        let (mut output, finish) = write_by_thread(File::from(OwnedFd::from(writer))).unwrap();
        output.write_all(&vec![b'x'; LENGTH]).await.unwrap();
        drop(output);
        let error = finish.wait(Duration::from_millis(1)).await.unwrap_err();
        assert!(error.to_string().contains("standard output"), "{error}");
        drop(reader);
    }
}
