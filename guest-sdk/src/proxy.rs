//! The trait that an author implements, and the form of it that the runtime keeps. Owns the defaults.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use crate::interests::Interests;
use crate::json::Json;
use crate::message::{Handled, Notification, Observed, Outcome, Request};

/// A proxy: what to do with the messages that it is interested in.
///
/// Handlers are async and run side by side on one thread: while one awaits, others go on. Each gets `&self`, so state lives
/// in a [`std::cell::RefCell`] or in [`crate::Sessions`]. As long as a handler has not dealt with its message, what follows it
/// in the same session and direction waits, so a handler must not wait for a later message of that kind.
///
/// When whoever sent a request gives it up, its handler is dropped at its `.await`, requests that it waits for are cancelled,
/// and the request is answered with [`crate::RpcError::cancelled`]. Work that must be done then goes into a `Drop`.
#[allow(
    async_fn_in_trait,
    reason = "a component has one thread, so no future of it needs to be Send"
)]
pub trait Proxy: Sized + 'static {
    /// Makes the proxy from its configuration (`{}` if there is none) and says what it wants to see. Nothing can be sent yet.
    ///
    /// # Errors
    /// A sentence for the user that says what is wrong with the configuration.
    fn start(config: Json) -> Result<(Self, Interests), String>;

    /// The client's `initialize`, which every proxy gets. Passes it on by default.
    async fn initialize(&self, request: Request) -> Outcome {
        request.forward()
    }

    /// A request that an interest intercepts. Passes it on by default.
    async fn request(&self, request: Request) -> Outcome {
        request.forward()
    }

    /// A notification that an interest intercepts. Passes it on by default. A `session/cancel` may rarely come twice, first as a
    /// copy that only seems to be passed on; see [`Notification::forward`].
    async fn notification(&self, notification: Notification) -> Outcome {
        notification.forward()
    }

    /// A copy of a message that an interest observes.
    async fn observe(&self, _observed: Observed) {}

    /// The client has sent `session/cancel`, which waits behind a `session/prompt` that this proxy still holds. The cancel
    /// itself follows the prompt, so most proxies need not do anything.
    fn session_cancelled(&self, _session: &str) {}

    /// So many copies for `observe` interests were dropped, because the proxy fell behind.
    fn lost(&self, _copies: u64) {}
}

pub(crate) type Work = Pin<Box<dyn Future<Output = Outcome>>>;

/// A [`Proxy`] of any type.
pub(crate) trait Handler {
    fn on_initialize(self: Rc<Self>, request: Request) -> Work;
    fn on_request(self: Rc<Self>, request: Request) -> Work;
    fn on_notification(self: Rc<Self>, notification: Notification) -> Work;
    fn on_observed(self: Rc<Self>, observed: Observed) -> Work;
    fn on_session_cancelled(&self, session: &str);
    fn on_lost(&self, copies: u64);
}

impl<P: Proxy> Handler for P {
    fn on_initialize(self: Rc<Self>, request: Request) -> Work {
        Box::pin(async move { self.initialize(request).await })
    }

    fn on_request(self: Rc<Self>, request: Request) -> Work {
        Box::pin(async move { self.request(request).await })
    }

    fn on_notification(self: Rc<Self>, notification: Notification) -> Work {
        Box::pin(async move { self.notification(notification).await })
    }

    fn on_observed(self: Rc<Self>, observed: Observed) -> Work {
        Box::pin(async move {
            self.observe(observed).await;
            Ok(Handled::nothing())
        })
    }

    fn on_session_cancelled(&self, session: &str) {
        self.session_cancelled(session);
    }

    fn on_lost(&self, copies: u64) {
        self.lost(copies);
    }
}
