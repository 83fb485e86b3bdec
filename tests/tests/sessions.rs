//! Sessions through a chain: loaded, forked, closed, cancelled, and never reshaped.

use consort_tests::chains::{every, mixed, none, passing, slow};
use consort_tests::raw::{id, last};
use consort_tests::session::{SESSION, begin, chunk, notification, prompt, request};
use serde_json::{Value, json};

fn load(id: &str) -> Value {
    request(
        id,
        "session/load",
        &json!({"sessionId": SESSION, "cwd": "/", "mcpServers": []}),
    )
}

#[test]
fn what_a_load_replays_comes_in_order_and_before_its_result() {
    for chain in [
        none(),
        passing(1),
        slow(2, &["session/load", "session/update"]),
        mixed(2, &["session/load"]),
        mixed(2, &["session/update"]),
    ] {
        let (mut client, mut agent) = chain.start();
        client.send_json(&load("l"));
        let asked = agent.expect();
        let mut lines: String = (0..50)
            .map(|number| format!("{}\n", chunk(&number.to_string())))
            .collect();
        lines.push_str(&format!(
            "{}\n",
            json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"modes": null}})
        ));
        agent.send_raw(lines.as_bytes());
        for number in 0..50 {
            assert_eq!(client.expect(), chunk(&number.to_string()), "{}", chain.name);
        }
        assert_eq!(
            client.expect(),
            json!({"jsonrpc": "2.0", "id": "l", "result": {"modes": null}}),
            "{}",
            chain.name
        );
    }
}

#[test]
fn a_fork_gives_a_session_that_works_and_its_result_is_not_reshaped() {
    let results = [
        r#"{"sessionId":"s2"}"#,
        r#"{"_meta":{"n":1.10},"configOptions":[],"modes":{"currentModeId":"x","availableModes":[]},"sessionId":"s2","later":null}"#,
    ];
    for chain in every(10, &["session/fork", "session/prompt"]) {
        for result in results {
            let (mut client, mut agent) = chain.start();
            let params = json!({"sessionId": SESSION, "cwd": "/", "mcpServers": []});
            client.send_json(&request("f", "session/fork", &params));
            let asked = agent.expect_line();
            // Its commands come in the same write, behind the answer or before it.
            let commands = notification(
                "session/update",
                &json!({"sessionId": "s2", "update": {"sessionUpdate": "available_commands_update"}}),
            );
            agent.send_raw(
                format!(
                    "{commands}\n{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}\n",
                    id(&asked)
                )
                .as_bytes(),
            );
            assert_eq!(last(&client.expect_line(), "result"), result, "{}", chain.name);
            assert_eq!(client.expect(), commands, "{}", chain.name);
            client.send_json(&request(
                "p",
                "session/prompt",
                &json!({"sessionId": "s2", "prompt": []}),
            ));
            let asked = agent.expect();
            assert_eq!(asked["params"]["sessionId"], "s2", "{}", chain.name);
            let update = notification(
                "session/update",
                &json!({"sessionId": "s2", "update": {"sessionUpdate": "x"}}),
            );
            agent.send_json(&update);
            agent.answer(&asked, &json!({"stopReason": "end_turn"}));
            assert_eq!(client.expect(), update, "{}", chain.name);
            assert_eq!(client.expect()["id"], "p", "{}", chain.name);
        }
    }
}

#[test]
fn a_proxy_works_in_a_forked_session() {
    let chain = consort_tests::chains::Chain::new("arrow", &[("arrow", json!({}))]);
    let (mut client, mut agent) = chain.start();
    client.send_json(&request(
        "f",
        "session/fork",
        &json!({"sessionId": SESSION, "cwd": "/"}),
    ));
    let asked = agent.expect();
    agent.answer(&asked, &json!({"sessionId": "s2"}));
    client.expect();
    let update = |text: &str| {
        notification(
            "session/update",
            &json!({"sessionId": "s2", "update": {"sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": text}}}),
        )
    };
    agent.send_json(&update("one"));
    assert_eq!(client.expect(), update(">one"));
}

#[test]
fn a_capability_is_not_invented_and_a_session_that_was_closed_is_not_loaded_again() {
    for chain in every(10, &["session/close", "session/new"]) {
        let (mut client, listener) = chain.fresh();
        client.send_json(&request(1, "initialize", &json!({"protocolVersion": 1})));
        let mut agent = listener.accept();
        let first = agent.expect();
        let capabilities = json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": true}});
        agent.answer(&first, &capabilities);
        assert_eq!(
            client.expect()["result"],
            chain.bridged(&capabilities),
            "{}",
            chain.name
        );
        client.send_json(&request(2, "session/new", &json!({"cwd": "/", "mcpServers": []})));
        let new = agent.expect();
        agent.answer(&new, &json!({"sessionId": SESSION}));
        client.expect();
        client.send_json(&request(3, "session/close", &json!({"sessionId": SESSION})));
        let close = agent.expect();
        let error = json!({"code": -32601, "message": "Method not found", "data": "session/close"});
        agent.send_json(&json!({"jsonrpc": "2.0", "id": close["id"], "error": error}));
        assert_eq!(client.expect()["error"], error, "{}", chain.name);
        // The agent goes, and the client begins anew: nothing is asked that it did not ask.
        agent.exit(1);
        client.send_json(&request(4, "session/new", &json!({"cwd": "/", "mcpServers": []})));
        assert!(client.expect()["error"]["message"].is_string(), "{}", chain.name);
        client.send_json(&request(5, "initialize", &json!({"protocolVersion": 1})));
        let mut agent = listener.accept();
        let first = agent.expect();
        agent.answer(&first, &capabilities);
        assert_eq!(client.expect()["id"], 5, "{}", chain.name);
        client.send_json(&request(6, "session/new", &json!({"cwd": "/", "mcpServers": []})));
        let new = agent.expect();
        assert_eq!(new["method"], "session/new", "{}: {new}", chain.name);
        agent.answer(&new, &json!({"sessionId": "s2"}));
        assert_eq!(client.expect()["id"], 6, "{}", chain.name);
    }
}

#[test]
fn a_session_that_is_loaded_during_its_prompt_can_still_be_cancelled() {
    for chain in every(10, &["session/prompt", "session/load", "session/cancel"]) {
        let (mut client, mut agent) = chain.start();
        client.send_json(&prompt("p", "go"));
        let prompted = agent.expect();
        client.send_json(&load("l"));
        client.send_json(&notification("session/cancel", &json!({"sessionId": SESSION})));
        let loaded = agent.expect();
        assert_eq!(loaded["method"], "session/load", "{}", chain.name);
        assert_eq!(agent.expect()["method"], "session/cancel", "{}", chain.name);
        agent.answer(&prompted, &json!({"stopReason": "cancelled"}));
        agent.answer(&loaded, &json!({}));
        assert_eq!(
            client.expect(),
            json!({"jsonrpc": "2.0", "id": "p", "result": {"stopReason": "cancelled"}}),
            "{}",
            chain.name
        );
        assert_eq!(client.expect()["id"], "l", "{}", chain.name);
    }
}

#[test]
fn sessions_do_not_wait_for_each_other() {
    for chain in [none(), passing(2)] {
        let (mut client, mut agent) = chain.start();
        client.send_json(&prompt("p", "go"));
        let first = agent.expect();
        client.send_json(&request(
            "q",
            "session/prompt",
            &json!({"sessionId": "s2", "prompt": []}),
        ));
        let second = agent.expect();
        agent.answer(&second, &json!({"stopReason": "end_turn"}));
        assert_eq!(client.expect()["id"], "q", "{}", chain.name);
        agent.answer(&first, &json!({"stopReason": "end_turn"}));
        assert_eq!(client.expect()["id"], "p", "{}", chain.name);
    }
    // Not even where a proxy never lets go of one of them.
    let (mut client, mut agent) = slow(3_600_000, &["x/slow"]).start();
    client.send_json(&request("p", "x/slow", &json!({"sessionId": SESSION})));
    client.send_json(&request(
        "q",
        "session/prompt",
        &json!({"sessionId": "s2", "prompt": []}),
    ));
    let second = agent.expect();
    agent.answer(&second, &json!({"stopReason": "end_turn"}));
    assert_eq!(client.expect()["id"], "q");
}

#[test]
fn a_session_that_nobody_announced_is_served() {
    for chain in every(10, &["session/prompt", "session/update"]) {
        let (mut client, listener) = chain.fresh();
        let mut agent = begin(&mut client, &listener);
        client.send_json(&request(
            "p",
            "session/prompt",
            &json!({"sessionId": "from yesterday", "prompt": []}),
        ));
        let asked = agent.expect();
        let update = notification("session/update", &json!({"sessionId": "from nowhere", "update": {}}));
        agent.send_json(&update);
        assert_eq!(client.expect(), update, "{}", chain.name);
        agent.answer(&asked, &json!({"stopReason": "end_turn"}));
        assert_eq!(client.expect()["id"], "p", "{}", chain.name);
    }
}

#[test]
fn usage_passes_as_it_is_and_again_when_it_is_replayed() {
    let usage = r#"{"sessionId":"s1","update":{"sessionUpdate":"usage_update","used":53000,"size":200000,"cost":{"amount":0.10,"currency":"USD"}}}"#;
    let result = r#"{"stopReason":"end_turn","usage":{"totalTokens":1.0,"inputTokens":1,"outputTokens":0}}"#;
    for chain in every(10, &["session/prompt", "session/update"]) {
        let (mut client, mut agent) = chain.start();
        client.send_json(&prompt("p", "go"));
        let asked = agent.expect();
        agent.send(&format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{usage}}}"#
        ));
        agent.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#,
            asked["id"]
        ));
        assert_eq!(last(&client.expect_line(), "params"), usage, "{}", chain.name);
        assert_eq!(last(&client.expect_line(), "result"), result, "{}", chain.name);
        client.send_json(&load("l"));
        let asked = agent.expect();
        agent.send(&format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{usage}}}"#
        ));
        agent.answer(&asked, &json!({}));
        assert_eq!(last(&client.expect_line(), "params"), usage, "{}", chain.name);
        assert_eq!(client.expect()["id"], "l", "{}", chain.name);
    }
}

#[test]
fn the_clients_mcp_servers_reach_the_agent_as_they_are() {
    let servers = r#"[{"name":"files","command":"/opt/my files/mcp","args":["--root","/a b"],"env":[{"name":"B","value":"2"},{"name":"A","value":"1"},{"name":"B","value":"3"}]},{"type":"http","name":"web","url":"https://example.org/mcp?x=%20","headers":[]},{"headers":[{"name":"X-Key","value":"k"}],"type":"sse","url":"https://example.org/sse","name":"old"},{"name":"plain","command":"mcp","args":[],"env":[],"_meta":{"n":1.0}}]"#;
    for chain in every(10, &["session/new", "session/load", "session/resume", "session/fork"]) {
        let (mut client, listener) = chain.fresh();
        // Twice: also after a restart of the agent.
        for round in 0..2 {
            let mut agent = begin(&mut client, &listener);
            for method in ["session/new", "session/load", "session/resume", "session/fork"] {
                let params = format!(r#"{{"sessionId":"s1","cwd":"/","mcpServers":{servers}}}"#);
                client.send(&format!(
                    r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#
                ));
                let line = agent.expect_line();
                assert_eq!(last(&line, "params"), params, "{}: {method}, round {round}", chain.name);
                agent.send(&format!(
                    r#"{{"jsonrpc":"2.0","id":{},"result":{{"sessionId":"s1"}}}}"#,
                    id(&line)
                ));
                assert_eq!(client.expect()["id"], 1, "{}", chain.name);
            }
            client.send_json(&prompt("p", "go"));
            agent.expect();
            agent.exit(1);
            assert!(client.expect()["error"]["message"].is_string(), "{}", chain.name);
        }
    }
}
