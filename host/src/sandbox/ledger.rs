//! What a proxy owns, and what it has sent in the turn at hand. Everything that it sends is checked here at once: against what it
//! owns, against its limits, and against what it was granted.

mod instead;
mod size;

use super::bindings::consort::proxy::channel::Refusal;
use super::record::Record;
use crate::grants::{Checked, Policy, Right, originated, passed_on, unknown_session};
use crate::hash::Map;
use crate::limits::{Limit, Limits};
use crate::message::{
    Change, Denial, Message, Notification, Outcome, Peer, Receipt, Request, RequestId, Response, Sent, Ticket, Turn,
    cancelled_number,
};
use crate::wire::scan;
use crate::wire::text::Text;
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of a method's name that are kept for the audit, which cuts it anyway.
const MAX_NAME: usize = 1024;

pub(super) use size::Flood;

type Verdict = Result<(), Refusal>;

/// Answers up to this size are searched for the session that they bring into being; those are short.
const MAX_BIRTH: usize = 64 * 1024;

/// Bytes of the method of a message of the proxy's own. It stands in denials, logs and the audit.
const MAX_METHOD: usize = 1_000;

/// What the proxy owns, and what it has sent in this turn.
#[derive(Debug)]
pub(super) struct Ledger {
    limits: Limits,
    policy: Arc<Policy>,
    record: Arc<Record>,
    tickets: Map<Ticket, Holding>,
    /// Its own requests, each with the ticket that it carries on.
    requests: HashMap<RequestId, Option<Ticket>>,
    sent: Vec<Sent>,
    bytes: usize,
    /// How often it sent in this turn, or tried to.
    tries: usize,
    /// Messages of its own making in this turn.
    originated: u64,
    originated_bytes: u64,
    /// The session that it was shown last.
    session: Option<Arc<str>>,
    open: bool,
    replay: bool,
}

/// A delivered message that the proxy has not done with.
#[derive(Clone, Debug)]
struct Holding {
    source: Peer,
    request: bool,
    method: Arc<str>,
    /// As it came.
    params: Option<Text>,
    /// Sent on without an id: it may still be answered, but not sent on again.
    passed: bool,
    /// Sent on, with or without an id.
    carried: bool,
    /// Whoever asked has given it up: an error may answer it then.
    given_up: bool,
    /// What came back for it.
    answer: Option<Outcome>,
    /// The proxy wanted to answer it and must not: the host does so with what comes back.
    denied: bool,
}

impl Ledger {
    /// Of a proxy that owns nothing yet.
    pub(super) fn new(limits: Limits, policy: Arc<Policy>, record: Arc<Record>) -> Self {
        Self {
            limits,
            policy,
            record,
            tickets: Map::default(),
            requests: HashMap::default(),
            sent: Vec::new(),
            bytes: 0,
            tries: 0,
            originated: 0,
            originated_bytes: 0,
            session: None,
            open: false,
            replay: false,
        }
    }

    /// The limits that it keeps.
    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Opens a turn: the delivered message becomes the proxy's.
    pub(super) fn begin(&mut self, turn: &Turn) {
        for ticket in &turn.closed {
            self.tickets.remove(ticket);
        }
        self.open = true;
        self.replay = turn.replay;
        self.bytes = 0;
        self.tries = 0;
        self.originated = 0;
        self.originated_bytes = 0;
        self.shown(turn);
        let (request, method, params) = match &turn.message {
            Message::Response(response) if turn.copy => return self.shown_birth(&response.outcome),
            Message::Response(response) => return self.response_comes(response),
            Message::Request(request) => (true, &request.method, &request.params),
            Message::Notification(notification) => (false, &notification.method, &notification.params),
        };
        if turn.copy && &**method == "$/cancel_request" {
            let ticket = params.as_ref().and_then(cancelled_number);
            if let Some(holding) = ticket.and_then(|ticket| self.tickets.get_mut(&ticket)) {
                holding.given_up = true;
            }
        }
        if !turn.copy {
            let holding = Holding {
                source: turn.source,
                request,
                method: method.clone(),
                params: params.clone(),
                passed: false,
                carried: false,
                given_up: false,
                answer: None,
                denied: false,
            };
            self.tickets.insert(turn.ticket, holding);
        }
    }

    /// The session of a delivered message is one that the proxy was shown.
    fn shown(&mut self, turn: &Turn) {
        let known = |session: &Arc<str>| self.session.as_ref().is_some_and(|last| Arc::ptr_eq(last, session));
        match &turn.session {
            Some(session) if known(session) => {}
            Some(session) => {
                self.record.show(session);
                self.session = Some(session.clone());
            }
            None if turn.copy => {
                let params = match &turn.message {
                    Message::Request(request) => request.params.as_ref(),
                    Message::Notification(notification) => notification.params.as_ref(),
                    Message::Response(_) => None,
                };
                if let Some(session) = params.and_then(|params| scan::string_member(params, "sessionId")) {
                    self.record.show(&session.into());
                }
            }
            None => {}
        }
    }

    fn shown_birth(&self, outcome: &Outcome) {
        if let Ok(result) = outcome
            && result.len() <= MAX_BIRTH
            && let Some(session) = scan::string_member(result, "sessionId")
        {
            self.record.show(&session.into());
        }
    }

    fn response_comes(&mut self, response: &Response) {
        self.shown_birth(&response.outcome);
        let Some(Some(ticket)) = self.requests.remove(&response.id) else {
            return;
        };
        let Some(holding) = self.tickets.get_mut(&ticket) else {
            return;
        };
        let outcome = response.outcome.clone();
        if !holding.denied {
            holding.answer = Some(outcome);
        } else if let Some(holding) = self.tickets.remove(&ticket) {
            let answer = Message::Response(Response { id: ticket, outcome });
            self.sent.push(Sent::Message(holding.source, answer));
        }
    }

    /// Ends a turn and hands over what was sent, and which limit the proxy has not kept to, if so.
    pub(super) fn end(&mut self, turn: &Turn, receipt: Receipt) -> (Vec<Sent>, Result<(), Limit>) {
        self.open = false;
        if receipt == Receipt::Done {
            self.drop_notification(turn.ticket);
        }
        let within = match self.originated {
            0 => Ok(()),
            messages => self.record.originate(messages, self.originated_bytes),
        };
        (std::mem::take(&mut self.sent), within)
    }

    /// Lets go of a kept notification.
    pub(super) fn release(&mut self, ticket: Ticket) {
        if self.drop_notification(ticket) {
            self.sent.push(Sent::Release(ticket));
        }
    }

    /// Takes a message. `origin` is the delivery that its text came with, if nothing was changed on its outermost level.
    pub(super) fn send(&mut self, to: Peer, message: Message, origin: Option<Ticket>) -> Verdict {
        // What is refused counts as well: it costs as much, and is told of.
        self.tries += 1;
        if !self.open {
            return Err(Refusal::Closed);
        }
        let size = self.fits(to, &message)?;
        if self.replay && !self.fits_replay(to, &message) {
            return Err(Refusal::Closed);
        }
        match message {
            Message::Request(request) => self.request(to, request, origin),
            Message::Notification(notification) => self.notification(to, notification, origin),
            Message::Response(response) => self.response(to, response),
        }?;
        self.bytes += size;
        Ok(())
    }

    /// While `initialize` is replayed after a rebuild only it goes on, and log lines.
    fn fits_replay(&self, to: Peer, message: &Message) -> bool {
        match message {
            Message::Request(request) => request.on_behalf_of.is_some() && &*request.method == "initialize",
            Message::Response(_) => true,
            Message::Notification(notification) => to == Peer::Host && &*notification.method == "host/log",
        }
    }

    fn request(&mut self, to: Peer, mut request: Request, origin: Option<Ticket>) -> Verdict {
        if request.id.is_some_and(|id| self.requests.contains_key(&id)) {
            return Err(Refusal::UnknownId);
        }
        if self.requests.len() >= self.limits.count(Limit::Requests) {
            return Err(Refusal::Flooded);
        }
        let behalf = self.behalf(request.on_behalf_of)?;
        let onward = behalf.is_some_and(|holding| Some(to) == holding.source.opposite());
        let straight = request.id.is_none();
        if straight && !behalf.is_some_and(|holding| holding.request && onward && !holding.passed) {
            return Err(Refusal::UnknownId);
        }
        // Sent a second time, it is a message of the proxy's own.
        let carries = behalf
            .is_some_and(|holding| onward && holding.request && !holding.carried && holding.method == request.method);
        if let Some(ticket) = request.on_behalf_of.filter(|_| onward && !carries) {
            self.ends_otherwise(ticket, straight, to)?;
        }
        match request.on_behalf_of {
            Some(ticket) if carries => {
                if let Err(reason) = self.pass_on(ticket, &mut request.params, origin) {
                    self.pass_original(ticket, to);
                    return Err(Refusal::Denied(reason));
                }
            }
            _ => self.originate(to, &request.method, request.params.as_ref())?,
        }
        if let Some(ticket) = request.on_behalf_of.filter(|_| onward)
            && let Some(holding) = self.tickets.get_mut(&ticket)
        {
            holding.carried |= carries;
            holding.passed |= straight;
            if !holding.request {
                self.tickets.remove(&ticket);
            }
        }
        if let Some(id) = request.id {
            self.requests.insert(id, request.on_behalf_of.filter(|_| carries));
        }
        self.sent.push(Sent::Message(to, Message::Request(request)));
        Ok(())
    }

    fn notification(&mut self, to: Peer, mut notification: Notification, origin: Option<Ticket>) -> Verdict {
        let behalf = self.behalf(notification.on_behalf_of)?;
        let onward = behalf.is_some_and(|holding| !holding.request && Some(to) == holding.source.opposite());
        let carries = onward && behalf.is_some_and(|holding| holding.method == notification.method);
        if let Some(ticket) = notification.on_behalf_of.filter(|_| onward && !carries) {
            self.ends_otherwise(ticket, false, to)?;
        }
        match notification.on_behalf_of {
            Some(ticket) if carries => {
                if let Err(reason) = self.pass_on(ticket, &mut notification.params, origin) {
                    self.pass_original(ticket, to);
                    return Err(Refusal::Denied(reason));
                }
            }
            // Gives up a request of the proxy's own, whatever it names.
            _ if &*notification.method == "$/cancel_request" => {}
            _ => self.originate(to, &notification.method, notification.params.as_ref())?,
        }
        if let Some(ticket) = notification.on_behalf_of.filter(|_| onward) {
            self.tickets.remove(&ticket);
        }
        self.sent.push(Sent::Message(to, Message::Notification(notification)));
        Ok(())
    }

    fn response(&mut self, to: Peer, response: Response) -> Verdict {
        let ticket = response.id;
        let holding = self.tickets.get(&ticket).ok_or(Refusal::UnknownId)?;
        if !holding.request || holding.source != to {
            return Err(Refusal::UnknownId);
        }
        if let Err(reason) = self.answer(ticket, &response.outcome) {
            self.answer_otherwise(ticket, to);
            return Err(Refusal::Denied(reason));
        }
        self.tickets.remove(&ticket);
        self.sent.push(Sent::Message(to, Message::Response(response)));
        Ok(())
    }

    /// What a message is sent on behalf of.
    fn behalf(&self, ticket: Option<Ticket>) -> Result<Option<&Holding>, Refusal> {
        ticket
            .map(|ticket| self.tickets.get(&ticket).ok_or(Refusal::UnknownId))
            .transpose()
    }

    /// A delivered message goes on, with these params if that may be.
    fn pass_on(&self, ticket: Ticket, params: &mut Option<Text>, origin: Option<Ticket>) -> Result<(), String> {
        let Some(holding) = self.tickets.get(&ticket) else {
            return Ok(());
        };
        if same(holding.params.as_ref(), params.as_ref()) {
            return Ok(());
        }
        let (source, method) = (holding.source, &holding.method);
        let original = holding.params.as_ref();
        let same_members = origin == Some(ticket);
        match passed_on(
            &self.policy,
            &self.record.servers,
            source,
            method,
            original,
            params.as_ref(),
            same_members,
        ) {
            Checked::Fine => {}
            Checked::As(text, cut) => {
                if let Some(cut) = cut {
                    self.deny(source, method, cut.to_owned());
                }
                *params = Some(text);
                if same(original, params.as_ref()) {
                    return Ok(());
                }
            }
            Checked::Denied(reason) => {
                self.deny(source, method, reason.clone());
                return Err(reason);
            }
        }
        let change = || Change {
            source,
            method: method.clone(),
            before: holding.params.clone(),
            after: params.clone(),
        };
        self.record.change(change, source, method);
        Ok(())
    }

    /// A delivered request is answered, if that may be.
    fn answer(&self, ticket: Ticket, outcome: &Outcome) -> Result<(), String> {
        let Some(holding) = self.tickets.get(&ticket) else {
            return Ok(());
        };
        let (source, method) = (holding.source, &holding.method);
        let before = holding.answer.as_ref();
        let unchanged = same_outcome(before, outcome);
        if unchanged || (holding.given_up && outcome.is_err()) {
            return Ok(());
        }
        if !self.policy.may(Right::Answer, source, method) {
            let missing = self.policy.missing(Right::Answer, source, method);
            let reason = format!("answering `{}` needs {missing}", crate::log::named(method));
            self.deny(source, method, reason.clone());
            return Err(reason);
        }
        let (Ok(after) | Err(after)) = outcome;
        let change = || Change {
            source,
            method: method.clone(),
            before: before.map(|(Ok(before) | Err(before))| before.clone()),
            after: Some(after.clone()),
        };
        self.record.change(change, source, method);
        Ok(())
    }

    /// A message of the proxy's own making.
    fn originate(&mut self, to: Peer, method: &Arc<str>, params: Option<&Text>) -> Verdict {
        if method.len() > MAX_METHOD {
            return Err(Refusal::TooLarge);
        }
        let checked = match to {
            Peer::Host => self.ask_host(method, params),
            _ => originated(&self.policy, &self.record.servers, to, method, params, |session| {
                self.record.knows(session)
            }),
        };
        match checked {
            Ok(()) => {
                self.originated += 1;
                let bytes = method.len() + params.map_or(0, Text::len);
                self.originated_bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
                Ok(())
            }
            Err(reason) => {
                self.deny(to, method, reason.clone());
                Err(Refusal::Denied(reason))
            }
        }
    }

    /// A message to the host. What does no harm needs no grant, and an unknown method is told as such by the host.
    fn ask_host(&self, method: &str, params: Option<&Text>) -> Result<(), String> {
        if let "host/file/read" | "host/file/list" = method {
            let member = |key| params.and_then(|params| scan::string_member(params, key));
            // Without one of these the host reads nothing.
            if method == "host/file/read"
                && let Some(path) = member("path").filter(|path| !self.policy.may_read(path))
            {
                let path = crate::log::named(&path);
                return Err(format!("reading `{path}` needs the grant `file:{path}`"));
            }
            if method == "host/file/list" {
                let path = member("path").unwrap_or_default();
                if !self.policy.may_list_below(&path) {
                    let path = crate::log::named(&path);
                    return Err(format!(
                        "listing `{path}` needs a grant for files in it, such as `file:{path}/**`"
                    ));
                }
            }
            let known = |session: &str| self.policy.may_name_any_session() || self.record.knows(session);
            return match member("sessionId").filter(|session| !known(session)) {
                Some(session) => Err(unknown_session(&session)),
                None => Ok(()),
            };
        }
        match method.starts_with("host/state/") {
            true => originated(&self.policy, &self.record.servers, Peer::Host, method, params, |_| true),
            false => Ok(()),
        }
    }

    fn deny(&self, peer: Peer, method: &Arc<str>, reason: String) {
        let method = match method.len() {
            0..=MAX_NAME => method.clone(),
            _ => method[..method.floor_char_boundary(MAX_NAME)].into(),
        };
        self.record.deny(Denial { peer, method, reason });
    }
}

fn same(one: Option<&Text>, two: Option<&Text>) -> bool {
    match (one, two) {
        (Some(one), Some(two)) => one.is(two),
        (None, None) => true,
        _ => false,
    }
}

/// Whether an answer is the one that came.
fn same_outcome(came: Option<&Outcome>, now: &Outcome) -> bool {
    match (came, now) {
        (Some(Ok(came)), Ok(now)) | (Some(Err(came)), Err(now)) => came.is(now),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
