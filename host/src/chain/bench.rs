//! What the chain's tests share: a scripted client and agent at the ends, scripted proxies in between, no WebAssembly.

use super::Role;
use super::{Effect, ProxySetup, Router};
use crate::fault::{Class, Fault, Phase};
use crate::log::ProxyLog;
use crate::message::{
    How, Interest, Message, Notification, OnFailure, Outcome, Peer, Receipt, Registration, Request, Response, Sent,
    Ticket, Turn, TurnResult,
};
use crate::wire::envelope::{self, Incoming};
use crate::wire::output::Output;
use crate::wire::text::Text;
use bytes::Bytes;
use serde_json::{Value, json};
use std::time::Duration;

/// How long a proxy of the tests may hold a message.
pub(super) const HOLD_TIME: Duration = Duration::from_secs(60);

/// A chain whose turns the test takes by hand.
pub(super) struct Bench {
    pub(super) router: Router,
}

pub(super) fn everything() -> Vec<Interest> {
    [Peer::Client, Peer::Agent]
        .map(|source| Interest {
            source,
            method: "*".into(),
            how: How::Intercept,
        })
        .to_vec()
}

/// What a proxy says that says nothing about versions.
pub(super) fn registered(interests: Vec<Interest>) -> Registration {
    Registration {
        interests,
        protocol_version: None,
        missing: Vec::new(),
    }
}

pub(super) fn incoming(value: &Value) -> Incoming {
    envelope::parse(&Bytes::from(value.to_string())).expect("the test's own message is valid")
}

pub(super) fn take(output: &mut Output) -> Vec<Value> {
    let text = String::from_utf8(output.take()).expect("lines are UTF-8");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("lines are JSON"))
        .collect()
}

impl Bench {
    /// A chain with these interests a proxy, past `initialize`.
    pub(super) fn new(interests: Vec<Vec<Interest>>) -> Self {
        let setups = interests.into_iter().enumerate().map(|(index, interests)| {
            let name: std::sync::Arc<str> = format!("p{index}").into();
            ProxySetup {
                log: ProxyLog::new(name.clone(), 65_536),
                name,
                registration: registered(interests),
                on_failure: OnFailure::Bypass,
                hold_time: HOLD_TIME,
                servers: None,
                state: 1 << 20,
            }
        });
        let mut bench = Self {
            router: Router::new(Role::Agent, setups.collect(), None),
        };
        bench.client(json!({"id": 0, "method": "initialize", "params": {"protocolVersion": 1}}));
        assert!(matches!(bench.effect(), Some(Effect::StartAgent)));
        bench.router.agent_started(Ok(()));
        bench.pass_all();
        let ids: Vec<Value> = bench.at_agent().iter().map(|line| line["id"].clone()).collect();
        bench.agent(json!({"id": ids[0], "result": {"protocolVersion": 1}}));
        bench.pass_all();
        assert_eq!(bench.at_client().len(), 1);
        assert!(matches!(bench.effect(), Some(Effect::InitializeSent)));
        bench
    }

    /// The next effect, apart from times that nothing may come of.
    pub(super) fn effect(&mut self) -> Option<Effect> {
        loop {
            match self.router.next_effect() {
                Some(Effect::Timer(_)) => {}
                other => return other,
            }
        }
    }

    pub(super) fn client(&mut self, value: Value) {
        self.router.from_client(incoming(&value));
    }

    pub(super) fn agent(&mut self, value: Value) {
        self.router.from_agent(incoming(&value));
    }

    pub(super) fn at_client(&mut self) -> Vec<Value> {
        take(self.router.client_output())
    }

    pub(super) fn at_agent(&mut self) -> Vec<Value> {
        take(self.router.agent_output())
    }

    pub(super) fn turn(&mut self) -> (usize, Turn) {
        self.router.next_turn().expect("a proxy has something to do")
    }

    pub(super) fn done(&mut self, index: usize, sent: Vec<Sent>) {
        let receipt = Receipt::Done;
        self.router.finish_turn(index, Ok(TurnResult { receipt, sent }));
    }

    pub(super) fn kept(&mut self, index: usize, sent: Vec<Sent>) {
        let receipt = Receipt::Kept;
        self.router.finish_turn(index, Ok(TurnResult { receipt, sent }));
    }

    pub(super) fn trap(&mut self, index: usize) {
        self.router
            .finish_turn(index, Err(Fault::new(Class::Trap, Phase::Receive, "unreachable")));
    }

    /// Lets every proxy pass on what it gets until nothing is left to do.
    pub(super) fn pass_all(&mut self) {
        while let Some((index, turn)) = self.router.next_turn() {
            let sent = pass(&turn);
            self.done(index, sent);
        }
    }
}

pub(super) fn onward(source: Peer) -> Peer {
    if source == Peer::Client {
        Peer::Agent
    } else {
        Peer::Client
    }
}

/// What a proxy sends to pass a message on.
pub(super) fn pass(turn: &Turn) -> Vec<Sent> {
    if turn.copy {
        return Vec::new();
    }
    let message = match &turn.message {
        Message::Request(request) => Message::Request(Request {
            on_behalf_of: Some(turn.ticket),
            ..request.clone()
        }),
        Message::Notification(notification) => Message::Notification(Notification {
            on_behalf_of: Some(turn.ticket),
            ..notification.clone()
        }),
        Message::Response(_) => return Vec::new(),
    };
    vec![Sent::Message(onward(turn.source), message)]
}

pub(super) fn request(to: Peer, id: Option<u64>, behalf: Option<Ticket>, method: &str, params: Value) -> Sent {
    Sent::Message(
        to,
        Message::Request(Request {
            id,
            on_behalf_of: behalf,
            method: method.into(),
            params: Some(Text::of(&params)),
        }),
    )
}

pub(super) fn notify(to: Peer, behalf: Option<Ticket>, method: &str, params: Value) -> Sent {
    Sent::Message(
        to,
        Message::Notification(Notification {
            on_behalf_of: behalf,
            method: method.into(),
            params: Some(Text::of(&params)),
        }),
    )
}

pub(super) fn answer(to: Peer, ticket: Ticket, outcome: Outcome) -> Sent {
    Sent::Message(to, Message::Response(Response { id: ticket, outcome }))
}

pub(super) fn ok(value: Value) -> Outcome {
    Ok(Text::of(&value))
}

pub(super) fn method(turn: &Turn) -> String {
    match &turn.message {
        Message::Request(request) => request.method.to_string(),
        Message::Notification(notification) => notification.method.to_string(),
        Message::Response(response) => format!("response {}", response.id),
    }
}

pub(super) fn chunk(session: &str, number: u64) -> Value {
    json!({"method": "session/update", "params": {"sessionId": session, "n": number}})
}

pub(super) fn prompt(id: u64, session: &str) -> Value {
    json!({"id": id, "method": "session/prompt", "params": {"sessionId": session}})
}

/// Sends a prompt through passing proxies and returns the id at the agent.
pub(super) fn prompt_at_agent(bench: &mut Bench, id: u64, session: &str) -> Value {
    bench.client(prompt(id, session));
    bench.pass_all();
    bench.at_agent().pop().expect("the prompt arrives")["id"].clone()
}
