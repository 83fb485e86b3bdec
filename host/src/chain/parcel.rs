//! What moves through the chain, and the record of each request that waits for its answer.

use crate::message::{Outcome, Peer, RequestId, Ticket};
use crate::tap::Kind;
use crate::wire::envelope::Id;
use crate::wire::text::Text;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes that the record of a waiting message takes besides its text, roughly.
pub(super) const RECORD: usize = 128;

/// The name of a request on one hop; also its id on the wire. Never used twice on a connection.
pub(super) type CallId = u64;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Direction {
    /// From the client to the agent.
    Down,
    /// From the agent to the client.
    Up,
}

impl Direction {
    pub(super) fn index(self) -> usize {
        match self {
            Self::Down => 0,
            Self::Up => 1,
        }
    }

    pub(super) fn opposite(self) -> Self {
        match self {
            Self::Down => Self::Up,
            Self::Up => Self::Down,
        }
    }

    /// Where a message that goes this way comes from.
    pub(super) fn source(self) -> Peer {
        match self {
            Self::Down => Peer::Client,
            Self::Up => Peer::Agent,
        }
    }

    /// The way to a peer; none to the host.
    pub(super) fn towards(peer: Peer) -> Option<Self> {
        match peer {
            Peer::Agent => Some(Self::Down),
            Peer::Client => Some(Self::Up),
            Peer::Host => None,
        }
    }
}

/// An end of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// The client's end.
    Client,
    /// The agent's end.
    Agent,
}

impl Edge {
    pub(super) fn index(self) -> usize {
        match self {
            Self::Client => 0,
            Self::Agent => 1,
        }
    }

    /// Who is there.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Agent => "agent",
        }
    }

    /// The way that messages go which come in here.
    pub(super) fn inward(self) -> Direction {
        match self {
            Self::Client => Direction::Down,
            Self::Agent => Direction::Up,
        }
    }

    /// The edge that a direction leads to.
    pub(super) fn at_end_of(direction: Direction) -> Self {
        match direction {
            Direction::Down => Self::Agent,
            Direction::Up => Self::Client,
        }
    }
}

/// A place in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// One of the ends.
    Edge(Edge),
    /// The proxy with this index.
    Proxy(usize),
}

/// In which order a message has to stay: messages of one lane and direction never overtake each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// `initialize`: holds up everything.
    All,
    /// One session, or what goes through one MCP server besides requests.
    Session(Arc<str>),
    /// A lane of its own.
    Own,
}

/// A message on its way.
#[derive(Clone, Debug)]
pub(super) struct Parcel {
    pub(super) direction: Direction,
    pub(super) lane: Lane,
    pub(super) body: Body,
    /// Who sent it, or passed it on last.
    pub(super) from: Position,
    /// The ticket that it will be delivered under, if its turn was taken ahead.
    pub(super) ticket: Option<Ticket>,
}

/// What a parcel carries.
#[derive(Clone, Debug)]
pub(super) enum Body {
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
        call: CallId,
        method: Arc<str>,
        outcome: Outcome,
    },
}

impl Parcel {
    /// A message that somebody sends.
    pub(super) fn new(direction: Direction, lane: Lane, body: Body, from: Position) -> Self {
        Self {
            direction,
            lane,
            body,
            from,
            ticket: None,
        }
    }

    /// Bytes that it keeps in memory, roughly.
    pub(super) fn size(&self) -> usize {
        RECORD + self.method().len() + self.text().map_or(0, Text::len)
    }

    pub(super) fn method(&self) -> &Arc<str> {
        match &self.body {
            Body::Request { method, .. } | Body::Notification { method, .. } | Body::Response { method, .. } => method,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match &self.body {
            Body::Request { .. } => Kind::Request,
            Body::Notification { .. } => Kind::Notification,
            Body::Response { outcome: Ok(_), .. } => Kind::Result,
            Body::Response { outcome: Err(_), .. } => Kind::Error,
        }
    }

    pub(super) fn text(&self) -> Option<&Text> {
        match &self.body {
            Body::Request { params, .. } | Body::Notification { params, .. } => params.as_ref(),
            Body::Response { outcome, .. } => match outcome {
                Ok(text) | Err(text) => Some(text),
            },
        }
    }
}

/// Who asked.
#[derive(Clone, Debug)]
pub(super) enum Requester {
    /// The peer at an end, under its own id.
    Edge(Edge, Id),
    /// A proxy.
    Proxy {
        index: usize,
        /// The proxy's id; none if the answer goes straight to whoever sent `behalf`.
        own: Option<RequestId>,
        /// The request that this one was sent on behalf of.
        behalf: Option<CallId>,
    },
    /// Somebody who is gone: nobody waits for the answer.
    Nobody,
}

/// Who has to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Responder {
    /// It is on its way.
    Nobody,
    /// The peer at an end.
    Edge(Edge),
    /// A proxy that holds it under this ticket.
    Proxy(usize, Ticket),
    /// Nobody yet: it is kept back at this proxy.
    KeptBack(usize),
}

/// A request that waits for its answer, on one hop.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) requester: Requester,
    pub(super) responder: Responder,
    pub(super) direction: Direction,
    pub(super) method: Arc<str>,
    pub(super) lane: Lane,
    /// Requests that were sent on its behalf and may be without an answer.
    pub(super) children: Vec<CallId>,
    /// Observers that get a copy of the answer too.
    pub(super) observers: Vec<(usize, Ticket)>,
    /// The working directory that a session setup names.
    pub(super) directory: Option<Arc<PathBuf>>,
    pub(super) cancelled: bool,
    /// Its answer is on its way; another one does not count.
    pub(super) answered: bool,
}
