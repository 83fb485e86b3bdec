//! Giving up, hop by hop, down to the handler in a guest.

use consort_tests::chains::{Chain, every};
use consort_tests::guests::guest;
use consort_tests::session::{SESSION, begin, notification, prompt, request};
use consort_tests::{Agent, AgentListener, Client};
use serde_json::{Value, json};
use std::ffi::OsString;

fn start(name: &str, config: &Value) -> (Client, Agent) {
    let listener = AgentListener::new();
    let options: Vec<OsString> = vec![
        "--proxy".into(),
        guest(name).into(),
        "--proxy-config".into(),
        format!("{name}={config}").into(),
    ];
    let mut client = Client::in_front_of(&listener, &options);
    let agent = begin(&mut client, &listener);
    (client, agent)
}

fn cancel(id: impl Into<Value>) -> Value {
    notification("$/cancel_request", &json!({"requestId": id.into()}))
}

#[test]
fn a_request_that_a_proxy_passed_on_is_cancelled_at_the_agent_once() {
    let (mut client, mut agent) = start("arrow", &json!({}));
    client.send_json(&prompt("p", "go"));
    let request = agent.expect();
    client.send_json(&cancel("p"));
    client.send_json(&cancel("p"));
    client.send_json(&cancel("unknown"));
    client.send_json(&notification("marker", &json!({})));
    assert_eq!(agent.expect(), cancel(request["id"].clone()));
    assert_eq!(agent.expect()["method"], "marker");
    agent.answer(&request, &json!({"stopReason": "cancelled"}));
    assert_eq!(client.expect()["result"]["stopReason"], "cancelled");
}

#[test]
fn a_handler_that_waits_is_dropped_and_answers_once() {
    let (mut client, mut agent) = start(
        "slow",
        &json!({"milliseconds": 3_600_000, "methods": ["session/prompt"]}),
    );
    client.send_json(&prompt("p", "go"));
    client.send_json(&cancel("p"));
    let answer = client.expect();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("p"), &json!(-32800)));
    client.send_json(&notification("marker", &json!({})));
    assert_eq!(agent.expect()["method"], "marker", "the prompt never went on");
}

#[test]
fn a_request_under_a_proxys_own_id_is_cancelled_with_that_hops_id() {
    let (mut client, mut agent) = start("rewriter", &json!({"method": "session/prompt"}));
    client.send_json(&prompt("p", "go"));
    let request = agent.expect();
    client.send_json(&cancel("p"));
    assert_eq!(agent.expect(), cancel(request["id"].clone()));
    let answer = client.expect();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("p"), &json!(-32800)));
    // The agent's own answer comes late and is for nobody.
    agent.answer(&request, &json!({"stopReason": "cancelled"}));
    client.send_json(&notification("marker", &json!({})));
    assert_eq!(agent.expect()["method"], "marker");
    agent.send_json(&notification("marker", &json!({})));
    assert_eq!(client.expect()["method"], "marker");
}

#[test]
fn a_session_cancel_follows_its_prompt() {
    let (mut client, mut agent) = start("slow", &json!({"milliseconds": 100, "methods": ["session/prompt"]}));
    client.send_json(&prompt("p", "go"));
    client.send_json(&notification("session/cancel", &json!({"sessionId": SESSION})));
    let request = agent.expect();
    assert_eq!(request["method"], "session/prompt");
    assert_eq!(agent.expect()["method"], "session/cancel");
    agent.answer(&request, &json!({"stopReason": "cancelled"}));
    assert_eq!(client.expect()["result"]["stopReason"], "cancelled");
}

#[test]
fn what_the_agent_asks_can_be_cancelled_by_the_agent() {
    let (mut client, mut agent) = start("arrow", &json!({}));
    agent.send_json(
        &json!({"jsonrpc": "2.0", "id": 0, "method": "session/request_permission", "params": {"sessionId": SESSION}}),
    );
    let asked = client.expect();
    agent.send_json(&cancel(0));
    assert_eq!(client.expect(), cancel(asked["id"].clone()));
    client.send_json(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"outcome": {"outcome": "cancelled"}}}));
    assert_eq!(agent.expect()["id"], 0);
}

/// Every chain, and one that carries requests on under ids of its own.
fn chains() -> Vec<Chain> {
    let mut chains = every(10, &["x/ask"]);
    let own = ("rewriter", json!({"method": "x/ask"}));
    chains.push(Chain::new(
        "proxies that ask themselves",
        &[own.clone(), ("passthrough", json!({})), own],
    ));
    chains
}

#[test]
fn a_cancelled_request_of_the_client_gets_one_answer_in_every_chain() {
    for chain in chains() {
        for late in [
            json!({"result": {}}),
            json!({"error": {"code": -32800, "message": "cancelled"}}),
        ] {
            let (mut client, mut agent) = chain.start();
            client.send_json(&request("q", "x/ask", &json!({"sessionId": SESSION})));
            let asked = agent.expect();
            client.send_json(&cancel("q"));
            client.send_json(&cancel("q"));
            assert_eq!(agent.expect(), cancel(asked["id"].clone()), "{}", chain.name);
            let mut answer = late.clone();
            answer["id"] = asked["id"].clone();
            agent.send_json(&answer);
            agent.send_json(&notification("marker", &json!({"sessionId": SESSION})));
            assert_eq!(client.expect()["id"], "q", "{}", chain.name);
            assert_eq!(client.expect()["method"], "marker", "{}: one answer only", chain.name);
            client.send_json(&cancel("q"));
            client.send_json(&notification("marker", &json!({})));
            assert_eq!(agent.expect()["method"], "marker", "{}: cancelled once", chain.name);
        }
    }
}

#[test]
fn a_cancelled_request_of_the_agent_gets_one_answer_in_every_chain() {
    for chain in chains() {
        let (mut client, mut agent) = chain.start();
        agent.send_json(&request("q", "x/ask", &json!({"sessionId": SESSION})));
        let asked = client.expect();
        agent.send_json(&cancel("q"));
        agent.send_json(&cancel("q"));
        assert_eq!(client.expect(), cancel(asked["id"].clone()), "{}", chain.name);
        client.send_json(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {}}));
        client.send_json(&notification("marker", &json!({"sessionId": SESSION})));
        assert_eq!(agent.expect()["id"], "q", "{}", chain.name);
        assert_eq!(agent.expect()["method"], "marker", "{}: one answer only", chain.name);
        agent.send_json(&cancel("q"));
        agent.send_json(&notification("marker", &json!({})));
        assert_eq!(client.expect()["method"], "marker", "{}: cancelled once", chain.name);
    }
}
