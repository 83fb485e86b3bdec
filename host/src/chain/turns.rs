//! Giving messages to proxies: deliveries, copies, and the turn that comes next.

use super::parcel::{Body, CallId, Direction, Lane, Parcel, Position, Requester, Responder};
use super::proxy::{Hold, Inbound, Owned, OwnedWhat, Status, What};
use super::router::{Gate, Router};
use crate::grants::is_mcp;
use crate::message::{How, Message, Peer, Request, RequestId, Response, Ticket, Turn};
use crate::wire::text::Text;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that may wait for the client or the agent before the host's answers wait as well: a proxy that wakes itself up again and
/// again would fill the memory with what nobody reads.
const MAX_WAITING: usize = 32 * 1024 * 1024;

/// Where the answer that comes of a response stands among what is kept back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placing {
    /// In front of everything.
    Front,
    /// In the place that was kept for it.
    Kept,
}

impl Router {
    /// What a proxy is to do with a message that comes by.
    pub(super) fn wants(&self, index: usize, parcel: &Parcel) -> Option<How> {
        let proxy = &self.proxies[index];
        if proxy.status == Status::Off && !proxy.is_shut() {
            return None;
        }
        let method = parcel.method();
        if &**method == "initialize" {
            let request = matches!(parcel.body, Body::Request { .. });
            return (request && parcel.direction == Direction::Down).then_some(How::Intercept);
        }
        if let Some(servers) = &proxy.servers
            && is_mcp(method)
            && !servers.concern(parcel.text())
        {
            return None;
        }
        proxy.interests.of(parcel.direction, method)
    }

    /// A message becomes the proxy's.
    pub(super) fn deliver(&mut self, index: usize, parcel: Parcel) {
        let Parcel {
            direction,
            lane,
            body,
            ticket,
            ..
        } = parcel;
        let ticket = ticket.unwrap_or_else(|| self.number());
        let (what, owned) = match body {
            Body::Request { call, method, params } => {
                if let Some(record) = self.calls.get_mut(&call) {
                    record.responder = Responder::Proxy(index, ticket);
                }
                if &*method == "initialize" {
                    self.remember_handshake(index, params.as_ref());
                }
                (What::Request { call, method, params }, OwnedWhat::Request(call))
            }
            Body::Notification { method, params } => {
                let owned = OwnedWhat::Notification {
                    method: method.clone(),
                    params: params.clone(),
                    lane: lane.clone(),
                };
                (What::Notification { method, params }, owned)
            }
            // Responses have a way of their own.
            Body::Response { .. } => return,
        };
        let proxy = &mut self.proxies[index];
        proxy.lanes[direction.index()].hold(&lane);
        let holds = match lane {
            Lane::Own => Vec::new(),
            lane => vec![Hold {
                direction,
                lane,
                place: false,
                origin: ticket,
                turned: false,
            }],
        };
        let owned = Owned {
            direction,
            what: owned,
            holds,
            idle: Duration::ZERO,
            idle_at: None,
        };
        proxy.tickets.insert(ticket, owned);
        self.watch_holding();
        let source = direction.source();
        self.enqueue(index, Inbound { source, ticket, what });
    }

    /// The ticket that a response to a proxy's own request belongs to, if the proxy still has it.
    pub(super) fn behalf_ticket(&self, index: usize, behalf: Option<CallId>) -> Option<Ticket> {
        match self.calls.get(&behalf?)?.responder {
            Responder::Proxy(owner, ticket) if owner == index => Some(ticket),
            _ => None,
        }
    }

    /// The response to a proxy's own request. What it holds up ends with the request that it belongs to, if that had to go on.
    pub(super) fn deliver_response(&mut self, index: usize, own: RequestId, parcel: Parcel, placing: Placing) {
        let Parcel {
            direction, lane, body, ..
        } = parcel;
        let Body::Response { call, method, outcome } = body else {
            return;
        };
        let behalf = self.calls.remove(&call).and_then(|record| match record.requester {
            Requester::Proxy { behalf, .. } => behalf,
            _ => None,
        });
        if &*method == "initialize" {
            self.remember_downstream(index, &outcome);
        }
        let ticket = self.number();
        if let Some(parent) = behalf.and_then(|behalf| self.calls.get_mut(&behalf)) {
            parent.children.retain(|child| *child != call);
        }
        let behalf = self.behalf_ticket(index, behalf);
        let proxy = &mut self.proxies[index];
        proxy.requests.remove(&own);
        // What was asked back where the message came from says nothing that its answer, which goes the other way, could be overtaken by;
        // and the proxy may be waiting for what comes behind it.
        let owned = behalf
            .and_then(|ticket| proxy.tickets.get_mut(&ticket))
            .filter(|owned| owned.direction != direction);
        let mut held = Hold {
            direction,
            lane,
            place: false,
            origin: ticket,
            turned: false,
        };
        let mut hold = None;
        match (placing, owned) {
            _ if held.lane == Lane::Own => {}
            (Placing::Kept, Some(owned)) => {
                held.place = true;
                owned.holds.push(held);
            }
            // Nothing comes of it that could have a place.
            (Placing::Kept, None) => {}
            (Placing::Front, owned) => {
                proxy.lanes[direction.index()].hold(&held.lane);
                match owned {
                    Some(owned) => owned.holds.push(held),
                    None => hold = Some(held),
                }
            }
        }
        let what = What::Response {
            own,
            outcome,
            hold,
            behalf,
        };
        let source = direction.source();
        self.enqueue(index, Inbound { source, ticket, what });
    }

    /// Whether a response to a proxy's own request has to wait for messages in front of it. It must not where the proxy
    /// itself holds those up, since it may be waiting for this very response.
    pub(super) fn response_waits(&self, index: usize, parcel: &Parcel) -> bool {
        let proxy = &self.proxies[index];
        proxy.lanes[parcel.direction.index()].session_blocks(&parcel.lane)
            && !proxy.holds_back(parcel.direction, &parcel.lane)
            && (parcel.direction == Direction::Up || !proxy.is_busy())
    }

    /// A proxy keeps what it had its turn with: responses of its own that wait behind that must not wait any longer.
    pub(super) fn hand_over_responses(&mut self, index: usize, hold: &Hold) {
        let Lane::Session(session) = &hold.lane else { return };
        loop {
            let mut lanes = std::mem::take(&mut self.proxies[index].lanes[hold.direction.index()]);
            let mut own_id = None;
            let taken = lanes.take_owed(session, |parcel| {
                let Body::Response { call, .. } = &parcel.body else {
                    return None;
                };
                match self.calls.get(call)?.requester {
                    Requester::Proxy {
                        index: owner,
                        own: Some(own),
                        behalf,
                    } if owner == index => {
                        own_id = Some(own);
                        Some(self.behalf_ticket(index, behalf))
                    }
                    _ => None,
                }
            });
            self.proxies[index].lanes[hold.direction.index()] = lanes;
            let (Some((parcel, _)), Some(own)) = (taken, own_id) else {
                return;
            };
            self.show(&parcel, Position::Proxy(index));
            self.deliver_response(index, own, parcel, Placing::Kept);
        }
    }

    /// A proxy keeps what it had its turn with, or takes nothing but answers: answers for the agent do not wait behind that. Without
    /// a lane, all of them.
    pub(super) fn let_answers_pass(&mut self, index: usize, lane: Option<&Lane>) {
        for answer in self.proxies[index].lanes[Direction::Down.index()].take_answers(lane) {
            self.resume(index, answer, Gate::Open);
        }
    }

    /// The host's own answer to a proxy's request.
    pub(super) fn deliver_host_response(&mut self, index: usize, own: RequestId, outcome: crate::message::Outcome) {
        let ticket = self.number();
        let what = What::Response {
            own,
            outcome,
            hold: None,
            behalf: None,
        };
        let source = Peer::Host;
        self.enqueue(index, Inbound { source, ticket, what });
    }

    /// Something that a proxy is told, whatever its interests.
    pub(super) fn tell(&mut self, index: usize, source: Peer, method: Arc<str>, params: Option<Text>) {
        let ticket = self.number();
        let what = What::Copy(Message::notification(method, params));
        self.enqueue(index, Inbound { source, ticket, what });
    }

    pub(super) fn enqueue(&mut self, index: usize, inbound: Inbound) {
        self.proxies[index].push_back(inbound);
        if self.proxies[index].is_overfull() {
            self.overfull.push(index);
        }
        self.wake(index);
    }

    pub(super) fn wake(&mut self, index: usize) {
        let proxy = &mut self.proxies[index];
        if !proxy.queued && proxy.can_run() {
            proxy.queued = true;
            self.ready.push_back(index);
        }
    }

    /// A copy for an observer.
    pub(super) fn copy(&mut self, index: usize, parcel: &Parcel) {
        let ticket = self.number();
        let message = match &parcel.body {
            Body::Request { call, method, params } => {
                if let Some(record) = self.calls.get_mut(call) {
                    record.observers.push((index, ticket));
                }
                Message::Request(Request {
                    id: None,
                    on_behalf_of: None,
                    method: method.clone(),
                    params: params.clone(),
                })
            }
            Body::Notification { method, params } => Message::notification(method.clone(), params.clone()),
            Body::Response { .. } => return,
        };
        self.push_copy(index, parcel.direction.source(), ticket, message);
    }

    /// The response to a request that an observer got a copy of.
    pub(super) fn copy_response(&mut self, index: usize, parcel: &Parcel) {
        let Body::Response { call, outcome, .. } = &parcel.body else {
            return;
        };
        let Some(record) = self.calls.get_mut(call) else { return };
        let Some(at) = record.observers.iter().position(|(observer, _)| *observer == index) else {
            return;
        };
        let (_, ticket) = record.observers.swap_remove(at);
        let message = Message::Response(Response {
            id: ticket,
            outcome: outcome.clone(),
        });
        self.push_copy(index, parcel.direction.source(), ticket, message);
    }

    fn push_copy(&mut self, index: usize, source: Peer, ticket: Ticket, message: Message) {
        let news_ticket = self.number();
        let what = What::Copy(message);
        self.proxies[index].push_copy(Inbound { source, ticket, what }, |copies| {
            let params = Text::of(&serde_json::json!({ "copies": copies }));
            Inbound {
                source: Peer::Host,
                ticket: news_ticket,
                what: What::Copy(Message::notification("host/lost".into(), Some(params))),
            }
        });
        self.wake(index);
    }

    /// The next turn that can be taken, and by which proxy. Its end has to be told with [`Self::finish_turn`].
    pub fn next_turn(&mut self) -> Option<(usize, Turn)> {
        loop {
            let index = self.ready.pop_front()?;
            let proxy = &mut self.proxies[index];
            proxy.queued = false;
            if !proxy.can_run() {
                continue;
            }
            let choked = self.is_choked();
            self.choked |= choked;
            let Some((inbound, from_inbox)) = self.proxies[index].next(choked) else {
                continue;
            };
            if self.is_stale(index, &inbound, from_inbox) {
                self.wake(index);
                continue;
            }
            let proxy = &mut self.proxies[index];
            let replay = proxy.status == Status::Replaying;
            let session = proxy.session_of(inbound.ticket);
            let turn = Turn {
                source: inbound.source,
                ticket: inbound.ticket,
                copy: matches!(inbound.what, What::Copy(_)),
                message: message(&inbound.what),
                closed: std::mem::take(&mut proxy.closed),
                replay,
                session,
            };
            proxy.running = Some(inbound);
            return Some((index, turn));
        }
    }

    /// Whether so much waits to be written that no proxy is to be woken by the host, to add to it.
    fn is_choked(&self) -> bool {
        self.ends.iter().any(|end| end.output.waiting() > MAX_WAITING)
    }

    /// Something was written: proxies that waited for that go on.
    pub fn resume_choked(&mut self) {
        if self.choked && !self.is_choked() {
            self.choked = false;
            for index in 0..self.proxies.len() {
                self.wake(index);
            }
        }
    }

    /// What need not be looked at any more: a request that was answered meanwhile, by an error on the way, or the news of a
    /// cancel whose prompt has gone on.
    fn is_stale(&self, index: usize, inbound: &Inbound, from_inbox: bool) -> bool {
        match &inbound.what {
            What::Request { .. } | What::Notification { .. } => {
                !self.proxies[index].tickets.contains_key(&inbound.ticket)
            }
            What::Copy(Message::Notification(news)) if from_inbox && &*news.method == "session/cancel" => {
                let lane = self.lane_of(&news.method, news.params.as_ref());
                !self.holds_prompt(index, &lane)
            }
            _ => false,
        }
    }
}

fn message(what: &What) -> Message {
    match what {
        What::Request { method, params, .. } => Message::Request(Request {
            id: None,
            on_behalf_of: None,
            method: method.clone(),
            params: params.clone(),
        }),
        What::Notification { method, params } => Message::notification(method.clone(), params.clone()),
        What::Response { own, outcome, .. } => Message::Response(Response {
            id: *own,
            outcome: outcome.clone(),
        }),
        What::Copy(message) => message.clone(),
        What::Replay { params } => Message::Request(Request {
            id: None,
            on_behalf_of: None,
            method: "initialize".into(),
            params: params.clone(),
        }),
    }
}
