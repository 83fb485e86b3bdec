//! What the chain knows of one proxy.

use super::interest::Interests;
use super::lanes::Lanes;
use super::parcel::{CallId, Direction, Lane, RECORD};
use super::restarts::Restarts;
use super::router::{ProxySetup, SERVER};
use crate::grants::OwnServers;
use crate::hash::Map;
use crate::log::ProxyLog;
use crate::message::{Message, OnFailure, Outcome, Peer, Registration, RequestId, Ticket};
use crate::wire::text::Text;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Copies that wait for an observer; more are dropped and counted.
const MAX_COPIES: usize = 256;

/// Requests of a proxy without an answer from which on it gets answers only. Well below what the sandbox allows, since one
/// turn may send a thousand.
const MAX_OPEN: usize = 12_000;

/// Bytes that may wait for a proxy which has reached that: everybody goes on being read meanwhile, since only that brings the
/// answers.
const MAX_BUSY_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of the host's answers that a proxy may have coming and waiting, and how many of those that may be large. One above it is
/// let in alone.
const MAX_HOST_BYTES: u64 = 32 * 1024 * 1024;
const MAX_RESERVED: usize = 64;

/// Bytes of copies that wait for an observer. One above it is let in alone.
const MAX_COPY_BYTES: usize = 4 * 1024 * 1024;

/// Whether a proxy can take a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It can.
    Ready,
    /// Its instance is being made again; its messages wait.
    Restarting,
    /// It is being shown `initialize` again; its messages wait.
    Replaying,
    /// It failed too often and rests: everything goes past it, or nothing.
    Off,
}

/// One proxy of the chain.
pub(super) struct ProxyState {
    pub(super) name: Arc<str>,
    pub(super) log: ProxyLog,
    pub(super) interests: Interests,
    /// The latest version of ACP that it understands.
    pub(super) version: u64,
    pub(super) on_failure: OnFailure,
    /// The MCP servers that concern it; none if all do.
    pub(super) servers: Option<Arc<OwnServers>>,
    /// How long it may keep a message while nobody owes it an answer.
    pub(super) hold_time: Duration,
    /// When the log heard of a message that it had kept for too long.
    pub(super) held_told: Option<Instant>,
    /// When the user was told of a fault of it.
    pub(super) noticed: Option<Instant>,
    /// Messages that were dropped or refused because the proxy had failed, and lets nothing past it then.
    pub(super) shut_out: u64,
    pub(super) status: Status,
    pub(super) inbox: VecDeque<Inbound>,
    inbox_bytes: usize,
    /// Of these, bytes of the host's answers.
    host_bytes: usize,
    /// Bytes of answers that the host still owes, by operation.
    reserved: Map<u64, u64>,
    /// The most bytes of an answer about its saved state.
    pub(super) state: u64,
    /// Turns that it has had.
    pub(super) turns: u64,
    /// Since when too much waits for it, and how many turns it had had then.
    pub(super) backlog: Option<(Instant, u64)>,
    copies: VecDeque<Inbound>,
    copy_bytes: usize,
    lost: u64,
    /// The message of the turn that runs now.
    pub(super) running: Option<Inbound>,
    /// Messages whose turns its instance has had already, or has now, in that order: what else waits comes after them, so that the
    /// chain hears of everything in the order in which the instance did it.
    pub(super) row: VecDeque<Ticket>,
    /// Whether it is in the queue of proxies that have something to do.
    pub(super) queued: bool,
    pub(super) tickets: Map<Ticket, Owned>,
    pub(super) requests: HashMap<RequestId, Target>,
    pub(super) lanes: [Lanes; 2],
    /// Tickets that ended since its last turn.
    pub(super) closed: Vec<Ticket>,
    pub(super) restarts: Restarts,
    /// A new instance is being made.
    pub(super) starting: bool,
    pub(super) handshake: Handshake,
    /// Until when a new instance must have taken `initialize` again.
    pub(super) replay_until: Option<Instant>,
    /// The instance has not seen `initialize`, since its answer was not there yet when it was made.
    pub(super) unseen: bool,
}

/// What is remembered of `initialize`, to show it again to a new instance.
#[derive(Clone, Debug, Default)]
pub(super) struct Handshake {
    /// The `params` that the proxy got.
    pub(super) params: Option<Text>,
    /// What came back from behind it.
    pub(super) downstream: Option<Text>,
    /// What it answered itself.
    pub(super) answer: Option<Text>,
}

/// Where a proxy's own request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Into the chain.
    Call(CallId),
    /// To the host, as the operation with this number.
    Host(u64),
}

/// A delivered message that a proxy owns, and what it holds up.
#[derive(Debug)]
pub(super) struct Owned {
    pub(super) direction: Direction,
    pub(super) what: OwnedWhat,
    pub(super) holds: Vec<Hold>,
    /// How long the proxy could have done something about it, as far as anybody has looked.
    pub(super) idle: Duration,
    /// When that was so at the last look.
    pub(super) idle_at: Option<Instant>,
}

/// Something that keeps back what comes behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) direction: Direction,
    pub(super) lane: Lane,
    /// It is not in front of its lane, but keeps a place in it for an answer.
    pub(super) place: bool,
    /// The ticket of the delivery that holds: a request, a notification, or the response to a request of the proxy's own.
    pub(super) origin: Ticket,
    /// The proxy has had its turn with what holds: what comes now waits for the proxy itself, not for its inbox.
    pub(super) turned: bool,
}

/// What a proxy owns.
#[derive(Debug)]
pub(super) enum OwnedWhat {
    /// A request.
    Request(CallId),
    /// A notification, kept so that it can go on if the proxy fails.
    Notification {
        method: Arc<str>,
        params: Option<Text>,
        lane: Lane,
    },
}

/// A message that waits for its turn, or has it.
#[derive(Clone, Debug)]
pub(super) struct Inbound {
    pub(super) source: Peer,
    pub(super) ticket: Ticket,
    pub(super) what: What,
}

/// What is delivered.
#[derive(Clone, Debug)]
pub(super) enum What {
    Request {
        call: CallId,
        method: Arc<str>,
        params: Option<Text>,
    },
    Notification {
        method: Arc<str>,
        params: Option<Text>,
    },
    Response {
        own: RequestId,
        outcome: Outcome,
        /// What the response holds up until its turn is over, if no ticket does.
        hold: Option<Hold>,
        /// The ticket of the request that it belongs to, which holds it otherwise.
        behalf: Option<Ticket>,
    },
    /// Something that gives no rights: a copy, or news.
    Copy(Message),
    /// `initialize` again.
    Replay {
        params: Option<Text>,
    },
}

impl Inbound {
    /// Bytes that it keeps in memory, roughly.
    pub(super) fn size(&self) -> usize {
        let (method, text) = match &self.what {
            What::Request { method, params, .. } | What::Notification { method, params } => {
                (method.len(), params.as_ref())
            }
            What::Response { outcome, .. } => match outcome {
                Ok(text) | Err(text) => (0, Some(text)),
            },
            What::Copy(_) | What::Replay { .. } => (0, None),
        };
        RECORD + method + text.map_or(0, Text::len)
    }
}

impl ProxyState {
    pub(super) fn new(setup: ProxySetup) -> Self {
        Self {
            name: setup.name,
            log: setup.log,
            interests: Interests::new(&setup.registration.interests),
            version: version(&setup.registration),
            on_failure: setup.on_failure,
            hold_time: setup.hold_time,
            held_told: None,
            noticed: None,
            servers: setup.servers,
            shut_out: 0,
            status: Status::Ready,
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            host_bytes: 0,
            reserved: Map::default(),
            state: setup.state,
            turns: 0,
            backlog: None,
            copies: VecDeque::new(),
            copy_bytes: 0,
            lost: 0,
            running: None,
            row: VecDeque::new(),
            queued: false,
            tickets: Map::default(),
            requests: HashMap::default(),
            lanes: Default::default(),
            closed: Vec::new(),
            restarts: Restarts::default(),
            starting: false,
            handshake: Handshake::default(),
            replay_until: None,
            unseen: false,
        }
    }

    /// A new instance says what it wants.
    pub(super) fn register(&mut self, registration: &Registration) {
        self.interests = Interests::new(&registration.interests);
        self.version = version(registration);
    }

    /// Whether it rests, and lets nothing past it meanwhile.
    pub(super) fn is_shut(&self) -> bool {
        self.status == Status::Off && self.on_failure == OnFailure::Closed
    }

    /// Whether it waits for so much that it gets nothing new.
    pub(super) fn is_busy(&self) -> bool {
        self.requests.len() >= MAX_OPEN
    }

    /// Whether it can have a turn now and has something to do.
    pub(super) fn can_run(&self) -> bool {
        self.running.is_none()
            && match self.status {
                Status::Ready if self.is_busy() => !self.row.is_empty() || self.inbox.iter().any(is_answer),
                Status::Ready => !self.inbox.is_empty() || !self.copies.is_empty(),
                Status::Replaying => matches!(
                    self.inbox.front().map(|inbound| &inbound.what),
                    Some(What::Replay { .. } | What::Response { .. })
                ),
                Status::Restarting | Status::Off => false,
            }
    }

    /// Whether more waits for it than may while it takes nothing but answers.
    pub(super) fn is_overfull(&self) -> bool {
        self.is_busy() && self.inbox_bytes > MAX_BUSY_BYTES
    }

    /// What waits for a turn, or has it.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Inbound> {
        self.inbox.iter().chain(&self.running)
    }

    /// Bytes of others' messages that wait in its inbox. What the host owes it has a bound of its own.
    pub(super) fn bytes_of_others(&self) -> usize {
        self.inbox_bytes.saturating_sub(self.host_bytes)
    }

    /// Makes room for an answer of the host of at most so many bytes, if there is any.
    pub(super) fn reserve(&mut self, operation: u64, bytes: u64) -> bool {
        let owed: u64 = self.reserved.values().sum();
        let waits = u64::try_from(self.host_bytes).unwrap_or(u64::MAX);
        let fits = self.reserved.is_empty() && self.host_bytes == 0
            || owed.saturating_add(waits).saturating_add(bytes) <= MAX_HOST_BYTES && self.reserved.len() < MAX_RESERVED;
        if fits {
            self.reserved.insert(operation, bytes);
        }
        fits
    }

    /// The host has answered.
    pub(super) fn unreserve(&mut self, operation: u64) {
        self.reserved.remove(&operation);
    }

    fn count(&mut self, inbound: &Inbound, add: bool) {
        let of_host = if inbound.source == Peer::Host {
            inbound.size()
        } else {
            0
        };
        let size = inbound.size();
        if add {
            self.inbox_bytes += size;
            self.host_bytes += of_host;
        } else {
            self.inbox_bytes = self.inbox_bytes.saturating_sub(size);
            self.host_bytes = self.host_bytes.saturating_sub(of_host);
        }
    }

    pub(super) fn push_back(&mut self, inbound: Inbound) {
        self.count(&inbound, true);
        self.inbox.push_back(inbound);
    }

    pub(super) fn push_front(&mut self, inbound: Inbound) {
        self.count(&inbound, true);
        self.inbox.push_front(inbound);
    }

    pub(super) fn drain_inbox(&mut self) -> Vec<Inbound> {
        self.inbox_bytes = 0;
        self.host_bytes = 0;
        self.inbox.drain(..).collect()
    }

    /// The message of the next turn that was taken ahead.
    fn next_in_row(&mut self) -> Option<Inbound> {
        while let Some(ticket) = self.row.front() {
            if let Some(at) = self.inbox.iter().position(|inbound| inbound.ticket == *ticket) {
                self.row.pop_front();
                return self.inbox.remove(at);
            }
            if self.lanes.iter().any(|lanes| lanes.keeps(*ticket)) {
                // Only behind `initialize`, which must not wait in turn.
                return None;
            }
            self.row.pop_front();
        }
        None
    }

    /// The next message, and whether it comes from the inbox: what it owns first, then copies.
    /// Without what comes from the host if that is to wait.
    pub(super) fn next(&mut self, without_host: bool) -> Option<(Inbound, bool)> {
        let of_others = |inbound: &Inbound| !without_host || inbound.source != Peer::Host;
        let next = if let Some(inbound) = self.next_in_row() {
            Some(inbound)
        } else if self.status == Status::Ready && self.is_busy() {
            let wanted = |inbound: &Inbound| is_answer(inbound) && of_others(inbound);
            let at = self.inbox.iter().position(wanted)?;
            self.inbox.remove(at)
        } else if without_host {
            let at = self.inbox.iter().position(of_others);
            at.and_then(|at| self.inbox.remove(at))
        } else {
            self.inbox.pop_front()
        };
        if let Some(inbound) = next {
            self.count(&inbound, false);
            return Some((inbound, true));
        }
        let copy = self.copies.pop_front()?;
        self.copy_bytes -= copy_size(&copy);
        Some((copy, false))
    }

    /// Queues a copy, or counts it as lost.
    pub(super) fn push_copy(&mut self, copy: Inbound, news: impl FnOnce(u64) -> Inbound) {
        let size = copy_size(&copy);
        let full = self.copies.len() >= MAX_COPIES || self.copy_bytes + size > MAX_COPY_BYTES;
        if full && !self.copies.is_empty() {
            self.lost += 1;
            return;
        }
        if self.lost > 0 {
            let news = news(std::mem::take(&mut self.lost));
            self.copy_bytes += copy_size(&news);
            self.copies.push_back(news);
        }
        self.copy_bytes += size;
        self.copies.push_back(copy);
    }

    /// Whether the proxy itself, and not only its inbox, holds something in this lane.
    pub(super) fn holds_back(&self, direction: Direction, lane: &Lane) -> bool {
        let holds = |hold: &Hold| hold.turned && hold.direction == direction && hold.lane == *lane;
        self.tickets.values().any(|owned| owned.holds.iter().any(holds))
    }

    /// The session of a message that it owns.
    pub(super) fn session_of(&self, ticket: Ticket) -> Option<Arc<str>> {
        match &self.tickets.get(&ticket)?.holds.first()?.lane {
            Lane::Session(session) if !session.starts_with(SERVER) => Some(session.clone()),
            _ => None,
        }
    }

    /// Drops all copies: the instance that wanted them is gone.
    pub(super) fn drop_copies(&mut self) {
        self.copies.clear();
        self.copy_bytes = 0;
        self.lost = 0;
    }
}

/// The version of proxies that say nothing about it.
fn version(registration: &Registration) -> u64 {
    registration.protocol_version.map_or(1, u64::from)
}

/// What a busy proxy still gets: answers, and news such as cancels.
fn is_answer(inbound: &Inbound) -> bool {
    matches!(inbound.what, What::Response { .. } | What::Copy(_))
}

fn copy_size(copy: &Inbound) -> usize {
    match &copy.what {
        What::Copy(message) => message.text().map_or(0, Text::len),
        _ => 0,
    }
}
