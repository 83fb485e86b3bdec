//! `consort prompt` through a chain without proxies.

use consort_tests::command::{Outcome, command, finish, run, run_with_input, wait_until_gone};
use consort_tests::session::{SESSION, chunk, notification, request};
use consort_tests::{Agent, AgentListener, Client, consort, terminal};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::ffi::OsString;

const ANSWER: &str = "I got one block.\n[1] text, 5 bytes\n    Hello\n";

/// `consort prompt` with these options, in front of the demo agent.
fn prompt(options: &[&str]) -> Outcome {
    let mut arguments: Vec<OsString> = vec!["prompt".into()];
    arguments.extend(options.iter().map(OsString::from));
    arguments.extend(["--".into(), consort().into_os_string(), "demo-agent".into()]);
    run(&arguments)
}

#[test]
fn the_answer_goes_to_standard_output_and_the_rest_to_standard_error() {
    let outcome = prompt(&["--yes", "Hello"]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert_eq!(outcome.output, ANSWER);
    assert_eq!(outcome.error, "I only repeat what reaches me.\n");
}

#[test]
fn the_prompt_can_come_through_a_pipe_and_the_demo_agent_is_there_without_an_agent() {
    for arguments in [&["prompt"][..], &["prompt", "-"]] {
        let outcome = run_with_input(arguments, b"Hello\n");
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        assert_eq!(outcome.output, ANSWER);
        assert!(outcome.error.contains("the demo agent answers"), "{outcome:?}");
    }
}

#[test]
fn plans_and_tool_calls_are_shown() {
    let outcome = prompt(&["--yes", "A /plan and a /tool"]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    for line in [
        "Plan",
        "  ▸ Repeat what was sent",
        "● Run echo 42",
        "? Run echo 42: Allow once",
        "✓ Run echo 42",
    ] {
        assert!(
            outcome.error.lines().any(|shown| shown == line),
            "no line {line:?} in {}",
            outcome.error
        );
    }
}

#[test]
fn permissions_are_rejected_where_nobody_can_be_asked() {
    for (options, said) in [(&["a /tool"][..], "no terminal"), (&["--no", "a /tool"], "Reject")] {
        let outcome = prompt(options);
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        assert!(outcome.error.contains(said), "{outcome:?}");
        assert!(outcome.error.contains("✗ Run echo 42"), "{outcome:?}");
    }
}

#[test]
fn json_lines_are_the_updates_and_the_result() {
    let outcome = prompt(&["--json", "--yes", "Hello"]);
    let lines: Vec<Value> = outcome
        .output
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect();
    assert_eq!(*lines.last().unwrap(), json!({"stopReason": "end_turn"}));
    let text: String = lines
        .iter()
        .filter(|line| line["update"]["sessionUpdate"] == "agent_message_chunk")
        .filter_map(|line| line["update"]["content"]["text"].as_str())
        .collect();
    assert_eq!(text, ANSWER);
    assert!(
        lines
            .iter()
            .all(|line| line["stopReason"].is_string() || line["sessionId"] == "demo-1")
    );
}

#[test]
fn the_exit_status_is_the_stop_reason() {
    assert_eq!(prompt(&["/refuse"]).status, Some(5));
    for (reason, status) in [
        ("max_tokens", 3),
        ("max_turn_requests", 4),
        ("cancelled", 130),
        ("a_new_one", 6),
    ] {
        let listener = AgentListener::new();
        let mut client = start(&listener, &["Hello"]);
        let (mut agent, prompt) = begin(&listener);
        agent.answer(&prompt, &json!({"stopReason": reason}));
        client.expect_end();
        assert_eq!(client.wait().code(), Some(status), "{reason}");
    }
}

/// Starts `consort prompt OPTIONS` in front of a scripted agent.
fn start(listener: &AgentListener, options: &[&str]) -> Client {
    let mut arguments: Vec<OsString> = vec!["prompt".into()];
    arguments.extend(options.iter().map(OsString::from));
    arguments.push("--".into());
    arguments.extend(listener.command());
    Client::spawn(command(&arguments), listener.transcript().clone())
}

/// The agent's side up to the prompt.
fn begin(listener: &AgentListener) -> (Agent, Value) {
    let mut agent = listener.accept();
    let initialize = agent.expect();
    assert_eq!(initialize["params"]["protocolVersion"], 1);
    agent.answer(&initialize, &json!({"protocolVersion": 1}));
    let new = agent.expect();
    assert_eq!(new["method"], "session/new");
    assert_eq!(new["params"]["mcpServers"], json!([]));
    assert!(new["params"]["cwd"].as_str().unwrap().starts_with('/'));
    agent.answer(&new, &json!({"sessionId": SESSION}));
    let prompt = agent.expect();
    assert_eq!(prompt["method"], "session/prompt");
    (agent, prompt)
}

#[test]
fn what_a_terminal_would_obey_is_left_out_but_json_is_not_touched() {
    let text = "a\u{1b}[31mb\u{9b}0m\r\n\u{202e}c";
    for (options, expected) in [(&["x"][..], "a[31mb0m"), (&["--json", "x"], "1.10")] {
        let listener = AgentListener::new();
        let mut client = start(&listener, options);
        let (mut agent, prompt) = begin(&listener);
        let mut update = chunk(text).to_string();
        // A number that would not survive being read and written.
        update.insert_str(update.len() - 2, r#","_meta":{"n":1.10}"#);
        agent.send(&update);
        agent.answer(&prompt, &json!({"stopReason": "end_turn"}));
        let line = client.expect_line();
        if options.len() == 1 {
            assert_eq!(line, expected);
            assert_eq!(client.expect_line(), "c");
        } else {
            assert!(line.contains(expected), "{line}");
            assert!(line.contains("\\u001b[31m"), "{line}");
        }
        assert!(client.wait().success());
    }
}

#[test]
fn what_the_client_cannot_do_is_answered_with_an_error() {
    let listener = AgentListener::new();
    let mut client = start(&listener, &["x"]);
    let (mut agent, prompt) = begin(&listener);
    for method in ["fs/read_text_file", "terminal/create", "_vendor/thing"] {
        agent.send_json(&request(method, method, &json!({"sessionId": SESSION})));
        let answer = agent.expect();
        assert_eq!(answer["id"], method);
        assert_eq!(answer["error"]["code"], -32601);
    }
    agent.answer(&prompt, &json!({"stopReason": "end_turn"}));
    assert!(client.wait().success());
}

#[test]
fn an_option_that_was_offered_is_chosen() {
    let listener = AgentListener::new();
    let mut client = start(&listener, &["--yes", "x"]);
    let (mut agent, prompt) = begin(&listener);
    let options = json!([
        {"optionId": "n", "name": "Yes", "kind": "reject_once"},
        {"optionId": "always", "name": "Yes", "kind": "allow_always"},
        {"optionId": "y", "name": "Yes", "kind": "allow_once"},
    ]);
    let params = json!({"sessionId": SESSION, "toolCall": {"toolCallId": "t", "title": "Do"}, "options": options});
    agent.send_json(&request(0, "session/request_permission", &params));
    assert_eq!(
        agent.expect()["result"]["outcome"],
        json!({"outcome": "selected", "optionId": "y"})
    );
    agent.answer(&prompt, &json!({"stopReason": "end_turn"}));
    assert!(client.wait().success());
}

fn interrupt(pid: u32) {
    signal(pid, Signal::INT);
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn an_interrupt_cancels_the_turn_and_waits_for_its_end() {
    let listener = AgentListener::new();
    let mut client = start(&listener, &["x"]);
    let (mut agent, prompt) = begin(&listener);
    interrupt(client.pid());
    let cancel = agent.expect();
    assert_eq!(cancel, notification("session/cancel", &json!({"sessionId": SESSION})));
    agent.send_json(&chunk("not yet"));
    agent.answer(&prompt, &json!({"stopReason": "cancelled"}));
    assert_eq!(client.expect_line(), "not yet");
    assert_eq!(client.wait().code(), Some(130));
}

#[test]
fn a_second_interrupt_ends_the_program() {
    let listener = AgentListener::staying();
    let mut client = start(&listener, &["x"]);
    let (mut agent, _) = begin(&listener);
    interrupt(client.pid());
    assert_eq!(agent.expect()["method"], "session/cancel");
    interrupt(client.pid());
    assert_eq!(client.wait().code(), Some(130));
}

#[test]
fn a_signal_to_end_ends_the_program_and_an_agent_that_stays() {
    for (kind, status) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let listener = AgentListener::staying();
        let mut client = start(&listener, &["x"]);
        let (agent, _) = begin(&listener);
        signal(client.pid(), kind);
        assert_eq!(client.wait().code(), Some(status));
        wait_until_gone(agent.pid());
    }
}

#[test]
fn errors_of_the_agent_are_told_in_one_sentence() {
    let listener = AgentListener::new();
    let mut client = start(&listener, &["x"]);
    let (mut agent, prompt) = begin(&listener);
    let error = json!({"code": -32000, "message": "Authentication required", "data": "no\nkey\u{1b}"});
    agent.send_json(&json!({"jsonrpc": "2.0", "id": prompt["id"], "error": error}));
    assert_eq!(client.wait().code(), Some(1));
    client.expect_end();
    let said = client.expect_standard_error("log in");
    assert!(
        said.starts_with("consort: session/prompt failed: Authentication required: no key\\u{1b}; log in"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn why_an_agent_has_died_is_told_once() {
    let outcome = run(&["prompt", "x", "--", "sh", "-c", "echo no key >&2; exit 3"]);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    assert_eq!(outcome.error.matches("no key").count(), 1, "{outcome:?}");
    assert!(!outcome.error.contains('{'), "no JSON: {outcome:?}");
}

#[test]
fn a_missing_agent_is_named() {
    let outcome = run(&["prompt", "x", "--", "/nonexistent/agent"]);
    assert!(matches!(outcome.status, Some(1 | 127)), "{outcome:?}");
    assert!(outcome.error.contains("/nonexistent/agent"), "{outcome:?}");
}

const QUESTION: &str = "nothing to cancel: ";

#[test]
fn a_permission_is_asked_for_on_the_terminal() {
    let (status, shown) = terminal::run(&["prompt", "a /tool"], &[(QUESTION, "1\n")]);
    assert_eq!(status, Some(0), "{shown}");
    assert!(shown.contains("  1) Allow once\r\n  2) Reject\r\n"), "{shown}");
    assert!(shown.contains("✓ Run echo 42"), "{shown}");
    let (_, shown) = terminal::run(&["prompt", "a /tool"], &[(QUESTION, "2\n")]);
    assert!(shown.contains("✗ Run echo 42"), "{shown}");
}

#[test]
fn what_is_no_choice_is_asked_again_and_nothing_cancels() {
    let answers = [(QUESTION, "3\n"), ("choose a number", ""), (QUESTION, "\n")];
    let (status, shown) = terminal::run(&["prompt", "a /tool"], &answers);
    assert_eq!(status, Some(130), "{shown}");
}

#[test]
fn standard_input_is_left_alone_when_there_is_a_prompt() {
    let mut command = command(&["prompt", "Hello"]);
    command.env("NO_COLOR", "1");
    let outcome = finish(command, b"something else");
    assert_eq!(outcome.output, ANSWER);
}
