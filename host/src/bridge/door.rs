//! Who comes to the bridge over a socket. Whoever has not shown a secret yet gives way to those who come later, so that others who fill
//! all places keep nobody out; whoever has shown one stays, as long as there is room.

use super::lock;
use rustix::process::{Resource, getrlimit};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinSet};

/// Connections that have not shown a secret.
const MAX_STRANGERS: usize = 128;

/// How long they may take for it.
const STRANGER_TIME: Duration = Duration::from_secs(10);

/// Connections that have, to all servers together; never more than a quarter of what this process may open.
const MAX_KNOWN: u64 = 1024;

fn most_known() -> usize {
    let most = getrlimit(Resource::Nofile).current.map_or(MAX_KNOWN, |files| files / 4);
    usize::try_from(most.min(MAX_KNOWN)).unwrap_or_default()
}

/// Something that connections come from.
pub(super) trait Listener: Send + 'static {
    type Stream: Send + 'static;

    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

struct Door {
    /// Their numbers, and how to send them away once they are served. Who came first is in front.
    strangers: Mutex<VecDeque<(u64, Option<AbortHandle>)>>,
    room: Arc<Semaphore>,
}

/// A connection.
pub(super) struct Guest {
    door: Arc<Door>,
    number: u64,
    known: Mutex<Option<Known>>,
}

/// The places that a connection has.
struct Known {
    _among_all: OwnedSemaphorePermit,
    /// Among those to its server.
    at_server: OwnedSemaphorePermit,
}

impl Guest {
    /// It has shown the secret of a server that has so many places, and stays from now on; says whether there is room for it.
    pub(super) fn stays(&self, places: &Arc<Semaphore>) -> bool {
        let mut known = lock(&self.known);
        match &mut *known {
            Some(known) if Arc::ptr_eq(known.at_server.semaphore(), places) => true,
            // It speaks to another server now.
            Some(known) => match places.clone().try_acquire_owned() {
                Ok(place) => {
                    known.at_server = place;
                    true
                }
                Err(_) => false,
            },
            None => {
                let places = (
                    self.door.room.clone().try_acquire_owned(),
                    places.clone().try_acquire_owned(),
                );
                let (Ok(among_all), Ok(at_server)) = places else {
                    return false;
                };
                *known = Some(Known {
                    _among_all: among_all,
                    at_server,
                });
                self.door.forget(self.number);
                true
            }
        }
    }

    /// Ends when it has had its time to show a secret and has not done so.
    pub(super) async fn is_sent_away(&self) {
        tokio::time::sleep(STRANGER_TIME).await;
        if lock(&self.known).is_some() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.door.forget(self.number);
    }
}

impl Door {
    fn forget(&self, number: u64) {
        lock(&self.strangers).retain(|(stranger, _)| *stranger != number);
    }
}

/// Lets in whoever comes, until it is aborted. All of them end with it.
pub(super) async fn receive<L, S, F>(listener: L, serve: S)
where
    L: Listener,
    S: Fn(L::Stream, Guest) -> F + Send,
    F: Future<Output = ()> + Send + 'static,
{
    let door = Arc::new(Door {
        strangers: Mutex::default(),
        room: Arc::new(Semaphore::new(most_known())),
    });
    let mut guests = JoinSet::new();
    for number in 0.. {
        while guests.try_join_next().is_some() {}
        let stream = match listener.next().await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!("a connection to the bridge of MCP failed: {error}");
                // Out of descriptors, perhaps; that passes.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let guest = Guest {
            door: door.clone(),
            number,
            known: Mutex::default(),
        };
        lock(&door.strangers).push_back((number, None));
        let handle = guests.spawn(serve(stream, guest));
        let mut strangers = lock(&door.strangers);
        // By now it may have shown its secret, or be over.
        if let Some((_, place)) = strangers.iter_mut().rfind(|(stranger, _)| *stranger == number) {
            *place = Some(handle);
        }
        if strangers.len() > MAX_STRANGERS
            && let Some((_, Some(oldest))) = strangers.pop_front()
        {
            oldest.abort();
        }
    }
}
