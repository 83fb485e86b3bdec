//! The way from place to place: past proxies that want nothing, to proxies that do, and never past what is held.

use super::parcel::{Body, CallId, Direction, Edge, Lane, Parcel, Position, Requester, Responder};
use super::proxy::Hold;
use super::router::{Gate, Router};
use super::routes::Route;
use super::turns::Placing;
use crate::message::{How, Ticket};
use crate::wire::envelope::error_text;

impl Router {
    /// Moves a message on from a place until somebody has it.
    pub(super) fn travel(&mut self, parcel: Parcel) {
        let from = parcel.from;
        self.travel_past(parcel, from);
    }

    /// The same from behind a place that has seen it.
    pub(super) fn travel_past(&mut self, mut parcel: Parcel, last: Position) {
        let mut place = self.next_place(last, parcel.direction);
        let route = self.routes.of(&parcel, &self.proxies);
        loop {
            match place {
                Position::Proxy(index) if route.is_some_and(|route| self.goes_past(route, &parcel, index)) => {}
                Position::Edge(edge) => {
                    let parcel = self.at_edge(edge, parcel);
                    self.show(&parcel, place);
                    return self.leave(edge, parcel);
                }
                Position::Proxy(index) => match self.visit(index, parcel, Gate::All) {
                    Some(onward) => parcel = onward,
                    None => return,
                },
            }
            place = self.next_place(place, parcel.direction);
        }
    }

    /// Whether a proxy has nothing to do with a message, and nothing that it could wait for.
    fn goes_past(&self, route: Route, parcel: &Parcel, index: usize) -> bool {
        !self.routes.leads_to(route, parcel, index) && self.proxies[index].lanes[parcel.direction.index()].is_free()
    }

    /// Goes on with a message that a proxy kept back.
    pub(super) fn resume(&mut self, index: usize, parcel: Parcel, gate: Gate) {
        if let Some(mut parcel) = self.visit(index, parcel, gate) {
            parcel.ticket = None;
            self.travel_past(parcel, Position::Proxy(index));
        }
    }

    fn next_place(&self, from: Position, direction: Direction) -> Position {
        let next = match (from, direction) {
            (Position::Edge(Edge::Client), Direction::Down) => Some(0),
            (Position::Edge(Edge::Agent), Direction::Up) => self.proxies.len().checked_sub(1),
            (Position::Proxy(index), Direction::Down) => Some(index + 1),
            (Position::Proxy(index), Direction::Up) => index.checked_sub(1),
            (Position::Edge(edge), _) => return Position::Edge(edge),
        };
        match next {
            Some(index) if index < self.proxies.len() => Position::Proxy(index),
            _ => Position::Edge(Edge::at_end_of(direction)),
        }
    }

    /// Shows a message to a proxy; gives it back if it goes past.
    fn visit(&mut self, index: usize, mut parcel: Parcel, gate: Gate) -> Option<Parcel> {
        let place = Position::Proxy(index);
        if let Body::Response { call, .. } = &parcel.body {
            match self.calls.get(call)?.requester {
                Requester::Proxy {
                    index: owner,
                    own: Some(own),
                    behalf,
                } if owner == index => {
                    if gate != Gate::Open && self.response_waits(index, &parcel) {
                        self.keep_back(index, parcel, false);
                        return None;
                    }
                    self.show(&parcel, place);
                    let placing = self.place_response(index, behalf, &parcel, gate);
                    self.deliver_response(index, own, parcel, placing);
                    return None;
                }
                // Nobody waits for it any more.
                Requester::Nobody => {
                    self.calls.remove(call);
                    return None;
                }
                _ => {}
            }
        }
        parcel = self.pass_gate(index, parcel, gate)?;
        if let Body::Response { call, .. } = parcel.body {
            let passed = match self.calls.get(&call)?.requester {
                Requester::Proxy {
                    index: owner,
                    own: None,
                    behalf,
                } if owner == index => Some(behalf),
                _ => None,
            };
            if let Some(behalf) = passed {
                self.show(&parcel, place);
                parcel = self.end_leg(index, call, behalf, parcel)?;
                parcel.from = place;
            }
            if let (Body::Response { method, outcome, .. }, Direction::Up) = (&parcel.body, parcel.direction)
                && &**method == "initialize"
            {
                self.remember_downstream(index, outcome);
            }
            self.copy_response(index, &parcel);
            return Some(parcel);
        }
        match self.wants(index, &parcel) {
            Some(How::Intercept) => {
                self.show(&parcel, place);
                match self.proxies[index].is_shut() {
                    true => self.shut_out(index, parcel),
                    false => self.deliver(index, parcel),
                }
                None
            }
            Some(How::Observe) if self.proxies[index].is_shut() => Some(parcel),
            Some(How::Observe) => {
                self.copy(index, &parcel);
                Some(parcel)
            }
            None => Some(parcel),
        }
    }

    /// Keeps a message back if the proxy holds something before it.
    fn pass_gate(&mut self, index: usize, parcel: Parcel, gate: Gate) -> Option<Parcel> {
        let lanes = &mut self.proxies[index].lanes[parcel.direction.index()];
        let behind_everything = gate == Gate::All && lanes.everything_blocks();
        let blocked = behind_everything || (gate != Gate::Open && lanes.session_blocks(&parcel.lane));
        if !blocked || self.passes_by(index, &parcel, behind_everything) {
            return Some(parcel);
        }
        if let Body::Request { call, .. } = parcel.body
            && let Some(record) = self.calls.get_mut(&call)
        {
            record.responder = Responder::KeptBack(index);
        }
        self.announce_cancel(index, &parcel);
        self.keep_back(index, parcel, behind_everything);
        None
    }

    /// Puts a message behind what is in front of it. What is kept back has a bound.
    fn keep_back(&mut self, index: usize, parcel: Parcel, behind_everything: bool) {
        let (direction, lane) = (parcel.direction, parcel.lane.clone());
        let lanes = &mut self.proxies[index].lanes[direction.index()];
        lanes.keep(parcel, behind_everything);
        if lanes.is_full() {
            self.end_holding(index, direction, &lane);
        }
    }

    /// Whether an answer for the agent passes what is held. It does unless all that is in front of it will have its turn soon
    /// whatever happens: the agent may need the answer before it does what a proxy waits for.
    fn passes_by(&self, index: usize, parcel: &Parcel, behind_everything: bool) -> bool {
        let response = matches!(parcel.body, Body::Response { .. });
        let proxy = &self.proxies[index];
        response
            && parcel.direction == Direction::Down
            && (behind_everything || proxy.is_busy() || proxy.holds_back(Direction::Down, &parcel.lane))
    }

    /// Keeps the place of the answer to come if a response goes past messages that its proxy holds up.
    fn place_response(&mut self, index: usize, behalf: Option<CallId>, parcel: &Parcel, gate: Gate) -> Placing {
        let ticket = self.behalf_ticket(index, behalf);
        let lanes = &mut self.proxies[index].lanes[parcel.direction.index()];
        let behind = gate != Gate::Open && parcel.direction == Direction::Up && lanes.session_blocks(&parcel.lane);
        let (true, Lane::Session(session)) = (behind, &parcel.lane) else {
            return Placing::Front;
        };
        if let Some(ticket) = ticket {
            lanes.keep_place(session, ticket);
        }
        Placing::Kept
    }

    /// Too much waits behind what a proxy holds: what it holds is taken from it. A request gets an error, a notification goes
    /// on.
    fn end_holding(&mut self, index: usize, direction: Direction, lane: &Lane) {
        let name = self.proxies[index].name.clone();
        let reason = format!("proxy `{name}` held a message for so long that too much waited behind it");
        let holds = |hold: &Hold| hold.turned && hold.direction == direction && hold.lane == *lane;
        let mut held: Vec<Ticket> = self.proxies[index]
            .tickets
            .iter()
            .filter(|(_, owned)| owned.holds.iter().any(holds))
            .map(|(ticket, _)| *ticket)
            .collect();
        held.sort_unstable();
        if !held.is_empty() {
            tracing::error!("{reason}");
        }
        let error = error_text(-32603, &reason, None);
        for ticket in held {
            self.give_up_ticket(index, ticket, &error);
            self.proxies[index].closed.push(ticket);
        }
    }
}
