//! The demo agent as a process, line by line.

use consort_tests::Client;
use consort_tests::command::command;
use consort_tests::session::{notification, request};
use consort_tests::transcript::Transcript;
use serde_json::{Value, json};

fn start(options: &[&str]) -> Client {
    let mut arguments = vec!["demo-agent"];
    arguments.extend(options);
    let mut client = Client::spawn(command(&arguments), Transcript::default());
    client.send_json(&request(1, "initialize", &json!({"protocolVersion": 1})));
    assert_eq!(client.expect()["result"]["protocolVersion"], 1);
    client.send_json(&request(2, "session/new", &json!({"cwd": "/", "mcpServers": []})));
    assert_eq!(client.expect()["result"]["sessionId"], "demo-1");
    let commands = client.expect();
    assert_eq!(
        commands["params"]["update"]["sessionUpdate"],
        "available_commands_update"
    );
    client
}

fn prompt(text: &str) -> Value {
    let prompt = json!([{"type": "text", "text": text}]);
    request(3, "session/prompt", &json!({"sessionId": "demo-1", "prompt": prompt}))
}

/// All that comes up to the answer to request 3, and the answer.
fn turn(client: &mut Client) -> (Vec<Value>, Value) {
    let mut updates = Vec::new();
    loop {
        let message = client.expect();
        if message["id"] == 3 {
            return (updates, message);
        }
        updates.push(message);
    }
}

#[test]
fn a_turn_is_streamed_and_always_the_same() {
    let mut turns = Vec::new();
    for _ in 0..2 {
        let mut client = start(&[]);
        client.send_json(&prompt("Show a /plan and the /secret"));
        let (updates, answer) = turn(&mut client);
        assert_eq!(answer["result"]["stopReason"], "end_turn");
        client.close_input();
        client.expect_end();
        assert!(client.wait().success());
        turns.push(updates);
    }
    assert_eq!(turns[0], turns[1]);
}

#[test]
fn a_line_of_any_length_is_read() {
    let mut client = start(&[]);
    client.send_json(&prompt(&"x".repeat(4 << 20)));
    let (updates, answer) = turn(&mut client);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    let text: String = updates
        .iter()
        .filter(|update| update["params"]["update"]["sessionUpdate"] == "agent_message_chunk")
        .filter_map(|update| update["params"]["update"]["content"]["text"].as_str())
        .collect();
    assert!(text.contains("text, 4194304 bytes"), "{}", &text[..100]);
}

#[test]
fn a_turn_is_cancelled_while_it_waits_for_a_permission() {
    let mut client = start(&[]);
    client.send_json(&prompt("Use the /tool"));
    loop {
        let message = client.expect();
        if message["method"] == "session/request_permission" {
            assert_eq!(message["id"], 0);
            break;
        }
    }
    client.send_json(&notification("session/cancel", &json!({"sessionId": "demo-1"})));
    let (updates, answer) = turn(&mut client);
    assert_eq!(updates, [] as [Value; 0]);
    assert_eq!(answer["result"]["stopReason"], "cancelled");
}

#[test]
fn a_slow_turn_can_be_cancelled_between_its_steps() {
    // The turn would take over an hour.
    let mut client = start(&["--delay", "1000000"]);
    client.send_json(&prompt("Hello"));
    client.send_json(&notification("session/cancel", &json!({"sessionId": "demo-1"})));
    let (_, answer) = turn(&mut client);
    assert_eq!(answer["result"]["stopReason"], "cancelled");
}

#[test]
fn bad_lines_are_answered_and_survived() {
    let mut client = start(&[]);
    for (line, code) in [
        (&b"{\n"[..], -32700),
        (b"\xff\n", -32700),
        (b"[]\n", -32600),
        (b"{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"nothing/known\"}\n", -32601),
    ] {
        client.send_raw(line);
        assert_eq!(client.expect()["error"]["code"], code);
    }
    client.send_json(&prompt("Still there?"));
    assert_eq!(turn(&mut client).1["result"]["stopReason"], "end_turn");
}
