//! Messages as a handler gets them. Owns what may be done with one: pass on, change, answer, discard; each at most once.

use std::cell::OnceCell;

use crate::error::{Refusal, RpcError};
use crate::json::{Content, Json};
use crate::peer::{Call, Peer};
use crate::raw;
use crate::runtime;

/// How a handler ends: the message was dealt with, or an error is its answer.
///
/// The error answers a request; a notification is discarded with an entry in the log.
pub type Outcome = Result<Handled, RpcError>;

/// Proof that a message was passed on, answered or discarded. The methods that do so return it, so a handler cannot forget it.
#[derive(Debug)]
pub struct Handled(());

impl Handled {
    /// For copies, of which nothing has to come.
    pub(crate) fn nothing() -> Self {
        Self(())
    }
}

/// A session id longer than this many bytes is not read: no agent has one.
const MAX_SESSION_ID: u64 = 4096;

#[derive(Debug)]
struct Params {
    /// Whether the message has params, or set ones.
    present: bool,
    json: OnceCell<Json>,
}

impl Params {
    fn new(params: Option<raw::Value>) -> Self {
        let json = OnceCell::new();
        let present = params.is_some();
        if let Some(params) = params {
            // The cell is new, so it takes the value.
            let _ = json.set(Json(params));
        }
        Self { present, json }
    }

    fn get(&self) -> &Json {
        self.json.get_or_init(|| crate::json::literal(&serde_json::Value::Null))
    }

    fn take(&mut self) -> Option<Json> {
        let json = self.json.take();
        std::mem::take(&mut self.present).then_some(json).flatten()
    }
}

/// The session that params name in `sessionId`, if any. It must be exact: two sessions are never taken for one.
pub(crate) fn session_id(params: &Json) -> Option<String> {
    params.size("/sessionId").filter(|size| *size <= MAX_SESSION_ID)?;
    params.decode_at("/sessionId").ok()
}

/// A request that the proxy owns: it is passed on or answered, exactly once.
///
/// ```
/// use consort_proxy::{Outcome, Request};
///
/// /// Passes a request on and changes its answer.
/// async fn mark(mut request: Request) -> Outcome {
///     let result = request.forward_and_wait().await?;
///     result.add("/_meta", consort_proxy::json!({"seen": true}))?;
///     request.reply(result)
/// }
/// ```
#[derive(Debug)]
pub struct Request {
    ticket: u64,
    source: Peer,
    method: String,
    params: Params,
}

impl Request {
    pub(crate) fn new(source: Peer, ticket: u64, method: String, params: Option<raw::Value>) -> Self {
        Self {
            ticket,
            source,
            method,
            params: Params::new(params),
        }
    }

    /// The host's number for this message.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Where it came from: the client or the agent.
    pub fn source(&self) -> Peer {
        self.source
    }

    /// The method.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The params, to be read and edited in place. Without params this is a `null` that is never sent, whatever is done to
    /// it: use [`Request::set_params`].
    pub fn params(&self) -> &Json {
        self.params.get()
    }

    /// Replaces the params.
    pub fn set_params(&mut self, params: Json) {
        self.params = Params::new(Some(params.0));
    }

    /// The session that the params name, if any.
    pub fn session_id(&self) -> Option<String> {
        session_id(self.params())
    }

    /// Whether this is a prompt that is a slash command. Agents know one by the beginning of the prompt, so nothing may be put in front of
    /// it. A long text is none, and is not looked at.
    pub fn is_command(&self) -> bool {
        const LONGEST: u64 = 4096;
        const TEXT: &str = "/prompt/0/text";
        let params = self.params();
        params.size(TEXT).is_some_and(|size| size <= LONGEST)
            && params
                .string(TEXT)
                .is_some_and(|text| text.trim_start().starts_with('/'))
    }

    /// Passes the request on to the other side, as it is now. The answer goes straight back to whoever asked.
    ///
    /// # Errors
    /// If the host does not take it. The error is then the request's answer.
    pub fn forward(mut self) -> Outcome {
        runtime::send(
            self.source.opposite(),
            raw::Message::Request(raw::Request {
                id: None,
                on_behalf_of: Some(self.ticket),
                method: std::mem::take(&mut self.method),
                params: self.params.take().map(|params| params.0),
            }),
        )?;
        runtime::settle(self.ticket);
        Ok(Handled(()))
    }

    /// Passes the request on to the other side, as it is now, and waits for the answer. The request stays to be answered: an
    /// error that is returned with `?`, and a result that is given to [`Request::reply`], pass byte for byte. The params
    /// are gone afterwards; [clone](Json::clone) them before if they are still needed.
    pub fn forward_and_wait(&mut self) -> Call {
        let params = self.params.take();
        let call = Call::send(self.source.opposite(), self.method.clone(), params, Some(self.ticket));
        if call.is_sent() {
            runtime::carry(self.ticket);
        }
        call
    }

    /// Answers the request with a result. To answer with an error, return the error.
    ///
    /// # Errors
    /// If the host does not take it. The error is then the request's answer.
    pub fn reply(self, result: impl Content) -> Outcome {
        let result = result
            .into_part()
            .into_json()
            .map_err(|error| RpcError::internal(error.to_string()))?;
        runtime::send(
            self.source,
            raw::Message::Response(raw::Response {
                id: self.ticket,
                outcome: Ok(result.0),
            }),
        )?;
        runtime::settle(self.ticket);
        Ok(Handled(()))
    }
}

/// A notification that the proxy owns: it is passed on or discarded.
#[derive(Debug)]
pub struct Notification {
    ticket: u64,
    source: Peer,
    method: String,
    params: Params,
}

impl Notification {
    pub(crate) fn new(source: Peer, ticket: u64, method: String, params: Option<raw::Value>) -> Self {
        Self {
            ticket,
            source,
            method,
            params: Params::new(params),
        }
    }

    /// The host's number for this message.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Where it came from: the client or the agent.
    pub fn source(&self) -> Peer {
        self.source
    }

    /// The method.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The params, to be read and edited in place. Without params this is a `null` that is never sent, whatever is done to
    /// it: use [`Notification::set_params`].
    pub fn params(&self) -> &Json {
        self.params.get()
    }

    /// Replaces the params.
    pub fn set_params(&mut self, params: Json) {
        self.params = Params::new(Some(params.0));
    }

    /// The session that the params name, if any.
    pub fn session_id(&self) -> Option<String> {
        session_id(self.params())
    }

    /// Passes the notification on to the other side, as it is now. If the host says that it is not the proxy's to pass on (any
    /// more), it has been dealt with and nothing happens: the copy of a `session/cancel` that waits behind a prompt can come
    /// when the prompt has just left the proxy, and the original still follows.
    ///
    /// # Errors
    /// If the host does not take it. It is discarded then.
    pub fn forward(mut self) -> Outcome {
        let method = std::mem::take(&mut self.method);
        let sent = runtime::send(
            self.source.opposite(),
            raw::Message::Notification(raw::Notification {
                on_behalf_of: Some(self.ticket),
                method: method.clone(),
                params: self.params.take().map(|params| params.0),
            }),
        );
        match sent {
            Err(Refusal::UnknownId) => crate::debug!("{method} was not the proxy's to pass on"),
            sent => sent?,
        }
        runtime::settle(self.ticket);
        Ok(Handled(()))
    }

    pub(crate) fn into_observed(mut self) -> Observed {
        let params = self.params.take();
        Observed {
            source: self.source,
            ticket: self.ticket,
            message: Seen::Notification {
                method: self.method,
                params,
            },
        }
    }

    /// Ends the notification here: it is not passed on.
    ///
    /// # Errors
    /// Never; it is an [`Outcome`] so that a handler can end with it.
    pub fn discard(self) -> Outcome {
        runtime::discard(self.ticket);
        Ok(Handled(()))
    }
}

/// A copy of a message that an interest observes. Nothing can be done to the message itself.
#[derive(Debug)]
pub struct Observed {
    /// Where the message comes from.
    pub source: Peer,
    /// The host's number for the message. A request and its response have the same.
    pub ticket: u64,
    /// The message.
    pub message: Seen,
}

/// What was observed.
#[derive(Debug)]
pub enum Seen {
    /// A request.
    Request {
        /// Its method.
        method: String,
        /// Its params, if it has any.
        params: Option<Json>,
    },
    /// A notification.
    Notification {
        /// Its method.
        method: String,
        /// Its params, if it has any.
        params: Option<Json>,
    },
    /// The response to a request that was observed before, under the same ticket.
    Response {
        /// The result or the error.
        outcome: Result<Json, RpcError>,
    },
}
