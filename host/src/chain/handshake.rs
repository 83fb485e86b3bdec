//! `initialize`: the agent is started for it, nothing overtakes it, its version is only ever lowered, and a proxy that was
//! made anew gets it again.

use super::edges::AMBIGUOUS;
use super::parcel::{Edge, RECORD};
use super::proxy::{Inbound, Status, What};
use super::recovery::REPLAY_WAIT;
use super::router::{self, Effect, Router};
use crate::fault::{Class, Fault, Phase};
use crate::message::{Message, Outcome, Peer, Sent};
use crate::wire::edit::{self, Edit};
use crate::wire::envelope::{Id, Incoming, error_text};
use crate::wire::scan;
use crate::wire::text::Text;
use std::time::Instant;

/// Bytes of messages that may wait for the answer to `initialize`. One above it is let in alone.
const MAX_BEHIND: usize = 64 * 1024 * 1024;

impl Router {
    /// The client's `initialize`.
    pub(super) fn initialize(&mut self, id: Id, params: Option<Text>) {
        if self.is_ambiguous("initialize", params.as_ref()) {
            return self.refuse(Edge::Client, id, "initialize", -32600, AMBIGUOUS);
        }
        let version = params.as_ref().and_then(protocol_version);
        let (Some(version), Some(text)) = (version, params) else {
            return self.refuse(
                Edge::Client,
                id,
                "initialize",
                -32602,
                "the params have no `protocolVersion` that is a whole number",
            );
        };
        let offered = self
            .proxies
            .iter()
            // One that rests comes back some time.
            .filter(|proxy| proxy.interests.intercepts())
            .map(|proxy| proxy.version)
            .fold(version, u64::min);
        let text = match offered == version {
            true => text,
            false => put_version(text, offered),
        };
        self.offered = offered;
        self.phase = router::Phase::Initializing;
        if self.agent_running {
            self.request_from(Edge::Client, id, "initialize".into(), Some(text));
        } else {
            self.first = Some((id, Some(text)));
            self.effects.push_back(Effect::StartAgent);
        }
    }

    /// The agent runs, or why it does not, as a JSON-RPC error.
    pub fn agent_started(&mut self, result: Result<(), Text>) {
        let first = self.first.take();
        match (result, first) {
            (Ok(()), first) => {
                self.agent_running = true;
                self.ends[Edge::Agent.index()].gone = None;
                if let Some((id, params)) = first {
                    self.request_from(Edge::Client, id, "initialize".into(), params);
                }
            }
            (Err(error), Some((id, _))) => {
                let outcome = Err(error);
                self.show_refused(Edge::Client, "initialize", &outcome);
                self.initialized(&id, outcome);
            }
            (Err(_), None) => {}
        }
        self.settle();
    }

    /// The end of an `initialize`: what waited behind it goes on.
    pub(super) fn initialized(&mut self, id: &Id, outcome: Outcome) {
        self.was_ready |= outcome.is_ok();
        self.phase = if self.was_ready {
            router::Phase::Ready
        } else {
            router::Phase::Fresh
        };
        self.write_response(Edge::Client, id, &outcome);
        self.replay_unseen(&outcome);
        while self.phase != router::Phase::Initializing
            && let Some(message) = self.behind_initialize.pop_front()
        {
            self.behind_bytes = self.behind_bytes.saturating_sub(size(&message));
            self.client_begins(message);
        }
    }

    /// Takes back a request that waits behind `initialize`.
    pub(super) fn take_behind_initialize(&mut self, wanted: &Id) -> bool {
        let waits = |message: &Incoming| matches!(message, Incoming::Request { id, .. } if id == wanted);
        let Some(at) = self.behind_initialize.iter().position(waits) else {
            return false;
        };
        if let Some(message) = self.behind_initialize.remove(at) {
            self.behind_bytes = self.behind_bytes.saturating_sub(size(&message));
        }
        true
    }

    /// In front of an agent the client is not read any more before the cap. A conductor above has to be: the answer to
    /// `initialize` comes over the same line.
    pub(super) fn wait_behind_initialize(&mut self, message: Incoming) {
        let size = size(&message);
        if self.behind_bytes > 0 && self.behind_bytes + size > MAX_BEHIND {
            const REASON: &str = "too much was sent before `initialize` was answered";
            return match message {
                Incoming::Request { id, method, .. } => self.refuse(Edge::Client, id, &method, -32603, REASON),
                _ => tracing::warn!("a notification was dropped: {REASON}"),
            };
        }
        self.behind_bytes += size;
        self.behind_initialize.push_back(message);
    }

    /// An agent must not answer with a later version than it was offered.
    pub(super) fn check_version(&mut self, outcome: Outcome) -> Outcome {
        let answered = outcome.as_ref().ok().and_then(protocol_version);
        self.answered_version = answered;
        match answered {
            Some(answered) if answered > self.offered => {
                let reason = format!(
                    "the agent answered `initialize` with protocol version {answered}, though at most {} was offered",
                    self.offered
                );
                Err(error_text(-32603, &reason, None))
            }
            _ => outcome,
        }
    }

    /// Nothing is offered to the agent that the client did not offer, whatever a proxy wrote.
    pub(super) fn limit_offer(&mut self, params: Option<Text>) -> Option<Text> {
        match params.as_ref().and_then(protocol_version) {
            Some(version) if version <= self.offered => {
                // A proxy may lower it further.
                self.offered = version;
                return params;
            }
            _ => {}
        }
        tracing::warn!("a proxy raised the protocol version in `initialize`; it was put back");
        Some(put_version(params?, self.offered))
    }

    /// The version that the agent has chosen reaches the client, whatever a proxy wrote.
    pub(super) fn restore_version(&self, outcome: Outcome) -> Outcome {
        let result = outcome?;
        match self.answered_version {
            Some(version) if protocol_version(&result) != Some(version) => {
                tracing::warn!("a proxy changed the protocol version in the answer to `initialize`; it was put back");
                Ok(put_version(result, version))
            }
            _ => Ok(result),
        }
    }

    pub(super) fn remember_handshake(&mut self, index: usize, params: Option<&Text>) {
        let handshake = &mut self.proxies[index].handshake;
        handshake.params = params.cloned();
        handshake.downstream = None;
        handshake.answer = None;
    }

    pub(super) fn remember_downstream(&mut self, index: usize, outcome: &Outcome) {
        self.proxies[index].handshake.downstream = outcome.as_ref().ok().cloned();
    }

    pub(super) fn remember_answer(&mut self, index: usize, outcome: &Outcome) {
        self.proxies[index].handshake.answer = outcome.as_ref().ok().cloned();
    }

    /// Shows a new instance the `initialize` that its predecessor saw.
    pub(super) fn begin_replay(&mut self, index: usize) {
        let handshake = &self.proxies[index].handshake;
        if handshake.downstream.is_none() {
            let proxy = &mut self.proxies[index];
            proxy.unseen = proxy.handshake.params.is_some();
            proxy.status = Status::Ready;
            return;
        }
        let what = What::Replay {
            params: handshake.params.clone(),
        };
        let ticket = self.number();
        let source = Peer::Client;
        let inbound = Inbound { source, ticket, what };
        self.push_first(index, inbound);
        let until = Instant::now() + REPLAY_WAIT;
        self.effects.push_back(Effect::Timer(until));
        let proxy = &mut self.proxies[index];
        proxy.unseen = false;
        proxy.replay_until = Some(until);
        proxy.status = Status::Replaying;
    }

    /// Proxies whose replayed `initialize` has taken too long fail.
    pub(super) fn end_late_replays(&mut self, now: Instant) {
        for index in 0..self.proxies.len() {
            let proxy = &self.proxies[index];
            let late = proxy.status == Status::Replaying && proxy.replay_until.is_some_and(|until| until <= now);
            if late && proxy.running.is_some() {
                // A turn that is under way has a limit of its own.
                self.effects.push_back(Effect::Timer(now + REPLAY_WAIT));
            } else if late {
                let seconds = REPLAY_WAIT.as_secs();
                let cause =
                    format!("it did not deal with `initialize` within {seconds} seconds when it was started again");
                self.failed(index, None, &Fault::new(Class::Timeout, Phase::Receive, cause));
            }
        }
    }

    /// Instances that were made while `initialize` was under way get it now.
    fn replay_unseen(&mut self, outcome: &Outcome) {
        let Ok(answer) = outcome else { return };
        for index in 0..self.proxies.len() {
            let proxy = &mut self.proxies[index];
            if proxy.unseen {
                // Better what came from behind it, if that was seen.
                proxy.handshake.downstream.get_or_insert_with(|| answer.clone());
                self.replay_if_unseen(index);
            }
        }
    }

    /// An instance that was made while `initialize` was under way gets it as soon as it has nothing else to do.
    pub(super) fn replay_if_unseen(&mut self, index: usize) {
        let proxy = &self.proxies[index];
        let ready = proxy.status == Status::Ready && proxy.running.is_none();
        if proxy.unseen && ready && proxy.handshake.downstream.is_some() {
            self.begin_replay(index);
            self.wake(index);
        }
    }

    fn push_first(&mut self, index: usize, inbound: Inbound) {
        self.proxies[index].push_front(inbound);
    }

    /// A turn of a replayed `initialize`: what is sent stays here.
    pub(super) fn replayed(&mut self, index: usize, inbound: &Inbound, sent: Vec<Sent>) {
        let mut over = false;
        for sent in sent {
            match sent {
                Sent::Message(Peer::Host, message) => self.host_message(index, message),
                Sent::Message(_, Message::Request(request)) => match request.id {
                    None => over = true,
                    Some(own) => {
                        let downstream = self.proxies[index].handshake.downstream.clone();
                        let outcome = downstream.ok_or_else(|| error_text(-32603, "`initialize` had no answer", None));
                        let what = What::Response {
                            own,
                            outcome,
                            hold: None,
                            behalf: None,
                        };
                        let ticket = self.number();
                        let source = Peer::Agent;
                        self.push_first(index, Inbound { source, ticket, what });
                    }
                },
                Sent::Message(_, Message::Response(response)) => {
                    over = true;
                    let proxy = &self.proxies[index];
                    let before = proxy.handshake.answer.as_ref().map(Text::to_text);
                    let now = response.outcome.as_ref().ok().map(Text::to_text);
                    if before.is_some() && before != now {
                        tracing::warn!(
                            "proxy `{}` answers `initialize` differently than before it failed",
                            proxy.name
                        );
                    }
                }
                Sent::Message(_, Message::Notification(_)) | Sent::Release(_) => {}
            }
        }
        if over {
            // Whatever the replayed request was worth is over with it.
            self.proxies[index].closed.push(inbound.ticket);
            self.proxies[index].status = Status::Ready;
            self.proxies[index].replay_until = None;
        }
    }
}

fn put_version(text: Text, version: u64) -> Text {
    let put = Edit::Add("/protocolVersion".into(), Text::of(&version));
    edit::apply(&text, &[put]).unwrap_or(text)
}

fn protocol_version(value: &Text) -> Option<u64> {
    value.slice(scan::find(value, "/protocolVersion")?).decode()
}

fn size(message: &Incoming) -> usize {
    match message {
        Incoming::Request { method, params, .. } | Incoming::Notification { method, params } => {
            RECORD + method.len() + params.as_ref().map_or(0, Text::len)
        }
        Incoming::Response { .. } => RECORD,
    }
}
