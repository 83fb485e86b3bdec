//! The world's two exports, and what is sent.

use crate::script::{Action, Pass, Script, Send};
use crate::surroundings;
use consort_proxy::__bindings::consort::proxy::channel::{
    Message, Notification, Peer, Refusal, Request, Response, send,
};
use consort_proxy::__bindings::consort::proxy::json::{Content, Edit, Value};
use consort_proxy::__bindings::{Guest, How, Interest, Receipt, Registration, Ticket};
use std::cell::{Cell, OnceCell};

thread_local! {
    static SCRIPT: OnceCell<Script> = const { OnceCell::new() };
    /// The ticket of the request that was passed on last, and the id if it has one.
    static PASSED: Cell<(u64, Option<u64>)> = const { Cell::new((0, None)) };
}

struct Component;

impl Guest for Component {
    fn start(config: Value) -> Result<Registration, String> {
        let text = config.read("").unwrap_or_default();
        let script: Script = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        if let Some(complaint) = script.complaint {
            return Err(complaint);
        }
        if let Some(text) = &script.print {
            println!("{text}");
        }
        let interests = script.interests.iter().filter_map(|text| interest(text)).collect();
        SCRIPT
            .with(|kept| kept.set(script))
            .map_err(|_| "started twice".to_owned())?;
        Ok(Registration {
            interests,
            protocol_version: None,
        })
    }

    fn receive(source: Peer, ticket: Ticket, message: Message) -> Receipt {
        SCRIPT.with(|script| match script.get() {
            Some(script) => take(
                script,
                &Delivery {
                    source,
                    ticket,
                    message,
                },
            ),
            None => Receipt::Done,
        })
    }
}

consort_proxy::__bindings::export_component!(Component with_types_in consort_proxy::__bindings);

fn interest(text: &str) -> Option<Interest> {
    let (how, text) = match text.strip_prefix('?') {
        Some(text) => (How::Observe, text),
        None => (How::Intercept, text),
    };
    let (source, method) = text.split_once(' ')?;
    Some(Interest {
        source: peer(source),
        method: method.to_owned(),
        how,
    })
}

fn peer(name: &str) -> Peer {
    match name {
        "client" => Peer::Client,
        "agent" => Peer::Agent,
        _ => Peer::Host,
    }
}

struct Delivery {
    source: Peer,
    ticket: Ticket,
    message: Message,
}

impl Delivery {
    fn name(&self) -> String {
        match &self.message {
            Message::Request(request) => request.method.clone(),
            Message::Notification(notification) => notification.method.clone(),
            Message::Response(response) => format!("response {}", response.id),
        }
    }

    fn value(&self) -> Option<&Value> {
        match &self.message {
            Message::Request(request) => request.params.as_ref(),
            Message::Notification(notification) => notification.params.as_ref(),
            Message::Response(response) => match &response.outcome {
                Ok(value) | Err(value) => Some(value),
            },
        }
    }

    fn text(&self) -> String {
        self.value().and_then(|value| value.read("")).unwrap_or_default()
    }

    fn onward(&self) -> Peer {
        match self.source {
            Peer::Client => Peer::Agent,
            _ => Peer::Client,
        }
    }
}

fn take(script: &Script, delivery: &Delivery) -> Receipt {
    let name = delivery.name();
    let rule = script
        .rules
        .iter()
        .find(|rule| rule.on == name && (rule.text.is_empty() || delivery.text().contains(&rule.text)));
    match &delivery.message {
        Message::Response(_) => println!("heard {name} from {:?}: {:.300}", delivery.source, delivery.text()),
        _ => println!("heard {name} from {:?}", delivery.source),
    }
    let Some(rule) = rule else {
        pass(delivery, &Pass::default());
        return Receipt::Done;
    };
    let mut receipt = Receipt::Done;
    for action in &rule.actions {
        match action {
            Action::Send(message) => {
                for _ in 0..message.times {
                    say(delivery, message);
                }
            }
            Action::Pass(how) => pass(delivery, how),
            Action::Keep {} => receipt = Receipt::Kept,
            Action::Outside(what) => surroundings::act(what),
        }
    }
    receipt
}

fn parsed(text: &str) -> Option<Value> {
    Value::parse(text)
        .inspect_err(|reason| println!("no JSON: {reason}"))
        .ok()
}

fn say(delivery: &Delivery, message: &Send) {
    let params = message.params.as_deref().and_then(parsed);
    let on_behalf_of = message.behalf.then_some(delivery.ticket);
    let method = format!("{}{}", message.method, "x".repeat(message.padding));
    let outcome = match (&message.result, &message.error) {
        (Some(result), _) => parsed(result).map(Ok),
        (_, Some(error)) => parsed(error).map(Err),
        _ => None,
    };
    let own = match message.to_passed {
        true => PASSED.get().0,
        false => delivery.ticket,
    };
    let (what, sent) = match outcome {
        Some(outcome) => {
            let id = message.ticket.unwrap_or(own);
            ("an answer", Message::Response(Response { id, outcome }))
        }
        None if message.id.is_some() || message.straight => {
            let id = message.id;
            let request = Request {
                id,
                on_behalf_of,
                method,
                params,
            };
            (message.method.as_str(), Message::Request(request))
        }
        None => {
            let notification = Notification {
                on_behalf_of,
                method,
                params,
            };
            (message.method.as_str(), Message::Notification(notification))
        }
    };
    told(what, send(peer(&message.to), sent));
}

fn pass(delivery: &Delivery, how: &Pass) {
    let copy = |value: Option<&Value>| match &how.params {
        Some(text) => parsed(text),
        None => value.map(|value| {
            let copy = value.dup();
            edit(&copy, how);
            copy
        }),
    };
    let on_behalf_of = Some(delivery.ticket);
    let (to, message) = match &delivery.message {
        Message::Request(request) => {
            PASSED.set((delivery.ticket, how.id));
            let method = request.method.clone();
            let params = copy(request.params.as_ref());
            let request = Request {
                id: how.id,
                on_behalf_of,
                method,
                params,
            };
            (delivery.onward(), Message::Request(request))
        }
        Message::Notification(notification) => {
            let method = notification.method.clone();
            let params = copy(notification.params.as_ref());
            let notification = Notification {
                on_behalf_of,
                method,
                params,
            };
            (delivery.onward(), Message::Notification(notification))
        }
        // The answer to what was passed on with an id, for the one who asked.
        Message::Response(response) => {
            let outcome = match &response.outcome {
                Ok(value) => copy(Some(value)).map(Ok),
                Err(value) => copy(Some(value)).map(Err),
            };
            let (Some(outcome), (id, Some(own))) = (outcome, PASSED.get()) else {
                return;
            };
            if own != response.id {
                return;
            }
            (delivery.onward(), Message::Response(Response { id, outcome }))
        }
    };
    told("the message", send(to, message));
}

fn edit(value: &Value, how: &Pass) {
    let edits: Vec<Edit> = how
        .edits
        .iter()
        .map(|(pointer, content)| match content {
            Some(text) => Edit::Add((pointer, Content::Text(text.get()))),
            None => Edit::Remove(pointer),
        })
        .collect();
    if let Err(reason) = value.edit(&edits) {
        println!("not edited: {reason}");
    }
}

fn told(what: &str, outcome: Result<(), Refusal>) {
    match outcome {
        Ok(()) => println!("sent {what}"),
        Err(Refusal::Denied(reason)) => println!("denied {what}: {reason:.400}"),
        Err(refusal) => println!("refused {what}: {refusal:?}"),
    }
}
