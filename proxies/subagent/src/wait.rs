//! Waiting for what comes first of several things, and for something that another handler says. Knows nothing of subagents.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};

/// Something that is said once, to all who wait for it.
#[derive(Default)]
pub(crate) struct Signal {
    said: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl Signal {
    pub(crate) fn say(&self) {
        self.said.set(true);
        for waker in self.waiting.take() {
            waker.wake();
        }
    }

    pub(crate) fn is_said(&self) -> bool {
        self.said.get()
    }

    /// Waits until it is said.
    pub(crate) async fn heard(&self) {
        poll_fn(|context| match self.said.get() {
            true => Poll::Ready(()),
            false => {
                let mut waiting = self.waiting.borrow_mut();
                if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                    waiting.push(context.waker().clone());
                }
                Poll::Pending
            }
        })
        .await;
    }
}

/// What came first.
pub(crate) enum First<A, B> {
    One(A),
    Other(B),
}

/// Waits for the first of two things, and gives the other one up.
pub(crate) async fn first<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> First<A, B> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| {
        if let Poll::Ready(value) = one.as_mut().poll(context) {
            return Poll::Ready(First::One(value));
        }
        other.as_mut().poll(context).map(First::Other)
    })
    .await
}
