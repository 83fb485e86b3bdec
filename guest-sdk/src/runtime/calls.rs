//! Requests of the proxy's own that wait for an answer, by id.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

use crate::error::RpcError;
use crate::json::Json;
use crate::peer::Peer;

/// Ids begin here, far above any ticket, because the copy of an observed response has the ticket in the place of the id.
/// Below 2^53, so that they are the same to whoever reads JSON numbers as floating point.
const FIRST_ID: u64 = 1 << 52;

#[derive(Default)]
pub(super) struct Calls {
    begun: Cell<u64>,
    pending: RefCell<BTreeMap<u64, Pending>>,
}

enum Pending {
    Waiting {
        to: Peer,
        waker: Option<Waker>,
    },
    Answered(Result<Json, RpcError>),
    /// The future was dropped; the answer still comes.
    Abandoned,
    /// The same, and this is done with the answer.
    Detached(After),
}

/// What is done with an answer that nobody waits for.
pub(crate) type After = Box<dyn FnOnce(Result<Json, RpcError>)>;

impl Calls {
    pub(super) fn next_id(&self) -> u64 {
        let id = FIRST_ID + self.begun.get();
        self.begun.set(self.begun.get() + 1);
        id
    }

    pub(super) fn begin(&self, id: u64, to: Peer) {
        self.pending
            .borrow_mut()
            .insert(id, Pending::Waiting { to, waker: None });
    }

    /// An answer came. Gives it back if nobody here has asked for it.
    pub(super) fn finish(&self, id: u64, outcome: Result<Json, RpcError>) -> Option<Result<Json, RpcError>> {
        let mut pending = self.pending.borrow_mut();
        let Some(call) = pending.get_mut(&id) else {
            return Some(outcome);
        };
        match std::mem::replace(call, Pending::Answered(outcome)) {
            Pending::Waiting { waker, .. } => {
                drop(pending);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            Pending::Answered(first) => *call = Pending::Answered(first),
            Pending::Abandoned => {
                pending.remove(&id);
            }
            Pending::Detached(after) => {
                let answered = pending.remove(&id);
                // It may make calls of its own.
                drop(pending);
                if let Some(Pending::Answered(outcome)) = answered {
                    after(outcome);
                }
            }
        }
        None
    }

    pub(super) fn poll(&self, id: u64, context: &mut Context<'_>) -> Poll<Option<Result<Json, RpcError>>> {
        let mut pending = self.pending.borrow_mut();
        if let Some(Pending::Waiting { waker, .. }) = pending.get_mut(&id) {
            *waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        match pending.remove(&id) {
            Some(Pending::Answered(outcome)) => Poll::Ready(Some(outcome)),
            _ => Poll::Ready(None),
        }
    }

    /// Gives the peer to tell if the call had no answer yet.
    pub(super) fn abandon(&self, id: u64) -> Option<Peer> {
        let mut pending = self.pending.borrow_mut();
        match pending.remove(&id)? {
            Pending::Waiting { to, .. } => {
                pending.insert(id, Pending::Abandoned);
                Some(to)
            }
            Pending::Answered(_) | Pending::Abandoned | Pending::Detached(_) => None,
        }
    }

    /// Nobody waits for this call any more, but it is not given up.
    pub(super) fn detach(&self, id: u64, after: After) {
        let mut pending = self.pending.borrow_mut();
        match pending.remove(&id) {
            Some(Pending::Waiting { .. }) => {
                pending.insert(id, Pending::Detached(after));
            }
            Some(Pending::Answered(outcome)) => {
                drop(pending);
                after(outcome);
            }
            Some(Pending::Abandoned | Pending::Detached(_)) | None => {}
        }
    }
}
