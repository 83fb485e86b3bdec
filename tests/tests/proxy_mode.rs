//! `consort proxy` under a conductor that says exactly what a test wants, in each dialect: what it is asked, and what it says.

use consort_tests::command::{command, run_with_input};
use consort_tests::guests::{guest, proxy};
use consort_tests::session::{notification, request};
use consort_tests::transcript::Transcript;
use consort_tests::{Client, Directory};
use serde_json::{Value, json};
use std::ffi::OsString;

/// A conductor above `consort proxy`.
struct Above {
    client: Client,
    prefix: &'static str,
}

/// Every test in both dialects, with one proxy that passes everything on.
fn in_both(test: fn(Above)) {
    for prefix in ["proxy", "_proxy"] {
        test(Above::start(prefix, &["--proxy".into(), proxy("passthrough").into()]));
    }
}

impl Above {
    fn start(prefix: &'static str, options: &[OsString]) -> Self {
        let mut arguments: Vec<OsString> = vec!["proxy".into()];
        arguments.extend_from_slice(options);
        Self {
            client: Client::spawn(command(&arguments), Transcript::default()),
            prefix,
        }
    }

    fn successor(&self) -> String {
        format!("{}/successor", self.prefix)
    }

    /// A message as the successor's.
    fn wrap(&self, message: &Value) -> Value {
        let mut wrapped = message.clone();
        let mut envelope = json!({"method": message["method"]});
        if let Some(params) = message.get("params") {
            envelope["params"] = params.clone();
        }
        wrapped["method"] = self.successor().into();
        wrapped["params"] = envelope;
        wrapped
    }

    /// A line that must be for the successor: its id and what is in the envelope.
    fn expect_wrapped(&mut self) -> (Value, Value) {
        let line = self.client.expect();
        assert_eq!(line["method"], self.successor(), "{line}");
        (line["id"].clone(), line["params"].clone())
    }

    fn answer(&mut self, id: &Value, result: Value) {
        self.client
            .send_json(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    fn initialize(&mut self) {
        let params = json!({"protocolVersion": 1, "clientCapabilities": {"x": 1}});
        self.client
            .send_json(&request("i", &format!("{}/initialize", self.prefix), &params));
        let (id, envelope) = self.expect_wrapped();
        assert_eq!(envelope, json!({"method": "initialize", "params": params}));
        self.answer(&id, json!({"protocolVersion": 1, "agentCapabilities": {}}));
        assert_eq!(
            self.client.expect(),
            json!({"jsonrpc": "2.0", "id": "i", "result": {"protocolVersion": 1, "agentCapabilities": {}}})
        );
    }

    /// The next line is an error for this request.
    fn expect_error(&mut self, id: &Value, code: i64, words: &str) {
        let line = self.client.expect();
        assert_eq!((&line["id"], &line["error"]["code"]), (id, &json!(code)), "{line}");
        let message = line["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{message:?} does not say {words:?}");
    }

    /// What was sent before has been dealt with, without another word to anybody.
    fn expect_nothing_more(&mut self) {
        self.client.send_json(&notification("_marker", &json!({})));
        assert_eq!(self.expect_wrapped().1["method"], "_marker");
    }
}

#[test]
fn the_dialect_is_that_of_the_conductor() {
    in_both(|mut above| {
        above.initialize();
        above.client.send_json(&request(1, "session/prompt", &json!({"a": 1})));
        let (id, envelope) = above.expect_wrapped();
        assert_eq!(envelope, json!({"method": "session/prompt", "params": {"a": 1}}));
        above.answer(&id, json!({"b": 2}));
        assert_eq!(
            above.client.expect(),
            json!({"jsonrpc": "2.0", "id": 1, "result": {"b": 2}})
        );
        above
            .client
            .send_json(&notification("session/cancel", &json!({"c": 3})));
        let (id, envelope) = above.expect_wrapped();
        assert_eq!(
            (id, envelope),
            (Value::Null, json!({"method": "session/cancel", "params": {"c": 3}}))
        );
    });
}

#[test]
fn what_the_successor_says_goes_up_without_its_envelope() {
    in_both(|mut above| {
        above.initialize();
        let update = notification("session/update", &json!({"u": 1, "_meta": {"inner": 1}}));
        let mut wrapped = above.wrap(&update);
        wrapped["params"]["_meta"] = json!({"outer": "for this hop only"});
        above.client.send_json(&wrapped);
        assert_eq!(above.client.expect(), update);
        let question = request("q", "fs/read_text_file", &json!({"path": "/x"}));
        let wrapped = above.wrap(&question);
        above.client.send_json(&wrapped);
        let line = above.client.expect();
        assert_eq!(
            (&line["method"], &line["params"]),
            (&question["method"], &question["params"])
        );
        above.answer(&line["id"], json!({"content": "c"}));
        assert_eq!(
            above.client.expect(),
            json!({"jsonrpc": "2.0", "id": "q", "result": {"content": "c"}})
        );
        let bare = above.wrap(&json!({"jsonrpc": "2.0", "method": "_bare"}));
        above.client.send_json(&bare);
        assert_eq!(above.client.expect(), json!({"jsonrpc": "2.0", "method": "_bare"}));
    });
}

#[test]
fn anything_before_proxy_initialize_is_refused_and_it_can_be_tried_again() {
    in_both(|mut above| {
        let params = json!({"protocolVersion": 1});
        above.client.send_json(&request(1, "initialize", &params));
        above.expect_error(&json!(1), -32600, "proxy/initialize");
        above.client.send_json(&request(2, "session/new", &json!({})));
        above.expect_error(&json!(2), -32600, "proxy/initialize");
        let early = above.wrap(&request(3, "fs/read_text_file", &json!({})));
        above.client.send_json(&early);
        above.expect_error(&json!(3), -32600, "proxy/initialize");
        let early = above.wrap(&notification("session/update", &json!({})));
        above.client.send_json(&early);
        let method = format!("{}/initialize", above.prefix);
        above.client.send_json(&request(4, &method, &json!({})));
        above.expect_error(&json!(4), -32602, "protocolVersion");
        above.initialize();
        above.expect_nothing_more();
    });
}

#[test]
fn envelopes_that_are_none_are_refused() {
    in_both(|mut above| {
        above.initialize();
        let successor = above.successor();
        for (params, code, words) in [
            (json!({"params": {}}), -32602, "method"),
            (json!({"method": 7}), -32602, "method"),
            (json!([]), -32602, "object"),
            (json!({"method": "x", "params": 7}), -32602, "params"),
            (
                json!({"method": successor, "params": {"method": "x"}}),
                -32600,
                "wrapped",
            ),
            (
                json!({"method": "proxy/initialize", "params": {"protocolVersion": 1}}),
                -32600,
                "wrapped",
            ),
            (
                json!({"method": "_proxy/successor", "params": {"method": "x"}}),
                -32600,
                "wrapped",
            ),
        ] {
            above.client.send_json(&request("bad", &successor, &params));
            above.expect_error(&json!("bad"), code, words);
            above.client.send_json(&notification(&successor, &params));
        }
        above
            .client
            .send(&format!(r#"{{"jsonrpc":"2.0","id":"no","method":"{successor}"}}"#));
        above.expect_error(&json!("no"), -32602, "params");
        above.client.send(&format!(
            r#"{{"jsonrpc":"2.0","id":"twice","method":"{successor}","params":{{"method":"a","method":"b"}}}}"#
        ));
        above.expect_error(&json!("twice"), -32600, "duplicate");
        above.expect_nothing_more();
    });
}

#[test]
fn bad_lines_are_answered_and_survived() {
    in_both(|mut above| {
        above.initialize();
        above.client.send("nonsense");
        above.expect_error(&Value::Null, -32700, "JSON");
        above.client.send_raw(b"{\"x\":\"\xff\"}\n");
        above.expect_error(&Value::Null, -32700, "UTF-8");
        above.client.send("[{\"jsonrpc\":\"2.0\",\"method\":\"x\"}]");
        above.expect_error(&Value::Null, -32600, "batch");
        above.client.send(r#"{"jsonrpc":"2.0","id":12345,"result":{}}"#);
        above.expect_nothing_more();
    });
}

#[test]
fn an_answer_that_cannot_be_read_is_an_error_to_whoever_asked() {
    in_both(|mut above| {
        above.initialize();
        above.client.send_json(&request(1, "session/prompt", &json!({})));
        let (id, _) = above.expect_wrapped();
        above.client.send_raw(format!("{{\"id\":{id},\"result\":\"").as_bytes());
        above.client.send_raw(b"\xff\"}\n");
        above.expect_error(&Value::Null, -32700, "UTF-8");
        above.expect_error(&json!(1), -32603, "cannot be read");
    });
}

#[test]
fn cancels_are_plain_and_a_wrapped_one_is_accepted() {
    in_both(|mut above| {
        let cancel = |id: &Value| notification("$/cancel_request", &json!({ "requestId": id }));
        above.initialize();
        above
            .client
            .send_json(&request("p", "session/prompt", &json!({"sessionId": "s"})));
        let (prompt, _) = above.expect_wrapped();
        for wrapped in [false, true] {
            let question = above.wrap(&request("q", "fs/read_text_file", &json!({"sessionId": "s"})));
            above.client.send_json(&question);
            let asked = above.client.expect();
            let mut line = cancel(&json!("q"));
            if wrapped {
                line = above.wrap(&line);
            }
            above.client.send_json(&line);
            assert_eq!(above.client.expect(), cancel(&asked["id"]));
            above.answer(&asked["id"], json!({}));
            assert_eq!(above.client.expect()["id"], "q");
        }
        above.client.send_json(&cancel(&json!("p")));
        above.client.send_json(&cancel(&json!("p")));
        above.client.send_json(&cancel(&json!("nobody's")));
        assert_eq!(above.client.expect(), cancel(&prompt));
        above.answer(&prompt, json!({"stopReason": "cancelled"}));
        assert_eq!(above.client.expect()["id"], "p");
        above.expect_nothing_more();
    });
}

#[test]
fn a_repeated_proxy_initialize_goes_on() {
    in_both(|mut above| {
        above.initialize();
        above.initialize();
    });
}

#[test]
fn much_behind_proxy_initialize_waits_for_its_answer_on_the_same_line() {
    in_both(|mut above| {
        let params = json!({"protocolVersion": 1});
        above
            .client
            .send_json(&request("i", &format!("{}/initialize", above.prefix), &params));
        let (id, _) = above.expect_wrapped();
        let text = "x".repeat(9 * 1024 * 1024);
        above
            .client
            .send_json(&request("p", "session/prompt", &json!({ "text": text })));
        above.answer(&id, json!({"protocolVersion": 1}));
        assert_eq!(above.client.expect()["id"], "i");
        let (id, envelope) = above.expect_wrapped();
        assert_eq!(envelope["method"], "session/prompt");
        above.answer(&id, json!({}));
        assert_eq!(above.client.expect()["id"], "p");
    });
}

#[test]
fn the_end_of_input_answers_what_nobody_can_answer_any_more() {
    in_both(|mut above| {
        above.initialize();
        above.client.send_json(&request("p", "session/prompt", &json!({})));
        above.expect_wrapped();
        let question = above.wrap(&request("q", "fs/read_text_file", &json!({})));
        above.client.send_json(&question);
        above.client.expect();
        above.client.close_input();
        let mut answered = [above.client.expect(), above.client.expect()];
        answered.sort_by_key(|line| line["id"].to_string());
        assert_eq!((&answered[0]["id"], &answered[1]["id"]), (&json!("p"), &json!("q")));
        assert!(
            answered.iter().all(|line| line["error"]["code"] == -32603),
            "{answered:?}"
        );
        above.client.expect_end();
        assert!(above.client.wait().success());
    });
}

#[test]
fn a_trap_in_the_chain_costs_one_request_and_no_other() {
    let options: [OsString; 4] = [
        "--proxy".into(),
        guest("trap").into(),
        "--proxy-config".into(),
        r#"trap={"on":"_bad","source":"client","when":"after-sleep"}"#.into(),
    ];
    let mut above = Above::start("proxy", &options);
    above.initialize();
    above
        .client
        .send_json(&request(1, "session/prompt", &json!({"sessionId": "s"})));
    let (prompt, _) = above.expect_wrapped();
    above.client.send_json(&request(2, "_bad", &json!({})));
    above.expect_error(&json!(2), -32603, "trap");
    above.client.send_json(&request(3, "_good", &json!({})));
    assert_eq!(above.expect_wrapped().1["method"], "_good");
    above.answer(&prompt, json!({"stopReason": "end_turn"}));
    assert_eq!(above.client.expect()["id"], 1);
}

#[test]
fn what_keeps_the_chain_from_being_set_up_is_the_answer_to_proxy_initialize() {
    let line = r#"{"jsonrpc":"2.0","id":1,"method":"proxy/initialize","params":{"protocolVersion":1}}"#;
    let outcome = run_with_input(&["proxy", "--proxy", "/nowhere/x.wasm"], format!("{line}\n").as_bytes());
    let answer: Value = serde_json::from_str(&outcome.output).expect("one line of JSON");
    assert_eq!(answer["id"], 1);
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("/nowhere/x.wasm"), "{message}");
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
}

#[test]
fn groups_of_the_configuration_are_chains_in_the_chain() {
    let directory = Directory::new();
    let file = directory.path().join("consort.toml");
    let text = format!(
        "[groups]\ninner = [{{ file = {arrow:?} }}, {{ file = {arrow:?} }}]\nouter = [{{ group = \"inner\" }}, {{ file = {arrow:?} }}]\n",
        arrow = guest("arrow")
    );
    std::fs::write(&file, text).expect("the directory can be written");
    let options: [OsString; 4] = ["--config".into(), file.into(), "--group".into(), "outer".into()];
    let mut above = Above::start("proxy", &options);
    above.initialize();
    let update = |text: &str| {
        let content = json!({"type": "text", "text": text});
        let update = json!({"sessionUpdate": "agent_message_chunk", "content": content});
        notification("session/update", &json!({"sessionId": "s", "update": update}))
    };
    let wrapped = above.wrap(&update("x"));
    above.client.send_json(&wrapped);
    let line = above.client.expect();
    let text = line["params"]["update"]["content"]["text"].as_str().unwrap_or_default();
    assert_eq!(text.matches('>').count(), 3, "{line}");
}
