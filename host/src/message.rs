//! What goes between the chain and a proxy: messages, turns, and what became of them. Plain data that both sides of the
//! sandbox share; it mirrors `wit/` and knows neither WebAssembly nor routing.

use crate::wire::scan;
use crate::wire::text::Text;
use std::sync::Arc;

/// The host's name for a message that it delivered; never used twice on a connection.
pub type Ticket = u64;

/// A proxy's name for a request of its own.
pub type RequestId = u64;

/// A JSON-RPC `result` or `error`.
pub type Outcome = Result<Text, Text>;

/// Whom a message comes from or goes to, seen from a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// Everything upstream.
    Client,
    /// Everything downstream.
    Agent,
    /// Consort itself.
    Host,
}

impl Peer {
    /// The name in grants, logs and the audit.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Agent => "agent",
            Self::Host => "host",
        }
    }

    /// The other side of the chain; the host has none.
    pub fn opposite(self) -> Option<Self> {
        match self {
            Self::Client => Some(Self::Agent),
            Self::Agent => Some(Self::Client),
            Self::Host => None,
        }
    }

    pub(crate) fn index(self) -> usize {
        match self {
            Self::Client => 0,
            Self::Agent => 1,
            Self::Host => 2,
        }
    }
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The proxy's id for it, if it wants the response.
    pub id: Option<RequestId>,
    /// The delivered message that it carries on.
    pub on_behalf_of: Option<Ticket>,
    /// The method.
    pub method: Arc<str>,
    /// The text of `params`.
    pub params: Option<Text>,
}

/// A notification.
#[derive(Clone, Debug)]
pub struct Notification {
    /// The delivered message that it carries on.
    pub on_behalf_of: Option<Ticket>,
    /// The method.
    pub method: Arc<str>,
    /// The text of `params`.
    pub params: Option<Text>,
}

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// Going out, the ticket that it answers; coming in, the proxy's own id.
    pub id: u64,
    /// The result or error.
    pub outcome: Outcome,
}

/// A message to or from a proxy.
#[derive(Clone, Debug)]
pub enum Message {
    /// A request.
    Request(Request),
    /// A notification.
    Notification(Notification),
    /// A response.
    Response(Response),
}

impl Message {
    /// A notification as a proxy gets it.
    pub fn notification(method: Arc<str>, params: Option<Text>) -> Self {
        Self::Notification(Notification {
            on_behalf_of: None,
            method,
            params,
        })
    }

    /// The JSON text that it carries: params, result or error.
    pub fn text(&self) -> Option<&Text> {
        match self {
            Self::Request(request) => request.params.as_ref(),
            Self::Notification(notification) => notification.params.as_ref(),
            Self::Response(response) => {
                let (Ok(text) | Err(text)) = &response.outcome;
                Some(text)
            }
        }
    }
}

/// Something that a proxy did during a turn, in order.
#[derive(Clone, Debug)]
pub enum Sent {
    /// It sent a message.
    Message(Peer, Message),
    /// It let go of a kept notification.
    Release(Ticket),
}

/// One call of a proxy's `receive`.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Where the message comes from.
    pub source: Peer,
    /// Its ticket.
    pub ticket: Ticket,
    /// The message.
    pub message: Message,
    /// A copy for an observer, which gives no right to answer or to pass on.
    pub copy: bool,
    /// Tickets that ended since the last turn: answered past the proxy, or given up.
    pub closed: Vec<Ticket>,
    /// A replayed `initialize` after a rebuild: nothing else may be sent.
    pub replay: bool,
    /// The session that the message belongs to, where that is known without a look into it.
    pub session: Option<Arc<str>>,
}

/// What `receive` said of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// Nothing more is to come of it.
    Done,
    /// The proxy still works on it.
    Kept,
}

/// What a turn brought.
#[derive(Clone, Debug)]
pub struct TurnResult {
    /// What the proxy said of the message.
    pub receipt: Receipt,
    /// What it sent, in order.
    pub sent: Vec<Sent>,
}

/// Something that a proxy was not allowed to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Whom it is about: where the message would have gone, or where an interest would have had it from.
    pub peer: Peer,
    /// The method.
    pub method: Arc<str>,
    /// What was not allowed and what would have to be granted.
    pub reason: String,
}

/// A message that a proxy sent on other than it came.
#[derive(Clone, Debug)]
pub struct Change {
    /// Where it came from.
    pub source: Peer,
    /// Its method; of a response, that of its request.
    pub method: Arc<str>,
    /// What came.
    pub before: Option<Text>,
    /// What was sent on.
    pub after: Option<Text>,
}

impl Change {
    /// Bytes of both texts.
    pub fn size(&self) -> usize {
        [&self.before, &self.after].into_iter().flatten().map(Text::len).sum()
    }
}

/// Whether a proxy looks on or takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It gets copies.
    Observe,
    /// It owns what matches.
    Intercept,
}

/// What becomes of a proxy's messages when it fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// They go on as if it were not there.
    #[default]
    Bypass,
    /// Nothing goes on that it would have had in its hands: for proxies that protect.
    Closed,
}

impl OnFailure {
    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Bypass, Self::Closed]
            .into_iter()
            .find(|known| known.name() == name)
    }

    /// The name in manifests and configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Closed => "closed",
        }
    }
}

/// What a proxy says of itself when it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    /// What it wants to see.
    pub interests: Vec<Interest>,
    /// The latest version of ACP that it understands, if it says so.
    pub protocol_version: Option<u16>,
    /// What it wants to take part in and is not granted: what would have to be, as parts of sentences.
    pub missing: Vec<String>,
}

/// Which messages a proxy wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Where they come from.
    pub source: Peer,
    /// An exact method, `prefix/*`, or `*`.
    pub method: String,
    /// Looking on or taking part.
    pub how: How,
}

/// The `requestId` of a `$/cancel_request`, if it is a number that Consort or a proxy gave out.
pub(crate) fn cancelled_number(params: &Text) -> Option<u64> {
    let range = scan::find(params, "/requestId")?;
    params.slice(range).decode()
}
