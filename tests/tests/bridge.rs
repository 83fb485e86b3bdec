//! MCP servers of proxies, as an agent reaches them that knows nothing of MCP over ACP: over HTTP on the loopback interface, and by starting
//! them.

use consort_tests::PATIENCE;
use consort_tests::chains::none;
use consort_tests::mcp::{BOTH, JSON, Shim, close, new_session, offering, own_server, set_up, start, start_over_http};
use consort_tests::session::request;
use serde_json::{Value, json};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn a_tool_of_a_proxy_is_called_over_http() {
    let (_client, _agent, server) = start_over_http();
    let session = server.connect();
    let listed = session.post(JSON, &request("l", "tools/list", &json!({}))).json();
    assert_eq!(listed["id"], "l");
    assert_eq!(listed["result"]["tools"][0]["name"], "echo");
    assert_eq!(
        session.tool("echo", &json!({"text": "é\n\"x\""})),
        json!({"jsonrpc": "2.0", "id": 7, "result": {"content": [{"type": "text", "text": "é\n\"x\""}], "isError": false}})
    );
    assert_eq!(
        session.tool("session", &json!({}))["result"]["structuredContent"],
        json!({"session": "s1"})
    );
    assert_eq!(session.tool("fail", &json!({"text": "no"}))["result"]["isError"], true);
    assert_eq!(session.tool("break", &json!({}))["error"]["code"], -32042);
    let much = session.tool("much", &json!({"bytes": 3_000_000}));
    assert_eq!(much["result"]["content"][0]["text"].as_str().unwrap().len(), 3_000_000);
    let read = session
        .post(JSON, &request(8, "resources/read", &json!({"uri": "offers://text"})))
        .json();
    assert_eq!(read["result"]["contents"][0]["text"], "a text");
    let prompt = session
        .post(
            JSON,
            &request(
                9,
                "prompts/get",
                &json!({"name": "greet", "arguments": {"text": "you"}}),
            ),
        )
        .json();
    assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "Hello, you");
}

#[test]
fn what_else_stands_in_the_set_up_stays_as_it_is() {
    let others = json!([{"name": "x", "command": "/x", "args": [], "env": [{"name": "A", "value": "1"}]}, {"type": "sse", "name": "y", "url": "http://y", "headers": []}]);
    let (_client, _agent, new) = set_up(&offering(), &json!({"http": true}), &others);
    let servers = new["params"]["mcpServers"].as_array().unwrap();
    assert_eq!((&servers[0], &servers[1]), (&others[0], &others[1]));
    assert_eq!((servers.len(), &servers[2]["name"]), (3, &json!("offers")));
}

#[test]
fn an_answer_comes_as_a_stream_with_what_is_told_on_the_way() {
    let (_client, _agent, server) = start_over_http();
    let session = server.connect();
    let params = json!({"name": "wait", "arguments": {"milliseconds": 40}, "_meta": {"progressToken": "t"}});
    let mut stream = session.post(BOTH, &request("w", "tools/call", &params));
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    for step in 0..4 {
        let (_, told) = stream.event().unwrap();
        assert_eq!(told["method"], "notifications/progress");
        assert_eq!(
            (&told["params"]["progressToken"], &told["params"]["progress"]),
            (&json!("t"), &json!(f64::from(step)))
        );
    }
    assert_eq!(stream.event().unwrap().1["method"], "notifications/message");
    let (_, last) = stream.event().unwrap();
    assert_eq!(
        (&last["id"], &last["result"]["content"][0]["text"]),
        (&json!("w"), &json!("done"))
    );
    assert!(stream.event().is_none(), "the stream ends with the answer");
}

#[test]
fn a_stream_that_broke_goes_on_where_it_was() {
    let (_client, _agent, server) = start_over_http();
    let session = server.connect();
    let params = json!({"name": "wait", "arguments": {"milliseconds": 400}, "_meta": {"progressToken": 1}});
    let mut stream = session.post(BOTH, &request(1, "tools/call", &params));
    let (first, _) = stream.event().unwrap();
    drop(stream);
    let mut rest = session.get(&[("Last-Event-ID", &first)]);
    assert_eq!(rest.event().unwrap().1["params"]["progress"], 1.0);
    let last = std::iter::from_fn(|| rest.event()).last().unwrap().1;
    assert_eq!(last["result"]["content"][0]["text"], "done");
}

#[test]
fn a_stream_that_broke_before_anything_came_goes_on_too() {
    let (_client, _agent, server) = start_over_http();
    let session = server.connect_with("2025-11-25");
    let params = json!({"name": "wait", "arguments": {"milliseconds": 40}});
    let mut stream = session.post(BOTH, &request(1, "tools/call", &params));
    let (first, nothing) = stream.event().unwrap();
    assert_eq!(nothing, Value::Null);
    drop(stream);
    let mut rest = session.get(&[("Last-Event-ID", &first)]);
    assert_eq!(rest.event().unwrap(), (first, Value::Null));
    let last = std::iter::from_fn(|| rest.event()).last().unwrap().1;
    assert_eq!(last["result"]["content"][0]["text"], "done");
}

#[test]
fn the_server_asks_its_client() {
    let (_client, _agent, server) = start_over_http();
    let session = server.connect();
    let mut news = session.get(&[]);
    assert_eq!(news.status, 200);
    for (outcome, told) in [
        (json!({"result": {"roots": []}}), json!(r#"{"roots":[]}"#)),
        (json!({"error": {"code": -1, "message": "not now"}}), json!("not now")),
    ] {
        let params = json!({"name": "ask", "arguments": {"method": "roots/list"}});
        let mut answer = session.post(BOTH, &request(1, "tools/call", &params));
        let (_, asked) = news.event().unwrap();
        assert_eq!(asked["method"], "roots/list");
        let mut reply = json!({"jsonrpc": "2.0", "id": asked["id"]});
        reply
            .as_object_mut()
            .unwrap()
            .extend(outcome.as_object().unwrap().clone());
        assert_eq!(session.post(BOTH, &reply).status, 202);
        assert_eq!(answer.event().unwrap().1["result"]["content"][0]["text"], told);
    }
}

#[test]
fn requests_without_a_session_are_answered_as_the_latest_revision_has_it() {
    let (_client, _agent, server) = start_over_http();
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let found = server
        .post(&[JSON], &request(1, "server/discover", &json!({"_meta": meta})))
        .json();
    assert_eq!(found["result"]["supportedVersions"][0], "2026-07-28");
    let params = json!({"name": "echo", "arguments": {"text": "a"}, "_meta": meta});
    let called = server.post(&[JSON], &request(2, "tools/call", &params)).json();
    assert_eq!(called["result"]["resultType"], "complete");
}

#[test]
fn requests_without_a_session_hear_of_their_own_progress_only() {
    let (_client, _agent, server) = start_over_http();
    let wait = |milliseconds: u64| {
        let params =
            json!({"name": "wait", "arguments": {"milliseconds": milliseconds}, "_meta": {"progressToken": "t"}});
        server.post(&[BOTH], &request(1, "tools/call", &params))
    };
    let (mut slow, mut quick) = (wait(400), wait(40));
    for stream in [&mut quick, &mut slow] {
        let told: Vec<Value> = std::iter::from_fn(|| stream.event()).map(|(_, told)| told).collect();
        let progress = told.iter().filter(|told| told["method"] == "notifications/progress");
        let steps: Vec<_> = progress
            .map(|told| {
                (
                    told["params"]["progressToken"].clone(),
                    told["params"]["progress"].as_f64(),
                )
            })
            .collect();
        let expected = [0.0, 1.0, 2.0, 3.0].map(|step| (json!("t"), Some(step)));
        assert_eq!(steps, expected);
        assert_eq!(told.last().unwrap()["result"]["content"][0]["text"], "done");
    }
}

#[test]
fn a_request_is_given_up() {
    let (_client, _agent, server) = start_over_http();
    let session = server.connect();
    let params = json!({"name": "wait", "arguments": {"milliseconds": 600_000}});
    let mut stream = session.post(BOTH, &request("long", "tools/call", &params));
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "long"}});
    assert_eq!(session.post(BOTH, &cancel).status, 202);
    assert_eq!(stream.event().unwrap().1["error"]["code"], -32800);
    assert_eq!(session.tool("echo", &json!({"text": "a"}))["result"]["isError"], false);
}

#[test]
fn other_methods_and_bad_bodies_get_clear_answers() {
    let (_client, _agent, server) = start_over_http();
    for (method, headers) in [
        ("GET", vec![]),
        ("GET", vec![BOTH]),
        ("DELETE", vec![]),
        ("PUT", vec![]),
    ] {
        let answer = server.send(method, &headers, b"");
        assert_eq!(
            (answer.status, answer.header("allow")),
            (405, Some("POST, GET, DELETE")),
            "{method}"
        );
    }
    for method in ["GET", "DELETE"] {
        let answer = server.send(method, &[BOTH, ("Mcp-Session-Id", "0")], b"");
        assert_eq!(answer.status, 404, "{method}");
    }
    for (body, code) in [
        (r#"{"id":null,"method":"ping"}"#, -32600),
        ("", -32700),
        ("{", -32700),
        ("[]", -32600),
        ("{}", -32600),
        (r#"{"id":1}"#, -32600),
    ] {
        let answer = server.send("POST", &[JSON], body.as_bytes());
        assert_eq!(answer.status, 400, "{body}");
        assert_eq!(answer.json()["error"]["code"], code, "{body}");
    }
    let session = server.connect();
    let ping = request(1, "ping", &json!({}));
    for (revision, status) in [("2025-06-18", 200), ("2025-03-26", 200), ("1999-01-01", 400), ("", 400)] {
        let headers = [
            JSON,
            ("Mcp-Session-Id", &session.id),
            ("MCP-Protocol-Version", revision),
        ];
        assert_eq!(server.post(&headers, &ping).status, status, "{revision}");
    }
    for accept in [None, Some(("Accept", "*/*")), Some(JSON), Some(BOTH)] {
        let headers: Vec<_> = accept.into_iter().collect();
        assert_eq!(
            server.post(&headers, &request(1, "ping", &json!({}))).status,
            200,
            "{accept:?}"
        );
    }
}

#[test]
fn a_session_that_is_over_is_over_for_everybody() {
    let (mut client, mut agent, server) = start_over_http();
    let session = server.connect();
    assert_eq!(
        server.send("DELETE", &[("Mcp-Session-Id", &session.id)], b"").status,
        200
    );
    assert_eq!(session.post(JSON, &request(1, "ping", &json!({}))).status, 404);
    let session = server.connect();
    let mut news = session.get(&[]);
    close(&mut client, &mut agent, "s1");
    assert!(news.event().is_none(), "the stream ends");
    let address = server.url.split('/').nth(2).unwrap();
    let begun = Instant::now();
    while TcpStream::connect(address).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "somebody listens still");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_proxy_that_fails_costs_its_calls_and_comes_back() {
    let (_client, _agent, server) = start_over_http();
    let session = server.connect();
    let failed = session.tool("trap", &json!({}));
    assert!(
        failed["error"]["message"].as_str().unwrap().contains("offers"),
        "{failed}"
    );
    assert_eq!(
        session.tool("echo", &json!({"text": "again"}))["result"]["content"][0]["text"],
        "again"
    );
}

#[test]
fn an_agent_that_only_starts_servers_starts_one_that_comes_back() {
    let (mut client, mut agent, entry) = start(&json!({}));
    let mut shim = Shim::start(&entry);
    shim.send(&request(
        0,
        "initialize",
        &json!({"protocolVersion": "2025-03-26", "capabilities": {}}),
    ));
    assert_eq!(shim.hear().unwrap()["result"]["protocolVersion"], "2025-03-26");
    shim.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let params = json!({"name": "wait", "arguments": {"milliseconds": 40}, "_meta": {"progressToken": "t"}});
    shim.send(&request("w", "tools/call", &params));
    let told: Vec<Value> = std::iter::from_fn(|| shim.hear()).take(6).collect();
    assert_eq!(
        (&told[0]["params"]["progress"], &told[5]["id"]),
        (&json!(0.0), &json!("w"))
    );
    shim.send(&request(
        2,
        "tools/call",
        &json!({"name": "ask", "arguments": {"method": "roots/list"}}),
    ));
    let asked = shim.hear().unwrap();
    assert_eq!(asked["method"], "roots/list");
    shim.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}}));
    assert_eq!(shim.hear().unwrap()["result"]["content"][0]["text"], r#"{"roots":[]}"#);
    shim.send(&json!("no message"));
    assert_eq!(shim.hear().unwrap()["error"]["code"], -32700);
    shim.send(&request(3, "tools/call", &json!({"name": "session"})));
    assert_eq!(shim.hear().unwrap()["result"]["structuredContent"]["session"], "s1");
    close(&mut client, &mut agent, "s1");
    assert!(shim.hear().is_none(), "it ends with its session");
    assert!(shim.child.wait().unwrap().success());
}

#[test]
fn whoever_has_agreed_on_it_sends_batches() {
    let (_client, _agent, server) = start_over_http();
    let session = server.connect_with("2025-03-26");
    let echo = |id: &str| request(id, "tools/call", &json!({"name": "echo", "arguments": {"text": id}}));
    let told = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    let batch = json!([echo("a"), told, echo("b")]);
    let answers = session.post(JSON, &batch).json();
    let mut texts: Vec<_> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| (&answer["id"], &answer["result"]["content"][0]["text"]))
        .collect();
    texts.sort_by_key(|(id, _)| id.as_str());
    assert_eq!(texts, [(&json!("a"), &json!("a")), (&json!("b"), &json!("b"))]);
    let mut stream = session.post(BOTH, &batch);
    let mut ids: Vec<_> = std::iter::from_fn(|| stream.event())
        .map(|(_, answer)| answer["id"].clone())
        .collect();
    ids.sort_by_key(|id| id.as_str().map(str::to_owned));
    assert_eq!(ids, ["a", "b"]);
    assert_eq!(session.post(JSON, &json!([told, told])).status, 202);
    let later = server.connect();
    let refused = later.post(JSON, &batch);
    assert_eq!(refused.status, 400);
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("2025-03-26"), "{message}");
}

#[test]
fn a_shim_has_batches_too_and_answers_what_was_asked_before_its_input_ended() {
    let (_client, _agent, entry) = start(&json!({}));
    let mut shim = Shim::start(&entry);
    let hello = json!({"protocolVersion": "2025-03-26", "capabilities": {}});
    shim.send(&request(0, "initialize", &hello));
    assert_eq!(shim.hear().unwrap()["id"], 0);
    let ping = |id: u64| request(id, "ping", &json!({}));
    shim.send(&json!([ping(1), ping(2)]));
    assert_eq!(shim.hear().unwrap().as_array().unwrap().len(), 2);
    for id in 3..6 {
        shim.send(&ping(id));
    }
    shim.close_input();
    let mut ids: Vec<_> = std::iter::from_fn(|| shim.hear())
        .map(|answer| answer["id"].as_u64())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, [Some(3), Some(4), Some(5)]);
    assert!(shim.child.wait().unwrap().success());
}

/// A server of the client, which answers itself.
#[test]
fn the_draft_of_version_2_says_elsewhere_what_it_reaches() {
    for (reached, kind) in [
        (json!({"stdio": {}, "http": {}, "acp": {}}), "acp"),
        (json!({"stdio": {}, "http": {}}), "http"),
        (json!({"stdio": {}}), "stdio"),
        (json!({}), "acp"),
    ] {
        let (mut client, listener) = none().fresh();
        client.send_json(&request("init", "initialize", &json!({"protocolVersion": 2})));
        let mut agent = listener.accept();
        let initialize = agent.expect();
        let result = json!({"protocolVersion": 2, "capabilities": {"session": {"mcp": reached}}});
        agent.answer(&initialize, &result);
        assert_eq!(client.expect()["result"], result);
        let new = new_session(&mut client, &mut agent, &own_server());
        assert_eq!(new["params"]["mcpServers"][0]["type"], kind, "{reached}");
    }
}

#[test]
fn nothing_is_left_behind_when_the_agent_or_the_client_is_gone() {
    for agent_goes in [true, false] {
        let (mut client, mut agent, entry) = start(&json!({}));
        let socket = entry["args"].as_array().unwrap().last().unwrap();
        let folder = Path::new(socket.as_str().unwrap()).parent().unwrap().to_owned();
        let mut shim = Shim::start(&entry);
        shim.send(&request(0, "ping", &json!({})));
        assert_eq!(shim.hear().unwrap()["id"], 0);
        match agent_goes {
            true => agent.exit(0),
            false => drop(client.end()),
        }
        assert_eq!(shim.hear(), None);
        assert!(shim.child.wait().unwrap().success());
        let begun = Instant::now();
        while folder.exists() {
            assert!(begun.elapsed() < PATIENCE, "{} is still there", folder.display());
            thread::sleep(Duration::from_millis(5));
        }
    }
}
