//! The private socket that shims come back over: one connection is one client, and a line is a message. Lets in whoever shows a server's
//! secret in the first line.

use super::client::{Client, Request};
use super::event_log::EventLog;
use super::message::{Kind, MAX_MESSAGE, Message, failure};
use super::served::secret;
use super::{Shared, lock};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

/// Connections at a time.
const MAX_CONNECTIONS: usize = 64;

/// How long the first line may take.
const FIRST_LINE: Duration = Duration::from_secs(10);

/// Bytes of the first line.
const MAX_SECRET: u64 = 128;

/// The socket, gone with this.
pub(super) struct Socket {
    folder: PathBuf,
    task: JoinHandle<()>,
}

impl Socket {
    /// Listens in a folder that only this user can look into.
    pub(super) fn open(shared: &Arc<Shared>) -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("consort-{}", secret()?));
        std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let listening =
            UnixListener::bind(folder.join("mcp")).map(|listener| tokio::spawn(listen(listener, shared.clone())));
        match listening {
            Ok(task) => Ok(Self { folder, task }),
            Err(error) => {
                // It is empty.
                let _ = std::fs::remove_dir(&folder);
                Err(error)
            }
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.join("mcp")
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.task.abort();
        remove(&self.folder);
    }
}

fn remove(folder: &Path) {
    let removed = std::fs::remove_file(folder.join("mcp")).and_then(|()| std::fs::remove_dir(folder));
    if let Err(error) = removed {
        tracing::debug!("{} could not be removed: {error}", folder.display());
    }
}

async fn listen(listener: UnixListener, shared: Arc<Shared>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(permit) = room.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = shared.clone();
                connections.spawn(async move {
                    let _permit = permit;
                    serve(stream, &shared).await;
                });
            }
            Err(error) => {
                tracing::warn!("a shim of MCP could not be let in: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// A line; none at the end, or if it is longer than that.
async fn line(reader: &mut BufReader<OwnedReadHalf>, most: u64) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let read = reader.take(most).read_until(b'\n', &mut line).await;
    (read.is_ok() && line.pop() == Some(b'\n')).then_some(line)
}

async fn serve(stream: UnixStream, shared: &Arc<Shared>) {
    let (read, mut write) = stream.into_split();
    let mut reader = BufReader::new(read);
    let Ok(Some(shown)) = tokio::time::timeout(FIRST_LINE, line(&mut reader, MAX_SECRET)).await else {
        return;
    };
    let served = lock(&shared.served).get(&blake3::hash(&shown)).cloned();
    let Some(served) = served else {
        tracing::warn!("a shim of MCP without the secret of a server was turned away");
        return;
    };
    let log = Arc::new(EventLog::default());
    let written = {
        let log = log.clone();
        async move {
            let mut cursor = log.read(None);
            while let Some((_, message)) = log.next(&mut cursor).await {
                let line = [&message[..], b"\n"].concat();
                if write.write_all(&line).await.is_err() {
                    return;
                }
            }
        }
    };
    let mut client = None;
    let read = async {
        // They end with this.
        let mut asked = JoinSet::new();
        while let Some(line) = line(&mut reader, MAX_MESSAGE as u64).await {
            while asked.try_join_next().is_some() {}
            let kind = match Message::read(&line).and_then(Message::kind) {
                Ok(kind) => kind,
                Err((code, reason)) => {
                    log.push(&failure("null", code, &reason));
                    continue;
                }
            };
            match (kind, &client) {
                (Kind::Request(request), None) => match Client::connect(shared, served.clone()).await {
                    Ok(connected) => {
                        connected.hears_over(&log);
                        served.add(&request.id.get().to_owned(), connected.clone());
                        asked.spawn(ask(shared.clone(), connected.clone(), request, log.clone()));
                        client = Some(connected);
                    }
                    Err(error) => {
                        let (id, error) = (request.id.get(), error.to_text());
                        log.push(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}"));
                    }
                },
                (Kind::Request(request), Some(client)) => {
                    asked.spawn(ask(shared.clone(), client.clone(), request, log.clone()));
                }
                (Kind::Notification(method, params), Some(client)) => {
                    client.tell(shared, &method, params.as_deref()).await;
                }
                (Kind::Response(Some(id), outcome), Some(client)) => client.answered(shared, id, outcome),
                // Nobody has asked or can be told.
                (Kind::Notification(..) | Kind::Response(..), _) => {}
            }
        }
    };
    tokio::select! {
        () = written => {}
        () = read => {}
    }
    if let Some(client) = client {
        client.end(shared);
    }
}

async fn ask(shared: Arc<Shared>, client: Arc<Client>, request: Request, log: Arc<EventLog>) {
    client.ask(&shared, request, &log).await;
}
