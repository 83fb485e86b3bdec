//! The beginning: `initialize` comes first, starts the agent, passes untouched, and may be said again.

use consort_tests::chains::{every, none, passing};
use consort_tests::raw::{id, last};
use consort_tests::session::{begin, notification, request};
use consort_tests::{AgentListener, Client, Directory};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// An agent that leaves a line in a file when it is started.
fn counted(listener: &AgentListener, directory: &Directory) -> (Vec<OsString>, PathBuf) {
    let file = directory.path().join("starts");
    let script = format!("echo started >> '{}'; exec \"$@\"", file.display());
    let mut command: Vec<OsString> = ["sh", "-c", &script, "sh"].map(OsString::from).to_vec();
    command.extend(listener.command());
    (command, file)
}

fn starts(file: &Path) -> usize {
    fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

fn initialize(id: impl Into<Value>) -> Value {
    request(id, "initialize", &json!({"protocolVersion": 1}))
}

#[test]
fn the_first_message_must_be_initialize_and_the_client_may_try_again() {
    for chain in [none(), passing(1)] {
        let (mut client, listener) = chain.fresh();
        for method in [
            "session/new",
            "session/prompt",
            "authenticate",
            "_own/thing",
            "initialized",
        ] {
            client.send_json(&notification(method, &json!({})));
            client.send_json(&request("early", method, &json!({"sessionId": "s1"})));
            let answer = client.expect();
            assert_eq!(answer["id"], "early", "{}: {answer}", chain.name);
            assert_eq!(answer["error"]["code"], -32600, "{}: {answer}", chain.name);
        }
        client.send(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        let mut agent = begin(&mut client, &listener);
        assert!(agent.is_quiet(), "{}: what came too early is gone", chain.name);
        client.send_json(&notification("marker", &json!({})));
        assert_eq!(agent.expect()["method"], "marker", "{}", chain.name);
    }
}

#[test]
fn nothing_is_started_before_initialize_and_one_agent_with_it() {
    for chain in [none(), passing(1)] {
        let (listener, directory) = (AgentListener::new(), Directory::new());
        let (command, file) = counted(&listener, &directory);
        let mut client = Client::start(&chain.options(), &command);
        client.send("nonsense");
        assert_eq!(client.expect()["error"]["code"], -32700);
        client.send_json(&request(1, "session/new", &json!({"cwd": "/", "mcpServers": []})));
        assert_eq!(client.expect()["error"]["code"], -32600);
        client.send_json(&request(2, "initialize", &json!({})));
        assert_eq!(client.expect()["error"]["code"], -32602);
        assert_eq!(starts(&file), 0, "{}", chain.name);
        begin(&mut client, &listener);
        assert_eq!(starts(&file), 1, "{}", chain.name);
    }
}

#[test]
fn a_repeated_initialize_is_passed_on_and_starts_nothing_anew() {
    for chain in every(10, &["session/prompt"]) {
        let (listener, directory) = (AgentListener::new(), Directory::new());
        let (command, file) = counted(&listener, &directory);
        let mut client = Client::start(&chain.options(), &command);
        let mut agent = begin(&mut client, &listener);
        client.send_json(&initialize("again"));
        let again = agent.expect();
        assert_eq!(again["method"], "initialize", "{}", chain.name);
        agent.answer(&again, &json!({"protocolVersion": 1, "second": true}));
        let answer = client.expect();
        assert_eq!(
            (&answer["id"], &answer["result"]["second"]),
            (&json!("again"), &json!(true)),
            "{}",
            chain.name
        );
        // Also when it fails: what was agreed on before still holds.
        client.send_json(&initialize("refused"));
        let refused = agent.expect();
        agent.send_json(
            &json!({"jsonrpc": "2.0", "id": refused["id"], "error": {"code": -32000, "message": "once is enough"}}),
        );
        assert_eq!(client.expect()["error"]["code"], -32000, "{}", chain.name);
        client.send_json(&consort_tests::session::prompt(3, "go"));
        let prompt = agent.expect();
        assert_eq!(prompt["params"]["sessionId"], "s1", "{}", chain.name);
        agent.answer(&prompt, &json!({"stopReason": "end_turn"}));
        assert_eq!(client.expect()["id"], 3, "{}", chain.name);
        assert_eq!(starts(&file), 1, "{}", chain.name);
    }
}

#[test]
fn an_initialize_without_a_version_is_refused() {
    for chain in [none(), passing(1)] {
        let (mut client, listener) = chain.fresh();
        let wrong = [
            r#"{}"#,
            r#"{"protocolVersion":null}"#,
            r#"{"protocolVersion":"1"}"#,
            r#"{"protocolVersion":1.5}"#,
            r#"{"protocolVersion":-1}"#,
            r#"{"protocolVersion":[1]}"#,
            r#"{"other":{"protocolVersion":1}}"#,
            r#"[1]"#,
            r#"null"#,
        ];
        for params in wrong {
            client.send(&format!(
                r#"{{"jsonrpc":"2.0","id":"i","method":"initialize","params":{params}}}"#
            ));
            let answer = client.expect();
            assert_eq!(
                (&answer["id"], &answer["error"]["code"]),
                (&json!("i"), &json!(-32602)),
                "{params}: {answer}"
            );
        }
        client.send(r#"{"jsonrpc":"2.0","id":"i","method":"initialize"}"#);
        assert_eq!(client.expect()["error"]["code"], -32602);
        begin(&mut client, &listener);
    }
}

/// The params of an `initialize` with everything that a conductor might be tempted to tidy up.
const PARAMS: &str = r#"{ "protocolVersion":1, "clientCapabilities":{"fs":{"readTextFile":true},"terminal" :false,"_meta":{"n":1.10}},"clientInfo":{"name":"é","version":"0"},"unknown":[12345678901234567890123,{"deep":null}],"_meta":{"traceparent":"00-x"} }"#;

/// An agent's answer of that kind, with ways to log in that nobody knows.
const RESULT: &str = r#"{"agentCapabilities":{"loadSession":true,"new":{"x":1.0},"_meta":{}},"protocolVersion":1,"authMethods":[{"id":"q","type":"quantum","vars":[{"name":"K","secret":true}]},{"id":"old","name":"Old","description":null}],"_meta":{"a":"\u00e9"} , "later":[1,2 ,3]}"#;

#[test]
fn initialize_and_its_answer_pass_byte_for_byte() {
    for chain in every(10, &["session/new"]) {
        let (mut client, listener) = chain.fresh();
        client.send(&format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{PARAMS}}}"#
        ));
        let mut agent = listener.accept();
        let line = agent.expect_line();
        assert_eq!(last(&line, "params"), PARAMS, "{}", chain.name);
        agent.send(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{RESULT}}}"#, id(&line)));
        let bridged = match chain.name == none().name {
            true => RESULT.to_owned(),
            // Nothing else is touched.
            false => RESULT.replacen(r#""_meta":{}}"#, r#""_meta":{},"mcpCapabilities":{"acp":true}}"#, 1),
        };
        assert_eq!(last(&client.expect_line(), "result"), bridged, "{}", chain.name);
    }
}

#[test]
fn after_a_failed_initialize_nothing_goes_to_the_agent_until_one_succeeds() {
    for chain in [none(), passing(2)] {
        let (mut client, listener) = chain.fresh();
        client.send_json(&initialize(1));
        client.send_json(&request(2, "session/new", &json!({"cwd": "/", "mcpServers": []})));
        let mut agent = listener.accept();
        let first = agent.expect();
        agent.send_json(&json!({"jsonrpc": "2.0", "id": first["id"], "error": {"code": -32001, "message": "no", "data": {"why": 1}}}));
        let answer = client.expect();
        assert_eq!(
            answer["error"],
            json!({"code": -32001, "message": "no", "data": {"why": 1}}),
            "{}",
            chain.name
        );
        let behind = client.expect();
        assert_eq!(
            (&behind["id"], &behind["error"]["code"]),
            (&json!(2), &json!(-32600)),
            "{}",
            chain.name
        );
        client.send_json(&request(3, "session/new", &json!({"cwd": "/", "mcpServers": []})));
        assert_eq!(client.expect()["error"]["code"], -32600, "{}", chain.name);
        client.send_json(&initialize(4));
        let second = agent.expect();
        assert_eq!(
            second["method"], "initialize",
            "{}: nothing else came to the agent",
            chain.name
        );
        agent.answer(&second, &json!({"protocolVersion": 1}));
        assert_eq!(client.expect()["id"], 4, "{}", chain.name);
    }
}

#[test]
fn what_only_proxies_say_is_refused_from_client_and_agent() {
    for chain in [none(), passing(1)] {
        let (mut client, mut agent) = chain.start();
        let inner = json!({"method": "session/prompt", "params": {"sessionId": "s1"}});
        let wrapped = json!({"method": "proxy/successor", "params": inner});
        for method in [
            "proxy/initialize",
            "_proxy/initialize",
            "proxy/successor",
            "_proxy/successor",
        ] {
            for params in [&inner, &wrapped, &json!({})] {
                client.send_json(&notification(method, params));
                client.send_json(&request(9, method, params));
                let answer = client.expect();
                assert_eq!(
                    (&answer["id"], &answer["error"]["code"]),
                    (&json!(9), &json!(-32600)),
                    "{method}: {answer}"
                );
                agent.send_json(&notification(method, params));
                agent.send_json(&request(9, method, params));
                let answer = agent.expect();
                assert_eq!(
                    (&answer["id"], &answer["error"]["code"]),
                    (&json!(9), &json!(-32600)),
                    "{method}: {answer}"
                );
            }
        }
        client.send_json(&notification("marker", &json!({})));
        assert_eq!(
            agent.expect()["method"],
            "marker",
            "{}: nothing of it was passed on",
            chain.name
        );
        agent.send_json(&notification("marker", &json!({})));
        assert_eq!(
            client.expect()["method"],
            "marker",
            "{}: nothing of it was passed on",
            chain.name
        );
    }
}

#[test]
fn the_agent_may_ask_and_tell_before_it_has_answered_initialize() {
    for chain in every(10, &["_log/line", "_ask/first"]) {
        let (mut client, listener) = chain.fresh();
        client.send_json(&initialize(1));
        let mut agent = listener.accept();
        let first = agent.expect();
        agent.send_json(&notification("_log/line", &json!({"n": 1})));
        agent.send_json(&request(0, "_ask/first", &json!({"n": 2})));
        assert_eq!(client.expect()["params"], json!({"n": 1}), "{}", chain.name);
        let asked = client.expect();
        assert_eq!(asked["params"], json!({"n": 2}), "{}", chain.name);
        client.send_json(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"yes": true}}));
        assert_eq!(
            agent.expect(),
            json!({"jsonrpc": "2.0", "id": 0, "result": {"yes": true}}),
            "{}",
            chain.name
        );
        agent.answer(&first, &json!({"protocolVersion": 1}));
        assert_eq!(client.expect()["id"], 1, "{}", chain.name);
    }
}

#[test]
fn a_client_that_sends_everything_at_once_is_served_in_order() {
    for chain in every(10, &["session/new"]) {
        let (mut client, listener) = chain.fresh();
        let lines = [
            initialize(1),
            request(2, "session/new", &json!({"cwd": "/", "mcpServers": []})),
            notification("_own/note", &json!({})),
        ];
        client.send_raw(lines.map(|line| format!("{line}\n")).concat().as_bytes());
        let mut agent = listener.accept();
        let first = agent.expect();
        assert_eq!(first["method"], "initialize", "{}", chain.name);
        assert!(agent.is_quiet(), "{}", chain.name);
        agent.answer(&first, &json!({"protocolVersion": 1}));
        // The two have no session in common, so their order is not promised where a proxy takes its time with one.
        let mut rest = [agent.expect(), agent.expect()];
        rest.sort_by_key(|line| line["method"] == "_own/note");
        assert_eq!(rest[0]["method"], "session/new", "{}", chain.name);
        agent.answer(&rest[0], &json!({"sessionId": "s1"}));
        assert_eq!(client.expect()["id"], 1, "{}", chain.name);
        assert_eq!(client.expect()["id"], 2, "{}", chain.name);
    }
}
