//! Messages that a proxy keeps for too long. The clock of one runs only while the proxy could do something about it: not while it
//! waits for its turn, and not while somebody else owes an answer to what was sent on its behalf.

use super::lanes::Lanes;
use super::parcel::{Call, CallId, Requester};
use super::proxy::{Inbound, Owned, OwnedWhat, Status, Target, What};
use super::router::{Effect, Router};
use crate::fault::{Class, Fault, Phase};
use crate::hash::Map;
use crate::message::{OnFailure, Peer, Ticket};
use crate::units;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// The longest time that `initialize` may be held, whatever the proxy's limit is: editors give up after 20 s, and every proxy gets it.
const INITIALIZE_TIME: Duration = Duration::from_secs(5);

/// How long it takes until the log hears again of a proxy that keeps messages.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// Bytes of others' messages that may wait for a proxy which takes its time, and for how long: what waits for all of them together
/// stops the reading of both sides at twice that.
const MAX_BACKLOG: usize = 4 * 1024 * 1024;
const BACKLOG_TIME: Duration = Duration::from_secs(5);

/// The longest time between two looks.
const LONGEST_WAIT: Duration = Duration::from_millis(1_250);

/// The shortest one.
const SHORTEST_WAIT: Duration = Duration::from_millis(20);

impl Router {
    /// Messages that proxies have kept for too long.
    pub fn holds_ended(&self) -> u64 {
        self.holds_ended
    }

    /// A proxy keeps a message: there will be a look at it.
    pub(super) fn watch_holding(&mut self) {
        if self.next_look.is_none() {
            self.look_later(Instant::now());
        }
    }

    fn look_later(&mut self, now: Instant) {
        let shortest = self.proxies.iter().map(|proxy| proxy.hold_time).min();
        let wait = (shortest.unwrap_or(LONGEST_WAIT) / 4).clamp(SHORTEST_WAIT, LONGEST_WAIT);
        self.next_look = Some(now + wait);
        self.effects.push_back(Effect::Timer(now + wait));
    }

    /// Takes from proxies what they have kept for too long.
    pub(super) fn end_long_holds(&mut self, now: Instant) {
        if self.next_look.is_none_or(|at| at > now) {
            return;
        }
        self.next_look = None;
        for index in 0..self.proxies.len() {
            if self.is_stuck(index, now) {
                self.end_stuck(index);
            }
            if self.proxies[index].status != Status::Ready {
                continue;
            }
            for ticket in self.look_at(index, now) {
                self.end_hold(index, ticket);
            }
        }
        if self.proxies.iter().any(|proxy| !proxy.tickets.is_empty()) {
            self.look_later(now);
        }
    }

    /// Whether so much waits for a proxy that it holds up the reading of everybody, while it does next to nothing.
    fn is_stuck(&mut self, index: usize, now: Instant) -> bool {
        let proxy = &mut self.proxies[index];
        let kept: usize = match proxy.running {
            Some(_) => proxy.lanes.iter().map(Lanes::kept).sum(),
            None => 0,
        };
        if proxy.status != Status::Ready || proxy.bytes_of_others() + kept < MAX_BACKLOG {
            proxy.backlog = None;
            return false;
        }
        let (since, turns) = *proxy.backlog.get_or_insert((now, proxy.turns));
        let time = now.saturating_duration_since(since);
        if time < BACKLOG_TIME {
            return false;
        }
        let lately = proxy.turns - turns;
        proxy.backlog = Some((now, proxy.turns));
        lately < time.as_secs()
    }

    fn end_stuck(&mut self, index: usize) {
        let proxy = &mut self.proxies[index];
        proxy.backlog = None;
        let running = proxy.running.take();
        if running.is_some() {
            self.effects.push_back(Effect::Abort { proxy: index });
        }
        let cause = "so much waited for it that nobody else could be read, and it took less than a message a second";
        self.failed(index, running, &Fault::new(Class::Timeout, Phase::Receive, cause));
    }

    /// Sets the clocks of what a proxy has, and finds what has been there for too long.
    fn look_at(&mut self, index: usize, now: Instant) -> Vec<Ticket> {
        let proxy = &self.proxies[index];
        let mut waiting = HashSet::new();
        for inbound in proxy.waiting() {
            waiting.extend(ticket_of(inbound));
        }
        // What a request of its own is for, only the proxy knows, unless it says so.
        let mut asks = false;
        let mut asks_freely = false;
        for target in proxy.requests.values() {
            let Target::Call(call) = target else { continue };
            asks = true;
            let requester = self.calls.get(call).map(|call| &call.requester);
            asks_freely |= matches!(requester, Some(Requester::Proxy { behalf: None, .. }));
        }
        let idle: HashSet<Ticket> = proxy
            .tickets
            .iter()
            .filter(|(ticket, owned)| !waiting.contains(*ticket) && !self.is_owed(owned, asks, asks_freely))
            .map(|(ticket, _)| *ticket)
            .collect();
        let calls = &self.calls;
        let proxy = &mut self.proxies[index];
        let mut late = Vec::new();
        for (ticket, owned) in &mut proxy.tickets {
            let most = hold_time(proxy.hold_time, is_initialize(calls, &owned.what));
            match idle.contains(ticket) {
                // The clock stands still, and goes on later.
                false => owned.idle_at = None,
                true => {
                    let before = owned.idle_at.replace(now).unwrap_or(now);
                    owned.idle += now.saturating_duration_since(before);
                    if owned.idle >= most {
                        late.push(*ticket);
                    }
                }
            }
        }
        late.sort_unstable();
        late
    }

    /// Whether somebody else owes an answer to what was sent on a message's behalf.
    fn is_owed(&self, owned: &Owned, asks: bool, asks_freely: bool) -> bool {
        match &owned.what {
            OwnedWhat::Request(call) => self.calls.get(call).is_some_and(|record| {
                let open = |child| self.calls.get(child).is_some_and(|child| !child.answered);
                record.answered || asks_freely || record.children.iter().any(open)
            }),
            OwnedWhat::Notification { .. } => asks,
        }
    }

    fn end_hold(&mut self, index: usize, ticket: Ticket) {
        let proxy = &self.proxies[index];
        let Some(owned) = proxy.tickets.get(&ticket) else {
            return;
        };
        let method = match &owned.what {
            OwnedWhat::Request(call) => self.calls.get(call).map(|record| record.method.clone()),
            OwnedWhat::Notification { method, .. } => Some(method.clone()),
        };
        let method = method.unwrap_or_default();
        let is_initialize = is_initialize(&self.calls, &owned.what);
        let time = units::time(hold_time(proxy.hold_time, is_initialize));
        let shown = crate::log::printable(&method);
        let remedy = match is_initialize {
            true => "",
            false => "; `limits.hold-time` in consort.toml gives it more",
        };
        let cause = format!("it did nothing about `{shown}` for {time}, though nobody owed it an answer{remedy}");
        let fault = Fault::new(Class::Timeout, Phase::Receive, cause);
        let sentence = fault.sentence(&proxy.name);
        let now = Instant::now();
        // One that does this again and again must not fill the log.
        let proxy = &mut self.proxies[index];
        if proxy
            .held_told
            .is_none_or(|told| now.saturating_duration_since(told) >= TELL_AGAIN)
        {
            proxy.held_told = Some(now);
            tracing::error!("{sentence}");
        }
        let sessions: Vec<_> = self.proxies[index].session_of(ticket).into_iter().collect();
        self.notice_incident(index, &sessions, &fault);
        self.holds_ended += 1;
        self.audit.held(&self.proxies[index].name, &method, &fault.cause);
        let error = self.fault_text(index, &fault, &sentence);
        match is_initialize && self.proxies[index].on_failure == OnFailure::Bypass {
            true => self.pass_initialize(index, ticket),
            false => self.give_up_ticket(index, ticket, &error),
        }
        self.proxies[index].closed.push(ticket);
    }

    /// Nobody can work without `initialize`, and a proxy that holds it needs no right for that: it goes on as it came, or is answered with
    /// what has come back for it.
    fn pass_initialize(&mut self, index: usize, ticket: Ticket) {
        let proxy = &self.proxies[index];
        let Some(OwnedWhat::Request(call)) = proxy.tickets.get(&ticket).map(|owned| &owned.what) else {
            return;
        };
        let call = *call;
        if let Some(answer) = proxy.handshake.downstream.clone() {
            return self.answer_owned(index, ticket, call, Ok(answer));
        }
        let what = What::Request {
            call,
            method: "initialize".into(),
            params: proxy.handshake.params.clone(),
        };
        let source = Peer::Client;
        self.go_past(index, Inbound { source, ticket, what });
    }
}

/// How long a message may be held.
fn hold_time(limit: Duration, is_initialize: bool) -> Duration {
    match is_initialize {
        true => limit.min(INITIALIZE_TIME),
        false => limit,
    }
}

/// Whether it is the request that everybody waits for.
fn is_initialize(calls: &Map<CallId, Call>, what: &OwnedWhat) -> bool {
    match what {
        OwnedWhat::Request(call) => calls.get(call).is_some_and(|call| &*call.method == "initialize"),
        OwnedWhat::Notification { .. } => false,
    }
}

/// The message that waits, or that a response belongs to which waits.
fn ticket_of(inbound: &Inbound) -> impl Iterator<Item = Ticket> {
    let behalf = match &inbound.what {
        What::Response { behalf, .. } => *behalf,
        _ => None,
    };
    [Some(inbound.ticket), behalf].into_iter().flatten()
}
