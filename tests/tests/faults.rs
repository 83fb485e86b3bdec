//! A proxy that fails costs what it had in its hands and nothing else.

use consort_tests::guests::guest;
use consort_tests::session::{begin, chunk, prompt, request, updates_pass_elsewhere};
use consort_tests::{Agent, AgentListener, Client};
use serde_json::{Value, json};
use std::ffi::OsString;

/// A chain of test guests with their configurations.
fn chain(guests: &[(&str, Value)]) -> Vec<OsString> {
    guests
        .iter()
        .flat_map(|(name, config)| -> [OsString; 4] {
            [
                "--proxy".into(),
                guest(name).into(),
                "--proxy-config".into(),
                format!("{name}={config}").into(),
            ]
        })
        .collect()
}

fn start(guests: &[(&str, Value)]) -> (Client, Agent) {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &chain(guests));
    let agent = begin(&mut client, &listener);
    (client, agent)
}

fn trap(on: &str, source: &str, when: &str) -> (&'static str, Value) {
    (
        "trap",
        json!({"on": on, "source": source, "when": when, "text": "BOOM"}),
    )
}

/// A prompt that the trap does not touch goes through, with the answer.
fn works(client: &mut Client, agent: &mut Agent) {
    client.send_json(&prompt("fine", "fine"));
    let request = agent.expect();
    assert_eq!(request["params"]["prompt"][0]["text"], "fine");
    agent.send_json(&chunk("ok"));
    agent.answer(&request, &json!({"stopReason": "end_turn"}));
    assert_eq!(client.expect()["params"]["update"]["content"]["text"], "ok");
    assert_eq!(client.expect()["id"], "fine");
}

#[test]
fn the_message_of_a_failed_turn_goes_on_without_the_proxy() {
    for when in ["handler", "after-send"] {
        let (mut client, mut agent) = start(&[trap("session/prompt", "client", when)]);
        client.send_json(&prompt(3, "BOOM"));
        let request = agent.expect();
        assert_eq!(request["params"]["prompt"][0]["text"], "BOOM", "{when}");
        agent.answer(&request, &json!({"stopReason": "end_turn"}));
        assert_eq!(client.expect()["id"], 3, "{when}");
        works(&mut client, &mut agent);
        client.expect_standard_error("trap");
    }
}

#[test]
fn a_request_that_a_failed_proxy_held_gets_an_error_that_names_it() {
    let (mut client, mut agent) = start(&[trap("session/prompt", "client", "after-sleep")]);
    client.send_json(&prompt(3, "BOOM"));
    let answer = client.expect();
    assert_eq!(answer["id"], 3);
    assert_eq!(answer["error"]["data"]["proxy"], "trap");
    assert_eq!(answer["error"]["data"]["phase"], "receive");
    assert_eq!(answer["error"]["data"]["class"], "trap");
    let message = answer["error"]["message"].to_string();
    assert!(
        message.contains("panicked"),
        "editors hide logs, so the panic is told here: {message}"
    );
    works(&mut client, &mut agent);
}

#[test]
fn a_request_carried_on_under_an_own_id_is_cancelled_with_its_proxy() {
    let (mut client, mut agent) = start(&[trap("session/prompt", "client", "response")]);
    client.send_json(&prompt(3, "BOOM"));
    let request = agent.expect();
    agent.answer(&request, &json!({"stopReason": "end_turn"}));
    let answer = client.expect();
    assert_eq!(
        (&answer["id"], &answer["error"]["data"]["proxy"]),
        (&json!(3), &json!("trap"))
    );
    works(&mut client, &mut agent);
}

#[test]
fn a_notification_of_a_failed_turn_goes_on() {
    let (mut client, mut agent) = start(&[trap("session/update", "agent", "handler"), ("arrow", json!({}))]);
    agent.send_json(&chunk("one"));
    agent.send_json(&chunk("BOOM"));
    agent.send_json(&chunk("three"));
    for text in [">one", ">BOOM", ">three"] {
        assert_eq!(client.expect(), chunk(text));
    }
}

#[test]
fn a_panic_is_in_the_log() {
    let (mut client, mut agent) = start(&[trap("session/prompt", "client", "handler")]);
    client.send_json(&prompt(3, "BOOM"));
    let request = agent.expect();
    agent.answer(&request, &json!({}));
    client.expect();
    let log = client.expect_standard_error("panicked");
    assert!(log.contains("panicked") && log.contains("trap"), "{log}");
}

#[test]
fn endless_traps_end_in_a_bypass() {
    let (mut client, mut agent) = start(&[trap("session/prompt", "client", "handler")]);
    for round in 0..50 {
        client.send_json(&prompt(round, "BOOM"));
        let request = agent.expect();
        agent.answer(&request, &json!({"stopReason": "end_turn"}));
        assert_eq!(client.expect()["id"], round);
    }
}

#[test]
fn a_proxy_that_spins_holds_up_nobody_else() {
    let (mut client, mut agent) = start(&[
        ("spin", json!({"on": "session/prompt", "text": "SPIN"})),
        ("arrow", json!({})),
    ]);
    client.send_json(&prompt(3, "SPIN"));
    // Another session's traffic passes the spinning proxy and is edited by the other one.
    updates_pass_elsewhere(&mut client, &mut agent);
    assert!(
        agent.is_quiet(),
        "the proxy was still spinning when all updates had passed"
    );
    // In the end the prompt goes on without the proxy.
    let request = agent.expect();
    assert_eq!(request["params"]["prompt"][0]["text"], "SPIN");
    agent.answer(&request, &json!({"stopReason": "end_turn"}));
    assert_eq!(client.expect()["id"], 3);
    client.expect_standard_error("cpu");
}

#[test]
fn memory_without_end_is_a_memory_fault() {
    let (mut client, mut agent) = start(&[("greedy", json!({"on": "session/prompt", "bytes": 1_000_000_000}))]);
    client.send_json(&prompt(3, "hungry"));
    let request = agent.expect();
    agent.answer(&request, &json!({"stopReason": "end_turn"}));
    assert_eq!(client.expect()["id"], 3);
    client.expect_standard_error("(memory)");
}

#[test]
fn a_proxy_that_fails_in_start_is_said_on_initialize() {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &chain(&[trap("x", "client", "start")]));
    client.send_json(&request(1, "initialize", &json!({"protocolVersion": 1})));
    let answer = client.expect();
    let message = answer["error"]["message"].as_str().expect("an error has a message");
    assert!(message.contains("`trap`") && message.contains("start"), "{message}");
    client.close_input();
    assert_eq!(client.wait().code(), Some(1));
}

#[test]
fn a_wrong_configuration_is_said_in_the_proxys_words() {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &chain(&[("slow", json!({"milliseconds": "many"}))]));
    client.send_json(&request(1, "initialize", &json!({"protocolVersion": 1})));
    let answer = client.expect();
    let message = answer["error"]["message"].as_str().expect("an error has a message");
    assert!(
        message.contains("`slow`") && message.contains("configuration"),
        "{message}"
    );
}
