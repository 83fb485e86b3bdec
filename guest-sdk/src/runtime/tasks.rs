//! Handlers that run: slots that tasks take turns in, each with a waker that is made once.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::message::Outcome;
use crate::peer::Peer;
use crate::proxy::Work;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Notification,
    Observed,
}

pub(super) struct Task {
    pub(super) kind: Kind,
    pub(super) source: Peer,
    pub(super) ticket: u64,
    /// Passed on or answered: nothing more may be done with the ticket.
    pub(super) settled: bool,
    /// Passed on under an id of the proxy's own.
    pub(super) carried: bool,
    /// The session that this request prompts.
    pub(super) prompted: Option<String>,
    /// The session that this request ends.
    pub(super) ends: Option<String>,
}

impl Task {
    pub(super) fn new(kind: Kind, source: Peer, ticket: u64) -> Self {
        Self {
            kind,
            source,
            ticket,
            settled: false,
            carried: false,
            prompted: None,
            ends: None,
        }
    }
}

#[derive(Default)]
struct Ready(Mutex<VecDeque<usize>>);

struct SlotWaker {
    slot: usize,
    ready: Arc<Ready>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        let mut ready = self.ready.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !ready.contains(&self.slot) {
            ready.push_back(self.slot);
        }
    }
}

struct Slot {
    waker: Waker,
    task: Option<Task>,
    /// None while it is being polled.
    work: Option<Work>,
}

#[derive(Default)]
pub(super) struct Tasks {
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<usize>>,
    ready: Arc<Ready>,
    /// The slot that is being polled.
    current: Cell<Option<usize>>,
    observing: Cell<usize>,
}

impl Tasks {
    pub(super) fn insert(&self, task: Task, work: Work) -> usize {
        if task.kind == Kind::Observed {
            self.observing.set(self.observing.get() + 1);
        }
        let mut slots = self.slots.borrow_mut();
        let slot = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let slot = slots.len();
            let waker = Waker::from(Arc::new(SlotWaker {
                slot,
                ready: Arc::clone(&self.ready),
            }));
            slots.push(Slot {
                waker,
                task: None,
                work: None,
            });
            slot
        });
        if let Some(place) = slots.get_mut(slot) {
            place.task = Some(task);
            place.work = Some(work);
        }
        slot
    }

    pub(super) fn next_ready(&self) -> Option<usize> {
        self.ready.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Lets the task in the slot go on. Gives it back when it has ended.
    pub(super) fn poll(&self, slot: usize) -> Option<(Task, Outcome)> {
        let (mut work, waker) = {
            let mut slots = self.slots.borrow_mut();
            let place = slots.get_mut(slot)?;
            (place.work.take()?, place.waker.clone())
        };
        let before = self.current.replace(Some(slot));
        let polled = work.as_mut().poll(&mut Context::from_waker(&waker));
        self.current.set(before);
        match polled {
            Poll::Pending => {
                self.slots.borrow_mut().get_mut(slot)?.work = Some(work);
                None
            }
            Poll::Ready(outcome) => {
                drop(work);
                Some((self.remove(slot)?.0, outcome))
            }
        }
    }

    /// Takes out the task of a request that is not settled.
    pub(super) fn take_request(&self, ticket: u64) -> Option<(Task, Option<Work>)> {
        let slot = self.position(|task| task.kind == Kind::Request && task.ticket == ticket && !task.settled)?;
        self.remove(slot)
    }

    fn remove(&self, slot: usize) -> Option<(Task, Option<Work>)> {
        let (task, work) = {
            let mut slots = self.slots.borrow_mut();
            let place = slots.get_mut(slot)?;
            (place.task.take()?, place.work.take())
        };
        if task.kind == Kind::Observed {
            self.observing.set(self.observing.get().saturating_sub(1));
        }
        self.free.borrow_mut().push(slot);
        Some((task, work))
    }

    fn position(&self, wanted: impl Fn(&Task) -> bool) -> Option<usize> {
        self.slots
            .borrow()
            .iter()
            .position(|slot| slot.task.as_ref().is_some_and(&wanted))
    }

    /// Changes the task of this ticket, which is nearly always the one that runs.
    pub(super) fn update(&self, ticket: u64, change: impl FnOnce(&mut Task)) {
        let owns = |task: &Task| task.ticket == ticket && task.kind != Kind::Observed;
        let running = self.current.get().filter(|slot| {
            self.slots
                .borrow()
                .get(*slot)
                .and_then(|slot| slot.task.as_ref())
                .is_some_and(owns)
        });
        let slot = running.or_else(|| self.position(owns));
        let mut slots = self.slots.borrow_mut();
        if let Some(task) = slot
            .and_then(|slot| slots.get_mut(slot))
            .and_then(|slot| slot.task.as_mut())
        {
            change(task);
        }
    }

    /// The ticket that the running task may send a request to `to` on behalf of, without passing its message on.
    pub(super) fn behalf(&self, to: Peer) -> Option<u64> {
        let slots = self.slots.borrow();
        let task = slots.get(self.current.get()?)?.task.as_ref()?;
        let open = task.kind != Kind::Observed && !task.settled;
        (open && to != task.source.opposite()).then_some(task.ticket)
    }

    /// Whether a notification with this ticket is still worked on and was not passed on.
    pub(super) fn keeps(&self, ticket: u64) -> bool {
        self.slots.borrow().len() > self.free.borrow().len()
            && self
                .position(|task| task.kind == Kind::Notification && task.ticket == ticket && !task.settled)
                .is_some()
    }

    /// Whether a prompt of this session has not left the proxy yet.
    pub(super) fn hold_prompt_of(&self, session: &str) -> bool {
        self.position(|task| !task.settled && !task.carried && task.prompted.as_deref() == Some(session))
            .is_some()
    }

    pub(super) fn observing(&self) -> usize {
        self.observing.get()
    }

    #[cfg(not(target_family = "wasm"))]
    pub(super) fn clear(&self) {
        while let Some(slot) = self.position(|_| true) {
            drop(self.remove(slot));
        }
    }

    #[cfg(not(target_family = "wasm"))]
    pub(super) fn len(&self) -> usize {
        self.slots.borrow().len() - self.free.borrow().len()
    }
}
