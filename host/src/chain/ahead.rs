//! What a proxy is going to get next: its turns can be taken ahead, on another thread, while the chain is busy with others. The chain
//! itself goes on message by message, and asks for the result of each turn when its time has come.

use super::parcel::{Body, Direction, Lane};
use super::proxy::{OwnedWhat, Status, What};
use super::router::Router;
use crate::grants::is_mcp;
use crate::message::{How, Message, Peer, Ticket, Turn};
use crate::wire::envelope::Incoming;
use crate::wire::text::Text;
use std::ops::RangeInclusive;
use std::sync::Arc;

impl Router {
    /// Turns that this proxy will have after the one at hand, as long as it keeps none of the messages: as many as this, with so many
    /// bytes, or none. Only notifications are among them. They have to be taken in a row now, and [`Self::row_over`] has to be told. A turn
    /// that was taken ahead may turn out not to come at all; then nothing must come of it.
    pub fn turns_ahead(&mut self, index: usize, turn: &Turn, many: RangeInclusive<usize>, bytes: usize) -> Vec<Turn> {
        let turns = self.behind(index, turn, *many.end(), bytes);
        if turns.len() < *many.start() {
            return Vec::new();
        }
        self.proxies[index].row = turns.iter().map(|turn| turn.ticket).collect();
        turns
    }

    fn behind(&mut self, index: usize, turn: &Turn, most: usize, mut bytes: usize) -> Vec<Turn> {
        let proxy = &mut self.proxies[index];
        if proxy.status != Status::Ready || proxy.is_busy() || turn.copy || !proxy.row.is_empty() {
            return Vec::new();
        }
        let owned = proxy
            .tickets
            .get(&turn.ticket)
            .map(|owned| (&owned.what, owned.direction));
        let Some((OwnedWhat::Notification { lane, .. }, direction)) = owned else {
            return Vec::new();
        };
        let (lane, source) = (lane.clone(), direction.source());
        let mut turns = Vec::new();
        let mut fits = |params: Option<&Text>, count: usize| {
            bytes = bytes.saturating_sub(params.map_or(0, Text::len));
            bytes > 0 && count < most
        };
        for inbound in &proxy.inbox {
            let What::Notification { method, params } = &inbound.what else {
                return turns;
            };
            if !fits(params.as_ref(), turns.len()) {
                return turns;
            }
            let session = proxy.session_of(inbound.ticket);
            turns.push(ahead(inbound.source, inbound.ticket, (method, params), session));
        }
        let Lane::Session(session) = &lane else { return turns };
        let seen = turn.session.as_ref();
        for parcel in proxy.lanes[direction.index()].behind_one(session) {
            let Body::Notification { method, params } = &parcel.body else {
                break;
            };
            let intercepted = !is_mcp(method) && proxy.interests.of(direction, method) == Some(How::Intercept);
            if !intercepted || !fits(params.as_ref(), turns.len()) {
                break;
            }
            let ticket = *parcel.ticket.get_or_insert_with(|| {
                self.next_number += 1;
                self.next_number
            });
            turns.push(ahead(source, ticket, (method, params), seen.cloned()));
        }
        turns
    }

    /// No more turns of the row are taken: these are all that the instance had.
    pub fn row_over(&mut self, index: usize, taken: impl Fn(Ticket) -> bool) {
        self.proxies[index].row.retain(|ticket| taken(*ticket));
    }

    /// What was to be told with a turn that the instance had ahead, and so has not heard, is told with the next one.
    pub fn tell_later(&mut self, index: usize, closed: Vec<Ticket>) {
        self.proxies[index].closed.extend(closed);
    }

    /// Whether a message of the agent would be kept back behind what a proxy holds in its session, and get to no proxy's inbox.
    pub fn would_wait(&self, message: &Incoming) -> bool {
        let Incoming::Notification { method, params } = message else {
            return false;
        };
        // Without anything to do nothing is held that is done with soon.
        if self.ready.is_empty() {
            return false;
        }
        let lane = self.lane_of(method, params.as_ref());
        for proxy in self.proxies.iter().rev() {
            if proxy.lanes[Direction::Up.index()].session_blocks(&lane) {
                return true;
            }
            if proxy.interests.of(Direction::Up, method).is_some() {
                return false;
            }
        }
        false
    }

    /// The next turn is this proxy's, if it has one: what was taken ahead is handed over in one go, so that the next proxy gets as much at
    /// once.
    pub fn prefer(&mut self, index: usize) {
        if let Some(at) = self.ready.iter().position(|ready| *ready == index) {
            self.ready.remove(at);
            self.ready.push_front(index);
        }
    }

    /// Whether a turn that was taken ahead may still come.
    pub fn may_come(&self, index: usize, ticket: Ticket) -> bool {
        let proxy = &self.proxies[index];
        proxy.tickets.contains_key(&ticket) || proxy.lanes.iter().any(|lanes| lanes.keeps(ticket))
    }
}

fn ahead(
    source: Peer,
    ticket: Ticket,
    (method, params): (&Arc<str>, &Option<Text>),
    session: Option<Arc<str>>,
) -> Turn {
    Turn {
        source,
        ticket,
        message: Message::notification(method.clone(), params.clone()),
        copy: false,
        closed: Vec::new(),
        replay: false,
        session,
    }
}
