//! Nothing is lost, doubled or overtaken, through any number of proxies.

use consort_tests::guests::guest;
use consort_tests::session::{begin, chunk, prompt};
use consort_tests::{AgentListener, Client};
use serde_json::json;
use std::thread;

/// Updates in one answer.
const UPDATES: usize = 10_000;

/// `--proxy` options for a number of proxies that put a `>` in front of each chunk.
fn arrows(count: usize) -> Vec<std::ffi::OsString> {
    (0..count)
        .flat_map(|_| ["--proxy".into(), guest("arrow").into()])
        .collect()
}

/// The text of update number `n`; a few sizes, the largest above what a proxy gets as one small buffer.
fn text(number: usize) -> String {
    let size = match number % 100 {
        0 => 20_000,
        1..10 => 1_000,
        _ => 10,
    };
    format!("{number} {}", "x".repeat(size))
}

fn stream_through(count: usize) {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &arrows(count));
    let mut agent = begin(&mut client, &listener);
    client.send_json(&prompt(3, "go"));
    let request = agent.expect();
    thread::scope(|scope| {
        scope.spawn(|| {
            for batch in (0..UPDATES).collect::<Vec<_>>().chunks(100) {
                let lines: String = batch
                    .iter()
                    .map(|number| format!("{}\n", chunk(&text(*number))))
                    .collect();
                agent.send_raw(lines.as_bytes());
            }
            agent.answer(&request, &json!({"stopReason": "end_turn"}));
        });
        let arrows = ">".repeat(count);
        for number in 0..UPDATES {
            let expected = chunk(&format!("{arrows}{}", text(number)));
            let update = client.expect();
            assert!(
                update == expected,
                "update {number} of {count} proxies came as {update:.200}"
            );
        }
        assert_eq!(client.expect()["id"], 3);
    });
}

#[test]
fn ten_thousand_updates_through_no_proxy() {
    stream_through(0);
}

#[test]
fn ten_thousand_updates_through_one_proxy() {
    stream_through(1);
}

#[test]
fn ten_thousand_updates_through_four_proxies() {
    stream_through(4);
}

#[test]
fn ten_thousand_updates_through_eight_proxies() {
    stream_through(8);
}

#[test]
fn a_slow_proxy_delays_its_session_and_nothing_overtakes_it() {
    let listener = AgentListener::new();
    let slow = r#"slow={"milliseconds":100,"methods":["session/update"]}"#;
    let options: [std::ffi::OsString; 4] = [
        "--proxy".into(),
        guest("slow").into(),
        "--proxy-config".into(),
        slow.into(),
    ];
    let mut client = Client::in_front_of(&listener, &options);
    let mut agent = begin(&mut client, &listener);
    client.send_json(&prompt(3, "go"));
    let request = agent.expect();
    for number in 0..5 {
        agent.send_json(&chunk(&number.to_string()));
    }
    agent.send_json(
        &json!({"jsonrpc": "2.0", "id": 0, "method": "session/request_permission", "params": {"sessionId": "s1"}}),
    );
    agent.send_json(
        &json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "other", "late": false}}),
    );
    agent.answer(&request, &json!({"stopReason": "end_turn"}));
    // The other session waits for its own 100 ms only; where it comes in between is a matter of time.
    let mut rest = Vec::new();
    for _ in 0..8 {
        let line = client.expect();
        if line["params"]["sessionId"] != "other" {
            rest.push(line);
        }
    }
    for (number, line) in rest[..5].iter().enumerate() {
        assert_eq!(*line, chunk(&number.to_string()));
    }
    assert_eq!(rest[5]["method"], "session/request_permission");
    assert_eq!(rest[6]["id"], 3);
}

#[test]
fn the_answer_to_a_new_session_comes_before_its_updates() {
    let listener = AgentListener::new();
    let slow = r#"slow={"milliseconds":50,"methods":["session/new"]}"#;
    let rewriter = r#"rewriter={"method":"session/new","result":[{"op":"add","path":"/seen","value":true}]}"#;
    let options: Vec<std::ffi::OsString> = vec![
        "--proxy".into(),
        guest("slow").into(),
        "--proxy-config".into(),
        slow.into(),
        "--proxy".into(),
        guest("rewriter").into(),
        "--proxy-config".into(),
        rewriter.into(),
    ];
    let mut client = Client::in_front_of(&listener, &options);
    let mut agent = begin(&mut client, &listener);
    for turn in 0..20 {
        client.send_json(
            &json!({"jsonrpc": "2.0", "id": turn, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}}),
        );
        let request = agent.expect();
        let session = format!("new-{turn}");
        let update = json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "update": {"sessionUpdate": "available_commands_update"}}});
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": {"sessionId": session}});
        // In one write, and every other time the wrong way round.
        let lines = if turn % 2 == 0 {
            format!("{answer}\n{update}\n")
        } else {
            format!("{update}\n{answer}\n")
        };
        agent.send_raw(lines.as_bytes());
        let first = client.expect();
        assert_eq!((&first["id"], &first["result"]["seen"]), (&json!(turn), &json!(true)));
        assert_eq!(client.expect(), update);
    }
}
