//! Giving requests up, hop by hop, once. A cancel is never kept back and never answered.

use super::commit::{CANCELLED, cancel_method};
use super::conductor::Role;
use super::parcel::{Body, CallId, Direction, Edge, Lane, Parcel, Position, Requester, Responder};
use super::proxy::{Hold, OwnedWhat, Target};
use super::router::{Effect, Router};
use crate::message::RequestId;
use crate::wire::envelope::{Id, error_text};
use crate::wire::scan;
use crate::wire::text::Text;

impl Router {
    /// `$/cancel_request` from a peer at an end.
    pub(super) fn cancel_from_edge(&mut self, edge: Edge, params: Option<&Text>) {
        let id = params.and_then(|params| {
            let range = scan::find(params, "/requestId")?;
            Id::parse(&params.slice(range).to_text())
        });
        let Some(id) = id else { return };
        // Under another conductor both ends' requests share one namespace of ids.
        let edge = match self.role {
            Role::Agent => edge,
            Role::Proxy if self.ends[Edge::Agent.index()].ids.contains_key(&id) => Edge::Agent,
            Role::Proxy => Edge::Client,
        };
        if let Some(call) = self.ends[edge.index()].ids.get(&id).copied() {
            self.cancel(call);
        } else if edge == Edge::Client && self.take_behind_initialize(&id) {
            self.refuse(edge, id, "", CANCELLED, "cancelled before anybody had seen it");
        }
    }

    /// A proxy gives up a request of its own.
    pub(super) fn cancel_own(&mut self, index: usize, own: Option<RequestId>) {
        let Some(own) = own else { return };
        match self.proxies[index].requests.get(&own).copied() {
            Some(Target::Call(call)) => self.cancel(call),
            Some(Target::Host(operation)) => {
                self.proxies[index].requests.remove(&own);
                self.effects.push_back(Effect::Forget { operation });
                let outcome = Err(error_text(CANCELLED, "cancelled", None));
                self.show_host_answer(index, operation, &outcome);
                self.deliver_host_response(index, own, outcome);
            }
            None => {}
        }
    }

    /// Tells whoever has to answer a request that nobody wants the answer, and the same for what was sent on its behalf.
    pub(super) fn cancel(&mut self, call: CallId) {
        let Some(record) = self.calls.get_mut(&call) else {
            return;
        };
        if record.answered || std::mem::replace(&mut record.cancelled, true) {
            return;
        }
        let children = record.children.clone();
        let (responder, direction) = (record.responder, record.direction);
        if !matches!(responder, Responder::KeptBack(_)) {
            self.show_cancel(call);
        }
        match responder {
            Responder::Edge(edge) => {
                let is_taken = edge == Edge::Agent && self.bridge_gives_up(call);
                let params = Text::of(&serde_json::json!({ "requestId": call }));
                if !is_taken && self.ends[edge.index()].gone.is_none() {
                    self.write_cancel(edge, &params);
                }
            }
            Responder::Proxy(index, ticket) => {
                let source = direction.source();
                if !self.is_passed_on(&children) {
                    let params = Text::of(&serde_json::json!({ "requestId": ticket }));
                    self.tell(index, source, cancel_method(), Some(params));
                }
            }
            Responder::KeptBack(index) => self.cancel_kept(index, call),
            Responder::Nobody => {}
        }
        for child in children {
            self.cancel(child);
        }
    }

    /// Whether one of these requests went on without an id: then its proxy has nothing left to do.
    pub(super) fn is_passed_on(&self, children: &[CallId]) -> bool {
        children.iter().any(|child| {
            self.calls
                .get(child)
                .is_some_and(|record| matches!(record.requester, Requester::Proxy { own: None, .. }))
        })
    }

    /// A request that nobody has seen yet is answered here.
    fn cancel_kept(&mut self, index: usize, call: CallId) {
        let wanted = |parcel: &Parcel| matches!(parcel.body, Body::Request { call: kept, .. } if kept == call);
        let mut taken = None;
        for lanes in &mut self.proxies[index].lanes {
            if let Some(parcel) = lanes.take(wanted) {
                taken = Some(parcel);
                break;
            }
        }
        if let Some(parcel) = taken {
            // Nobody has seen it, but its sender has sent it.
            self.show(&parcel, Position::Proxy(index));
            self.show_cancel(call);
        }
        let error = error_text(CANCELLED, "cancelled before anybody had seen it", None);
        self.respond(call, Err(error), Position::Proxy(index));
    }

    /// `session/cancel` that has to wait behind a prompt: the proxy that holds the prompt is told at once, and so is the
    /// agent if that proxy has requests of its own there.
    pub(super) fn announce_cancel(&mut self, index: usize, parcel: &Parcel) {
        let Body::Notification { method, params } = &parcel.body else {
            return;
        };
        if &**method != "session/cancel" || parcel.direction != Direction::Down {
            return;
        }
        if !self.holds_prompt(index, &parcel.lane) {
            return;
        }
        self.tell(index, Direction::Down.source(), method.clone(), params.clone());
        let busy = self.proxies[index].requests.values().any(|target| {
            matches!(target, Target::Call(call) if self.calls.get(call).is_some_and(|record| {
                record.direction == Direction::Down && record.lane == parcel.lane && !record.answered
            }))
        });
        if busy {
            let mut early = parcel.clone();
            early.from = Position::Proxy(index);
            self.travel(early);
        }
    }

    /// Whether a proxy has had its turn with a prompt of this session and still holds it.
    pub(super) fn holds_prompt(&self, index: usize, lane: &Lane) -> bool {
        self.proxies[index].tickets.values().any(|owned| {
            let prompt = match owned.what {
                OwnedWhat::Request(call) => self
                    .calls
                    .get(&call)
                    .is_some_and(|call| &*call.method == "session/prompt"),
                OwnedWhat::Notification { .. } => false,
            };
            let holds = |hold: &Hold| hold.turned && hold.direction == Direction::Down && hold.lane == *lane;
            prompt && owned.holds.iter().any(holds)
        })
    }

    /// A proxy kept a prompt that a cancel waits behind: now it is the one to be told.
    pub(super) fn announce_kept_cancels(&mut self, index: usize, lane: &Lane) {
        let lanes = &self.proxies[index].lanes[Direction::Down.index()];
        for parcel in lanes.cancels(lane) {
            self.announce_cancel(index, &parcel);
        }
    }

    /// A proxy answered a prompt itself: the cancels that waited behind it are for nobody.
    pub(super) fn drop_kept_cancels(&mut self, index: usize, prompt: CallId) {
        let Some(lane) = self.calls.get(&prompt).map(|record| record.lane.clone()) else {
            return;
        };
        let lanes = &mut self.proxies[index].lanes[Direction::Down.index()];
        loop {
            let mut next_prompt = false;
            let cancel = lanes.take(|parcel| {
                let same = parcel.lane == lane;
                next_prompt |= same && &**parcel.method() == "session/prompt";
                same && !next_prompt && &**parcel.method() == "session/cancel"
            });
            if cancel.is_none() {
                return;
            }
        }
    }

    /// Stops a prompt of a session that somebody else's fault ended, the way that every agent knows.
    pub(super) fn cancel_prompts(&mut self, index: usize, children: &[CallId]) {
        for child in children {
            let Some(record) = self.calls.get(child) else { continue };
            let Lane::Session(session) = record.lane.clone() else {
                continue;
            };
            if &*record.method != "session/prompt"
                || record.direction != Direction::Down
                || record.answered
                || record.cancelled
            {
                continue;
            }
            let params = Text::of(&serde_json::json!({ "sessionId": &*session }));
            let body = Body::Notification {
                method: "session/cancel".into(),
                params: Some(params),
            };
            let lane = Lane::Session(session);
            self.travel(Parcel::new(Direction::Down, lane, body, Position::Proxy(index)));
        }
    }
}
