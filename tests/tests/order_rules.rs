//! Order for everything: requests, notifications and responses of one session never overtake each other, in either direction, through
//! proxies that take part, look on or are passed by, and while one of them is made anew.
//!
//! The one exception is in the design: a response on its way to the agent is never kept back, so it may come early, but never late.

use consort_tests::chains::{Chain, mixed, none, passing, slow};
use consort_tests::session::{SESSION, notification, request};
use consort_tests::{Agent, Client};
use serde_json::{Value, json};
use std::collections::HashMap;

/// How often an answer gets the chance to be overtaken.
const TIMES: u64 = 500;

/// Numbers that look random, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits fit") % limit
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

/// A proxy that edits results of this method and holds them for a while.
fn editing(method: &str, hold: u64) -> (&'static str, Value) {
    let edit = json!([{"op": "add", "path": "/seen", "value": true}]);
    ("rewriter", json!({"method": method, "result": edit, "hold": hold}))
}

fn waiting(milliseconds: u64, method: &str) -> (&'static str, Value) {
    ("slow", json!({"milliseconds": milliseconds, "methods": [method]}))
}

fn trap(source: &str, when: &str) -> (&'static str, Value) {
    (
        "trap",
        json!({"on": "x/trap", "source": source, "when": when, "text": "BOOM"}),
    )
}

/// Point 1 of what the reference conductor does wrong: the answer and what follows it, in one write.
fn answers_are_not_overtaken(chain: &Chain, method: &str, birth: bool) {
    let (mut client, mut agent) = chain.start();
    for turn in 0..TIMES {
        client.send_json(&request(
            turn,
            method,
            &json!({"sessionId": SESSION, "cwd": "/", "mcpServers": []}),
        ));
        let asked = agent.expect();
        let session = if birth { format!("s-{turn}") } else { SESSION.to_owned() };
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"sessionId": session}});
        let behind: Vec<Value> = (0..2)
            .map(|n| {
                notification(
                    "session/update",
                    &json!({"sessionId": session, "update": {"n": n, "turn": turn}}),
                )
            })
            .collect();
        agent.send_raw(format!("{answer}\n{}\n{}\n", behind[0], behind[1]).as_bytes());
        let first = client.expect();
        assert_eq!(first["id"], turn, "{}: the answer was overtaken by {first}", chain.name);
        for update in &behind {
            assert_eq!(client.expect(), *update, "{}", chain.name);
        }
    }
}

#[test]
fn the_answer_to_a_new_session_is_never_overtaken_without_proxies() {
    answers_are_not_overtaken(&none(), "session/new", true);
}

#[test]
fn the_answer_to_a_new_session_is_never_overtaken_by_a_proxy_that_passes_on() {
    answers_are_not_overtaken(&passing(1), "session/new", true);
    answers_are_not_overtaken(&passing(4), "session/new", true);
}

#[test]
fn the_answer_to_a_new_session_is_never_overtaken_by_a_slow_proxy() {
    answers_are_not_overtaken(&slow(1, &["session/new"]), "session/new", true);
    answers_are_not_overtaken(&slow(1, &["session/update"]), "session/new", true);
}

#[test]
fn the_answer_to_a_new_session_is_never_overtaken_where_a_proxy_edits_and_holds_it() {
    for hold in [0, 1] {
        let chain = Chain::new(
            "edits and holds",
            &[
                ("observer", json!({})),
                editing("session/new", hold),
                ("arrow", json!({})),
            ],
        );
        answers_are_not_overtaken(&chain, "session/new", true);
    }
}

#[test]
fn the_answer_to_a_fork_or_a_prompt_is_never_overtaken_in_a_mix_of_proxies() {
    answers_are_not_overtaken(&mixed(1, &["session/fork"]), "session/fork", true);
    let chain = Chain::new(
        "edits twice",
        &[
            editing("session/prompt", 1),
            ("passthrough", json!({})),
            editing("session/prompt", 0),
        ],
    );
    answers_are_not_overtaken(&chain, "session/prompt", false);
}

/// Everything that came to a side in one phase, by number; and how many responses are owed there.
struct Seen {
    numbers: Vec<u64>,
    questions: HashMap<u64, Value>,
}

fn number(line: &Value) -> u64 {
    let place = if line["method"].is_string() {
        &line["params"]
    } else {
        &line["result"]
    };
    place["n"].as_u64().unwrap_or_else(|| panic!("no number in {line}"))
}

/// One round: requests of the client, then all that the agent says in any mix, then all that the client says.
fn round(chain: &Chain, random: &mut Random, client: &mut Client, agent: &mut Agent) {
    let asking = ["x/past", "x/slow", "x/taken", "session/prompt"];
    let telling = ["x/past", "x/slow", "x/taken", "x/trap", "session/update"];
    let text = |random: &mut Random| if random.below(8) == 0 { "BOOM" } else { "quiet" };

    let requests = 10;
    for n in 0..requests {
        client.send_json(&request(n, random.of(&asking), &json!({"sessionId": SESSION, "n": n})));
    }
    let mut open: Vec<Value> = (0..requests).map(|_| agent.expect()).collect();
    let arrived: Vec<u64> = open.iter().map(number).collect();
    assert_eq!(
        arrived,
        (0..requests).collect::<Vec<_>>(),
        "{}: requests of the client",
        chain.name
    );

    // The agent: notifications, questions, and answers in any order.
    let mut lines = String::new();
    let mut count = 0;
    while !open.is_empty() || count < 60 {
        let line = match random.below(4) {
            0 if !open.is_empty() => {
                let asked = open.swap_remove(random.below(open.len()));
                json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"n": count}})
            }
            1 => request(count, random.of(&asking), &json!({"sessionId": SESSION, "n": count})),
            _ => notification(
                random.of(&telling),
                &json!({"sessionId": SESSION, "n": count, "text": text(random)}),
            ),
        };
        lines.push_str(&format!("{line}\n"));
        count += 1;
    }
    agent.send_raw(lines.as_bytes());
    let mut seen = Seen {
        numbers: Vec::new(),
        questions: HashMap::new(),
    };
    for _ in 0..count {
        let line = client.expect();
        seen.numbers.push(number(&line));
        if line["method"].is_string() && !line["id"].is_null() {
            seen.questions.insert(number(&line), line);
        }
    }
    assert_eq!(
        seen.numbers,
        (0..count).collect::<Vec<_>>(),
        "{}: what the agent said",
        chain.name
    );

    // The client: the same, with the answers to those questions.
    let mut questions: Vec<Value> = seen.questions.into_values().collect();
    questions.sort_by_key(number);
    let mut lines = String::new();
    let mut responses = Vec::new();
    let mut count = 0;
    let mut asked = 0;
    while !questions.is_empty() || count < 60 {
        let line = match random.below(4) {
            0 if !questions.is_empty() => {
                let question = questions.swap_remove(random.below(questions.len()));
                responses.push(count);
                json!({"jsonrpc": "2.0", "id": question["id"], "result": {"n": count}})
            }
            1 => {
                asked += 1;
                request(count, random.of(&asking), &json!({"sessionId": SESSION, "n": count}))
            }
            _ => notification(
                random.of(&telling),
                &json!({"sessionId": SESSION, "n": count, "text": text(random)}),
            ),
        };
        lines.push_str(&format!("{line}\n"));
        count += 1;
    }
    client.send_raw(lines.as_bytes());
    let mut others = Vec::new();
    let mut early = Vec::new();
    let mut open = Vec::new();
    for _ in 0..count {
        let line = agent.expect();
        let n = number(&line);
        if line["method"].is_string() {
            let late: Vec<_> = responses
                .iter()
                .filter(|other| **other < n && !early.contains(*other))
                .collect();
            assert!(
                late.is_empty(),
                "{}: responses {late:?} were overtaken by {line}",
                chain.name
            );
            others.push(n);
            if !line["id"].is_null() {
                open.push(line);
            }
        } else {
            assert!(responses.contains(&n) && !early.contains(&n), "{}: {line}", chain.name);
            early.push(n);
        }
    }
    let expected: Vec<u64> = (0..count).filter(|n| !responses.contains(n)).collect();
    assert_eq!(others, expected, "{}: what the client said", chain.name);
    if chain.options().is_empty() {
        assert_eq!(early, responses, "{}: responses of the client", chain.name);
    }
    assert_eq!(open.len(), asked);
    for line in open {
        agent.answer(&line, &json!({"n": number(&line)}));
        assert_eq!(number(&client.expect()), number(&line), "{}", chain.name);
    }
}

fn everything_keeps_its_order(chain: &Chain, seed: u64) {
    rounds(chain, &mut Random(seed), 20);
}

fn rounds(chain: &Chain, random: &mut Random, count: usize) {
    let (mut client, mut agent) = chain.start();
    for _ in 0..count {
        round(chain, random, &mut client, &mut agent);
    }
}

/// Many short runs: a proxy that traps again and again is soon passed by, and then nothing happens any more.
fn everything_keeps_its_order_from_the_first_trap_on(chain: &Chain, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..10 {
        rounds(chain, &mut random, 2);
    }
}

#[test]
fn everything_keeps_its_order_without_proxies() {
    everything_keeps_its_order(&none(), 1);
}

#[test]
fn everything_keeps_its_order_through_proxies_that_pass_on() {
    everything_keeps_its_order(&passing(1), 2);
    everything_keeps_its_order(&passing(4), 3);
}

#[test]
fn everything_keeps_its_order_through_slow_proxies() {
    everything_keeps_its_order(&slow(1, &["x/slow"]), 4);
    everything_keeps_its_order(&mixed(1, &["x/slow"]), 5);
}

#[test]
fn everything_keeps_its_order_where_answers_are_held() {
    let chain = Chain::new(
        "takes, looks on, and waits",
        &[
            editing("x/taken", 1),
            ("observer", json!({})),
            waiting(1, "x/slow"),
            ("arrow", json!({})),
            editing("x/taken", 0),
            ("passthrough", json!({})),
            editing("session/prompt", 2),
        ],
    );
    everything_keeps_its_order(&chain, 6);
}

#[test]
fn everything_keeps_its_order_while_a_proxy_is_made_anew() {
    for (seed, source) in [(7, "agent"), (8, "client")] {
        for when in ["handler", "after-send", "after-sleep"] {
            let chain = Chain::new("a proxy that traps", &[trap(source, when)]);
            everything_keeps_its_order_from_the_first_trap_on(&chain, seed);
        }
    }
}

#[test]
fn everything_keeps_its_order_while_proxies_between_others_are_made_anew() {
    let chain = Chain::new(
        "proxies that trap between others",
        &[
            waiting(1, "x/slow"),
            trap("agent", "handler"),
            ("observer", json!({})),
            editing("x/taken", 1),
            trap("client", "after-sleep"),
            ("passthrough", json!({})),
            trap("agent", "after-sleep"),
            editing("session/prompt", 1),
        ],
    );
    everything_keeps_its_order_from_the_first_trap_on(&chain, 9);
    everything_keeps_its_order(&chain, 10);
}

/// While a proxy spins, what it owns keeps its place.
#[test]
fn what_comes_behind_a_message_of_a_spinning_proxy_stays_behind_it() {
    let chain = Chain::new(
        "a proxy that spins",
        &[("spin", json!({"on": "x/spin"})), ("passthrough", json!({}))],
    );
    let (mut client, mut agent) = chain.start();
    let lines = [
        notification("x/before", &json!({"sessionId": SESSION, "n": 0})),
        notification("x/spin", &json!({"sessionId": SESSION, "n": 1})),
        notification("x/behind", &json!({"sessionId": SESSION, "n": 2})),
        request(3, "x/behind", &json!({"sessionId": SESSION, "n": 3})),
    ];
    agent.send_raw(
        lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>()
            .as_bytes(),
    );
    for n in 0..4 {
        assert_eq!(number(&client.expect()), n);
    }
}
