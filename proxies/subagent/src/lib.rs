//! A tool `subagent` that gives a task to the same agent, in a session of its own, and returns what it answers. What is said there is kept out
//! of the session that asked.
//!
//! Configuration, with what holds if it says nothing:
//!
//! ```json
//! {"permissions": "ask", "editor": false, "maxAtOnce": 4, "maxSeconds": 1800, "maxBytes": 65536}
//! ```
//!
//! - `permissions`: `"ask"` puts a subagent's questions for permission to the client, under the session that it works for; `"deny"` denies them.
//! - `editor`: whether its requests to read and write files and to run commands go to the client in the same way. Otherwise they reach
//!   it under the subagent's session, which it does not know, and will be refused.
//! - `maxAtOnce`: how many can be at work.
//! - `maxSeconds`: how long one may take.
//! - `maxBytes`: how much of its answer is given.
//!
//! A subagent's session has no MCP servers, so it has no tool to start others with. It ends when its work is done, when its tool call is given
//! up, when the session that it works for is cancelled, and when its time is over.

mod children;
mod wait;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use consort_proxy::Peer::{Agent, Client};
use consort_proxy::mcp::{Caller, Failure, Server};
use consort_proxy::schemars::{self, JsonSchema};
use consort_proxy::{
    Call, Directories, Interests, Json, Notification, Observed, Outcome, Proxy, Request, RpcError, Seen, debug, host,
    info, json, warn,
};
use serde::Deserialize;
use serde_json::Value;

use children::{Child, Children};
use wait::{First, first};

/// Bytes of a task.
const MAX_TASK: usize = 64 << 10;

/// Bytes of the options of a question.
const MAX_OPTIONS: u64 = 64 << 10;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    permissions: Permissions,
    editor: bool,
    max_at_once: usize,
    max_seconds: u64,
    max_bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Permissions {
    Ask,
    Deny,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            permissions: Permissions::Ask,
            editor: false,
            max_at_once: 4,
            max_seconds: 1_800,
            max_bytes: 64 << 10,
        }
    }
}

impl Config {
    fn check(&self) -> Result<(), String> {
        let within = |name: &str, value: u64, most: u64| match (1..=most).contains(&value) {
            true => Ok(()),
            false => Err(format!("{name} is {value}, but has to be between 1 and {most}")),
        };
        within("maxAtOnce", u64::try_from(self.max_at_once).unwrap_or(u64::MAX), 64)?;
        within("maxSeconds", self.max_seconds, 86_400)?;
        within("maxBytes", u64::try_from(self.max_bytes).unwrap_or(u64::MAX), 1 << 20)
    }
}

/// What the tool and the handlers have in common.
struct Shared {
    config: Config,
    children: Children,
    /// Subagents that are at work or being started.
    busy: Cell<usize>,
    /// The directory of each session.
    directories: Directories,
    /// The agent can close sessions.
    closes: Cell<bool>,
}

/// The proxy.
pub struct Subagent(Rc<Shared>);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Task {
    /// The task, with everything that has to be known to do it: the subagent sees nothing of this conversation.
    task: String,
}

impl Proxy for Subagent {
    fn start(config: Json) -> Result<(Self, Interests), String> {
        let config: Config = config.decode()?;
        config.check()?;
        let editor = config.editor;
        let shared = Rc::new(Shared {
            config,
            children: Children::default(),
            busy: Cell::new(0),
            directories: Directories::new(),
            closes: Cell::new(false),
        });
        let working = shared.clone();
        let server = Server::new("subagent", env!("CARGO_PKG_VERSION"))
            .title("Subagents")
            .each_session()
            .tool(
                "subagent",
                "Gives a task to another agent like you, which works in the same directory in a conversation of its own, and returns \
                 its answer. For work whose details you need not see",
                async move |task: Task, caller: Caller| work(&working, task, caller).await,
            );
        let mut interests = Interests::new()
            .set_ups()
            .intercept(Agent, "session/update")
            .intercept(Agent, "session/request_permission")
            .observe(Client, "session/cancel")
            .session_ends();
        if editor {
            interests = interests.intercept(Agent, "fs/*").intercept(Agent, "terminal/*");
        }
        Ok((Self(shared), interests.serve(server)))
    }

    async fn initialize(&self, mut request: Request) -> Outcome {
        let result = request.forward_and_wait().await?;
        let closes = result.size("/agentCapabilities/sessionCapabilities/close").is_some();
        self.0.closes.set(closes);
        request.reply(result)
    }

    async fn request(&self, request: Request) -> Outcome {
        if request.source() == Client {
            return self.0.directories.set_up(request).await;
        }
        let session = request.session_id().unwrap_or_default();
        let Some(child) = self.0.children.get(&session) else {
            return match self.0.children.knows(&session) {
                true => Err(RpcError::cancelled()),
                false => request.forward(),
            };
        };
        match request.method() {
            "session/request_permission" if self.0.config.permissions == Permissions::Deny => {
                info!("a question of a subagent was denied");
                let outcome = denial(request.params());
                request.reply(Json::encode(&outcome)?)
            }
            "session/request_permission" => ask(request, &child).await,
            _ => relay(request, &child).await,
        }
    }

    async fn notification(&self, update: Notification) -> Outcome {
        let session = update.session_id().unwrap_or_default();
        if let Some(child) = self.0.children.get(&session) {
            child.hear(update.params());
            return update.discard();
        }
        match self.0.children.knows(&session) {
            true => update.discard(),
            false => update.forward(),
        }
    }

    async fn observe(&self, observed: Observed) {
        if let Seen::Notification {
            method,
            params: Some(params),
        } = observed.message
            && method == "session/cancel"
            && let Some(session) = params.string("/sessionId")
        {
            self.0.children.stop_those_of(&session);
        }
    }
}

consort_proxy::export!(Subagent);

/// A place among those that can be at work.
struct Place(Rc<Shared>);

impl Place {
    fn take(shared: &Rc<Shared>) -> Result<Rc<Self>, Failure> {
        let busy = shared.busy.get();
        if busy >= shared.config.max_at_once {
            return Err(format!("{busy} subagents are at work, which is the most: wait until one is done").into());
        }
        shared.busy.set(busy + 1);
        Ok(Rc::new(Self(shared.clone())))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.busy.set(self.0.busy.get().saturating_sub(1));
    }
}

/// A session that is being begun. If nobody waits for it any more it keeps its place until the agent has answered, and what was begun is
/// closed.
struct Birth<'w> {
    place: &'w Rc<Place>,
    child: &'w Rc<Child>,
    call: Call,
}

impl Drop for Birth<'_> {
    fn drop(&mut self) {
        let shared = &self.place.0;
        shared.children.expect_no_more(self.child);
        let place = self.place.clone();
        self.call.detach(move |begun| {
            if let Some(session) = begun.ok().and_then(|begun| begun.string("/sessionId")) {
                place.0.children.end(&session);
                close(&place.0, &session);
            }
        });
    }
}

/// A session that ends with this.
struct Run<'w> {
    shared: &'w Shared,
    session: String,
    /// It has answered its prompt.
    done: bool,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if !self.done
            && let Err(error) = Agent.notify("session/cancel", json!({"sessionId": self.session}))
        {
            warn!("a subagent was not stopped: {error}");
        }
        self.shared.children.end(&self.session);
        close(self.shared, &self.session);
    }
}

async fn work(shared: &Rc<Shared>, task: Task, caller: Caller) -> Result<String, Failure> {
    if task.task.trim().is_empty() || task.task.len() > MAX_TASK {
        return Err(format!("`task` has to have between 1 and {MAX_TASK} bytes").into());
    }
    let Some(parent) = caller.session().map(str::to_owned) else {
        return Err("Consort does not know yet which session this is; try again when the session has begun".into());
    };
    if shared.children.knows(&parent) {
        return Err("a subagent cannot start others".into());
    }
    let Some(directory) = shared.directories.of(&parent) else {
        return Err(
            "the directory of this session is not known any more; subagents work again in a new session".into(),
        );
    };
    let place = Place::take(shared)?;
    let child = shared.children.expect(&parent, caller, shared.config.max_bytes);
    let seconds = shared.config.max_seconds;
    let answered = first(
        run(&place, &child, &directory, &task.task),
        first(child.stopped.heard(), host::sleep(Duration::from_secs(seconds))),
    );
    match answered.await {
        First::One(answer) => answer,
        First::Other(First::One(())) => Err("the subagent was stopped with the session that it works for".into()),
        First::Other(First::Other(Ok(()))) => {
            Err(format!("the subagent has not answered within {seconds} seconds, and was stopped").into())
        }
        First::Other(First::Other(Err(error))) => Err(format!("the subagent's time cannot be taken: {error}").into()),
    }
}

/// The life of a subagent. Whenever it is given up, its session ends.
async fn run(place: &Rc<Place>, child: &Rc<Child>, directory: &str, task: &str) -> Result<String, Failure> {
    let shared = &place.0;
    let no_servers: [&str; 0] = [];
    let set_up = json!({"cwd": directory, "mcpServers": no_servers});
    let call = Agent.request("session/new", set_up);
    let mut birth = Birth { place, child, call };
    let begun = (&mut birth.call).await.map_err(explained)?;
    let Some(session) = begun.string("/sessionId") else {
        return Err("the agent has begun no session for the subagent".into());
    };
    shared.children.begin(&session, child);
    drop(birth);
    let mut run = Run {
        shared,
        session,
        done: false,
    };
    let prompt = json!({"sessionId": run.session, "prompt": [{"type": "text", "text": task}]});
    let answered = Agent.request("session/prompt", prompt).await;
    run.done = true;
    told(child, &answered.map_err(explained)?)
}

/// What a subagent's turn comes to.
fn told(child: &Child, result: &Json) -> Result<String, Failure> {
    let answer = child.answer();
    let reason = result.string("/stopReason").unwrap_or_default();
    match (reason.as_str(), answer.trim().is_empty()) {
        ("cancelled", _) => Err("the subagent was cancelled".into()),
        ("end_turn", false) => Ok(answer),
        ("end_turn", true) => Ok("(the subagent is done, and has said nothing)".into()),
        (reason, true) => Err(format!("the subagent has stopped ({reason}) and has said nothing").into()),
        (reason, false) => Ok(format!("{answer}\n[The subagent has stopped early: {reason}.]")),
    }
}

/// Ends a session, if the agent can. Nobody waits for that.
fn close(shared: &Shared, session: &str) {
    if !shared.closes.get() {
        return;
    }
    let mut closing = Agent.request("session/close", json!({"sessionId": session}));
    closing.detach(|answer| {
        if let Err(error) = answer {
            debug!("a subagent's session was not closed: {error}");
        }
    });
}

/// Tells the model what went wrong, and the user what to grant.
fn explained(error: RpcError) -> Failure {
    match error.code() {
        RpcError::DENIED => {
            let grant = "the user has not allowed this: Consort's option `--grant subagent=own-sessions` does";
            format!("{} ({grant})", error.message()).into()
        }
        _ => format!("the agent gives no subagent: {}", error.message()).into(),
    }
}

/// Puts a subagent's question to the client, under the session that it works for. If the client cannot be asked, it is denied; if the
/// subagent is stopped meanwhile, it is cancelled.
async fn ask(request: Request, child: &Child) -> Outcome {
    let question = request.params().clone();
    question.replace("/sessionId", child.parent.as_str())?;
    // Tool calls of the two sessions could have the same id.
    if let Some(id) = question.string("/toolCall/toolCallId") {
        question.replace("/toolCall/toolCallId", format!("subagent:{id}"))?;
    }
    if let Some(title) = question.string("/toolCall/title") {
        question.replace("/toolCall/title", format!("Subagent: {title}"))?;
    }
    match first(Client.request("session/request_permission", question), child.end()).await {
        First::One(Ok(answer)) => request.reply(answer),
        First::One(Err(error)) => {
            warn!("a question of a subagent was denied, since the client cannot be asked: {error}");
            let outcome = denial(request.params());
            request.reply(Json::encode(&outcome)?)
        }
        First::Other(()) => request.reply(json!({"outcome": {"outcome": "cancelled"}})),
    }
}

/// Hands a request of a subagent to the client, under the session that it works for.
async fn relay(request: Request, child: &Child) -> Outcome {
    let params = request.params().clone();
    params.replace("/sessionId", child.parent.as_str())?;
    match first(Client.request(request.method(), params), child.end()).await {
        First::One(answer) => request.reply(answer?),
        First::Other(()) => Err(RpcError::cancelled()),
    }
}

/// The answer that denies: an option that the agent offers for that, or that the question is given up.
fn denial(params: &Json) -> Value {
    let options: Vec<Value> = match params.size("/options") {
        Some(size) if size <= MAX_OPTIONS => params.decode_at("/options").unwrap_or_default(),
        _ => Vec::new(),
    };
    let rejects = options.iter().find(|option| option["kind"] == "reject_once");
    match rejects.and_then(|option| option["optionId"].as_str()) {
        Some(option) => serde_json::json!({"outcome": {"outcome": "selected", "optionId": option}}),
        None => serde_json::json!({"outcome": {"outcome": "cancelled"}}),
    }
}

impl Child {
    /// Waits until it is stopped or over.
    async fn end(&self) {
        if !self.stopped.is_said() {
            first(self.stopped.heard(), self.over.heard()).await;
        }
    }
}

#[cfg(test)]
mod tests;
