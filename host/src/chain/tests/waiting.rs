//! What may wait, and for how long: nothing stops for ever, and what has to end ends in an error.

use crate::chain::bench::{Bench, chunk, everything, incoming, method, notify, prompt, request};
use crate::chain::{Effect, ProxySetup, Role, Router};
use crate::message::Peer;
use crate::wire::text::Text;
use serde_json::{Value, json};

/// A proxy that has asked the agent as often as it may, and waits.
fn busy() -> Bench {
    let mut bench = Bench::new(vec![everything()]);
    for number in 0..12_000 {
        bench.client(json!({"id": number, "method": "x", "params": {}}));
        let (index, turn) = bench.turn();
        let own = request(Peer::Agent, Some(number), Some(turn.ticket), "x", json!({}));
        bench.done(index, vec![own]);
    }
    bench
}

fn large(id: u64) -> Value {
    json!({"id": id, "method": "x", "params": {"text": "x".repeat(1024 * 1024)}})
}

#[test]
fn what_waits_for_a_proxy_that_takes_only_answers_does_not_stop_the_reading() {
    let mut bench = busy();
    let asked = bench.at_agent();
    for id in 0..12 {
        bench.client(large(20_000 + id));
    }
    assert_eq!(bench.router.queued_bytes(), 0, "the answers have to be read");
    bench.agent(json!({"id": asked[0]["id"], "result": 1}));
    // With one answer less to wait for it takes the next request.
    let (_, turn) = bench.turn();
    assert_eq!(turn.source, Peer::Client);
}

#[test]
fn too_much_for_a_proxy_that_takes_only_answers_ends_in_an_error() {
    let mut bench = busy();
    for id in 0..17 {
        bench.client(large(20_000 + id));
    }
    let failed = bench.at_client();
    assert_eq!(failed.len(), 12_000, "each request that it held");
    assert_eq!(failed[0]["error"]["data"]["class"], "flood");
    let passed = bench.at_agent();
    assert!(
        passed.iter().any(|line| line["params"]["text"].is_string()),
        "what it had not touched goes on"
    );
}

#[test]
fn an_answer_that_waits_for_a_proxys_turn_goes_on_when_the_proxy_takes_only_answers() {
    let mut bench = Bench::new(vec![everything()]);
    bench.agent(json!({"id": "q", "method": "y", "params": {"sessionId": "s"}}));
    bench.pass_all();
    let asked = bench.at_client()[0]["id"].clone();
    for number in 0..12_000 {
        bench.client(
            json!({"id": number, "method": "x", "params": {"sessionId": if number == 11_999 { "s" } else { "t" }}}),
        );
    }
    bench.client(json!({"method": "note", "params": {"sessionId": "s"}}));
    bench.client(json!({"id": asked, "result": {}}));
    assert!(bench.at_agent().is_empty(), "the note is in front of it");
    for number in 0..12_000 {
        let (index, turn) = bench.turn();
        let own = request(Peer::Agent, Some(number), Some(turn.ticket), "x", json!({}));
        bench.done(index, vec![own]);
    }
    assert!(bench.at_agent().iter().any(|line| line["id"] == "q"));
}

#[test]
fn one_message_above_the_cap_is_kept_back_alone() {
    let mut bench = Bench::new(vec![everything()]);
    bench.client(prompt(1, "s"));
    let (index, _held) = bench.turn();
    bench.kept(index, Vec::new());
    let large = json!({"method": "n", "params": {"sessionId": "s", "text": "x".repeat(65 * 1024 * 1024)}});
    bench.client(large.clone());
    assert!(bench.at_client().is_empty(), "the prompt is still held");
    bench.client(large);
    assert_eq!(bench.at_client()[0]["error"]["code"], -32603, "two are too much");
}

#[test]
fn what_waited_for_a_session_goes_before_what_comes_when_the_client_names_it() {
    let mut bench = Bench::new(vec![]);
    bench.client(json!({"id": 1, "method": "session/new", "params": {}}));
    bench.at_agent();
    bench.agent(chunk("s", 1));
    bench.client(json!({"id": 2, "method": "session/load", "params": {"sessionId": "s"}}));
    bench.agent(chunk("s", 2));
    let order: Vec<Value> = bench
        .at_client()
        .iter()
        .map(|line| line["params"]["n"].clone())
        .collect();
    assert_eq!(order, [1, 2]);
}

#[test]
fn a_proxy_is_read_on_while_initialize_is_under_way_and_too_much_is_refused() {
    let mut router = Router::new(Role::Proxy, Vec::<ProxySetup>::new(), None);
    router.from_client(incoming(
        &json!({"id": 1, "method": "proxy/initialize", "params": {"protocolVersion": 1}}),
    ));
    assert!(matches!(router.next_effect(), Some(Effect::StartAgent)));
    router.agent_started(Ok(()));
    let long = "x".repeat(40 * 1024 * 1024);
    for id in [2, 3] {
        router.from_client(incoming(
            &json!({"id": id, "method": "session/prompt", "params": {"text": long}}),
        ));
    }
    let mut bench = Bench { router };
    let lines = bench.at_client();
    assert_eq!(lines[0]["method"], "proxy/successor");
    assert_eq!(
        (&lines[1]["id"], &lines[1]["error"]["code"]),
        (&json!(3), &json!(-32603))
    );
    bench.client(json!({"id": lines[0]["id"], "result": {"protocolVersion": 1}}));
    let lines = bench.at_client();
    assert_eq!(
        (&lines[0]["id"], &lines[1]["params"]["method"]),
        (&json!(1), &json!("session/prompt"))
    );
}

#[test]
fn the_host_wakes_nobody_while_too_much_waits_to_be_read() {
    let mut bench = Bench::new(vec![everything()]);
    bench.client(prompt(1, "a"));
    let (index, _) = bench.turn();
    let flood = || notify(Peer::Client, None, "n", json!({"text": "x".repeat(1 << 20)}));
    let sleep = |id| request(Peer::Host, Some(id), None, "host/sleep", json!({"milliseconds": 0}));
    bench.done(index, (0..40).map(|_| flood()).chain([sleep(1)]).collect());
    let Some(Effect::Sleep { operation, proxy, .. }) = bench.effect() else {
        panic!("it sleeps");
    };
    bench.router.host_answer(proxy, operation, Ok(Text::of(&json!({}))));
    bench.router.resume_choked();
    assert!(bench.router.next_turn().is_none(), "nobody has read anything");
    bench.client(prompt(2, "b"));
    let (index, turn) = bench.turn();
    assert_eq!(method(&turn), "session/prompt", "others go on");
    bench.done(index, Vec::new());
    assert_eq!(bench.at_client().len(), 40);
    bench.router.resume_choked();
    assert!(bench.router.next_turn().is_some());
}
