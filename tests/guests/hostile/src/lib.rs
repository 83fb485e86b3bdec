//! Test guest: does what a hostile proxy may try, with each prompt that has `GO` in it; other prompts are passed on. Written against
//! `wit/` alone, since the SDK would not do most of this; so it has nothing that could be tested natively.
//!
//! Configuration: `{"do": WHAT, "amount": N}`. WHAT is
//! - `compute`: computes for N milliseconds, then passes the prompt on;
//! - `sleep`: sleeps for N milliseconds, in WASI, then passes it on; `sleep-in-start` sleeps in `start`;
//! - `clock`: looks at the clock until for ever;
//! - `naps`: computes for N milliseconds and sleeps for a moment, again and again in turns of their own;
//! - `send`: sends messages for ever, whatever becomes of them;
//! - `handles`: makes JSON handles for ever; `texts` does so with texts of N bytes;
//! - `edits`: makes N edits in one call, each of a text of a MiB; `doubling` makes N edits that each add the text itself;
//! - `swelling`: makes N handles on next to nothing, then makes a text of a MiB out of each; `crumbs` keeps a small part of each of N
//!   texts of two MiB;
//! - `interests`: has N interests; `reason` does not start, with a reason of N bytes;
//! - `names`: sends N messages with a name of a MiB each, then answers;
//! - `grow`: asks for N bytes of memory, and answers what came of it;
//! - `count`: answers how many prompts it has answered so far, and panics if there is `BOOM` in one;
//! - `always`: panics on every message, also on `initialize`;
//! - `junk`: sends what cannot be sent, and answers what became of each message;
//! - `forge`: sends responses and requests under ids that are not its own, answers twice, and tells in a notification what became of it.
//!
//! An answer has what it tells as texts in `/_meta/seen`.
#![cfg(target_family = "wasm")]
#![allow(
    unsafe_code,
    reason = "generated: passing values to and from the host needs raw memory"
)]

mod bindings {
    #![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
    wit_bindgen::generate!({
        path: "../../../wit",
        world: "proxy",
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}

use bindings::consort::proxy::channel::{self, Message, Notification, Peer, Refusal, Request, Response};
use bindings::consort::proxy::json::{Content, Edit, Value};
use bindings::{Guest, How, Interest, Receipt, Registration};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// More than any ticket in a test.
const IDS: u64 = 500;

const MIB: usize = 1 << 20;

thread_local! {
    static WHAT: RefCell<String> = const { RefCell::new(String::new()) };
    static AMOUNT: Cell<usize> = const { Cell::new(0) };
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Hostile;

impl Guest for Hostile {
    fn start(config: Value) -> Result<Registration, String> {
        let what = config.read("/do").ok_or("`do` is missing")?;
        let what = what.trim_matches('"').to_owned();
        let amount = config.read("/amount").and_then(|amount| amount.parse().ok());
        let amount = amount.unwrap_or(0);
        let mut interests = vec![Interest {
            source: Peer::Client,
            method: "session/prompt".into(),
            how: How::Intercept,
        }];
        match what.as_str() {
            "sleep-in-start" => std::thread::sleep(milliseconds(amount)),
            "interests" => interests.extend((0..amount).map(|number| Interest {
                source: Peer::Agent,
                method: number.to_string(),
                how: How::Observe,
            })),
            "reason" => return Err("n".repeat(amount)),
            _ => {}
        }
        WHAT.set(what);
        AMOUNT.set(amount);
        Ok(Registration {
            interests,
            protocol_version: None,
        })
    }

    fn receive(_: Peer, ticket: u64, message: Message) -> Receipt {
        let what = WHAT.with_borrow(String::clone);
        let Message::Request(request) = message else {
            if what == "naps" {
                nap();
            }
            return Receipt::Done;
        };
        assert!(what != "always", "as configured");
        let params = request.params.as_ref().and_then(|params| params.read(""));
        let params = params.unwrap_or_default();
        let seen = match params.contains("GO") {
            true => act(&what, ticket, &params),
            false => None,
        };
        let (to, message) = match seen {
            Some(seen) => {
                let seen: Vec<_> = seen.iter().map(|text| format!("\"{text}\"")).collect();
                let answer = format!(r#"{{"_meta":{{"seen":[{}]}}}}"#, seen.join(","));
                (Peer::Client, response(ticket, &answer))
            }
            None => (
                Peer::Agent,
                Message::Request(Request {
                    id: None,
                    on_behalf_of: Some(ticket),
                    method: request.method,
                    params: request.params,
                }),
            ),
        };
        // After `forge` it is refused.
        let _ = channel::send(to, message);
        Receipt::Done
    }
}

/// Does it. What comes back is answered; without it the prompt is passed on.
fn act(what: &str, ticket: u64, params: &str) -> Option<Vec<String>> {
    let amount = AMOUNT.get();
    match what {
        "compute" => compute(milliseconds(amount)),
        "sleep" => std::thread::sleep(milliseconds(amount)),
        "clock" => compute(Duration::MAX),
        "naps" => nap(),
        "send" => loop {
            let _ = channel::send(Peer::Client, notification("_flood"));
            let _ = channel::send(Peer::Agent, notification("_flood"));
        },
        "handles" => {
            let value = json("{}");
            loop {
                std::mem::forget(value.dup());
            }
        }
        "texts" => {
            let text = long(amount);
            loop {
                std::mem::forget(json(&text));
            }
        }
        "edits" => {
            let text = json(&format!(r#"{{"long":{},"a":0}}"#, long(MIB)));
            let edits: Vec<_> = (0..amount).map(|_| Edit::Replace(("/a", Content::Text("1")))).collect();
            let _ = text.edit(&edits);
        }
        "doubling" => {
            let text = json(&format!("[{}]", long(MIB)));
            let same = text.dup();
            let edits: Vec<_> = (0..amount).map(|_| Edit::Add(("/-", Content::Value(&same)))).collect();
            return Some(vec![failure(text.edit(&edits))]);
        }
        "swelling" => {
            let text = json(&format!("[{}]", long(MIB)));
            let small: Vec<_> = (0..amount).map(|_| json("0")).collect();
            let edits = [
                Edit::Replace(("", Content::Value(&text))),
                Edit::Add(("/-", Content::Text("1"))),
            ];
            let mut outcomes: Vec<_> = small.iter().map(|value| failure(value.edit(&edits))).collect();
            outcomes.dedup();
            return Some(outcomes);
        }
        "crumbs" => {
            let text = format!(r#"{{"most":{},"rest":{}}}"#, long(2 * MIB), long(20_000));
            let crumbs: Vec<_> = (0..amount).map(|_| json(&text).get("/rest")).collect();
            return Some(vec![crumbs.iter().flatten().count().to_string()]);
        }
        "names" => {
            let name = "n".repeat(MIB);
            let send = |_| verdict(channel::send(Peer::Client, notification(&name)));
            let mut verdicts: Vec<_> = (0..amount).map(send).collect();
            verdicts.dedup();
            return Some(verdicts);
        }
        "grow" => {
            let mut memory: Vec<u8> = Vec::new();
            let room = memory.try_reserve_exact(amount);
            let what = if room.is_ok() { "granted" } else { "refused" };
            return Some(vec![what.to_owned()]);
        }
        "count" => {
            assert!(!params.contains("BOOM"), "as configured");
            COUNT.set(COUNT.get() + 1);
            return Some(vec![COUNT.get().to_string()]);
        }
        "junk" => return Some(junk()),
        "forge" => return Some(forge(ticket)),
        _ => {}
    }
    None
}

fn milliseconds(number: usize) -> Duration {
    Duration::from_millis(number as u64)
}

fn compute(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn nap() {
    compute(milliseconds(AMOUNT.get()));
    std::thread::sleep(Duration::from_micros(1));
    let again = Message::Request(Request {
        id: Some(1),
        on_behalf_of: None,
        method: "host/sleep".to_owned(),
        params: Some(json(r#"{"milliseconds":0}"#)),
    });
    let _ = channel::send(Peer::Host, again);
}

/// What cannot be JSON values or messages.
fn junk() -> Vec<String> {
    let deep = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let parse = |text: &str| failure(Value::parse(text));
    let mut nested = json("[]");
    let mut nesting = Ok(());
    for _ in 0..200 {
        let outer = json("[]");
        nesting = nesting.and_then(|()| outer.edit(&[Edit::Add(("/-", Content::Value(&nested)))]));
        nested = outer;
    }
    let object = json("{}");
    let put = |text: &str| failure(object.edit(&[Edit::Add(("/a", Content::Text(text)))]));
    vec![
        parse(&deep(100_000)),
        parse("{\"a\":1"),
        parse("1 2"),
        parse(""),
        parse(&long(MIB)),
        put(&deep(129)),
        put("nothing"),
        put(&long(MIB)),
        failure(nesting),
        verdict(channel::send(Peer::Agent, notification(&"n".repeat(MIB)))),
    ]
}

/// What is not the proxy's own.
fn forge(ticket: u64) -> Vec<String> {
    let send = |to, message| verdict(channel::send(to, message));
    let mut verdicts = Vec::new();
    for id in (0..IDS).chain([u64::MAX]).filter(|id| *id != ticket) {
        for peer in [Peer::Client, Peer::Agent, Peer::Host] {
            verdicts.push(send(peer, response(id, "{}")));
            verdicts.push(send(peer, request(None, Some(id))));
            verdicts.push(send(peer, request(Some(1), Some(id))));
        }
        channel::release(id);
    }
    // Its own, but to the wrong side.
    verdicts.push(send(Peer::Agent, response(ticket, "{}")));
    verdicts.push(send(Peer::Host, response(ticket, "{}")));
    verdicts.push(send(Peer::Client, request(None, Some(ticket))));
    verdicts.dedup();
    verdicts.extend([
        send(Peer::Agent, request(Some(7), None)),
        send(Peer::Agent, request(Some(7), None)),
        send(Peer::Client, response(ticket, r#"{"first":true}"#)),
        send(Peer::Client, response(ticket, r#"{"second":true}"#)),
        send(Peer::Agent, request(None, Some(ticket))),
    ]);
    let told = format!("_verdicts/{}", verdicts.join("/"));
    send(Peer::Client, notification(&told));
    Vec::new()
}

fn json(text: &str) -> Value {
    match Value::parse(text) {
        Ok(value) => value,
        Err(reason) => panic!("{reason}"),
    }
}

/// A string of so many bytes.
fn long(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes))
}

fn notification(method: &str) -> Message {
    Message::Notification(Notification {
        on_behalf_of: None,
        method: method.to_owned(),
        params: Some(json("{}")),
    })
}

fn request(id: Option<u64>, on_behalf_of: Option<u64>) -> Message {
    Message::Request(Request {
        id,
        on_behalf_of,
        method: "_own".to_owned(),
        params: Some(json("{}")),
    })
}

fn response(id: u64, result: &str) -> Message {
    Message::Response(Response {
        id,
        outcome: Ok(json(result)),
    })
}

fn failure<T>(outcome: Result<T, String>) -> String {
    outcome.err().unwrap_or_else(|| "fine".to_owned())
}

fn verdict(sent: Result<(), Refusal>) -> String {
    let verdict = match sent {
        Ok(()) => "sent",
        Err(Refusal::Denied(_)) => "denied",
        Err(Refusal::TooLarge) => "too-large",
        Err(Refusal::Flooded) => "flooded",
        Err(Refusal::Closed) => "closed",
        Err(Refusal::UnknownId) => "unknown-id",
    };
    verdict.to_owned()
}

bindings::export!(Hostile with_types_in bindings);
