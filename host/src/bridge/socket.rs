//! The private socket that shims come back over: one connection is one client, and a line is a message. Lets in whoever shows a server's
//! secret in the first line.

use super::client::{Asking, Client};
use super::door::{self, Guest};
use super::event_log::{Cursor, EventLog};
use super::message::{self, Kind, MAX_MESSAGE, Request, Sent, failure};
use super::served::{Served, secret};
use super::{INTERNAL, LARGE, Room, Shared, lock};
use crate::wire::envelope::error_text;
use crate::wire::lines::{Line, LineBuffer};
use crate::wire::text::Text;
use bytes::Bytes;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};

/// How long the rest of a large line may take.
const LARGE_LINE: Duration = Duration::from_secs(30);

/// How long answers are waited for when nothing more is asked. The agent has ended its server then, or is about to.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Bytes of the folder that the socket's own folder is in: with that and its name, 28 bytes, an address has 104 at most on some systems.
const MAX_BASE: usize = 75;

/// Bytes of the first line.
const MAX_SECRET: u64 = 128;

/// Bytes that are read at a time.
const PIECE: usize = 64 * 1024;

/// The socket, gone with this.
pub(super) struct Socket {
    folder: PathBuf,
    task: JoinHandle<()>,
}

impl Socket {
    /// Listens in a folder that only this user can look into.
    pub(super) fn open(shared: &Arc<Shared>) -> io::Result<Self> {
        let mut name = secret()?;
        // Addresses of sockets are short, and nobody else can look into the folder.
        name.truncate(16);
        let folders = ["XDG_RUNTIME_DIR", "TMPDIR"].map(std::env::var_os);
        let folder = base(folders).join(format!("consort-{name}"));
        std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
        match UnixListener::bind(folder.join("mcp")) {
            Ok(listener) => {
                let shared = shared.clone();
                let serve = move |stream, guest| serve(stream, guest, shared.clone());
                let task = tokio::spawn(door::receive(listener, serve));
                Ok(Self { folder, task })
            }
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

/// The first of these folders in which the address of a socket has room.
fn base(folders: [Option<OsString>; 2]) -> PathBuf {
    let mut folders = folders.into_iter().flatten().map(PathBuf::from);
    let fits = |folder: &PathBuf| {
        folder.is_absolute() && folder.to_str().is_some_and(|folder| folder.len() <= MAX_BASE) && folder.is_dir()
    };
    folders.find(fits).unwrap_or_else(|| "/tmp".into())
}

fn remove(folder: &Path) {
    // Somebody else may have removed the socket.
    let _ = std::fs::remove_file(folder.join("mcp"));
    if let Err(error) = std::fs::remove_dir(folder) {
        tracing::debug!("{} could not be removed: {error}", folder.display());
    }
}

async fn serve(stream: UnixStream, guest: Guest, shared: Arc<Shared>) {
    let (read, write) = stream.into_split();
    let mut reader = BufReader::with_capacity(PIECE, read);
    let shown = tokio::select! {
        shown = first_line(&mut reader) => shown,
        () = guest.is_sent_away() => None,
    };
    let Some(shown) = shown else { return };
    let served = lock(&shared.served).get(&blake3::hash(&shown)).cloned();
    let Some(served) = served else {
        tracing::warn!("a shim of MCP without the secret of a server was turned away");
        return;
    };
    if !guest.stays(&served.places) {
        tracing::warn!("a shim of MCP was turned away: too many connections are open");
        return;
    }
    let mut shim = Shim {
        shared,
        served,
        log: Arc::default(),
        client: None,
        asked: JoinSet::new(),
    };
    let log = shim.log.clone();
    let cursor = log.read(None);
    tokio::select! {
        () = written(&log, cursor, write) => {}
        () = async {
            shim.hear(reader).await;
            shim.end_asking().await;
            log.end();
            // Until that is written.
            std::future::pending::<()>().await;
        } => {}
    }
    if let Some(client) = &shim.client {
        client.end(&shim.shared);
    }
}

/// The first line; none at the end, or if it is longer than a secret.
async fn first_line(reader: &mut BufReader<OwnedReadHalf>) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let read = reader.take(MAX_SECRET).read_until(b'\n', &mut line).await;
    (read.is_ok() && line.pop() == Some(b'\n')).then_some(line)
}

/// Writes what is said, until its end.
async fn written(log: &EventLog, mut cursor: Cursor, mut write: OwnedWriteHalf) {
    while let Some((_, message)) = log.next(&mut cursor).await {
        if write.write_all(&message).await.is_err() || write.write_all(b"\n").await.is_err() {
            return;
        }
    }
}

/// One that has shown a secret.
struct Shim {
    shared: Arc<Shared>,
    served: Arc<Served>,
    /// What is said to it.
    log: Arc<EventLog>,
    client: Option<Arc<Client>>,
    /// What it has asked; given up with it.
    asked: JoinSet<()>,
}

impl Shim {
    /// Takes lines in until nothing more comes.
    async fn hear(&mut self, mut reader: BufReader<OwnedReadHalf>) {
        let mut lines = LineBuffer::new(MAX_MESSAGE);
        // What a large line takes, and until when it may.
        let mut room: Option<(Room, Instant)> = None;
        loop {
            let piece = match &room {
                None => reader.fill_buf().await,
                // Others wait for the room that this takes.
                Some((_, until)) => match timeout_at(*until, reader.fill_buf()).await {
                    Ok(piece) => piece,
                    Err(_) => {
                        return self.refuse(
                            "null",
                            -32600,
                            "the rest of a large message did not come within 30 seconds",
                        );
                    }
                },
            };
            let Ok(piece @ [_, ..]) = piece else { return };
            let length = piece.len();
            lines.room().extend_from_slice(piece);
            reader.consume(length);
            while let Some(line) = lines.next_line() {
                self.line(line, room.take().and_then(|(room, _)| room)).await;
            }
            if room.is_none() && lines.room().len() > LARGE {
                room = Some((self.shared.room().await, Instant::now() + LARGE_LINE));
            }
        }
    }

    fn refuse(&self, id: &str, code: i64, reason: &str) {
        self.says(&failure(id, &(code, reason.to_owned())));
    }

    fn says(&self, message: &str) {
        // One that reads nothing any more ends.
        let _ = self.log.push(message);
    }

    async fn line(&mut self, line: Line, room: Room) {
        while self.asked.try_join_next().is_some() {}
        match line {
            Line::Whole(line) => self.sent(line, &room).await,
            Line::TooLong(skipped) => {
                let id = skipped.skim.asked();
                let id = id.as_ref().map_or("null", |id| id.as_json());
                self.refuse(id, -32600, "the message is longer than 64 MiB");
            }
        }
    }

    async fn sent(&mut self, line: Bytes, room: &Room) {
        let takes_batches = self.client.as_ref().is_some_and(|client| client.takes_batches());
        let sent = Sent::read(&line);
        drop(line);
        let (parts, is_batch) = match sent.and_then(|sent| sent.parts(takes_batches, room)) {
            Ok(parts) => parts,
            Err((code, reason)) => return self.refuse("null", code, &reason),
        };
        let mut requests = Vec::new();
        for part in parts {
            match (part, &self.client) {
                (Kind::Request(request), _) => requests.push(request),
                (part, Some(client)) => drop(client.take(&self.shared, part).await),
                // Nobody is there who could be told.
                (_, None) => {}
            }
        }
        let Some(first) = requests.first() else { return };
        match self.connected().await {
            Ok(client) => self.ask(&client, requests, is_batch),
            Err(error) => self.says(&message::answer(first.id.get(), &Err(error))),
        }
    }

    /// The client, from the first request on.
    async fn connected(&mut self) -> Result<Arc<Client>, Text> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let id = secret().map_err(|error| error_text(INTERNAL, &error.to_string(), None))?;
        let client = Client::connect(&self.shared, self.served.clone(), false, Some(&self.log)).await?;
        if let Some(one) = self.served.add(&id, client.clone()) {
            one.end(&self.shared);
        }
        Ok(self.client.insert(client).clone())
    }

    fn ask(&mut self, client: &Arc<Client>, requests: Vec<Request>, is_batch: bool) {
        let log = self.log.clone();
        let begin = |request| client.begin(&self.shared, request, &log);
        let begun: Vec<Asking> = requests.into_iter().map(begin).collect();
        self.asked.spawn(async move {
            let asked: JoinSet<String> = begun.into_iter().map(Asking::answer).collect();
            let answers = asked.join_all().await;
            log.push(&message::together(&answers, is_batch));
        });
    }

    /// Waits a while for what was asked.
    async fn end_asking(&mut self) {
        let answered = async { while self.asked.join_next().await.is_some() {} };
        // Whoever has not got an answer by then asks in vain.
        let _ = timeout(LAST_ANSWERS, answered).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_where_its_address_has_room() {
        let long = format!("/{}", "x".repeat(MAX_BASE));
        let base = |one: &str, two: &str| base([one, two].map(|folder| Some(folder.into())));
        assert_eq!(base("/", "/tmp"), Path::new("/"));
        for other in ["", "relative", &long, "/not/there"] {
            assert_eq!(base(other, "/"), Path::new("/"), "{other}");
            assert_eq!(base(other, other), Path::new("/tmp"), "{other}");
        }
    }
}
