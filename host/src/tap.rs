//! A window on the traffic: every message on every hop, for the demo and for traces. Must not know how it is shown.

use crate::wire::text::Text;
use std::sync::Arc;

/// A place in the chain, from the client's side to the agent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The editor, or whoever talks to Consort.
    Client,
    /// The proxy with this index; 0 is the one next to the client.
    Proxy(usize),
    /// The agent process, or what a conductor above has behind this chain.
    Agent,
    /// Consort itself: services for proxies, and answers of its own.
    Host,
}

/// What kind of message went over a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request.
    Request,
    /// A notification.
    Notification,
    /// A response with a result.
    Result,
    /// A response with an error.
    Error,
}

/// One message on one hop. Proxies that were skipped do not show.
#[derive(Clone, Debug)]
pub struct Hop<'a> {
    /// Who sent the message: for a message that was passed on, the proxy that passed it on.
    pub from: Place,
    /// Who gets it next.
    pub to: Place,
    /// What it is.
    pub kind: Kind,
    /// Its method; of a response, the method of the request, if that is known.
    pub method: &'a str,
    /// The JSON text of the request's id on this hop; none of a notification. A response has that of its request.
    pub id: Option<&'a str>,
    /// The text of `params`, `result` or `error`, if there is one.
    pub text: Option<&'a Text>,
}

/// Something that watches the traffic. Called on the connection's task: it must be quick and must not wait.
pub trait Tap: Send + Sync {
    /// A message goes over a hop.
    fn hop(&self, hop: &Hop<'_>);
}

/// A tap that may be absent.
pub type OptionalTap = Option<Arc<dyn Tap>>;
