//! A cap on lines that the user set, and outputs that nobody reads: everybody who waits for an answer gets one, or the end.

use consort_tests::command::{command, wait, wait_until_gone};
use consort_tests::session::{begin, notification, prompt, request};
use consort_tests::{Agent, AgentListener, Client};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

/// A text that makes any line too long.
fn long() -> String {
    "x".repeat(70 * 1024)
}

fn start() -> (Client, Agent) {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &["--max-line", "64 KiB"]);
    let agent = begin(&mut client, &listener);
    (client, agent)
}

fn assert_too_long(line: &Value, id: &Value, code: i64) {
    assert_eq!((&line["id"], &line["error"]["code"]), (id, &json!(code)), "{line}");
    let message = line["error"]["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("longer than 65536 bytes") && message.contains("--max-line"),
        "{message}"
    );
}

/// What was sent before has been dealt with.
fn still_works(client: &mut Client, agent: &mut Agent) {
    client.send_json(&notification("_marker", &json!({})));
    assert_eq!(agent.expect()["method"], "_marker");
    agent.send_json(&notification("_marker", &json!({})));
    assert_eq!(client.expect()["method"], "_marker");
}

#[test]
fn a_request_that_is_too_long_is_answered_wherever_its_id_stands() {
    let (mut client, mut agent) = start();
    let text = long();
    for line in [
        format!(r#"{{"jsonrpc":"2.0","id":"far","method":"m","params":{{"id":1,"t":"{text}"}}}}"#),
        format!(r#"{{"params":{{"id":1,"t":"{text}"}},"method":"m","jsonrpc":"2.0","id":"far"}}"#),
        format!(r#"{{"params":{{"t":"{text}"}},"id":"far","method":"m","_x":["{text}"]}}"#),
    ] {
        client.send(&line);
        assert_too_long(&client.expect(), &json!("far"), -32600);
    }
    client.send(&text);
    assert_too_long(&client.expect(), &Value::Null, -32600);
    still_works(&mut client, &mut agent);
}

#[test]
fn a_line_of_exactly_the_cap_passes_with_either_line_end_and_one_more_byte_does_not() {
    let (mut client, mut agent) = start();
    let line = |length: usize| {
        let empty = notification("m", &json!({"t": ""})).to_string();
        notification("m", &json!({"t": "x".repeat(length - empty.len())})).to_string()
    };
    for end in ["", "\r"] {
        client.send(&format!("{}{end}", line(65536)));
        assert_eq!(agent.expect()["method"], "m", "{end:?}");
        client.send(&format!("{}{end}", line(65537)));
        assert_too_long(&client.expect(), &Value::Null, -32600);
    }
    still_works(&mut client, &mut agent);
}

#[test]
fn an_answer_of_the_agent_that_is_too_long_is_an_error_to_whoever_asked() {
    let (mut client, mut agent) = start();
    let text = long();
    for first in [true, false] {
        client.send_json(&prompt("p", "go"));
        let id = &agent.expect()["id"];
        agent.send(&match first {
            true => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"id":7,"t":"{text}"}}}}"#),
            false => format!(r#"{{"jsonrpc":"2.0","result":{{"id":7,"t":"{text}"}},"id":{id}}}"#),
        });
        assert_too_long(&client.expect(), &json!("p"), -32603);
    }
    still_works(&mut client, &mut agent);
}

#[test]
fn what_the_agent_asks_and_is_answered_is_never_left_open_by_a_line_that_is_too_long() {
    let (mut client, mut agent) = start();
    let text = long();
    agent.send(&format!(
        r#"{{"jsonrpc":"2.0","method":"fs/write_text_file","params":{{"t":"{text}"}},"id":4}}"#
    ));
    assert_too_long(&agent.expect(), &json!(4), -32600);
    agent.send_json(&request(5, "fs/read_text_file", &json!({})));
    let id = &client.expect()["id"];
    client.send(&format!(
        r#"{{"jsonrpc":"2.0","result":{{"content":"{text}"}},"id":{id}}}"#
    ));
    assert_too_long(&client.expect(), &Value::Null, -32600);
    assert_too_long(&agent.expect(), &json!(5), -32603);
    still_works(&mut client, &mut agent);
}

#[test]
fn an_output_that_nobody_reads_any_more_ends_everything_at_once() {
    let listener = AgentListener::staying();
    let words: Vec<_> = ["run".into(), "--".into()]
        .into_iter()
        .chain(listener.command())
        .collect();
    let mut child = command(&words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command can be started");
    let mut input = child.stdin.take().expect("it is piped");
    let initialize = request(1, "initialize", &json!({"protocolVersion": 1}));
    writeln!(input, "{initialize}").expect("it is read");
    let mut agent = listener.accept();
    let asked = agent.expect();
    agent.answer(&asked, &json!({"protocolVersion": 1}));
    let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("the answer comes");
    // Nothing is under way, and the input stays open.
    drop(output);
    wait(&mut child);
    wait_until_gone(agent.pid());
    drop(input);
}
