//! Lines: what is none of ours is answered or logged and changes nothing, whatever it is and wherever it is cut.

use consort_tests::chains::{Chain, every, none, passing};
use consort_tests::raw::{id, last};
use consort_tests::session::{chunk, notification, prompt, request};
use consort_tests::{Agent, Client};
use serde_json::{Value, json};

/// Lines that are no message, and the code that the client gets for them.
fn no_messages() -> Vec<(Vec<u8>, i64)> {
    let text = |line: &str, code| (line.as_bytes().to_vec(), code);
    let mut lines = vec![
        text("nonsense", -32700),
        text("{", -32700),
        text("}", -32700),
        text(r#"{"jsonrpc":"2.0","id":1,"method":"x""#, -32700),
        text(r#"{"jsonrpc":"2.0","id":1,"method":"x"} {}"#, -32700),
        text(r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":01}}"#, -32700),
        text(r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{'a':1}}"#, -32700),
        text(r#"{"jsonrpc":"2.0","id":1,"method":"x",}"#, -32700),
        text("Content-Length: 20", -32700),
        text("null", -32600),
        text("true", -32600),
        text("42", -32600),
        text("\"text\"", -32600),
        text("{}", -32600),
        text(r#"{"level":"info"}"#, -32600),
        text(r#"{"jsonrpc":"2.0","id":1}"#, -32600),
        text(r#"{"jsonrpc":"2.0","result":{}}"#, -32600),
        text(r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#, -32600),
        text(r#"{"jsonrpc":2.0,"id":1,"method":"x"}"#, -32600),
        text(r#"{"jsonrpc":"2.0","id":1,"method":null}"#, -32600),
        text(r#"{"jsonrpc":"2.0","id":1,"method":{"x":1}}"#, -32600),
        // A batch gets one answer, whatever is in it.
        text("[]", -32600),
        text(
            r#"[{"jsonrpc":"2.0","id":1,"method":"x"},{"jsonrpc":"2.0","id":2,"method":"y"}]"#,
            -32600,
        ),
        text(r#"[{"jsonrpc":"2.0","method":"x"}]"#, -32600),
    ];
    for member in ["jsonrpc", "id", "method", "params"] {
        let twice = match member {
            "jsonrpc" => r#""jsonrpc":"2.0","id":1,"method":"x","params":{},"jsonrpc":"2.0""#,
            "id" => r#""id":1,"jsonrpc":"2.0","method":"x","params":{},"id":2"#,
            "method" => r#""method":"x","jsonrpc":"2.0","id":1,"params":{},"method":"y""#,
            _ => r#""params":{},"jsonrpc":"2.0","id":1,"method":"x","params":{}"#,
        };
        lines.push(text(&format!("{{{twice}}}"), -32600));
    }
    // No UTF-8: a lone byte, a lone continuation, an overlong slash, half of a pair, a value too high, a cut sequence.
    for bytes in [
        &b"\xff"[..],
        b"\x80",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf5\x80\x80\x80",
        b"\xe2\x9c",
    ] {
        let inside = [
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":{\"t\":\"",
            bytes,
            b"\"}}",
        ]
        .concat();
        lines.push((inside, -32700));
        lines.push((bytes.to_vec(), -32700));
    }
    lines.push((b"\0".to_vec(), -32700));
    lines
}

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

/// Whether traffic still flows, and nothing else does.
fn flows(client: &mut Client, agent: &mut Agent, after: &str) {
    client.send_json(&notification("marker", &json!({})));
    assert_eq!(agent.expect()["method"], "marker", "after {after}");
    agent.send_json(&notification("marker", &json!({})));
    assert_eq!(client.expect()["method"], "marker", "after {after}");
}

#[test]
fn what_is_no_message_gets_one_answer_with_id_null_from_the_clients_side_and_none_to_the_agent() {
    for chain in every(10, &["session/prompt"]) {
        let (mut client, mut agent) = chain.start();
        for (line, code) in no_messages() {
            let shown = String::from_utf8_lossy(&line).into_owned();
            client.send_raw(&[&line[..], b"\n"].concat());
            let answer = client.expect();
            assert_eq!(answer["error"]["code"], code, "{shown}: {answer}");
            assert_eq!(answer.get("id"), Some(&Value::Null), "{shown}: {answer}");
            assert!(answer["error"]["message"].is_string(), "{shown}: {answer}");
            agent.send_raw(&[&line[..], b"\n"].concat());
            flows(&mut client, &mut agent, &shown);
        }
    }
}

#[test]
fn scalar_params_are_refused_with_the_requests_id() {
    for chain in [none(), passing(1)] {
        let (mut client, mut agent) = chain.start();
        for params in ["7", "1.5", "true", "\"text\""] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":"s","method":"x/y","params":{params}}}"#);
            client.send(&line);
            let answer = client.expect();
            assert_eq!(
                (&answer["id"], &answer["error"]["code"]),
                (&json!("s"), &json!(-32602)),
                "{params}: {answer}"
            );
            agent.send(&line);
            let lines = before_an_answer(&mut client, &mut agent);
            let [answer] = &lines[..] else {
                panic!("the agent's request with params {params} is owed one answer: {lines:?}");
            };
            assert_eq!(
                (&answer["id"], &answer["error"]["code"]),
                (&json!("s"), &json!(-32602)),
                "{params}: {answer}"
            );
        }
    }
}

#[test]
fn keys_that_are_there_twice_pass_where_only_client_and_agent_read_them() {
    for chain in every(10, &["x/y"]) {
        let (mut client, mut agent) = chain.start();
        let params = r#"{"a":1,"a":2,"b":{"sessionId":"x","sessionId":"y"},"cwd":1,"cwd":2}"#;
        client.send(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"x/y","params":{params}}}"#
        ));
        let line = agent.expect_line();
        assert_eq!(last(&line, "params"), params, "{}", chain.name);
        agent.send(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{params}}}"#, id(&line)));
        assert_eq!(last(&client.expect_line(), "result"), params, "{}", chain.name);
    }
}

#[test]
fn unknown_members_of_the_envelope_harm_nothing() {
    for chain in [none(), passing(1)] {
        let (mut client, mut agent) = chain.start();
        client.send(r#"{"_meta":{"x":[1]},"jsonrpc":"2.0","trace":1e400,"method":"x/y","id":5,"later":{"id":6}}"#);
        let request = agent.expect();
        assert_eq!(request["method"], "x/y", "{}", chain.name);
        agent.send(&format!(
            r#"{{"unknown":[{{}}],"result":{{}},"jsonrpc":"2.0","id":{},"error":null}}"#,
            request["id"]
        ));
        assert_eq!(
            client.expect(),
            json!({"jsonrpc": "2.0", "id": 5, "result": {}}),
            "{}",
            chain.name
        );
    }
}

/// An answer to `initialize` that has nothing to be added to.
const RESULT: &str = r#"{"protocolVersion":1,"agentCapabilities":{"mcpCapabilities":{"acp":true}}}"#;

#[test]
fn lines_may_end_with_a_carriage_return_and_be_blank() {
    for chain in every(10, &["session/prompt"]) {
        let (mut client, listener) = chain.fresh();
        client.send_raw(b"\r\n\n \t \r\n");
        client.send_raw(format!("{}\r\n\r\n", request(1, "initialize", &json!({"protocolVersion": 1}))).as_bytes());
        let mut agent = listener.accept();
        let first = agent.expect_line();
        agent.send_raw(
            format!(
                "\n\r\n{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{RESULT}}}\r\n\r\n",
                id(&first)
            )
            .as_bytes(),
        );
        assert_eq!(
            client.expect_line(),
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{RESULT}}}"#)
        );
        client.send_raw(format!("{}\r\n", prompt(2, "go")).as_bytes());
        let line = agent.expect_line();
        assert!(line.ends_with('}'), "{}: {line:?}", chain.name);
        agent.send_raw(format!("{}\r\n\n", chunk("one")).as_bytes());
        assert_eq!(client.expect_line(), chunk("one").to_string(), "{}", chain.name);
        // A line end of JSON's own: it must not become a line end on the wire.
        client.send_raw(b"{\"jsonrpc\":\"2.0\",\"method\":\"x/y\",\"params\":{\"a\":\r[1,\r2]}}\n");
        assert_eq!(agent.expect()["params"], json!({"a": [1, 2]}), "{}", chain.name);
    }
}

#[test]
fn line_ends_of_unicode_are_no_line_ends() {
    for chain in [none(), passing(1)] {
        let (mut client, mut agent) = chain.start();
        let params = "{\"t\":\"a\u{2028}b\u{2029}c\u{85}d\u{b}e\"}".replace('\u{b}', "\\u000b");
        client.send(&format!(r#"{{"jsonrpc":"2.0","method":"x/y","params":{params}}}"#));
        assert_eq!(last(&agent.expect_line(), "params"), params, "{}", chain.name);
    }
}

#[test]
fn it_does_not_matter_how_lines_are_cut_into_writes() {
    for chain in [none(), passing(1)] {
        let (mut client, mut agent) = chain.start();
        for byte in notification("x/y", &json!({"t": "é✓🦀"})).to_string().bytes() {
            client.send_raw(&[byte]);
        }
        client.send_raw(b"\n");
        assert_eq!(agent.expect()["params"]["t"], "é✓🦀", "{}", chain.name);
        for byte in chunk("é✓🦀").to_string().bytes() {
            agent.send_raw(&[byte]);
        }
        agent.send_raw(b"\n");
        assert_eq!(client.expect(), chunk("é✓🦀"), "{}", chain.name);
        let many: String = (0..1000)
            .map(|number| format!("{}\n", chunk(&number.to_string())))
            .collect();
        agent.send_raw(many.as_bytes());
        for number in 0..1000 {
            assert_eq!(client.expect(), chunk(&number.to_string()), "{}", chain.name);
        }
    }
}

#[test]
fn the_clients_last_line_needs_no_end_and_a_cut_one_is_answered() {
    for chain in every(10, &["x/y"]) {
        let (mut client, mut agent) = chain.start();
        client.send_raw(request(1, "x/y", &json!({})).to_string().as_bytes());
        client.close_input();
        let asked = agent.expect();
        agent.answer(&asked, &json!({}));
        assert_eq!(client.expect()["id"], 1, "{}", chain.name);
        client.expect_end();
        assert!(client.wait().success());

        let (mut client, mut agent) = chain.start();
        client.send_json(&request(1, "x/y", &json!({})));
        client.send_raw(br#"{"jsonrpc":"2.0","id":2,"method":"x/"#);
        client.close_input();
        let asked = agent.expect();
        let broken = client.expect();
        assert_eq!(
            (&broken["id"], &broken["error"]["code"]),
            (&Value::Null, &json!(-32700)),
            "{broken}"
        );
        agent.answer(&asked, &json!({}));
        assert_eq!(client.expect()["id"], 1, "{}", chain.name);
        client.expect_end();
        agent.expect_end();
        assert!(client.wait().success());
    }
}

#[test]
fn the_agents_last_line_needs_no_end_and_a_cut_one_is_an_error_to_its_request() {
    for chain in [none(), passing(1)] {
        for (cut, whole) in [("", true), ("}", false)] {
            let (mut client, mut agent) = chain.start();
            client.send_json(&request(1, "x/y", &json!({})));
            let asked = agent.expect();
            let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"t": 1}}).to_string();
            agent.send_raw(answer.strip_suffix(cut).expect("it ends so").as_bytes());
            agent.exit(0);
            let line = client.expect();
            assert_eq!(
                (&line["id"], line["result"].is_object()),
                (&json!(1), whole),
                "{}: {line}",
                chain.name
            );
        }
    }
}

/// Brackets inside of each other.
fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

#[test]
fn deep_nesting_passes_or_is_answered_clearly() {
    let deep = format!(r#"{{"sessionId":"s1","a":{}}}"#, nested(100_000));
    let editing = json!({"method": "x/y", "params": [{"op": "add", "path": "/b", "value": 1}], "result": [{"op": "add", "path": "/b", "value": 1}]});
    let mut chains = every(10, &["x/y"]);
    chains.push(Chain::new("a proxy that edits", &[("rewriter", editing)]));
    for chain in chains {
        let untouched = chain.options().is_empty();
        let (mut client, mut agent) = chain.start();
        client.send(&format!(
            r#"{{"jsonrpc":"2.0","id":"deep","method":"x/y","params":{deep}}}"#
        ));
        client.send(r#"{"jsonrpc":"2.0","method":"x/marker","params":{"sessionId":"s1"}}"#);
        let line = agent.expect_line();
        if line.contains("x/marker") {
            assert!(!untouched, "it did not arrive");
            let answer = client.expect();
            assert_eq!(answer["id"], "deep", "{}", chain.name);
            assert!(answer["error"]["message"].is_string(), "{}: {answer}", chain.name);
        } else {
            assert!(line.contains(&nested(100_000)), "{}: it was changed", chain.name);
            assert!(agent.expect_line().contains("x/marker"), "{}", chain.name);
            agent.send(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{deep}}}"#, id(&line)));
            let answer = client.expect_line();
            assert!(answer.contains(r#""id":"deep""#), "{}: {answer:.200}", chain.name);
            let passed = answer.contains(&nested(100_000));
            assert!(
                passed || (!untouched && answer.contains(r#""error":{"#)),
                "{}: {answer:.200}",
                chain.name
            );
        }
        flows(&mut client, &mut agent, chain.name);
    }
}

#[test]
fn deep_nesting_where_the_host_looks_is_refused_and_harms_nothing() {
    let (mut client, mut agent) = none().start();
    let deep = nested(100_000);
    let refused = [
        (format!(r#"{{"jsonrpc":"2.0","id":{deep},"method":"x/y"}}"#), -32600),
        (format!(r#"{{"jsonrpc":"2.0","id":1,"method":{deep}}}"#), -32600),
        (format!(r#"{{"jsonrpc":{deep},"id":1,"method":"x/y"}}"#), -32600),
        (
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":{deep}}}}}"#),
            -32602,
        ),
        (deep.clone(), -32600),
        ("[".repeat(100_000), -32700),
        (r#"{"a":"#.repeat(100_000), -32700),
    ];
    for (line, code) in refused {
        client.send(&line);
        assert_eq!(client.expect()["error"]["code"], code, "{line:.60}");
        if !line.contains("initialize") {
            agent.send(&line);
        }
    }
    // A session whose name is no text is no session.
    client.send(&format!(
        r#"{{"jsonrpc":"2.0","method":"x/y","params":{{"sessionId":{deep}}}}}"#
    ));
    assert!(agent.expect_line().contains(&deep));
    flows(&mut client, &mut agent, "deep nesting");
}

#[test]
fn an_answer_of_the_client_that_cannot_be_read_is_an_error_to_the_agents_request() {
    let answers = [
        r#"{"id":ID,"result":{},"result":{}}"#,
        r#"{"id":ID,"result":{}"#,
        r#"{"id":ID,"jsonrpc":"1.0","result":{}}"#,
        r#"{"id":ID,"result":1,"error":{"code":1,"message":""}}"#,
    ];
    for chain in [none(), passing(1)] {
        let (mut client, mut agent) = chain.start();
        for answer in answers {
            agent.send_json(&request("a", "session/request_permission", &json!({"sessionId": "s1"})));
            let id = client.expect()["id"].to_string();
            client.send(&answer.replace("ID", &id));
            let refusal = client.expect();
            assert_eq!(refusal["id"], Value::Null, "{answer}: {refusal}");
            client.send_json(&notification("marker", &json!({})));
            let line = agent.expect();
            assert_eq!(line["id"], "a", "{}: {answer}: {line}", chain.name);
            assert!(line["error"]["message"].is_string(), "{answer}: {line}");
            assert_eq!(agent.expect()["method"], "marker");
        }
    }
}

#[test]
fn an_answer_of_the_agent_that_is_not_utf_8_is_an_error_to_its_request() {
    for chain in every(10, &["x/y"]) {
        let (mut client, mut agent) = chain.start();
        client.send_json(&request("q", "x/y", &json!({})));
        let id = agent.expect()["id"].to_string();
        let line = [
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"t":""#).as_bytes(),
            b"\xff\"}}\n",
        ]
        .concat();
        agent.send_raw(&line);
        let answer = client.expect();
        assert_eq!(answer["id"], "q", "{}: {answer}", chain.name);
        assert!(answer["error"]["message"].is_string(), "{}: {answer}", chain.name);
        flows(&mut client, &mut agent, chain.name);
    }
}
