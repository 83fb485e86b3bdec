//! A host for tests: starts a proxy natively, delivers messages to it, and shows what it sent.
//!
//! [`Harness`] keeps the rules of the world (`wit/consort-proxy.wit`): a second answer to a ticket, an id that the proxy does
//! not own, or a message during `start` is refused as the real host refuses it, and every answer must be asked for. It has no
//! order to keep and no grants; [`Harness::deny`] and [`Harness::limit_bytes`] stand in for those.
//!
//! Requests for saved state are answered at once, from memory: see [`Harness::save`] and [`Harness::saved`]. So are those for files, as soon
//! as the test has put one there with [`Harness::file`].
//!
//! Every method that is used against these rules by the *test* panics with a sentence that says how.

#![allow(clippy::panic, clippy::expect_used, reason = "a test that is wrong has to fail")]

mod channel;
mod files;
mod saved;

use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;

use self::channel::{Fake, Owner};
pub use self::channel::{Kind, Sent, Ticket};
use crate::interests::{How, Interests};
use crate::log::Level;
use crate::peer::Peer;
use crate::proxy::Proxy;
use crate::raw;
use crate::runtime::Runtime;

/// A proxy under test, and the host that it talks to.
///
/// ```
/// use consort_proxy::Peer::Client;
/// use consort_proxy::testing::Harness;
/// use consort_proxy::{Interests, Json, Outcome, Proxy, Request, json};
///
/// struct Echo;
///
/// impl Proxy for Echo {
///     fn start(_: Json) -> Result<(Self, Interests), String> {
///         Ok((Echo, Interests::new().intercept(Client, "_echo")))
///     }
///
///     async fn request(&self, request: Request) -> Outcome {
///         let params = request.params().clone();
///         request.reply(params)
///     }
/// }
///
/// let mut host = Harness::start::<Echo>(serde_json::json!({}))?;
/// let ticket = host.request_text(Client, "_echo", r#"{"n": 1.10}"#);
/// let answer = host.next();
/// assert_eq!((answer.ticket(), answer.text()), (ticket, r#"{"n": 1.10}"#));
/// # Ok::<(), String>(())
/// ```
pub struct Harness {
    runtime: Rc<Runtime>,
    fake: Rc<Fake>,
    interests: Interests,
}

impl Harness {
    /// Starts a proxy with a configuration.
    ///
    /// # Errors
    /// What the proxy's `start` says.
    pub fn start<P: Proxy>(config: Value) -> Result<Self, String> {
        let fake = Rc::new(Fake::default());
        let runtime = Runtime::new(fake.clone());
        let config = raw::Value::parse(&config.to_string())?;
        let before = Runtime::enter(Some(runtime.clone()));
        let started = runtime.start::<P>(config);
        Runtime::enter(before);
        fake.open();
        Ok(Self {
            runtime,
            fake,
            interests: started?,
        })
    }

    /// What the proxy wants to see.
    pub fn interests(&self) -> &Interests {
        &self.interests
    }

    /// Delivers a request from the client or the agent. Its ticket names it from then on.
    pub fn request(&mut self, source: Peer, method: &str, params: Value) -> Ticket {
        self.request_text(source, method, &params.to_string())
    }

    /// Delivers a request whose params are exactly this text.
    pub fn request_text(&mut self, source: Peer, method: &str, params: &str) -> Ticket {
        self.deliver(source, method, Some(params), true)
    }

    /// Delivers a request without params.
    pub fn request_bare(&mut self, source: Peer, method: &str) -> Ticket {
        self.deliver(source, method, None, true)
    }

    /// Delivers a notification from any peer.
    pub fn notify(&mut self, source: Peer, method: &str, params: Value) -> Ticket {
        self.notify_text(source, method, &params.to_string())
    }

    /// Delivers a notification whose params are exactly this text.
    pub fn notify_text(&mut self, source: Peer, method: &str, params: &str) -> Ticket {
        self.deliver(source, method, Some(params), false)
    }

    /// Answers a request that the proxy sent, with a result.
    pub fn answer(&mut self, request: &Sent, result: Value) {
        self.answer_text(request, Ok(&result.to_string()));
    }

    /// Answers a request that the proxy sent, with an error.
    pub fn answer_error(&mut self, request: &Sent, code: i64, message: &str) {
        self.answer_text(
            request,
            Err(&serde_json::json!({"code": code, "message": message}).to_string()),
        );
    }

    /// Answers a request that the proxy sent, with exactly this result or error object. If the proxy gave it no id, the answer goes
    /// past the proxy.
    pub fn answer_text(&mut self, request: &Sent, outcome: Result<&str, &str>) {
        let Kind::Request { id } = request.kind() else {
            panic!("only a request can be answered, and this is none: {request:?}");
        };
        let Some(id) = id else {
            return self.fake.end(request.on_behalf_of());
        };
        assert!(
            self.fake.take_own(id),
            "this request has its answer already: {request:?}"
        );
        self.respond(request.to(), id, outcome);
    }

    /// Delivers the response to a request that the proxy observed.
    pub fn answer_observed(&mut self, source: Peer, ticket: Ticket, outcome: Result<&str, &str>) {
        self.respond(source, ticket, outcome);
    }

    /// Whoever sent this request gives it up: delivers `$/cancel_request`.
    pub fn cancel(&mut self, ticket: Ticket) {
        let Some(source) = self.fake.source_of_open(ticket) else {
            panic!("ticket {ticket} is not a request without an answer");
        };
        self.deliver(
            source,
            "$/cancel_request",
            Some(&format!("{{\"requestId\":{ticket}}}")),
            false,
        );
    }

    /// Announces a `session/cancel` that waits behind a prompt: a copy that cannot be passed on.
    pub fn announce_session_cancel(&mut self, session: &str) -> Ticket {
        let params = serde_json::json!({"sessionId": session}).to_string();
        let ticket = self.fake.take_in(Peer::Client, Owner::Copy);
        self.receive(Peer::Client, ticket, notification("session/cancel", Some(&params)));
        ticket
    }

    /// Lets time pass: answers what sleeps until then, in order.
    pub fn advance(&mut self, time: Duration) {
        let end = self.fake.now() + time;
        while let Some(id) = self.fake.next_sleeper(end) {
            self.respond(Peer::Host, id, Ok("{}"));
        }
        self.fake.set_now(end);
    }

    /// How long each sleep that the proxy waits for still takes, the shortest first.
    pub fn sleeping(&self) -> Vec<Duration> {
        self.fake.sleeping()
    }

    /// Keeps a value under a key, as if the proxy had done it before.
    pub fn save(&mut self, key: &str, value: Value) {
        self.fake
            .with_saved(|saved| saved.entries.insert(key.to_owned(), value.to_string()));
    }

    /// The exact text of the value that the proxy keeps under a key.
    pub fn saved(&self, key: &str) -> Option<String> {
        self.fake.with_saved(|saved| saved.entries.get(key).cloned())
    }

    /// Puts a file into the directory of all sessions. From the first one on, requests to read and list files are answered at once.
    pub fn file(&mut self, path: &str, text: &str) {
        self.fake.put_file(path, text);
    }

    /// From now on refuses to keep more bytes than that, keys and values together.
    pub fn limit_saved(&mut self, bytes: usize) {
        self.fake.with_saved(|saved| saved.limit = bytes);
    }

    /// The first message that the proxy sent and that was not taken yet. Log lines, sleeps, and requests for saved state
    /// (and for files, if there are any) are not among them: see [`Harness::logs`], [`Harness::sleeping`] and [`Harness::saved`].
    #[allow(clippy::should_implement_trait, reason = "it panics where an iterator ends")]
    pub fn next(&mut self) -> Sent {
        self.fake
            .next_sent()
            .unwrap_or_else(|| panic!("the proxy sent nothing (more)"))
    }

    /// All messages that the proxy sent and that were not taken yet.
    pub fn sent(&mut self) -> Vec<Sent> {
        std::iter::from_fn(|| self.fake.next_sent()).collect()
    }

    /// Log lines since the last call.
    pub fn logs(&mut self) -> Vec<(Level, String)> {
        self.fake.take_logs()
    }

    /// Whether the proxy still holds this message: it was not passed on, answered, released or discarded.
    pub fn holds(&self, ticket: Ticket) -> bool {
        self.fake.holds(ticket)
    }

    /// From now on refuses this method to this peer, as without a grant.
    pub fn deny(&mut self, to: Peer, method: &str) {
        self.fake.deny(to, method);
    }

    /// From now on refuses params and results of more bytes than that.
    pub fn limit_bytes(&mut self, bytes: usize) {
        self.fake.limit(bytes);
    }

    /// From now on refuses what is more than so many messages in one turn.
    pub fn limit_messages(&mut self, messages: usize) {
        self.fake.limit_messages(messages);
    }

    /// How many handlers are waiting for something.
    pub fn waiting_handlers(&self) -> usize {
        self.runtime.live_tasks()
    }

    fn deliver(&mut self, source: Peer, method: &str, params: Option<&str>, request: bool) -> Ticket {
        // What the host delivers whatever the interests are.
        let always =
            source == Peer::Host || method == "$/cancel_request" || (source == Peer::Client && method == "initialize");
        let owner = match self.interests.matching(source, method) {
            Some(How::Observe) => Owner::Copy,
            None if !always => {
                panic!("the proxy has no interest in {method:?} from {source:?}, so it would not see it")
            }
            _ if request => Owner::Request,
            _ => Owner::Notification,
        };
        let ticket = self.fake.take_in(source, owner);
        let message = match request {
            true => raw::Message::Request(raw::Request {
                id: None,
                on_behalf_of: None,
                method: method.to_owned(),
                params: params.map(parse),
            }),
            false => notification(method, params),
        };
        self.receive(source, ticket, message);
        ticket
    }

    fn respond(&mut self, source: Peer, id: u64, outcome: Result<&str, &str>) {
        let outcome = outcome.map(parse).map_err(parse);
        let ticket = self.fake.take_in(source, Owner::Copy);
        self.receive(source, ticket, raw::Message::Response(raw::Response { id, outcome }));
    }

    fn receive(&mut self, source: Peer, ticket: Ticket, message: raw::Message) {
        let before = Runtime::enter(Some(self.runtime.clone()));
        let receipt = self.runtime.receive(source.raw(), ticket, message);
        Runtime::enter(before);
        self.fake.end_turn(ticket, receipt);
        while let Some(id) = self.fake.next_cancelled_sleeper() {
            self.respond(Peer::Host, id, Err(r#"{"code":-32800,"message":"cancelled"}"#));
        }
        while let Some((id, answer)) = self.fake.next_answer() {
            self.respond(Peer::Host, id, answer.as_deref().map_err(String::as_str));
        }
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        let before = Runtime::enter(Some(self.runtime.clone()));
        self.runtime.clear();
        Runtime::enter(before);
    }
}

impl std::fmt::Debug for Harness {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Harness")
            .field("interests", &self.interests)
            .finish_non_exhaustive()
    }
}

/// How many [`crate::Json`] handles this thread holds, those of all harnesses and of the test included.
pub fn live_handles() -> usize {
    raw::live_values()
}

fn parse(text: &str) -> raw::Value {
    raw::Value::parse(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn notification(method: &str, params: Option<&str>) -> raw::Message {
    let params = params.map(parse);
    raw::Message::Notification(raw::Notification {
        on_behalf_of: None,
        method: method.to_owned(),
        params,
    })
}
