//! What the client expects, and whether what comes is that.

use crate::script;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is told of; the rest is only counted.
const TOLD: usize = 30;

/// A session as the client sees it.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The last turn that was begun.
    pub(crate) turn: u64,
    /// The request of the turn that is under way.
    pub(crate) busy: Option<String>,
    /// The turn whose updates come, and how many came.
    streaming: u64,
    received: u64,
    /// The number that the next question of that turn has at least.
    questions: u64,
    /// Turns up to this one are over: nothing of them may come any more.
    over: u64,
    /// The last turn that the agent never saw. What it does in an earlier one, of a prompt that was given up, may go on.
    refused: u64,
    /// Announcements of commands that came.
    commands: u64,
}

/// A request of the client.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    /// Any result.
    Result,
    /// A new session.
    New,
    /// The end of a turn.
    Turn(Turn),
    /// The end of a session.
    Close(String),
    /// An error with this code.
    Error(i64),
}

/// A turn that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) session: String,
    pub(crate) turn: u64,
    /// `session/load` instead of `session/prompt`.
    pub(crate) load: bool,
    /// The client sent `session/cancel`.
    pub(crate) cancelled: bool,
    /// The client sent `$/cancel_request`.
    pub(crate) given_up: bool,
}

/// All that is expected.
#[derive(Default)]
pub(crate) struct Checks {
    pub(crate) sessions: BTreeMap<String, Session>,
    pub(crate) waiting: HashMap<String, (Instant, Expected)>,
    /// Answers without an id that are owed to lines which were no messages, by code.
    pub(crate) refusals: BTreeMap<i64, u64>,
    /// Ids of requests to the client; none may come twice.
    asked: HashSet<u64>,
    cancelled: HashSet<u64>,
    /// The result of the last request whose result anybody wants to see.
    pub(crate) last: Value,
    pub(crate) wrong: Vec<String>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl Checks {
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn wrong(&mut self, what: String) {
        self.count("WRONG");
        if self.wrong.len() < TOLD {
            self.wrong.push(what);
        }
    }

    /// A message; says whether it is a request that wants an answer.
    pub(crate) fn take(&mut self, message: &Value) -> bool {
        let params = &message["params"];
        match (message["method"].as_str(), message.get("id")) {
            (Some(method), Some(id)) => {
                match id.as_u64().map(|id| self.asked.insert(id)) {
                    Some(true) => {}
                    _ => self.wrong(format!("{method} came with the id {id}, not for the first time")),
                }
                self.count("requests to the client");
                self.question(method, params);
                true
            }
            (Some(method), None) => {
                self.notification(method, params);
                false
            }
            (None, _) => {
                self.response(message);
                false
            }
        }
    }

    fn question(&mut self, method: &str, params: &Value) {
        let Some(place) = params.get("place") else {
            // The proxy `asker` asks before a turn begins.
            if !params["toolCall"]["toolCallId"]
                .as_str()
                .is_some_and(|id| id.starts_with("asker-"))
            {
                self.wrong(format!("{method} came with {params:.300}"));
            }
            return;
        };
        let number = |key: &str| place[key].as_u64().unwrap_or(u64::MAX);
        let (turn, number, after) = (number("turn"), number("number"), number("after"));
        if let Err(why) = self.place(params, turn, after, Some(number)) {
            self.wrong(format!("{method} {place} of {}: {why}", params["sessionId"]));
        }
    }

    fn notification(&mut self, method: &str, params: &Value) {
        match method {
            "session/update" => self.update(params),
            "$/cancel_request" => {
                self.count("cancels to the client");
                let id = params["requestId"].as_u64().filter(|id| self.asked.contains(id));
                if !id.is_some_and(|id| self.cancelled.insert(id)) {
                    self.wrong(format!("a request that nobody made, or twice, was cancelled: {params}"));
                }
            }
            "_soak/wrong" => self.wrong(format!("the agent says: {}", params["what"])),
            other => self.wrong(format!("the notification {other} came")),
        }
    }

    fn update(&mut self, params: &Value) {
        self.count("updates");
        let update = &params["update"];
        if update["sessionUpdate"] == "available_commands_update" {
            let session = params["sessionId"].as_str().and_then(|id| self.sessions.get_mut(id));
            match session {
                Some(session) => session.commands += 1,
                None => self.wrong(format!("commands came for a session without a name: {params}")),
            }
            return;
        }
        let text = update["content"]["text"].as_str().unwrap_or_default();
        let Some((turn, number)) = text.strip_prefix('>').and_then(script::read_text) else {
            return self.wrong(format!("an update came as {params:.300}"));
        };
        if let Err(why) = self.place(params, turn, number, None) {
            self.wrong(format!("update {turn}:{number} of {}: {why}", params["sessionId"]));
        }
    }

    /// Whether an update, or a question, comes at its place: behind so many updates of its turn.
    fn place(&mut self, params: &Value, turn: u64, after: u64, question: Option<u64>) -> Result<(), String> {
        let session = params["sessionId"].as_str().and_then(|id| self.sessions.get_mut(id));
        let Some(session) = session else {
            return Err("its session is not there".into());
        };
        if turn <= session.over || turn > session.turn || turn == session.refused {
            let Session {
                turn, over, refused, ..
            } = session;
            return Err(format!("turn {over} is over, {refused} was refused, {turn} began last"));
        }
        if turn > session.streaming {
            (session.streaming, session.received, session.questions) = (turn, 0, 0);
        }
        if turn < session.streaming || after != session.received {
            return Err(format!("{}:{} was to come", session.streaming, session.received));
        }
        match question {
            Some(number) if number < session.questions => return Err("it came before, or too late".into()),
            Some(number) => session.questions = number + 1,
            None => session.received += 1,
        }
        Ok(())
    }

    fn response(&mut self, message: &Value) {
        let id = &message["id"];
        let (result, error) = (&message["result"], &message["error"]);
        if id.is_null() {
            let owed = error["code"].as_i64().and_then(|code| self.refusals.get_mut(&code));
            match owed {
                Some(owed @ 1..) => *owed -= 1,
                _ => self.wrong(format!("an answer to nothing came: {message}")),
            }
            return;
        }
        let Some((_, expected)) = self.waiting.remove(&id.to_string()) else {
            return self.wrong(format!("a second answer, or one to no request, came: {message:.300}"));
        };
        let right = match &expected {
            Expected::Result => {
                self.last = result.clone();
                !result.is_null()
            }
            Expected::Error(code) => error["code"] == *code,
            Expected::New => match result["sessionId"].as_str() {
                Some(session) => self.sessions.insert(session.into(), Session::default()).is_none(),
                None => false,
            },
            Expected::Close(session) => {
                let commands = self.sessions.remove(session).map(|session| session.commands);
                commands == Some(2) && !result.is_null()
            }
            Expected::Turn(turn) => self.end_of_turn(turn, result, error),
        };
        if !right {
            self.wrong(format!("{expected:?} came to {message:.300}"));
        }
    }

    fn end_of_turn(&mut self, turn: &Turn, result: &Value, error: &Value) -> bool {
        let Some(session) = self.sessions.get_mut(&turn.session) else {
            return false;
        };
        session.busy = None;
        if !error.is_null() {
            // The agent may not have heard yet, and go on for a while.
            let fault = error["data"]["class"] == "trap";
            self.count(if fault { "errors of traps" } else { "errors of cancels" });
            return !turn.load && (fault || (turn.given_up && error["code"] == -32800));
        }
        match result["stopReason"].as_str() {
            Some("refusal") => session.refused = turn.turn,
            _ => session.over = turn.turn,
        }
        let received = match session.streaming == turn.turn {
            true => session.received,
            false => 0,
        };
        let complete = result["updates"] == received;
        let rewritten = result["rewritten"] == 1;
        match result["stopReason"].as_str() {
            Some("refusal") => {
                self.count("refusals");
                !turn.load && received == 0
            }
            Some("cancelled") => {
                self.count("cancelled turns");
                complete && rewritten != turn.load && (turn.cancelled || turn.given_up)
            }
            Some("end_turn") => {
                self.count(if turn.load { "loads" } else { "prompts" });
                complete && rewritten != turn.load
            }
            _ => false,
        }
    }

    /// Requests that have waited too long.
    pub(crate) fn overdue(&mut self) {
        let overdue: Vec<String> = self
            .waiting
            .iter()
            .filter(|(_, (since, _))| since.elapsed() > PATIENCE)
            .map(|(id, _)| id.clone())
            .collect();
        for id in overdue {
            if let Some((_, expected)) = self.waiting.remove(&id) {
                self.wrong(format!("{id} was not answered: {expected:?}"));
            }
        }
    }

    /// Whether everything that is owed has come.
    pub(crate) fn is_quiet(&self) -> bool {
        self.waiting.is_empty() && self.refusals.values().all(|&owed| owed == 0)
    }
}
