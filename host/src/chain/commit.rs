//! What a turn brought: the proxy's messages enter the chain, and what it held is let go.

use super::parcel::{Body, CallId, Direction, Parcel, Position, Requester, Responder};
use super::proxy::{Hold, Inbound, Owned, OwnedWhat, Status, Target, What};
use super::router::Router;
use crate::fault::Fault;
use crate::message::{
    Message, Notification, Outcome, Peer, Receipt, Request, RequestId, Response, Sent, Ticket, TurnResult,
    cancelled_number,
};
use crate::wire::envelope::error_text;
use std::sync::Arc;

/// JSON-RPC code of a request that was given up.
pub(super) const CANCELLED: i64 = -32800;

impl Router {
    /// A turn is over.
    pub fn finish_turn(&mut self, index: usize, result: Result<TurnResult, Fault>) {
        let Some(inbound) = self.proxies[index].running.take() else {
            return;
        };
        self.proxies[index].turns += 1;
        match result {
            Err(fault) => self.failed(index, Some(inbound), &fault),
            Ok(result) if self.proxies[index].status == Status::Replaying => {
                self.replayed(index, &inbound, result.sent);
            }
            Ok(result) => {
                for sent in result.sent {
                    self.commit(index, sent);
                }
                self.end_of_turn(index, inbound, result.receipt);
            }
        }
        if self.proxies[index].is_busy() {
            self.let_answers_pass(index, None);
        }
        self.replay_if_unseen(index);
        self.settle();
        self.wake(index);
    }

    fn end_of_turn(&mut self, index: usize, inbound: Inbound, receipt: Receipt) {
        match inbound.what {
            What::Notification { .. } if receipt == Receipt::Done => {
                self.take_ticket(index, inbound.ticket);
            }
            What::Response { hold: Some(hold), .. } => self.end_holds(index, inbound.ticket, vec![hold]),
            What::Response {
                behalf: Some(ticket), ..
            } => self.keeps_holding(index, ticket, inbound.ticket),
            What::Request { .. } | What::Notification { .. } => {
                self.keeps_holding(index, inbound.ticket, inbound.ticket)
            }
            _ => {}
        }
    }

    /// The proxy had its turn with a delivery, and still has the ticket that this belongs to.
    fn keeps_holding(&mut self, index: usize, ticket: Ticket, origin: Ticket) {
        let Some(owned) = self.proxies[index].tickets.get_mut(&ticket) else {
            return;
        };
        let mut fresh = Vec::new();
        for hold in &mut owned.holds {
            if hold.origin == origin && !std::mem::replace(&mut hold.turned, true) {
                fresh.push(hold.clone());
            }
        }
        for hold in fresh {
            match hold.direction {
                Direction::Up => self.hand_over_responses(index, &hold),
                Direction::Down => {
                    self.announce_kept_cancels(index, &hold.lane);
                    self.let_answers_pass(index, Some(&hold.lane));
                }
            }
        }
    }

    /// The proxy does not own a message any more; what it held up goes on after this.
    pub(super) fn take_ticket(&mut self, index: usize, ticket: Ticket) -> Option<Owned> {
        let mut owned = self.proxies[index].tickets.remove(&ticket)?;
        self.end_holds(index, ticket, std::mem::take(&mut owned.holds));
        Some(owned)
    }

    pub(super) fn end_holds(&mut self, index: usize, ticket: Ticket, holds: Vec<Hold>) {
        for hold in holds {
            let lanes = &mut self.proxies[index].lanes[hold.direction.index()];
            if hold.place {
                lanes.give_up_place(&hold.lane, ticket);
            }
            self.releases.push_back((index, hold));
        }
    }

    fn commit(&mut self, index: usize, sent: Sent) {
        match sent {
            Sent::Release(ticket) => {
                self.take_ticket(index, ticket);
            }
            Sent::Message(Peer::Host, message) => self.host_message(index, message),
            Sent::Message(to, message) => {
                let Some(direction) = Direction::towards(to) else {
                    return;
                };
                match message {
                    Message::Request(request) => self.commit_request(index, direction, request),
                    Message::Notification(notification) => self.commit_notification(index, direction, notification),
                    Message::Response(response) => self.commit_response(index, response),
                }
            }
        }
    }

    fn commit_request(&mut self, index: usize, direction: Direction, request: Request) {
        let Request {
            id,
            on_behalf_of,
            method,
            params,
        } = request;
        let owned = on_behalf_of.and_then(|ticket| Some((ticket, self.proxies[index].tickets.get(&ticket)?)));
        let behalf = owned.as_ref().and_then(|(_, owned)| match owned.what {
            OwnedWhat::Request(call) => Some(call),
            OwnedWhat::Notification { .. } => None,
        });
        let onward = owned.as_ref().is_some_and(|(_, owned)| owned.direction == direction);
        let ticket = owned.map(|(ticket, _)| ticket);
        if on_behalf_of.is_some() && ticket.is_none() {
            // What it was sent on behalf of ended while the turn ran.
            if let Some(id) = id {
                let error = error_text(CANCELLED, "what this request was sent on behalf of has ended", None);
                self.deliver_host_response(index, id, Err(error));
            }
            return;
        }
        let requester = Requester::Proxy { index, own: id, behalf };
        let lane = self.lane_of(&method, params.as_ref());
        let answer_lane = self.beside_requests(lane.clone(), &method, params.as_ref());
        let call = self.new_call(requester, direction, method.clone(), answer_lane);
        if let Some(id) = id {
            self.proxies[index].requests.insert(id, Target::Call(call));
        }
        if let (true, Some(ticket)) = (onward, ticket) {
            self.carried_on(index, ticket);
        }
        let parent = behalf.and_then(|behalf| self.calls.get_mut(&behalf));
        let cancelled = parent.is_some_and(|parent| {
            parent.children.push(call);
            parent.cancelled
        });
        let body = Body::Request { call, method, params };
        self.travel(Parcel::new(direction, lane, body, Position::Proxy(index)));
        if cancelled {
            self.cancel(call);
        }
    }

    /// An owned message was sent on to the opposite side: its holds end, and a notification is done with.
    fn carried_on(&mut self, index: usize, ticket: Ticket) {
        let Some(owned) = self.proxies[index].tickets.get_mut(&ticket) else {
            return;
        };
        if matches!(owned.what, OwnedWhat::Notification { .. }) {
            self.take_ticket(index, ticket);
            return;
        }
        let holds = std::mem::take(&mut owned.holds);
        self.end_holds(index, ticket, holds);
    }

    fn commit_notification(&mut self, index: usize, direction: Direction, notification: Notification) {
        let Notification {
            on_behalf_of,
            method,
            params,
        } = notification;
        if &*method == "$/cancel_request" {
            let own = params.as_ref().and_then(cancelled_number);
            return self.cancel_own(index, own);
        }
        if let Some(ticket) = on_behalf_of {
            match self.proxies[index].tickets.get(&ticket) {
                // What it carries on went on without the proxy while the turn ran.
                None => return,
                Some(owned) if owned.direction == direction && matches!(owned.what, OwnedWhat::Notification { .. }) => {
                    self.take_ticket(index, ticket);
                }
                Some(_) => {}
            }
        }
        let lane = self.carried_lane(&method, params.as_ref());
        let body = Body::Notification { method, params };
        self.travel(Parcel::new(direction, lane, body, Position::Proxy(index)));
    }

    fn commit_response(&mut self, index: usize, response: Response) {
        let Some(owned) = self.proxies[index].tickets.get(&response.id) else {
            return;
        };
        let OwnedWhat::Request(call) = owned.what else { return };
        match self.calls.get(&call).map(|record| record.method.clone()).as_deref() {
            Some("session/prompt") => self.drop_kept_cancels(index, call),
            Some("initialize") => self.remember_answer(index, &response.outcome),
            _ => {}
        }
        self.answer_owned(index, response.id, call, response.outcome);
    }

    /// Answers a request that a proxy owns, in the place that was kept for the answer if there is one.
    pub(super) fn answer_owned(&mut self, index: usize, ticket: Ticket, call: CallId, outcome: Outcome) {
        let place = self.proxies[index]
            .tickets
            .get(&ticket)
            .and_then(|owned| owned.holds.iter().find(|hold| hold.place).cloned());
        if let Some(mut parcel) = self.begin_answer(call, outcome, Position::Proxy(index)) {
            let lanes = &mut self.proxies[index].lanes;
            let filled = match place {
                Some(hold) if hold.direction == parcel.direction => {
                    parcel.lane = hold.lane.clone();
                    lanes[hold.direction.index()].fill_place(&hold.lane, ticket, parcel)
                }
                _ => Some(parcel),
            };
            if let Some(parcel) = filled {
                self.travel(parcel);
            }
        }
        self.take_ticket(index, ticket);
    }

    /// A request that a proxy sent on without an id was answered: the answer goes on to whoever asked the proxy.
    pub(super) fn end_leg(
        &mut self,
        index: usize,
        leg: CallId,
        behalf: Option<CallId>,
        parcel: Parcel,
    ) -> Option<Parcel> {
        self.calls.remove(&leg);
        let behalf = behalf?;
        let record = self.calls.get_mut(&behalf)?;
        if record.answered {
            return None;
        }
        record.answered = true;
        let responder = std::mem::replace(&mut record.responder, Responder::Nobody);
        let mut children = std::mem::take(&mut record.children);
        let method = record.method.clone();
        let forgotten = matches!(record.requester, Requester::Nobody);
        if let Responder::Proxy(owner, ticket) = responder {
            self.take_ticket(owner, ticket);
            self.proxies[owner].closed.push(ticket);
        }
        children.retain(|child| *child != leg);
        for child in children {
            self.cancel(child);
        }
        let Body::Response { outcome, .. } = parcel.body else {
            return None;
        };
        if &*method == "initialize" {
            self.remember_downstream(index, &outcome);
        }
        if forgotten {
            self.calls.remove(&behalf);
            return None;
        }
        Some(Parcel {
            body: Body::Response {
                call: behalf,
                method,
                outcome,
            },
            ..parcel
        })
    }

    /// The outcome of a request to the host.
    pub fn host_answer(&mut self, index: usize, operation: u64, outcome: Outcome) {
        let proxy = &mut self.proxies[index];
        proxy.unreserve(operation);
        let own: Option<RequestId> = proxy
            .requests
            .iter()
            .find(|(_, target)| **target == Target::Host(operation))
            .map(|(own, _)| *own);
        if let Some(own) = own {
            proxy.requests.remove(&own);
            self.show_host_answer(index, operation, &outcome);
            self.deliver_host_response(index, own, outcome);
        }
    }
}

/// The method of `$/cancel_request`.
pub(super) fn cancel_method() -> Arc<str> {
    "$/cancel_request".into()
}
