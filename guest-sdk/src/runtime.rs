//! The executor inside a component: what is delivered becomes a task, and an answer wakes the task that waits for it. Owns the
//! life of tasks and their tickets; must not know what a proxy does.
//!
//! Nothing here is borrowed while a handler runs or is dropped, since either may send.

mod calls;
mod tasks;

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use crate::error::{Refusal, RpcError};
use crate::interests::{How, Interests};
use crate::json::Json;
use crate::message::{Notification, Observed, Outcome, Request, Seen, session_id};
use crate::peer::Peer;
use crate::proxy::{Handler, Proxy};
use crate::raw;
use calls::{After, Calls};
use tasks::{Kind, Task, Tasks};

/// Copies whose handlers wait at a time. Observing has no ticket that ends, so it needs a bound of its own.
const MAX_OBSERVING: usize = 1024;

/// State that is kept by session; see [`crate::Sessions`].
pub(crate) trait Forget {
    fn forget(&self, session: &str);
}

pub(crate) struct Runtime {
    handler: OnceCell<Rc<dyn Handler>>,
    interests: OnceCell<Interests>,
    #[cfg(feature = "mcp")]
    serving: OnceCell<Rc<crate::mcp::Serving>>,
    observes: Cell<bool>,
    /// Whether messages come that are no handler's to own: copies, and what its MCP servers want.
    looks: Cell<bool>,
    tasks: Tasks,
    calls: Calls,
    sessions: RefCell<Vec<Weak<dyn Forget>>>,
    /// The ticket of the message that is being delivered.
    delivering: Cell<Option<u64>>,
    #[cfg(not(target_family = "wasm"))]
    channel: Rc<dyn raw::Channel>,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Runtime>>> = const { RefCell::new(None) };
}

/// Runs `f` on the runtime that is in charge of this thread, if any.
fn with_current<R>(f: impl FnOnce(&Runtime) -> R) -> Option<R> {
    // While a thread ends there may be nothing to ask any more.
    CURRENT
        .try_with(|current| current.borrow().as_deref().map(f))
        .ok()
        .flatten()
}

impl Runtime {
    #[cfg(target_family = "wasm")]
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            handler: OnceCell::new(),
            interests: OnceCell::new(),
            #[cfg(feature = "mcp")]
            serving: OnceCell::new(),
            observes: Cell::new(false),
            looks: Cell::new(false),
            tasks: Tasks::default(),
            calls: Calls::default(),
            sessions: RefCell::default(),
            delivering: Cell::new(None),
        })
    }

    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn new(channel: Rc<dyn raw::Channel>) -> Rc<Self> {
        Rc::new(Self {
            handler: OnceCell::new(),
            interests: OnceCell::new(),
            #[cfg(feature = "mcp")]
            serving: OnceCell::new(),
            observes: Cell::new(false),
            looks: Cell::new(false),
            tasks: Tasks::default(),
            calls: Calls::default(),
            sessions: RefCell::default(),
            delivering: Cell::new(None),
            channel,
        })
    }

    /// Puts this runtime in charge of the thread, and gives back which one was before.
    pub(crate) fn enter(runtime: Option<Rc<Self>>) -> Option<Rc<Self>> {
        CURRENT.with(|current| current.replace(runtime))
    }

    #[cfg(target_family = "wasm")]
    pub(crate) fn current() -> Option<Rc<Self>> {
        CURRENT.with(|current| current.borrow().clone())
    }

    /// The world's export `start`. The runtime must have been entered.
    pub(crate) fn start<P: Proxy>(&self, config: raw::Value) -> Result<Interests, String> {
        let (proxy, interests) = P::start(Json(config))?;
        self.observes.set(interests.observes());
        self.looks.set(interests.observes() || interests.serves());
        // The cells are empty: `start` is called once.
        let _ = self.handler.set(Rc::new(proxy));
        #[cfg(feature = "mcp")]
        if !interests.servers().is_empty() {
            let sees_all = interests.of_handlers(Peer::Agent, "mcp/message").is_some();
            let serving = crate::mcp::Serving::new(interests.servers().to_vec(), sees_all);
            let _ = self.serving.set(serving);
        }
        let _ = self.interests.set(interests.clone());
        Ok(interests)
    }

    /// The world's export `receive`. The runtime must have been entered.
    pub(crate) fn receive(&self, source: raw::Peer, ticket: u64, message: raw::Message) -> raw::Receipt {
        let Some(handler) = self.handler.get().cloned() else {
            return raw::Receipt::Done;
        };
        self.delivering.set(Some(ticket));
        match message {
            raw::Message::Request(request) => self.receive_request(handler, source.into(), ticket, request),
            raw::Message::Notification(notification) => {
                self.receive_notification(handler, source.into(), ticket, notification);
            }
            raw::Message::Response(response) => self.receive_response(handler, source.into(), response),
        }
        while let Some(slot) = self.tasks.next_ready() {
            self.run(slot);
        }
        self.delivering.set(None);
        match self.tasks.keeps(ticket) {
            true => raw::Receipt::Kept,
            false => raw::Receipt::Done,
        }
    }

    fn receive_request(&self, handler: Rc<dyn Handler>, source: Peer, ticket: u64, request: raw::Request) {
        let raw::Request { method, mut params, .. } = request;
        if source == Peer::Host {
            let error = RpcError::new(RpcError::METHOD_NOT_FOUND, format!("proxies do not answer {method:?}"));
            return self.fail(source, ticket, error);
        }
        let how = self.how(source, &method);
        let served = self.is_served(source, &method);
        if how == Some(How::Observe) {
            let ends = self.session_that_ends(source, &method, params.as_ref());
            let seen = match served {
                true => params.as_ref().map(raw::Value::dup),
                false => params.take(),
            };
            let message = Seen::Request {
                method: method.clone(),
                params: seen.map(Json),
            };
            self.observe(
                handler.clone(),
                Observed {
                    source,
                    ticket,
                    message,
                },
                ends,
            );
            if !served {
                return;
            }
        }
        let mut task = Task::new(Kind::Request, source, ticket);
        task.ends = self.session_that_ends(source, &method, params.as_ref());
        let request = Request::new(source, ticket, method, params);
        if source == Peer::Client && request.method() == "session/prompt" {
            task.prompted = request.session_id();
        }
        #[cfg(feature = "mcp")]
        let request = match self.serving.get() {
            Some(serving) => match serving.request(request) {
                Ok(work) => return self.spawn(task, work),
                Err(request) => request,
            },
            None => request,
        };
        let work = match (request.method(), how) {
            ("initialize", _) if source == Peer::Client => handler.on_initialize(request),
            (_, Some(How::Intercept)) => handler.on_request(request),
            _ => Box::pin(async { request.forward() }),
        };
        self.spawn(task, work);
    }

    fn receive_notification(
        &self,
        handler: Rc<dyn Handler>,
        source: Peer,
        ticket: u64,
        notification: raw::Notification,
    ) {
        let raw::Notification { method, params, .. } = notification;
        match (source, method.as_str()) {
            (_, "$/cancel_request") => return self.cancel(params.map(Json)),
            (Peer::Host, "host/lost") => {
                let copies = params.map(Json).and_then(|params| params.decode_at("/copies").ok());
                return handler.on_lost(copies.unwrap_or_default());
            }
            (Peer::Host, _) => return,
            _ => {}
        }
        let notification = Notification::new(source, ticket, method, params);
        #[cfg(feature = "mcp")]
        let notification = match self.serving.get() {
            Some(serving) => match serving.notification(notification) {
                Ok(work) => return self.spawn(Task::new(Kind::Notification, source, ticket), work),
                Err(notification) => notification,
            },
            None => notification,
        };
        let method = notification.method();
        let mut how = self.how(source, method);
        if (source, method) == (Peer::Client, "session/cancel") {
            how = self
                .interests
                .get()
                .and_then(|interests| interests.matching(source, method));
            let session = notification.session_id().unwrap_or_default();
            if how.is_none() || self.tasks.hold_prompt_of(&session) {
                return handler.on_session_cancelled(&session);
            }
        }
        match how {
            Some(How::Observe) if !self.is_served(source, notification.method()) => {
                self.observe(handler, notification.into_observed(), None);
            }
            Some(How::Intercept) => {
                self.spawn(
                    Task::new(Kind::Notification, source, ticket),
                    handler.on_notification(notification),
                );
            }
            Some(How::Observe) | None => {
                self.spawn(
                    Task::new(Kind::Notification, source, ticket),
                    Box::pin(async { notification.forward() }),
                );
            }
        }
    }

    fn receive_response(&self, handler: Rc<dyn Handler>, source: Peer, response: raw::Response) {
        let outcome = response
            .outcome
            .map(Json)
            .map_err(|error| RpcError::received(Json(error)));
        if let Some(outcome) = self.calls.finish(response.id, outcome)
            && self.observes.get()
        {
            let message = Seen::Response { outcome };
            self.observe(
                handler,
                Observed {
                    source,
                    ticket: response.id,
                    message,
                },
                None,
            );
        }
    }

    fn observe(&self, handler: Rc<dyn Handler>, observed: Observed, ends: Option<String>) {
        if self.tasks.observing() >= MAX_OBSERVING {
            self.forget(ends);
            return handler.on_lost(1);
        }
        let mut task = Task::new(Kind::Observed, observed.source, observed.ticket);
        task.ends = ends;
        self.spawn(task, handler.on_observed(observed));
    }

    /// What the proxy's handlers do with a message that was delivered. Nearly always everything is owned by them.
    fn how(&self, source: Peer, method: &str) -> Option<How> {
        match self.looks.get() || method.starts_with("$/") {
            true => self
                .interests
                .get()
                .and_then(|interests| interests.of_handlers(source, method)),
            false => Some(How::Intercept),
        }
    }

    fn is_served(&self, source: Peer, method: &str) -> bool {
        self.looks.get()
            && self
                .interests
                .get()
                .is_some_and(|interests| interests.is_served(source, method))
    }

    fn session_that_ends(&self, source: Peer, method: &str, params: Option<&raw::Value>) -> Option<String> {
        let ends = source == Peer::Client && matches!(method, "session/close" | "session/delete");
        if !ends || self.sessions.borrow().is_empty() {
            return None;
        }
        session_id(&Json(params?.dup()))
    }

    fn forget(&self, session: Option<String>) {
        let Some(session) = session else { return };
        let mut sessions = std::mem::take(&mut *self.sessions.borrow_mut());
        sessions.retain(|state| match state.upgrade() {
            Some(state) => {
                state.forget(&session);
                true
            }
            None => false,
        });
        self.sessions.borrow_mut().extend(sessions);
    }

    fn spawn(&self, task: Task, work: crate::proxy::Work) {
        let slot = self.tasks.insert(task, work);
        self.run(slot);
    }

    fn run(&self, slot: usize) {
        if let Some((task, outcome)) = self.tasks.poll(slot) {
            self.finish(task, outcome);
        }
    }

    fn finish(&self, task: Task, outcome: Outcome) {
        match (task.kind, outcome) {
            (Kind::Request, outcome) if !task.settled => {
                let unanswered = || RpcError::internal("the proxy did not answer");
                let error = outcome.err().unwrap_or_else(unanswered);
                self.fail(task.source, task.ticket, error);
            }
            (Kind::Notification, outcome) if !task.settled => {
                match outcome {
                    // The host has sent it on as it came, and has told so.
                    Err(error) if error.code() == RpcError::DENIED => crate::debug!("{error}"),
                    Err(error) => crate::warn!("a notification was not passed on: {error}"),
                    Ok(_) => {}
                }
                // While it is being delivered, the receipt lets go of it.
                if self.delivering.get() != Some(task.ticket) {
                    self.release(task.ticket);
                }
            }
            (Kind::Request | Kind::Notification | Kind::Observed, _) => {}
        }
        self.forget(task.ends);
    }

    /// Someone gave up the request that these params of `$/cancel_request` name.
    fn cancel(&self, params: Option<Json>) {
        let ticket = params.and_then(|params| params.decode_at("/requestId").ok());
        if let Some((task, work)) = ticket.and_then(|ticket| self.tasks.take_request(ticket)) {
            drop(work);
            self.finish(task, Err(RpcError::cancelled()));
        }
    }

    /// Answers with an error; with a shorter one if the host finds that too large, since any answer is better than none.
    fn fail(&self, to: Peer, ticket: u64, error: RpcError) {
        let answer = |error: RpcError| {
            let outcome = Err(error.into_json()?.0);
            let response = raw::Response { id: ticket, outcome };
            self.send(to, raw::Message::Response(response))
        };
        let denied = error.code() == RpcError::DENIED;
        let answered = match answer(error) {
            Err(refusal @ Refusal::TooLarge) => answer(refusal.into()),
            answered => answered,
        };
        match answered {
            // The host has given the answer that there is without this proxy, and has told so.
            Err(Refusal::Denied(reason)) => crate::debug!("{reason}"),
            Err(_) if denied => {}
            Err(refusal) => crate::warn!("the answer to a request was not taken: {refusal}"),
            Ok(()) => {}
        }
    }

    fn send(&self, to: Peer, message: raw::Message) -> Result<(), Refusal> {
        #[cfg(target_family = "wasm")]
        return raw::send(to.raw(), message).map_err(Refusal::from);
        #[cfg(not(target_family = "wasm"))]
        self.channel.send(to.raw(), message).map_err(Refusal::from)
    }

    fn release(&self, ticket: u64) {
        #[cfg(target_family = "wasm")]
        raw::release(ticket);
        #[cfg(not(target_family = "wasm"))]
        self.channel.release(ticket);
    }

    /// Drops all tasks, as the end of the component does.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn clear(&self) {
        self.tasks.clear();
    }

    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn live_tasks(&self) -> usize {
        self.tasks.len()
    }
}

pub(crate) fn send(to: Peer, message: raw::Message) -> Result<(), Refusal> {
    with_current(|runtime| runtime.send(to, message)).unwrap_or(Err(Refusal::Closed))
}

/// Notes that the message with this ticket was passed on or answered.
pub(crate) fn settle(ticket: u64) {
    with_current(|runtime| runtime.tasks.update(ticket, |task| task.settled = true));
}

/// Lets go of the notification with this ticket. While it is being delivered, the receipt does so.
pub(crate) fn discard(ticket: u64) {
    settle(ticket);
    with_current(|runtime| {
        if runtime.delivering.get() != Some(ticket) {
            runtime.release(ticket);
        }
    });
}

/// Notes that the request with this ticket was passed on, but is not answered.
pub(crate) fn carry(ticket: u64) {
    with_current(|runtime| runtime.tasks.update(ticket, |task| task.carried = true));
}

/// The ticket that a request of the running handler's own is made on behalf of.
pub(crate) fn behalf(to: Peer) -> Option<u64> {
    with_current(|runtime| runtime.tasks.behalf(to)).flatten()
}

/// Sends a request of the proxy's own and gives its id.
pub(crate) fn call(to: Peer, method: String, params: Option<Json>, on_behalf_of: Option<u64>) -> Result<u64, Refusal> {
    let call = |runtime: &Runtime| {
        let id = runtime.calls.next_id();
        let params = params.map(|params| params.0);
        runtime.send(
            to,
            raw::Message::Request(raw::Request {
                id: Some(id),
                on_behalf_of,
                method,
                params,
            }),
        )?;
        runtime.calls.begin(id, to);
        Ok(id)
    };
    with_current(call).unwrap_or(Err(Refusal::Closed))
}

pub(crate) fn poll_call(id: u64, context: &mut Context<'_>) -> Poll<Option<Result<Json, RpcError>>> {
    with_current(|runtime| runtime.calls.poll(id, context)).unwrap_or(Poll::Ready(None))
}

/// Nobody waits for this call any more.
pub(crate) fn abandon_call(id: u64) {
    with_current(|runtime| {
        let Some(peer) = runtime.calls.abandon(id) else {
            return;
        };
        // Best effort: the answer is dropped anyway.
        if let Ok(params) = Json::parse(&format!("{{\"requestId\":{id}}}")) {
            let method = "$/cancel_request".to_owned();
            let cancel = raw::Notification {
                on_behalf_of: None,
                method,
                params: Some(params.0),
            };
            let _ = runtime.send(peer, raw::Message::Notification(cancel));
        }
    });
}

/// Nobody waits for this call any more, but it goes on.
pub(crate) fn detach_call(id: u64, after: After) {
    with_current(|runtime| runtime.calls.detach(id, after));
}

/// Lets the ends of sessions reach this state.
pub(crate) fn register(state: Weak<dyn Forget>) {
    with_current(|runtime| runtime.sessions.borrow_mut().push(state));
}
