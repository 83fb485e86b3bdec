//! What a client says to its server: requests, notifications, and answers.

use super::super::event_log::EventLog;
use super::super::message::{self, Kind, Notification, Request, member, progress_token, with_token};
use super::super::{CANCELLED, INTERNAL, SESSION, Shared, lock, request_key};
use super::{Client, MAX_OPEN, Open};
use crate::message::Outcome;
use crate::wire::envelope::error_text;
use crate::wire::scan;
use crate::wire::text::Text;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Notify;

impl Client {
    /// The params of `mcp/message`.
    fn message(&self, method: &str, params: Option<&RawValue>, request: Option<u64>) -> Text {
        let mut message = json!({"method": method});
        match self.connection() {
            Some(connection) => message["connectionId"] = connection.into(),
            None => {
                message["serverId"] = self.served.server.clone().into();
                message["requestId"] = request.map_or(Value::Null, |request| request.to_string().into());
            }
        }
        if let Some(session) = self.served.session() {
            message["_meta"] = json!({SESSION: &*session});
        }
        // The params go as they came.
        let mut text = message.to_string();
        if let Some(params) = params {
            text.pop();
            text.push_str(",\"params\":");
            text.push_str(params.get());
            text.push('}');
        }
        Text::trusted(text)
    }

    /// Takes a request in: from now on the client can give it up. What the server tells about it on the way goes into the stream.
    pub(in super::super) fn begin(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        mut request: Request,
        stream: &Arc<EventLog>,
    ) -> Asking {
        let number = shared.number();
        let mut token = None;
        if let Some(params) = &request.params
            && let Some(own) = progress_token(params)
        {
            let sent = match self.is_shared {
                // Others may have chosen the same.
                true => json!(number),
                false => own.clone(),
            };
            if self.is_shared {
                request.params = Some(with_token(params, &sent));
            }
            token = Some((own, sent));
        }
        let given_up = Arc::new(Notify::new());
        let open = Open {
            id: request.id.get().to_owned(),
            token,
            stream: stream.clone(),
            given_up: given_up.clone(),
        };
        let mut state = lock(&self.state);
        let is_open = !state.is_over && state.open.len() < MAX_OPEN;
        if is_open {
            state.open.insert(number, open);
        }
        drop(state);
        let by_itself = is_open && self.connection().is_none();
        let key = by_itself.then(|| request_key(&self.served.server, &number.to_string()));
        if let Some(key) = &key {
            lock(&shared.connections).insert(key.clone(), Arc::downgrade(self));
        }
        Asking {
            request,
            given_up: is_open.then_some(given_up),
            waiting: Waiting {
                client: self.clone(),
                shared: shared.clone(),
                number,
                key,
            },
        }
    }

    /// A server without connections wraps what it answers once more.
    fn unwrapped(&self, outcome: Outcome) -> Outcome {
        match (self.connection(), outcome) {
            (None, Ok(wrapped)) => {
                let part = |name: &str| Some(wrapped.slice(scan::find(&wrapped, name)?));
                match (part("/result"), part("/error")) {
                    (Some(result), _) => Ok(result),
                    (None, Some(error)) => Err(error),
                    (None, None) => Err(error_text(
                        INTERNAL,
                        "the server's answer has neither result nor error",
                        None,
                    )),
                }
            }
            (_, outcome) => outcome,
        }
    }

    /// Takes what the client says besides requests; those are given back.
    pub(in super::super) async fn take(&self, shared: &Arc<Shared>, kind: Kind) -> Option<Request> {
        match kind {
            Kind::Request(request) => return Some(request),
            Kind::Notification(notification) => self.tell(shared, notification).await,
            Kind::Response(Some(id), outcome, room) => {
                let call = lock(&self.state).calls.remove(&id);
                if let Some(call) = call {
                    shared.answered(Some(&call), outcome, room);
                }
            }
            // Nobody has asked.
            Kind::Response(None, ..) => {}
        }
        None
    }

    /// Tells the server something.
    async fn tell(&self, shared: &Shared, Notification { method, params, room }: Notification) {
        let params = params.as_deref();
        if method == "notifications/cancelled" {
            // Ids are the client's own; what is given up is known by its request to the chain.
            if let Some(id) = params.and_then(|params| member(params, "requestId")) {
                let state = lock(&self.state);
                let mut same = state.open.values().filter(|open| open.id == id);
                // Whoever has several requests of this id, or shares this with others who do, does not say which one.
                if let (Some(open), None) = (same.next(), same.next()) {
                    open.given_up.notify_one();
                }
            }
            return;
        }
        if self.connection().is_some() {
            let params = self.message(&method, params, None);
            shared.tell("mcp/message", params, room).await;
        }
    }
}

/// A request that was taken in. Dropping it gives it up.
pub(in super::super) struct Asking {
    request: Request,
    /// None if it is refused.
    given_up: Option<Arc<Notify>>,
    waiting: Waiting,
}

impl Asking {
    /// Asks the server; gives the answer as the client gets it.
    pub(in super::super) async fn answer(self) -> String {
        let Self {
            request,
            given_up,
            waiting,
        } = self;
        let Request {
            id,
            method,
            params,
            room,
        } = request;
        let (client, shared) = (&waiting.client, &waiting.shared);
        let outcome = match given_up {
            Some(given_up) => {
                let params = client.message(&method, params.as_deref(), Some(waiting.number));
                tokio::select! {
                    outcome = shared.ask("mcp/message", params, room) => client.unwrapped(outcome),
                    () = given_up.notified() => Err(error_text(CANCELLED, "cancelled", None)),
                }
            }
            None => {
                let reason = "the server is gone, or too many requests of this client wait for it";
                Err(error_text(INTERNAL, reason, None))
            }
        };
        if method == "initialize"
            && let Ok(result) = &outcome
        {
            let revision = scan::string_member(result, "protocolVersion");
            let mut state = lock(&client.state);
            state.revision = revision.map(|revision| revision.into_owned());
            state.has_begun = true;
        }
        message::answer(id.get(), &outcome)
    }
}

/// A request that is not open any more when this is gone.
struct Waiting {
    client: Arc<Client>,
    shared: Arc<Shared>,
    number: u64,
    /// Under which what belongs to it is found, if there is no connection.
    key: Option<String>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        lock(&self.client.state).open.remove(&self.number);
        if let Some(key) = &self.key {
            lock(&self.shared.connections).remove(key);
        }
    }
}
