//! What a failed turn costs, and how a proxy comes back.

use super::conductor::Role;
use super::parcel::{Body, CallId, Direction, Edge, Parcel, Position, Requester, Responder};
use super::proxy::{Inbound, OwnedWhat, Status, Target, What};
use super::restarts::COOL_DOWN;
use super::router::{Effect, Phase, Router};
use crate::fault::{Class, Fault, Phase as FaultPhase};
use crate::grants::is_mcp;
use crate::message::{OnFailure, Registration, Ticket};
use crate::wire::envelope::error_text;
use crate::wire::text::Text;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a new instance may take with the `initialize` that is shown to it again.
pub(super) const REPLAY_WAIT: Duration = Duration::from_secs(5);

impl Router {
    /// A proxy failed. Its turn never happened; what it owed is answered, and everything else goes on without it.
    pub(super) fn failed(&mut self, index: usize, running: Option<Inbound>, fault: &Fault) {
        let sentence = fault.sentence(&self.proxies[index].name);
        tracing::error!("{sentence}");
        self.audit.failed(&self.proxies[index].name, fault);
        let error = self.fault_text(index, fault, &sentence);
        let after = self.proxies[index].restarts.next_wait(Instant::now());
        let sessions = self.sessions_at(index);
        self.notice_incident(index, &sessions, fault);
        let untouched: Vec<Inbound> = running.into_iter().chain(self.drain_inbox(index)).collect();
        self.give_up_owned(index, &untouched, &error);
        for inbound in untouched {
            match self.proxies[index].on_failure {
                OnFailure::Bypass if !self.is_for_own_server(index, &inbound) => self.go_past(index, inbound),
                _ => self.keep_out(index, inbound, &error),
            }
        }
        self.restart(index, after, &sessions);
    }

    /// Whether a request is for an MCP server of the proxy's own: behind it is nobody who could answer.
    fn is_for_own_server(&self, index: usize, inbound: &Inbound) -> bool {
        match &inbound.what {
            What::Request { method, params, .. } if is_mcp(method) => {
                let servers = self.proxies[index].servers.as_ref();
                servers.is_some_and(|servers| servers.concern(params.as_ref()))
            }
            _ => false,
        }
    }

    pub(super) fn fault_text(&self, index: usize, fault: &Fault, sentence: &str) -> Text {
        let data = serde_json::json!({
            "proxy": &*self.proxies[index].name,
            "phase": fault.phase.name(),
            "class": fault.class.name(),
            "cause": fault.cause,
        });
        error_text(-32603, sentence, Some(data))
    }

    fn drain_inbox(&mut self, index: usize) -> Vec<Inbound> {
        let proxy = &mut self.proxies[index];
        proxy.drop_copies();
        proxy.closed.clear();
        proxy.row.clear();
        proxy.drain_inbox()
    }

    /// Proxies that take nothing but answers, and have too much waiting for them meanwhile, fail.
    pub(super) fn end_overfull(&mut self) {
        for index in std::mem::take(&mut self.overfull) {
            let proxy = &self.proxies[index];
            if proxy.is_overfull() && proxy.running.is_none() {
                let cause =
                    "it waits for so many answers that it takes nothing else, and too much waits for it meanwhile";
                self.failed(index, None, &Fault::new(Class::Flood, FaultPhase::Receive, cause));
            }
        }
    }

    /// Ends everything that the proxy had in its hands, apart from messages that it has not touched.
    fn give_up_owned(&mut self, index: usize, untouched: &[Inbound], error: &Text) {
        let untouched: HashSet<Ticket> = untouched.iter().map(|inbound| inbound.ticket).collect();
        let mut held: Vec<Ticket> = self.proxies[index]
            .tickets
            .keys()
            .filter(|ticket| !untouched.contains(ticket))
            .copied()
            .collect();
        held.sort_unstable();
        if self.proxies[index].on_failure == OnFailure::Bypass {
            self.straighten_initialize(index);
        }
        let requests = std::mem::take(&mut self.proxies[index].requests);
        for ticket in held {
            self.give_up_ticket(index, ticket, error);
        }
        for target in requests.into_values() {
            let Target::Call(call) = target else { continue };
            let Some(record) = self.calls.get_mut(&call) else {
                continue;
            };
            if record.answered {
                self.calls.remove(&call);
                continue;
            }
            record.requester = Requester::Nobody;
            self.cancel_prompts(index, &[call]);
            self.cancel(call);
        }
    }

    /// The answer to an `initialize` that the proxy has sent on goes straight to whoever asked.
    fn straighten_initialize(&mut self, index: usize) {
        let targets: Vec<_> = self.proxies[index]
            .requests
            .iter()
            .map(|(own, target)| (*own, *target))
            .collect();
        for (own, target) in targets {
            let Target::Call(call) = target else { continue };
            let Some(record) = self.calls.get_mut(&call).filter(|record| !record.answered) else {
                continue;
            };
            if let (
                true,
                Requester::Proxy {
                    own: id,
                    behalf: Some(_),
                    ..
                },
            ) = (&*record.method == "initialize", &mut record.requester)
            {
                *id = None;
                self.proxies[index].requests.remove(&own);
            }
        }
    }

    /// Takes one message out of a proxy's hands: a request gets an error, a notification goes on, unless the proxy protects.
    pub(super) fn give_up_ticket(&mut self, index: usize, ticket: Ticket, error: &Text) {
        let owned = self.proxies[index].tickets.get(&ticket);
        if let Some(OwnedWhat::Request(call)) = owned.map(|owned| &owned.what) {
            self.give_up_request(index, ticket, *call, error);
        } else if let Some(owned) = self.take_ticket(index, ticket)
            && let OwnedWhat::Notification { method, params, lane } = owned.what
        {
            if self.proxies[index].on_failure == OnFailure::Closed {
                return self.count_shut_out(index, &method);
            }
            let direction = owned.direction;
            let body = Body::Notification { method, params };
            self.travel(Parcel::new(direction, lane, body, Position::Proxy(index)));
        }
    }

    fn give_up_request(&mut self, index: usize, ticket: Ticket, call: CallId, error: &Text) {
        // Nobody can work without `initialize`: what came back for it is good for whoever asked.
        let is_initialize = self
            .calls
            .get(&call)
            .is_some_and(|record| &*record.method == "initialize");
        if is_initialize
            && self.proxies[index].on_failure == OnFailure::Bypass
            && let Some(answer) = self.proxies[index].handshake.downstream.clone()
        {
            return self.answer_owned(index, ticket, call, Ok(answer));
        }
        let children = self
            .calls
            .get(&call)
            .map(|record| record.children.clone())
            .unwrap_or_default();
        if self.is_passed_on(&children) {
            self.take_ticket(index, ticket);
            return;
        }
        self.cancel_prompts(index, &children);
        self.answer_owned(index, ticket, call, Err(error.clone()));
    }

    /// A message that a failed proxy has not touched goes on as if the proxy were not there.
    pub(super) fn go_past(&mut self, index: usize, inbound: Inbound) {
        let owned = self.proxies[index].tickets.remove(&inbound.ticket);
        let (direction, holds) = match owned {
            Some(owned) => (owned.direction, owned.holds),
            None => (Direction::Down, Vec::new()),
        };
        match inbound.what {
            What::Request { call, method, params } => {
                if let Some(record) = self.calls.get_mut(&call)
                    && !record.answered
                {
                    record.responder = Responder::Nobody;
                    let from = match record.requester {
                        Requester::Edge(edge, _) => Position::Edge(edge),
                        Requester::Proxy { index, .. } => Position::Proxy(index),
                        Requester::Nobody => Position::Proxy(index),
                    };
                    let cancelled = std::mem::take(&mut record.cancelled);
                    let lane = self.lane_of(&method, params.as_ref());
                    let body = Body::Request { call, method, params };
                    self.travel_past(Parcel::new(direction, lane, body, from), Position::Proxy(index));
                    if cancelled {
                        self.cancel(call);
                    }
                }
            }
            What::Notification { method, params } => {
                let lane = self.carried_lane(&method, params.as_ref());
                let body = Body::Notification { method, params };
                self.travel(Parcel::new(direction, lane, body, Position::Proxy(index)));
            }
            What::Response { hold, .. } => self.end_holds(index, inbound.ticket, hold.into_iter().collect()),
            What::Copy(_) | What::Replay { .. } => {}
        }
        self.end_holds(index, inbound.ticket, holds);
    }

    /// A message that a failed proxy has not touched ends with it, since the proxy protects.
    fn keep_out(&mut self, index: usize, inbound: Inbound, error: &Text) {
        match inbound.what {
            What::Request { method, .. } => {
                self.count_shut_out(index, &method);
                self.give_up_ticket(index, inbound.ticket, error);
            }
            What::Notification { .. } => self.give_up_ticket(index, inbound.ticket, error),
            What::Response { hold, .. } => self.end_holds(index, inbound.ticket, hold.into_iter().collect()),
            What::Copy(_) | What::Replay { .. } => {}
        }
    }

    /// A message comes to a proxy that rests and lets nothing past it.
    pub(super) fn shut_out(&mut self, index: usize, parcel: Parcel) {
        let name = self.proxies[index].name.clone();
        self.count_shut_out(index, parcel.method());
        if let Body::Request { call, .. } = parcel.body {
            let reason = format!(
                "proxy `{name}` has failed too often and is off; nothing passes that it protects. It is tried again within {} \
                 seconds, or at once with `_consort/retry`; `on-failure = \"bypass\"` in consort.toml would let messages go past it",
                COOL_DOWN.as_secs()
            );
            let data = serde_json::json!({ "proxy": &*name });
            let error = error_text(-32603, &reason, Some(data));
            self.respond(call, Err(error), Position::Proxy(index));
        }
    }

    fn count_shut_out(&mut self, index: usize, method: &str) {
        let proxy = &mut self.proxies[index];
        proxy.shut_out += 1;
        self.audit.shut_out(&proxy.name, method);
        // The audit counts all; the log hears of them ever more rarely.
        if proxy.shut_out.is_power_of_two() {
            let (name, times, method) = (&proxy.name, proxy.shut_out, crate::log::named(method));
            tracing::warn!(
                "proxy `{name}` has failed, so `{method}` was kept from going past it ({times} messages so far)"
            );
        }
    }

    fn restart(&mut self, index: usize, after: Duration, sessions: &[Arc<str>]) {
        let proxy = &mut self.proxies[index];
        // What waits for one that protects may wait a little longer, but not for as long as it rests.
        let waits = after.is_zero() || (proxy.on_failure == OnFailure::Closed && after < COOL_DOWN);
        proxy.status = if waits { Status::Restarting } else { Status::Off };
        if after == COOL_DOWN {
            let rest = COOL_DOWN.as_secs();
            let what = match proxy.on_failure {
                OnFailure::Bypass => "traffic goes past it",
                OnFailure::Closed => "nothing goes past it",
            };
            let sentence = format!("proxy `{}` failed too often: {what} for {rest} seconds", proxy.name);
            tracing::error!("{sentence}");
            self.audit.off(&proxy.name, proxy.on_failure, COOL_DOWN);
            self.notice(sessions, &format!("{sentence}."));
        }
        self.effects.push_back(Effect::Restart { proxy: index, after });
    }

    /// A new instance is there, or why not.
    pub fn proxy_restarted(&mut self, index: usize, result: Result<Registration, Fault>) {
        let proxy = &mut self.proxies[index];
        proxy.starting = false;
        if proxy.restarts.rests() {
            self.audit.retried(&proxy.name);
        }
        match result {
            Ok(registration) => {
                self.audit.restarted(&proxy.name);
                proxy.register(&registration);
                self.routes.forget();
                self.begin_replay(index);
            }
            Err(fault) => self.failed(index, None, &fault),
        }
        self.settle();
        self.wake(index);
    }

    /// Something that was to happen at a time may be due.
    pub fn timer(&mut self, now: Instant) {
        self.deliver_born(now);
        self.end_late_replays(now);
        self.end_long_holds(now);
        self.settle();
    }

    /// The client sends nothing more. Its requests go on; nobody can be asked any more.
    pub fn client_ended(&mut self) {
        let error = error_text(-32603, "the client's input has ended, so it cannot answer", None);
        self.close_end(Edge::Client, error);
        if self.role == Role::Proxy {
            let error = error_text(-32603, "the conductor's input has ended, so no agent can answer", None);
            self.births = 0;
            self.deliver_born(Instant::now());
            self.close_end(Edge::Agent, error);
        }
        self.settle();
    }

    /// The agent is gone, with the JSON-RPC error that tells why.
    pub fn agent_ended(&mut self, error: Text) {
        self.agent_running = false;
        self.births = 0;
        self.deliver_born(Instant::now());
        self.close_end(Edge::Agent, error);
        self.agent_output().clear();
        for call in self.calls_where(|call| matches!(call.requester, Requester::Edge(Edge::Agent, _))) {
            let is_bridged = self.calls.get(&call).is_some_and(|record| match &record.requester {
                Requester::Edge(edge, id) => self.is_bridged(*edge, id),
                _ => false,
            });
            // A connection that is made now has to end.
            if let Some(record) = self.calls.get_mut(&call).filter(|_| !is_bridged) {
                record.requester = Requester::Nobody;
            }
            self.cancel(call);
        }
        self.bridge_is_left();
        self.forget_connections();
        let end = &mut self.ends[Edge::Agent.index()];
        end.ids.clear();
        end.open = 0;
        self.settle();
    }

    /// Requests that wait at an end get the error, and so do later ones.
    fn close_end(&mut self, edge: Edge, error: Text) {
        self.ends[edge.index()].gone = Some(error.clone());
        for call in self.calls_where(|call| call.responder == Responder::Edge(edge) && !call.answered) {
            self.answer_from_edge(edge, call, Err(error.clone()));
        }
    }

    fn calls_where(&self, mut wanted: impl FnMut(&super::parcel::Call) -> bool) -> Vec<CallId> {
        let mut calls: Vec<CallId> = self
            .calls
            .iter()
            .filter(|(_, call)| wanted(call))
            .map(|(id, _)| *id)
            .collect();
        calls.sort_unstable();
        calls
    }

    /// Answers every request that is still open and whose sender may still be there: the connection ends.
    pub fn give_up(&mut self, reason: &str) {
        let error = error_text(-32603, reason, None);
        if let Some((id, _)) = self.first.take() {
            self.answer_at(Edge::Client, &id, "initialize", &Err(error.clone()));
        }
        let both = self.role == Role::Proxy;
        let answered = |edge: Edge| both || edge == Edge::Client;
        for call in self.calls_where(|call| matches!(call.requester, Requester::Edge(edge, _) if answered(edge))) {
            let outcome = Err(error.clone());
            self.show_given_up(call, &outcome);
            if let Some(record) = self.calls.remove(&call)
                && let Requester::Edge(edge, id) = record.requester
            {
                self.write_response(edge, &id, &outcome);
            }
        }
        self.ends.iter_mut().for_each(|end| end.open = 0);
        self.phase = Phase::Fresh;
        for message in std::mem::take(&mut self.behind_initialize) {
            if let crate::wire::envelope::Incoming::Request { id, method, .. } = message {
                self.answer_at(Edge::Client, &id, &method, &Err(error.clone()));
            }
        }
        self.behind_bytes = 0;
    }
}
