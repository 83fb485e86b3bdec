//! A small ACP agent that needs no key and no network: what it says depends on nothing but what it was sent. It speaks plain ACP
//! and must not know anything of proxies.

mod turn;
mod wire;

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, AgentCapabilities, AvailableCommand, AvailableCommandsUpdate, CLIENT_METHOD_NAMES,
    CancelNotification, CancelRequestNotification, CloseSessionRequest, CloseSessionResponse, ContentChunk, Error,
    Implementation, InitializeRequest, InitializeResponse, ListSessionsResponse, LoadSessionRequest,
    LoadSessionResponse, NewSessionRequest, NewSessionResponse, PROTOCOL_LEVEL_METHOD_NAMES, PromptCapabilities,
    PromptRequest, PromptResponse, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    SessionCapabilities, SessionCloseCapabilities, SessionId, SessionInfo, SessionListCapabilities,
    SessionNotification, SessionUpdate, StopReason,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use turn::{Permission, Step, Turn};
use wire::Message;

/// The commands that the agent understands anywhere in the last text block of a prompt, and what they do.
pub const COMMANDS: [(&str, &str); 5] = [
    ("plan", "show a plan and tick it off"),
    ("tool", "call a tool after asking for permission"),
    ("secret", "print something that looks like a token"),
    ("refuse", "refuse to go on"),
    ("wait", "wait until the turn is cancelled"),
];

/// The token that `/secret` prints. It has the form of a key and has never been one; it is put together here so that nobody's
/// scanner takes this file for a leak.
pub const FAKE_TOKEN: &str = concat!("ghp", "_", "DemoDemoDemoDemoDemoDemoDemoDemo1234");

/// How many sessions and how many updates of a session's history are kept. A demonstration needs no more, and the oldest go first.
const MOST_SESSIONS: usize = 1000;
const MOST_HISTORY: usize = 1000;

/// How many lines may wait between the thread that reads and the agent.
const QUEUED_LINES: usize = 16;

/// Speaks ACP on `input` and `output` until the input ends. With a `delay`, it waits that long before each thing that it does in
/// a turn; without one, it reads on only when it has nothing left to say.
///
/// # Errors
///
/// When the output cannot be written.
pub fn serve(input: impl BufRead + Send + 'static, mut output: impl Write, delay: Duration) -> io::Result<()> {
    let (sender, receiver) = mpsc::sync_channel(QUEUED_LINES);
    // Not waited for: it may be in a read that never ends.
    thread::Builder::new()
        .name("input".into())
        .spawn(move || read_lines(input, &sender))?;
    let mut agent = Agent::default();
    let mut open = true;
    while open || agent.is_busy() {
        let received = match (agent.is_busy(), delay.is_zero()) {
            (true, true) => Err(RecvTimeoutError::Timeout),
            (true, false) if open => receiver.recv_timeout(delay),
            (true, false) => {
                thread::sleep(delay);
                Err(RecvTimeoutError::Timeout)
            }
            (false, _) => receiver.recv().map_err(RecvTimeoutError::from),
        };
        match received {
            Ok(line) => agent.receive(&line)?,
            Err(RecvTimeoutError::Timeout) => agent.step()?,
            Err(RecvTimeoutError::Disconnected) => open = false,
        }
        for line in agent.output.drain(..) {
            output.write_all(line.as_bytes())?;
            output.write_all(b"\n")?;
        }
        output.flush()?;
    }
    Ok(())
}

fn read_lines(mut input: impl BufRead, sender: &mpsc::SyncSender<Vec<u8>>) {
    loop {
        let mut line = Vec::new();
        match input.read_until(b'\n', &mut line) {
            Ok(1..) => {
                if sender.send(line).is_err() {
                    return;
                }
            }
            // There is no difference between an end and an error for whoever is left here.
            Ok(0) | Err(_) => return,
        }
    }
}

/// The state of one connection.
#[derive(Default)]
struct Agent {
    initialized: bool,
    sessions: Vec<Session>,
    /// How many sessions there have been.
    counted: u64,
    next_request: u64,
    output: Vec<String>,
}

struct Session {
    id: SessionId,
    cwd: PathBuf,
    history: Vec<SessionUpdate>,
    turn: Option<Turn>,
}

impl Agent {
    /// Whether there is something that the agent would do by itself.
    fn is_busy(&self) -> bool {
        self.sessions
            .iter()
            .filter_map(|session| session.turn.as_ref())
            .any(Turn::is_active)
    }

    /// Takes a line of input.
    fn receive(&mut self, line: &[u8]) -> serde_json::Result<()> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        match wire::parse(line) {
            Ok(Message::Request { id, method, params }) => match self.request(id, &method, params) {
                Ok(Answer::Later) => Ok(()),
                Ok(Answer::Now(result)) => {
                    self.send(&wire::result(id, result))?;
                    self.after(&method)
                }
                Err(error) => self.send(&wire::error(Some(id), error)),
            },
            Ok(Message::Notification { method, params }) => self.notification(&method, params),
            Ok(Message::Response { id, result }) => {
                self.response(id, result);
                Ok(())
            }
            Err(error) => self.send(&wire::error(None, error)),
        }
    }

    fn request(&mut self, id: &RawValue, method: &str, params: Option<&RawValue>) -> Result<Answer, Error> {
        let names = AGENT_METHOD_NAMES;
        if method == names.initialize {
            return self.initialize(read(params)?).and_then(now);
        }
        if !self.initialized {
            return Err(Error::new(-32600, "the first request must be initialize"));
        }
        if method == names.session_new {
            now(self.new_session(read(params)?))
        } else if method == names.session_load {
            self.load_session(&read(params)?).and_then(now)
        } else if method == names.session_list {
            now(self.list_sessions())
        } else if method == names.session_close {
            self.close_session(&read(params)?).and_then(now)
        } else if method == names.session_prompt {
            self.prompt(id, &read(params)?)?;
            Ok(Answer::Later)
        } else {
            Err(Error::method_not_found().data(serde_json::json!({ "method": method })))
        }
    }

    fn initialize(&mut self, request: InitializeRequest) -> Result<InitializeResponse, Error> {
        self.initialized = true;
        let capabilities = AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(PromptCapabilities::new().image(true).audio(true).embedded_context(true))
            .session_capabilities(
                SessionCapabilities::new()
                    .list(SessionListCapabilities::new())
                    .close(SessionCloseCapabilities::new()),
            );
        Ok(
            InitializeResponse::new(request.protocol_version.min(ProtocolVersion::V1))
                .agent_capabilities(capabilities)
                .agent_info(
                    Implementation::new("consort-demo-agent", env!("CARGO_PKG_VERSION"))
                        .title("Consort's demo agent".to_owned()),
                ),
        )
    }

    fn new_session(&mut self, request: NewSessionRequest) -> NewSessionResponse {
        if self.sessions.len() == MOST_SESSIONS {
            self.sessions.remove(0);
        }
        self.counted += 1;
        let id = SessionId::new(format!("demo-{}", self.counted));
        self.sessions.push(Session {
            id: id.clone(),
            cwd: request.cwd,
            history: Vec::new(),
            turn: None,
        });
        NewSessionResponse::new(id)
    }

    fn load_session(&mut self, request: &LoadSessionRequest) -> Result<LoadSessionResponse, Error> {
        let session = self.session(&request.session_id)?;
        let (id, history) = (session.id.clone(), session.history.clone());
        for update in history {
            self.update(&id, update).map_err(Error::into_internal_error)?;
        }
        Ok(LoadSessionResponse::new())
    }

    fn list_sessions(&self) -> ListSessionsResponse {
        ListSessionsResponse::new(
            self.sessions
                .iter()
                .map(|session| SessionInfo::new(session.id.clone(), session.cwd.clone()))
                .collect(),
        )
    }

    fn close_session(&mut self, request: &CloseSessionRequest) -> Result<CloseSessionResponse, Error> {
        self.session(&request.session_id)?;
        self.cancel(&request.session_id).map_err(Error::into_internal_error)?;
        self.sessions.retain(|session| session.id != request.session_id);
        Ok(CloseSessionResponse::new())
    }

    fn prompt(&mut self, id: &RawValue, request: &PromptRequest) -> Result<(), Error> {
        let session = self.session(&request.session_id)?;
        if session.turn.is_some() {
            return Err(Error::new(-32600, "this session has a turn that has not ended"));
        }
        for block in &request.prompt {
            let chunk = ContentChunk::new(block.clone());
            session.remember(SessionUpdate::UserMessageChunk(chunk));
        }
        session.turn = Some(Turn::new(id.to_owned(), &request.prompt));
        Ok(())
    }

    /// What follows an answer: the commands, for whoever has just opened a session.
    fn after(&mut self, method: &str) -> serde_json::Result<()> {
        if method != AGENT_METHOD_NAMES.session_new {
            return Ok(());
        }
        let Some(id) = self.sessions.last().map(|session| session.id.clone()) else {
            return Ok(());
        };
        let commands = COMMANDS
            .iter()
            .map(|(name, what)| AvailableCommand::new(*name, *what))
            .collect();
        let update = SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new(commands));
        self.update(&id, update)
    }

    fn notification(&mut self, method: &str, params: Option<&RawValue>) -> serde_json::Result<()> {
        if method == AGENT_METHOD_NAMES.session_cancel {
            if let Ok(CancelNotification { session_id, .. }) = read(params) {
                self.cancel(&session_id)?;
            }
        } else if method == PROTOCOL_LEVEL_METHOD_NAMES.cancel_request
            && let Ok(CancelRequestNotification { request_id, .. }) = read(params)
        {
            let id = serde_json::to_string(&request_id)?;
            let session = self
                .sessions
                .iter_mut()
                .find(|session| session.turn.as_ref().is_some_and(|turn| turn.request().get() == id));
            if let Some(turn) = session.and_then(|session| session.turn.take()) {
                let error = Error::request_cancelled();
                return self.send(&wire::error(Some(turn.request()), error));
            }
        }
        Ok(())
    }

    fn response(&mut self, id: &RawValue, result: Option<&RawValue>) {
        let turns = self.sessions.iter_mut().filter_map(|session| session.turn.as_mut());
        for turn in turns {
            if turn.waits_for(id.get()) {
                let outcome = result
                    .and_then(|result| serde_json::from_str::<RequestPermissionResponse>(result.get()).ok())
                    .map_or(RequestPermissionOutcome::Cancelled, |response| response.outcome);
                turn.permission(&outcome);
                return;
            }
        }
    }

    /// Does the next thing of a turn that has something to do.
    fn step(&mut self) -> serde_json::Result<()> {
        let next = self.sessions.iter_mut().find_map(|session| {
            let step = session.turn.as_mut()?.next()?;
            Some((session.id.clone(), step))
        });
        match next {
            None => Ok(()),
            Some((id, Step::Update(update))) => {
                if let Some(session) = self.sessions.iter_mut().find(|session| session.id == id) {
                    session.remember((*update).clone());
                }
                self.update(&id, *update)
            }
            Some((id, Step::Ask(permission))) => self.ask(&id, *permission),
            Some((id, Step::End(reason))) => self.end(&id, reason),
        }
    }

    fn ask(&mut self, session: &SessionId, permission: Permission) -> serde_json::Result<()> {
        let number = self.next_request;
        self.next_request += 1;
        if let Some(turn) = self
            .sessions
            .iter_mut()
            .find(|candidate| candidate.id == *session)
            .and_then(|session| session.turn.as_mut())
        {
            turn.wait_for(number);
        }
        let request = RequestPermissionRequest::new(session.clone(), permission.tool_call, permission.options);
        self.send(&wire::request(
            number,
            CLIENT_METHOD_NAMES.session_request_permission,
            request,
        ))
    }

    fn cancel(&mut self, session: &SessionId) -> serde_json::Result<()> {
        self.end(session, StopReason::Cancelled)
    }

    fn end(&mut self, session: &SessionId, reason: StopReason) -> serde_json::Result<()> {
        let turn = self
            .sessions
            .iter_mut()
            .find(|candidate| candidate.id == *session)
            .and_then(|session| session.turn.take());
        match turn {
            Some(turn) => self.send(&wire::result(turn.request(), PromptResponse::new(reason))),
            None => Ok(()),
        }
    }

    fn session(&mut self, id: &SessionId) -> Result<&mut Session, Error> {
        self.sessions
            .iter_mut()
            .find(|session| session.id == *id)
            .ok_or_else(|| Error::session_not_found(id.clone()))
    }

    fn update(&mut self, session: &SessionId, update: SessionUpdate) -> serde_json::Result<()> {
        self.send(&wire::notification(
            CLIENT_METHOD_NAMES.session_update,
            SessionNotification::new(session.clone(), update),
        ))
    }

    fn send(&mut self, message: &impl Serialize) -> serde_json::Result<()> {
        self.output.push(serde_json::to_string(message)?);
        Ok(())
    }
}

impl Session {
    fn remember(&mut self, update: SessionUpdate) {
        if self.history.len() == MOST_HISTORY {
            self.history.remove(0);
        }
        self.history.push(update);
    }
}

/// What comes of a request.
enum Answer {
    Now(Box<RawValue>),
    Later,
}

fn now(result: impl Serialize) -> Result<Answer, Error> {
    serde_json::value::to_raw_value(&result)
        .map(Answer::Now)
        .map_err(Error::into_internal_error)
}

fn read<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, Error> {
    let params = params.map_or("null", RawValue::get);
    serde_json::from_str(params).map_err(|error| Error::invalid_params().data(serde_json::json!(error.to_string())))
}

#[cfg(test)]
mod tests;
