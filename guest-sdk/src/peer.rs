//! The three peers of a proxy, and the requests and notifications that it sends them on its own account.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::{Refusal, RpcError};
use crate::json::{Content, Json};
use crate::raw;
use crate::runtime;

/// Whom a message comes from or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// Everything upstream: the editor, or the proxy before this one.
    Client,
    /// Everything downstream: the next proxy, or the agent.
    Agent,
    /// Consort itself; see [`crate::host`].
    Host,
}

impl Peer {
    /// Sends a request, at once. The answer comes by awaiting it; several can be awaited at the same time.
    ///
    /// If the request is given up (dropped before its answer), the peer is told with `$/cancel_request`.
    ///
    /// In a handler, a request to the host or back to where the handled message came from is marked as made on behalf of
    /// that message, so that the host cancels it together with that message and stops the message's clock meanwhile. A
    /// request onwards is not: it would count as passing the message on.
    ///
    /// # Errors
    /// Awaiting gives the error that the peer answered with, or one that says why the host did not take the request.
    ///
    /// ```
    /// use consort_proxy::{Json, Peer::Client, RpcError, json};
    ///
    /// async fn read(session: &str, path: &str) -> Result<String, RpcError> {
    ///     let params = json!({"sessionId": session, "path": path});
    ///     let file = Client.request("fs/read_text_file", params).await?;
    ///     Ok(file.decode_at("/content")?)
    /// }
    /// ```
    pub fn request(self, method: &str, params: impl Content) -> Call {
        match params.into_part().into_json() {
            Ok(params) => Call::send(self, method.to_owned(), Some(params), runtime::behalf(self)),
            Err(error) => Call::failed(error.into()),
        }
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// If the host does not take it.
    pub fn notify(self, method: &str, params: impl Content) -> Result<(), Refusal> {
        let params = Some(params.into_part().into_json()?.0);
        runtime::send(
            self,
            raw::Message::Notification(raw::Notification {
                on_behalf_of: None,
                method: method.to_owned(),
                params,
            }),
        )
    }

    /// The other side: the agent for the client, the client for the agent. The host has none and gets itself.
    #[must_use]
    pub fn opposite(self) -> Self {
        match self {
            Self::Client => Self::Agent,
            Self::Agent => Self::Client,
            Self::Host => Self::Host,
        }
    }

    pub(crate) fn raw(self) -> raw::Peer {
        match self {
            Self::Client => raw::Peer::Client,
            Self::Agent => raw::Peer::Agent,
            Self::Host => raw::Peer::Host,
        }
    }
}

impl From<raw::Peer> for Peer {
    fn from(peer: raw::Peer) -> Self {
        match peer {
            raw::Peer::Client => Self::Client,
            raw::Peer::Agent => Self::Agent,
            raw::Peer::Host => Self::Host,
        }
    }
}

/// A request on its way: a future of the answer. Dropping it early cancels the request.
#[must_use = "a request that nobody awaits is cancelled"]
#[derive(Debug)]
pub struct Call(State);

#[derive(Debug)]
enum State {
    Failed(Option<RpcError>),
    Waiting(u64),
    Finished,
}

impl Call {
    pub(crate) fn send(to: Peer, method: String, params: Option<Json>, on_behalf_of: Option<u64>) -> Self {
        match runtime::call(to, method, params, on_behalf_of) {
            Ok(id) => Self(State::Waiting(id)),
            Err(refusal) => Self::failed(refusal.into()),
        }
    }

    /// Stops waiting without giving the request up, and does this with its answer when it comes. For what has to be done although the
    /// handler ends, such as in a `drop`. Does nothing once the answer was taken.
    ///
    /// ```
    /// use consort_proxy::{Peer::Agent, debug, json};
    ///
    /// fn close(session: &str) {
    ///     let mut closing = Agent.request("session/close", json!({"sessionId": session}));
    ///     closing.detach(|answer| {
    ///         if let Err(error) = answer {
    ///             debug!("it was not closed: {error}");
    ///         }
    ///     });
    /// }
    /// ```
    pub fn detach(&mut self, after: impl FnOnce(Result<Json, RpcError>) + 'static) {
        match std::mem::replace(&mut self.0, State::Finished) {
            State::Failed(Some(error)) => after(Err(error)),
            State::Waiting(id) => runtime::detach_call(id, Box::new(after)),
            State::Failed(None) | State::Finished => {}
        }
    }

    pub(crate) fn is_sent(&self) -> bool {
        matches!(self.0, State::Waiting(_))
    }

    pub(crate) fn failed(error: RpcError) -> Self {
        Self(State::Failed(Some(error)))
    }
}

impl Future for Call {
    type Output = Result<Json, RpcError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &mut self.0 {
            State::Failed(error) => error.take().map(Err),
            State::Waiting(id) => match runtime::poll_call(*id, context) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => return Poll::Pending,
            },
            State::Finished => None,
        };
        self.0 = State::Finished;
        Poll::Ready(outcome.unwrap_or_else(|| Err(RpcError::internal("this answer was taken already"))))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let State::Waiting(id) = self.0 {
            runtime::abandon_call(id);
        }
    }
}
