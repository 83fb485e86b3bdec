//! Lines over the cap: none is skipped in silence, and the error goes to whoever waits.

use consort_tests::chains::none;
use consort_tests::session::{notification, request};
use consort_tests::{Agent, Client};
use serde_json::{Value, json};
use std::thread;

/// The longest line that is taken.
const CAP: usize = 64 * 1024 * 1024;

/// What came to the agent before the answer to a question that it asked behind everything else.
fn before_an_answer(client: &mut Client, agent: &mut Agent) -> Vec<Value> {
    agent.send_json(&request("last", "x/last", &json!({})));
    let asked = client.expect();
    assert_eq!(asked["method"], "x/last");
    client.send_json(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {}}));
    let mut lines = Vec::new();
    loop {
        let line = agent.expect();
        if line["id"] == "last" {
            return lines;
        }
        lines.push(line);
    }
}

/// A line of a certain length: a head, a filling string, a tail.
fn filled(head: &str, tail: &str, length: usize) -> String {
    let filling = length - head.len() - tail.len();
    format!("{head}{}{tail}", "x".repeat(filling))
}

#[test]
fn a_line_of_exactly_the_cap_passes() {
    let (mut client, mut agent) = none().start();
    let line = filled(r#"{"jsonrpc":"2.0","method":"x/y","params":{"t":""#, "\"}}", CAP);
    thread::scope(|scope| {
        scope.spawn(|| client.send(&line));
        assert!(agent.expect_line() == line);
    });
    thread::scope(|scope| {
        scope.spawn(|| agent.send(&line));
        assert!(client.expect_line() == line);
    });
}

#[test]
fn a_request_that_is_too_long_is_answered_wherever_its_id_stands() {
    let (mut client, mut agent) = none().start();
    let last = filled(
        r#"{"jsonrpc":"2.0","method":"x/y","params":{"t":""#,
        "\"},\"id\":\"big\"}",
        CAP + 1,
    );
    let first = filled(
        r#"{"id":"big","jsonrpc":"2.0","method":"x/y","params":{"t":""#,
        "\"}}",
        CAP + 1,
    );
    for line in [&first, &last] {
        client.send(line);
        let answer = client.expect();
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!("big"), &json!(-32600)),
            "{answer}"
        );
        agent.send(line);
        let lines = before_an_answer(&mut client, &mut agent);
        let [answer] = &lines[..] else {
            panic!("the agent's request is owed one answer: {lines:?}");
        };
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!("big"), &json!(-32600)),
            "{answer}"
        );
    }
}

#[test]
fn an_answer_of_the_agent_that_is_too_long_is_an_error_wherever_its_id_stands() {
    for id_first in [true, false] {
        let (mut client, mut agent) = none().start();
        client.send_json(&request("q", "x/y", &json!({})));
        let id = agent.expect()["id"].clone();
        let line = if id_first {
            filled(
                &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"t":""#),
                "\"}}",
                CAP + 1,
            )
        } else {
            filled(
                r#"{"jsonrpc":"2.0","result":{"t":""#,
                &format!("\"}},\"id\":{id}}}"),
                CAP + 1,
            )
        };
        agent.send(&line);
        client.send_json(&request("r", "x/z", &json!({})));
        let next = agent.expect();
        agent.answer(&next, &json!({}));
        let answer = client.expect();
        assert_eq!(answer["id"], "q", "its id stands first: {id_first}; {answer}");
        assert!(answer["error"]["message"].is_string(), "{answer}");
        assert_eq!(client.expect()["id"], "r");
    }
}

#[test]
fn an_answer_of_the_client_that_is_too_long_is_an_error_to_the_agent_and_for_nobody_else() {
    for id_first in [true, false] {
        let (mut client, mut agent) = none().start();
        agent.send_json(&request(
            "a",
            "fs/read_text_file",
            &json!({"sessionId": "s1", "path": "/big"}),
        ));
        let id = client.expect()["id"].clone();
        // The client has a request of its own under that number.
        client.send_json(&request(id.clone(), "x/y", &json!({})));
        let own = agent.expect();
        let line = if id_first {
            filled(
                &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":""#),
                "\"}}",
                CAP + 1,
            )
        } else {
            filled(
                r#"{"jsonrpc":"2.0","result":{"content":""#,
                &format!("\"}},\"id\":{id}}}"),
                CAP + 1,
            )
        };
        client.send(&line);
        client.send_json(&notification("marker", &json!({})));
        let answer = agent.expect();
        assert_eq!(answer["id"], "a", "its id stands first: {id_first}; {answer}");
        assert!(answer["error"]["message"].is_string(), "{answer}");
        assert_eq!(agent.expect()["method"], "marker");
        agent.answer(&own, &json!({"own": true}));
        // Whether the client is told that its line was refused is left open; its request is answered once, and by the agent.
        loop {
            let line = client.expect();
            if line["id"] == id {
                assert_eq!(line["result"], json!({"own": true}), "{line:.200}");
                break;
            }
            assert_eq!(line["id"], Value::Null, "{line}");
        }
    }
}
