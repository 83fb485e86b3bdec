//! The course of a prompt: initialize, a session, the prompt, and what the agent asks meanwhile.

use super::client::{Client, Incoming};
use super::question::{Policy, Questions, by_kind};
use super::show::Show;
use super::{Request, check_version, rpc_failure};
use crate::cli::{exit, run};
use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, CLIENT_METHOD_NAMES, CancelNotification, CancelRequestNotification, ContentBlock, Error,
    Implementation, InitializeRequest, InitializeResponse, NewSessionRequest, NewSessionResponse,
    PROTOCOL_LEVEL_METHOD_NAMES, PromptRequest, PromptResponse, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SelectedPermissionOutcome, SessionId, StopReason,
};
use anyhow::Context;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::VecDeque;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How many questions may wait for the user.
const MOST_QUESTIONS: usize = 64;

/// How a conversation ended, other than by an error.
pub(super) enum Outcome {
    /// By the answer to the prompt.
    Answered(u8),
    /// By a signal: nothing is waited for any more.
    Aborted(u8),
}

impl Outcome {
    pub(super) fn status(&self) -> u8 {
        match self {
            Self::Answered(status) | Self::Aborted(status) => *status,
        }
    }
}

/// A permission that the agent waits for.
struct Pending {
    id: Box<RawValue>,
    request: RequestPermissionRequest,
}

pub(super) struct Conversation {
    client: Client,
    request: Request,
    show: Show,
    questions: Questions,
    /// Those that wait; the first one is on the screen.
    pending: VecDeque<Pending>,
    /// The session, once the prompt has been sent and there is something to cancel.
    turn: Option<SessionId>,
    cancelled: bool,
    interrupt: Signal,
    terminate: Signal,
    /// The terminal was closed.
    hangup: Signal,
}

/// What a request ended with: its result, or the status of a program that was told to end.
enum Called {
    Result(Box<RawValue>),
    Aborted(u8),
}

impl Conversation {
    /// Must be called within the runtime.
    pub(super) fn new(client: Client, request: Request) -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            client,
            show: Show::new(request.audience),
            request,
            questions: Questions::default(),
            pending: VecDeque::new(),
            turn: None,
            cancelled: false,
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    pub(super) async fn run(mut self) -> anyhow::Result<Outcome> {
        let names = AGENT_METHOD_NAMES;
        let initialize = InitializeRequest::new(ProtocolVersion::V1)
            .client_info(Implementation::new("consort", env!("CARGO_PKG_VERSION")));
        let result = match self.call(names.initialize, initialize).await? {
            Called::Result(result) => result,
            Called::Aborted(status) => return Ok(Outcome::Aborted(status)),
        };
        let initialized: InitializeResponse = read(names.initialize, &result)?;
        check_version(initialized.protocol_version.as_u16())?;

        let session = NewSessionRequest::new(self.request.directory.clone());
        let result = match self.call(names.session_new, session).await? {
            Called::Result(result) => result,
            Called::Aborted(status) => return Ok(Outcome::Aborted(status)),
        };
        let session: NewSessionResponse = read(names.session_new, &result)?;

        let text = std::mem::take(&mut self.request.text);
        let prompt = PromptRequest::new(session.session_id.clone(), vec![ContentBlock::from(text)]);
        self.turn = Some(session.session_id);
        let result = match self.call(names.session_prompt, prompt).await? {
            Called::Result(result) => result,
            Called::Aborted(status) => return Ok(Outcome::Aborted(status)),
        };
        self.show.end(&result)?;
        let status = match serde_json::from_str::<PromptResponse>(result.get()) {
            Ok(response) => stop_status(response.stop_reason),
            Err(_) => None,
        };
        Ok(Outcome::Answered(status.unwrap_or_else(|| {
            exit::complain(&format!(
                "the turn ended in a way that is not known here: {}",
                result.get()
            ));
            UNKNOWN_STOP
        })))
    }

    /// Sends a request, and deals with everything that comes before its answer.
    async fn call(&mut self, method: &str, params: impl Serialize) -> anyhow::Result<Called> {
        let request = self.client.request(method, params).await?;
        loop {
            tokio::select! {
                message = self.client.receive() => match message? {
                    Incoming::Response { id, outcome } if id == request => {
                        self.show.pause()?;
                        return match outcome {
                            Ok(result) => Ok(Called::Result(result)),
                            Err(error) => Err(rpc_failure(method, &error)),
                        };
                    }
                    Incoming::Response { .. } => {}
                    Incoming::Notification { method, params } => {
                        self.notification(&method, &params).await?;
                    }
                    Incoming::Request { id, method, params } => {
                        self.request(id, &method, &params).await?;
                    }
                },
                line = self.questions.answer(), if !self.pending.is_empty() => {
                    self.decide(&line).await?;
                }
                _ = self.interrupt.recv() => {
                    if self.cancelled || !self.cancel().await? {
                        return Ok(Called::Aborted(run::signal_status(SignalKind::interrupt())));
                    }
                }
                _ = self.terminate.recv() => {
                    return Ok(Called::Aborted(run::signal_status(SignalKind::terminate())));
                }
                _ = self.hangup.recv() => {
                    return Ok(Called::Aborted(run::signal_status(SignalKind::hangup())));
                }
            }
        }
    }

    async fn notification(&mut self, method: &str, params: &RawValue) -> anyhow::Result<()> {
        if method == CLIENT_METHOD_NAMES.session_update {
            self.show.update(params)?;
        } else if method == PROTOCOL_LEVEL_METHOD_NAMES.cancel_request
            && let Ok(CancelRequestNotification { request_id, .. }) = serde_json::from_str(params.get())
        {
            let id = serde_json::to_string(&request_id)?;
            let position = self.pending.iter().position(|pending| pending.id.get() == id);
            if let Some(pending) = position.and_then(|position| self.pending.remove(position)) {
                self.show.note("the agent has withdrawn its question")?;
                let error = Error::request_cancelled();
                self.client.answer(&pending.id, Err::<(), _>(error)).await?;
                if position == Some(0) {
                    self.ask()?;
                }
            }
        }
        Ok(())
    }

    async fn request(&mut self, id: Box<RawValue>, method: &str, params: &RawValue) -> anyhow::Result<()> {
        if method != CLIENT_METHOD_NAMES.session_request_permission {
            let error = Error::method_not_found();
            return self.client.answer(&id, Err::<(), _>(error)).await;
        }
        let request: RequestPermissionRequest = match serde_json::from_str(params.get()) {
            Ok(request) => request,
            Err(error) => {
                let error = Error::invalid_params().data(serde_json::json!(error.to_string()));
                return self.client.answer(&id, Err::<(), _>(error)).await;
            }
        };
        let policy = self.request.policy;
        let outcome = match policy {
            _ if self.cancelled => RequestPermissionOutcome::Cancelled,
            Policy::Allow | Policy::Reject => by_kind(&request.options, policy),
            Policy::Ask if self.questions.can_ask() => {
                if self.pending.len() == MOST_QUESTIONS {
                    let error = Error::new(-32603, "too many questions at once");
                    return self.client.answer(&id, Err::<(), _>(error)).await;
                }
                self.pending.push_back(Pending { id, request });
                if self.pending.len() == 1 {
                    self.ask()?;
                }
                return Ok(());
            }
            Policy::Ask => {
                self.show.note(
                    "there is no terminal to ask for this permission on, so it is rejected; see --yes and --no",
                )?;
                by_kind(&request.options, Policy::Reject)
            }
        };
        self.show.decision(&request, &outcome)?;
        let response = RequestPermissionResponse::new(outcome);
        self.client.answer(&id, Ok(response)).await
    }

    /// Puts the first question that waits on the screen.
    fn ask(&mut self) -> anyhow::Result<()> {
        if let Some(pending) = self.pending.front() {
            self.questions.forget();
            self.show.question(&pending.request)?;
            self.questions.ask();
        }
        Ok(())
    }

    /// Takes the user's answer to the question on the screen.
    async fn decide(&mut self, line: &str) -> anyhow::Result<()> {
        self.show.answered();
        let Some(pending) = self.pending.front() else {
            return Ok(());
        };
        let options = &pending.request.options;
        let outcome = match line.trim() {
            "" => RequestPermissionOutcome::Cancelled,
            answer => {
                let chosen = answer
                    .parse::<usize>()
                    .ok()
                    .and_then(|number| options.get(number.checked_sub(1)?));
                let Some(option) = chosen else {
                    self.show.note(&format!(
                        "choose a number from 1 to {}, or nothing to cancel",
                        options.len()
                    ))?;
                    return self.ask();
                };
                RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option.option_id.clone()))
            }
        };
        if let Some(pending) = self.pending.pop_front() {
            let response = RequestPermissionResponse::new(outcome);
            self.client.answer(&pending.id, Ok(response)).await?;
        }
        self.ask()
    }

    /// Cancels the turn; false if there is none.
    async fn cancel(&mut self) -> anyhow::Result<bool> {
        let Some(session) = self.turn.clone() else {
            return Ok(false);
        };
        self.cancelled = true;
        self.show.note("cancelling the turn; Ctrl-C again ends the program")?;
        let notification = CancelNotification::new(session);
        self.client
            .notify(AGENT_METHOD_NAMES.session_cancel, notification)
            .await?;
        for pending in self.pending.drain(..) {
            let response = RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled);
            self.client.answer(&pending.id, Ok(response)).await?;
        }
        Ok(true)
    }
}

fn read<T: serde::de::DeserializeOwned>(method: &str, result: &RawValue) -> anyhow::Result<T> {
    serde_json::from_str(result.get()).with_context(|| format!("the agent's answer to {method} is not what ACP says"))
}

/// The exit status of a stop reason that this version does not know.
const UNKNOWN_STOP: u8 = 6;

/// The exit status of a turn, as the help text has it; none for what is not known.
fn stop_status(reason: StopReason) -> Option<u8> {
    Some(match reason {
        StopReason::EndTurn => exit::SUCCESS,
        StopReason::MaxTokens => 3,
        StopReason::MaxTurnRequests => 4,
        StopReason::Refusal => 5,
        StopReason::Cancelled => run::signal_status(SignalKind::interrupt()),
        _ => return None,
    })
}
