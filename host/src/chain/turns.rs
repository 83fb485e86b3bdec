//! Giving messages to proxies: deliveries, copies, and the turn that comes next.

use super::parcel::{Body, CallId, Direction, Lane, Parcel, Responder};
use super::proxy::{Hold, Inbound, Owned, OwnedWhat, Status, What};
use super::router::Router;
use crate::message::{How, Message, Notification, Peer, Request, RequestId, Response, Ticket, Turn};
use crate::wire::text::Text;
use std::sync::Arc;

impl Router {
    /// What a proxy is to do with a message that comes by.
    pub(super) fn wants(&self, index: usize, parcel: &Parcel) -> Option<How> {
        let proxy = &self.proxies[index];
        if proxy.status == Status::Off {
            return None;
        }
        let method = parcel.method();
        if &**method == "initialize" {
            let request = matches!(parcel.body, Body::Request { .. });
            return (request && parcel.direction == Direction::Down).then_some(How::Intercept);
        }
        proxy.interests.of(parcel.direction, method)
    }

    /// A message becomes the proxy's.
    pub(super) fn deliver(&mut self, index: usize, parcel: Parcel) {
        let ticket = self.number();
        let Parcel { direction, lane, body } = parcel;
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
            }],
        };
        let owned = Owned {
            direction,
            what: owned,
            holds,
        };
        proxy.tickets.insert(ticket, owned);
        let source = direction.source();
        self.enqueue(index, Inbound { source, ticket, what });
    }

    /// The response to a proxy's own request. What it holds up ends with the request that it belongs to.
    pub(super) fn deliver_response(&mut self, index: usize, own: RequestId, behalf: Option<CallId>, parcel: Parcel) {
        let Parcel { direction, lane, body } = parcel;
        let Body::Response { call, method, outcome } = body else {
            return;
        };
        self.calls.remove(&call);
        if &*method == "initialize" {
            self.remember_downstream(index, &outcome);
        }
        let ticket = self.number();
        if let Some(parent) = behalf.and_then(|behalf| self.calls.get_mut(&behalf)) {
            parent.children.retain(|child| *child != call);
        }
        let behalf = behalf.and_then(|behalf| match self.calls.get(&behalf)?.responder {
            Responder::Proxy(owner, ticket) if owner == index => Some(ticket),
            _ => None,
        });
        let proxy = &mut self.proxies[index];
        proxy.requests.remove(&own);
        let mut hold = None;
        if lane != Lane::Own {
            let lanes = &mut proxy.lanes[direction.index()];
            let owned = behalf.and_then(|ticket| Some((ticket, proxy.tickets.get_mut(&ticket)?)));
            // Behind other messages only the answer's place is kept: the response itself must reach its owner at once.
            let behind = direction == Direction::Up && lanes.session_blocks(&lane);
            match (owned, &lane) {
                (Some((ticket, owned)), Lane::Session(session)) if behind => {
                    lanes.keep_place(session, ticket);
                    owned.holds.push(Hold {
                        direction,
                        lane,
                        place: true,
                    });
                }
                (owned, _) => {
                    lanes.hold(&lane);
                    let held = Hold {
                        direction,
                        lane,
                        place: false,
                    };
                    match owned {
                        Some((_, owned)) => owned.holds.push(held),
                        None => hold = Some(held),
                    }
                }
            }
        }
        let what = What::Response { own, outcome, hold };
        let source = direction.source();
        self.enqueue(index, Inbound { source, ticket, what });
    }

    /// The host's own answer to a proxy's request.
    pub(super) fn deliver_host_response(&mut self, index: usize, own: RequestId, outcome: crate::message::Outcome) {
        let ticket = self.number();
        let what = What::Response {
            own,
            outcome,
            hold: None,
        };
        let source = Peer::Host;
        self.enqueue(index, Inbound { source, ticket, what });
    }

    /// Something that a proxy is told, whatever its interests.
    pub(super) fn tell(&mut self, index: usize, source: Peer, method: Arc<str>, params: Option<Text>) {
        let ticket = self.number();
        let message = Message::Notification(Notification {
            on_behalf_of: None,
            method,
            params,
        });
        let what = What::Copy(message);
        self.enqueue(index, Inbound { source, ticket, what });
    }

    pub(super) fn enqueue(&mut self, index: usize, inbound: Inbound) {
        self.inbox_bytes += inbound.size();
        self.proxies[index].inbox.push_back(inbound);
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
            Body::Notification { method, params } => Message::Notification(Notification {
                on_behalf_of: None,
                method: method.clone(),
                params: params.clone(),
            }),
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
                what: What::Copy(Message::Notification(Notification {
                    on_behalf_of: None,
                    method: "host/lost".into(),
                    params: Some(params),
                })),
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
            let Some((inbound, size)) = proxy.next() else { continue };
            self.inbox_bytes = self.inbox_bytes.saturating_sub(size);
            if self.is_stale(index, &inbound) {
                self.wake(index);
                continue;
            }
            let proxy = &mut self.proxies[index];
            let replay = proxy.status == Status::Replaying;
            let turn = Turn {
                source: inbound.source,
                ticket: inbound.ticket,
                copy: matches!(inbound.what, What::Copy(_)),
                message: message(&inbound.what),
                closed: std::mem::take(&mut proxy.closed),
                replay,
            };
            proxy.running = Some(inbound);
            return Some((index, turn));
        }
    }

    /// A request that was answered meanwhile, by an error on the way, need not be looked at any more.
    fn is_stale(&self, index: usize, inbound: &Inbound) -> bool {
        match inbound.what {
            What::Request { .. } | What::Notification { .. } => {
                !self.proxies[index].tickets.contains_key(&inbound.ticket)
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
        What::Notification { method, params } => Message::Notification(Notification {
            on_behalf_of: None,
            method: method.clone(),
            params: params.clone(),
        }),
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
