//! `--trace FILE`: what the reference conductor's viewer needs, complete, and without credentials.

use consort_tests::guests::guest;
use consort_tests::session::{SESSION, begin, chunk, notification, prompt, request};
use consort_tests::{Agent, AgentListener, Client, Directory};
use rustix::fs::{CWD, FileType, Mode};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A chain whose traffic is traced to a file.
fn start(directory: &Directory, guests: &[(&str, Value)]) -> (Client, Agent) {
    let listener = AgentListener::new();
    let mut options: Vec<OsString> = vec!["--trace".into(), directory.path().join("t.jsons").into()];
    for (name, config) in guests {
        options.extend(["--proxy".into(), guest(name).into()]);
        options.extend(["--proxy-config".into(), format!("{name}={config}").into()]);
    }
    let mut client = Client::in_front_of(&listener, &options);
    let agent = begin(&mut client, &listener);
    (client, agent)
}

/// Ends a chain and reads its trace.
fn events(directory: &Directory, mut client: Client) -> Vec<Value> {
    client.close_input();
    client.wait();
    read(&directory.path().join("t.jsons"))
}

fn read(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).expect("there is a trace");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// Hops of a method, and of the answers to it, as `FROM → TO`.
fn way(events: &[Value], method: &str) -> Vec<String> {
    let mut ids: Vec<&Value> = Vec::new();
    let mut way = Vec::new();
    for event in events {
        let hop = format!(
            "{} → {}",
            event["from"].as_str().unwrap_or("?"),
            event["to"].as_str().unwrap_or("?")
        );
        if event["method"] == method {
            ids.push(&event["id"]);
            way.push(hop);
        } else if event["type"] == "response" && ids.contains(&&event["id"]) {
            way.push(format!("{hop} (answer)"));
        }
    }
    way
}

#[test]
fn every_hop_in_both_directions_is_there_and_answers_belong_to_their_requests() {
    let directory = Directory::new();
    let rewriter = json!({"method": "session/prompt", "params": [{"op": "add", "path": "/x", "value": 1}]});
    let (mut client, mut agent) = start(&directory, &[("arrow", json!({})), ("rewriter", rewriter)]);
    client.send_json(&prompt(7, "go"));
    let asked = agent.expect();
    agent.send_json(&chunk("one"));
    client.expect();
    agent.send_json(&request(
        0,
        "fs/read_text_file",
        &json!({"sessionId": SESSION, "path": "/x"}),
    ));
    let read = client.expect();
    client.send_json(&json!({"jsonrpc": "2.0", "id": read["id"], "error": {"code": -1, "message": "no"}}));
    agent.expect();
    agent.answer(&asked, &json!({"stopReason": "end_turn"}));
    client.expect();
    client.send_json(&request("early", "proxy/initialize", &json!({})));
    client.expect();
    let events = events(&directory, client);
    assert_eq!(
        way(&events, "session/prompt"),
        [
            "Client → Proxy(1)",
            "Proxy(1) → Agent",
            "Agent → Proxy(1) (answer)",
            "Proxy(1) → Client (answer)"
        ]
    );
    assert_eq!(
        way(&events, "session/update"),
        ["Agent → Proxy(0)", "Proxy(0) → Client"]
    );
    assert_eq!(
        way(&events, "fs/read_text_file"),
        ["Agent → Client", "Client → Agent (answer)"]
    );
    assert_eq!(
        way(&events, "session/new"),
        ["Client → Agent", "Agent → Client (answer)"]
    );
    // Every request has one answer, on the same hop, later.
    let mut open: HashMap<String, (Value, Value)> = HashMap::new();
    let mut time = 0.0;
    for event in &events {
        let now = event["ts"].as_f64().expect("each has a time");
        assert!(now >= time, "{event}");
        time = now;
        let id = event["id"].to_string();
        match event["type"].as_str() {
            Some("request") => {
                let hop = (event["from"].clone(), event["to"].clone());
                assert!(open.insert(id, hop).is_none(), "{event}");
            }
            Some("response") if event["id"] != "early" => {
                let (from, to) = open.remove(&id).unwrap_or_else(|| panic!("answers nothing: {event}"));
                assert_eq!((&event["from"], &event["to"]), (&to, &from), "{event}");
            }
            Some("response") => assert_eq!(
                (&event["from"], &event["is_error"]),
                (&json!("Conductor"), &json!(true))
            ),
            Some("notification") => assert!(event.get("id").is_none(), "{event}"),
            other => panic!("{other:?} is not in the viewer's format"),
        }
    }
    assert!(open.is_empty(), "without an answer: {open:?}");
    let edited = events
        .iter()
        .find(|event| event["from"] == "Proxy(1)" && event["method"] == "session/prompt");
    assert_eq!(
        edited.map(|event| (&event["params"]["x"], &event["session"])),
        Some((&json!(1), &json!(SESSION)))
    );
}

#[test]
fn services_and_cancels_are_there_too() {
    let directory = Directory::new();
    let slow = json!({"milliseconds": 3_600_000, "methods": ["session/prompt"]});
    let (mut client, _agent) = start(&directory, &[("slow", slow)]);
    client.send_json(&prompt("p", "go"));
    client.send_json(&notification("$/cancel_request", &json!({"requestId": "p"})));
    assert_eq!(client.expect()["error"]["code"], -32800);
    let events = events(&directory, client);
    assert_eq!(
        way(&events, "host/sleep"),
        ["Proxy(0) → Conductor", "Conductor → Proxy(0) (answer)"]
    );
    let cancels = way(&events, "$/cancel_request");
    assert_eq!(cancels, ["Client → Proxy(0)", "Proxy(0) → Conductor"]);
}

#[test]
fn credentials_are_masked_and_only_the_user_can_read_it() {
    let directory = Directory::new();
    let file = directory.file("t.jsons", "{\"type\":\"notification\",\"of\":\"an earlier run\"}\n");
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("it is the user's");
    let (mut client, mut agent) = start(&directory, &[]);
    let servers = json!([
        {"name": "a", "command": "/bin/a", "args": [], "env": [{"name": "KEY", "value": "hidden-1"}]},
        {"type": "http", "name": "b", "url": "https://me:hidden-2@host/?api_key=hidden-3",
            "headers": [{"name": "Authorization", "value": "Bearer hidden-4"}]},
    ]);
    client.send_json(&request(1, "session/new", &json!({"cwd": "/", "mcpServers": servers})));
    let new = agent.expect();
    assert_eq!(new["params"]["mcpServers"], servers, "only the trace is masked");
    agent.answer(&new, &json!({"sessionId": "s2", "_meta": {"accessToken": "hidden-5"}}));
    client.expect();
    events(&directory, client);
    let text = std::fs::read_to_string(&file).expect("there is a trace");
    assert!(!text.contains("hidden"), "{text}");
    assert!(text.contains("[REDACTED]") && text.contains("\"KEY\""), "{text}");
    let mode = std::fs::metadata(&file).expect("there is a trace").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_trace_that_cannot_be_written_is_told_before_anything_starts() {
    let outcome = consort_tests::command::run_with_input(
        &["run", "--trace", "/nonexistent/t", "--", "true"],
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":1}}\n",
    );
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    for text in [&outcome.error, &outcome.output] {
        assert!(
            text.contains("cannot write the trace file /nonexistent/t"),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_pipe_that_nobody_reads_is_told_before_anything_starts() {
    let directory = Directory::new();
    let pipe = directory.path().join("t");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe can be made");
    let outcome = consort_tests::command::run_with_input(
        &[
            "run".as_ref(),
            "--trace".as_ref(),
            pipe.as_os_str(),
            "--".as_ref(),
            "true".as_ref(),
        ],
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":1}}\n",
    );
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    for text in [&outcome.error, &outcome.output] {
        assert!(text.contains("nobody reads from it"), "{outcome:?}");
    }
}

#[test]
fn a_message_that_is_too_long_to_be_shown_is_there_with_its_session_and_size() {
    let directory = Directory::new();
    let (mut client, mut agent) = start(&directory, &[]);
    // More than may wait for the disk.
    let text = "x".repeat(17 * 1024 * 1024);
    for id in 0..3 {
        client.send_json(&prompt(id, &text));
        let asked = agent.expect();
        agent.answer(&asked, &json!({"stopReason": "end_turn", "_meta": text}));
        client.expect();
    }
    let events = events(&directory, client);
    assert_eq!(
        way(&events, "session/prompt"),
        ["Client → Agent", "Agent → Client (answer)"].repeat(3)
    );
    for event in events.iter().filter(|event| event["method"] == "session/prompt") {
        assert_eq!(event["session"], SESSION, "{event}");
        let size = event["params"]["consort/omitted-bytes"].as_u64();
        assert!(size.is_some_and(|size| size > 17 << 20), "{event}");
    }
    assert!(!events.iter().any(|event| event["method"] == "consort/dropped"));
}

#[test]
fn standard_output_is_no_place_for_it() {
    let outcome = consort_tests::command::run_with_input(
        &["run", "--trace", "/dev/stdout", "--", "true"],
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":1}}\n",
    );
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    assert!(outcome.error.contains("carries the protocol"), "{outcome:?}");
    let answer: Value = serde_json::from_str(&outcome.output).expect("one line and nothing else");
    assert_eq!(answer["id"], 1);
}

/// Each response in a trace has its request on the same hop before it.
fn assert_pairs(events: &[Value]) {
    for (at, event) in events
        .iter()
        .enumerate()
        .filter(|(_, event)| event["type"] == "response")
    {
        let request = events[..at]
            .iter()
            .any(|other| other["type"] == "request" && other["id"] == event["id"] && other["to"] == event["from"]);
        assert!(request, "answers nothing: {event}\n{events:#?}");
    }
}

#[test]
fn what_is_cancelled_in_a_queue_or_goes_past_a_failed_proxy_keeps_its_pairs() {
    let directory = Directory::new();
    let slow = json!({"milliseconds": 3_600_000, "methods": ["session/prompt"]});
    let trap = json!({"on": "x/bad", "source": "client", "when": "handler"});
    let (mut client, mut agent) = start(&directory, &[("slow", slow), ("trap", trap)]);
    client.send_json(&prompt(1, "held"));
    client.send_json(&prompt(2, "behind it"));
    client.send_json(&notification("$/cancel_request", &json!({"requestId": 2})));
    assert_eq!(client.expect()["id"], 2);
    client.send_json(&request(3, "x/bad", &json!({})));
    let asked = agent.expect();
    agent.answer(&asked, &json!({}));
    assert_eq!(client.expect()["id"], 3);
    client.send_json(&notification("$/cancel_request", &json!({"requestId": 1})));
    assert_eq!(client.expect()["id"], 1);
    let events = events(&directory, client);
    assert_pairs(&events);
    assert_eq!(
        way(&events, "x/bad"),
        ["Client → Proxy(1)", "Client → Agent", "Agent → Client (answer)"]
    );
}

#[test]
fn a_file_that_is_no_trace_is_left_alone() {
    let directory = Directory::new();
    let file = directory.file("notes.txt", "keep me");
    let arguments = [
        "run".into(),
        "--trace".into(),
        file.clone().into_os_string(),
        "--".into(),
        "true".into(),
    ];
    let outcome = consort_tests::command::run_with_input(
        &arguments,
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":1}}\n",
    );
    assert!(outcome.error.contains("is no trace"), "{outcome:?}");
    assert_eq!(std::fs::read_to_string(file).expect("it is there"), "keep me");
}

#[test]
fn the_secrets_of_bridged_servers_are_not_in_a_trace() {
    for reached in [json!({"http": true}), json!({})] {
        let directory = Directory::new();
        let trace = directory.path().join("t.jsons");
        let listener = AgentListener::new();
        let options: [OsString; 2] = ["--trace".into(), trace.clone().into()];
        let mut client = Client::in_front_of(&listener, &options);
        client.send_json(&request("init", "initialize", &json!({"protocolVersion": 1})));
        let mut agent = listener.accept();
        let initialize = agent.expect();
        let capabilities = json!({"mcpCapabilities": reached});
        agent.answer(
            &initialize,
            &json!({"protocolVersion": 1, "agentCapabilities": capabilities}),
        );
        client.expect();
        let servers = json!([{"type": "acp", "name": "own", "serverId": "own"}]);
        client.send_json(&request(
            "new",
            "session/new",
            &json!({"cwd": "/", "mcpServers": servers}),
        ));
        let new = agent.expect();
        let entry = &new["params"]["mcpServers"][0];
        let secrets = match entry["type"].as_str() {
            Some("http") => vec![
                entry["url"].as_str().unwrap().rsplit('/').next().unwrap(),
                entry["headers"][0]["value"].as_str().unwrap(),
            ],
            _ => vec![entry["env"][0]["value"].as_str().unwrap()],
        };
        agent.answer(&new, &json!({"sessionId": SESSION}));
        client.expect();
        client.close_input();
        client.wait();
        let text = std::fs::read_to_string(&trace).unwrap();
        assert!(text.contains("[REDACTED]"), "{text}");
        for secret in secrets {
            assert!(secret.len() >= 32 && !text.contains(secret), "{secret}");
        }
    }
}
