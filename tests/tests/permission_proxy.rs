//! `permission`, the proxy that decides questions for permission by rules, in a real chain.

use consort_tests::chains::Chain;
use consort_tests::command::{finish, ungranted};
use consort_tests::guests::proxy;
use consort_tests::raw::{id, last};
use consort_tests::session::{SESSION, begin, notification, request};
use consort_tests::{Agent, AgentListener, Client, Directory, root};
use serde_json::{Value, json};
use std::ffi::OsString;

const ASK: &str = "session/request_permission";

fn chain(config: Value) -> Chain {
    Chain::new(
        "rules",
        &[
            ("passthrough", json!({})),
            ("permission", config),
            ("passthrough", json!({})),
        ],
    )
}

/// A chain with rules for most tests.
fn start() -> (Client, Agent) {
    let rules = json!([
        {"decide": "deny", "path": "**/.env"},
        {"decide": "ask", "command": "git push*"},
        {"decide": "allow", "kind": "execute", "command": ["cargo test*", "git *"]},
        {"decide": "allow", "kind": "edit", "path": "/p/src/**", "option": "second"},
        {"decide": "allow", "kind": "read", "title": "*"},
    ]);
    chain(json!({"rules": rules})).start()
}

fn question(session: &str, call: &Value) -> Value {
    let options = json!([
        {"optionId": "always", "name": "Allow", "kind": "allow_always"},
        {"optionId": "first", "name": "Allow", "kind": "allow_once"},
        {"optionId": "second", "name": "Allow", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ]);
    json!({"sessionId": session, "toolCall": call, "options": options})
}

fn selected(id: impl Into<Value>, option: &str) -> Value {
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": option}});
    json!({"jsonrpc": "2.0", "id": id.into(), "result": outcome})
}

/// Nothing has reached the client up to now.
fn assert_not_asked(client: &mut Client, agent: &mut Agent, session: &str) {
    agent.send_json(&notification("_marker", &json!({"sessionId": session})));
    assert_eq!(client.expect()["method"], "_marker");
}

/// A question is answered by the proxy.
fn assert_decided(client: &mut Client, agent: &mut Agent, call: &Value, option: &str) {
    agent.send_json(&request("q", ASK, &question(SESSION, call)));
    assert_eq!(agent.expect(), selected("q", option), "{call}");
    assert_not_asked(client, agent, SESSION);
}

/// A question reaches the client as it is, and its answer the agent.
fn assert_asked(client: &mut Client, agent: &mut Agent, call: &Value) {
    let params = question(SESSION, call).to_string();
    agent.send(&format!(
        r#"{{"jsonrpc":"2.0","id":"q","method":"{ASK}","params":{params}}}"#
    ));
    let asked = client.expect_line();
    assert_eq!(last(&asked, "params"), params);
    let result = r#"{"outcome":{"outcome":"cancelled"}, "n":1.0}"#;
    client.send(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id(&asked)));
    assert_eq!(
        agent.expect_line(),
        format!(r#"{{"jsonrpc":"2.0","id":"q","result":{result}}}"#)
    );
}

fn edit(path: &str) -> Value {
    json!({"toolCallId": "t", "kind": "edit", "title": "Edit", "locations": [{"path": path}]})
}

fn execute(command: &str) -> Value {
    json!({"toolCallId": "t", "kind": "execute", "title": command, "rawInput": {"command": command}})
}

#[test]
fn a_rule_allows_with_the_first_option_of_the_kind_or_with_that_which_it_names() {
    let (mut client, mut agent) = start();
    assert_decided(&mut client, &mut agent, &execute("cargo test --all"), "first");
    assert_decided(&mut client, &mut agent, &edit("/p/src/lib.rs"), "second");
}

#[test]
fn a_rule_denies_with_the_offered_rejection() {
    let (mut client, mut agent) = start();
    assert_decided(&mut client, &mut agent, &edit("/p/src/.env"), "no");
}

#[test]
fn everything_else_is_asked() {
    let (mut client, mut agent) = start();
    for call in [
        execute("git push --force"),
        execute("cargo test && rm -rf /"),
        json!({"toolCallId": "t", "kind": "execute", "title": "cargo test"}),
        edit("/etc/passwd"),
        json!({"toolCallId": "t"}),
    ] {
        assert_asked(&mut client, &mut agent, &call);
    }
}

#[test]
fn kinds_that_no_rule_names_are_asked() {
    let config = json!({"rules": [{"decide": "allow", "title": "*"}, {"decide": "allow", "path": "**"}]});
    let (mut client, mut agent) = chain(config).start();
    for kind in ["other", "switch_mode", "fetch", "edit", "execute", "from_the_future"] {
        let call = json!({"toolCallId": "t", "kind": kind, "title": "t", "locations": [{"path": "/p"}]});
        assert_asked(&mut client, &mut agent, &call);
    }
    let call = json!({"toolCallId": "t", "title": "t", "locations": [{"path": "/p"}]});
    assert_asked(&mut client, &mut agent, &call);
}

#[test]
fn questions_in_parallel_about_one_tool_call_have_an_answer_each() {
    let (mut client, mut agent) = start();
    agent.send_json(&request(1, ASK, &question(SESSION, &json!({"toolCallId": "t"}))));
    agent.send_json(&request("1", ASK, &question(SESSION, &edit("/p/src/a"))));
    agent.send_json(&request(2, ASK, &question(SESSION, &edit("/p/.env"))));
    assert_eq!(agent.expect(), selected("1", "second"));
    assert_eq!(agent.expect(), selected(2, "no"));
    let asked = client.expect();
    assert_eq!(asked["params"]["toolCall"], json!({"toolCallId": "t"}));
    client.send_json(&selected(asked["id"].clone(), "first"));
    assert_eq!(agent.expect(), selected(1, "first"));
    assert_not_asked(&mut client, &mut agent, SESSION);
}

#[test]
fn a_session_that_nobody_announced_is_treated_like_any() {
    let (mut client, mut agent) = start();
    agent.send_json(&request(1, ASK, &question("child", &edit("/p/.env"))));
    assert_eq!(agent.expect(), selected(1, "no"));
    assert_not_asked(&mut client, &mut agent, "child");
}

#[test]
fn a_question_that_the_agent_withdraws_is_withdrawn_from_the_client() {
    let (mut client, mut agent) = start();
    agent.send_json(&request("q", ASK, &question(SESSION, &json!({}))));
    let asked = client.expect();
    agent.send_json(&notification("$/cancel_request", &json!({"requestId": "q"})));
    let withdrawn = notification("$/cancel_request", &json!({"requestId": asked["id"]}));
    assert_eq!(client.expect(), withdrawn);
    let cancelled = json!({"code": -32800, "message": "cancelled"});
    client.send_json(&json!({"jsonrpc": "2.0", "id": asked["id"], "error": cancelled}));
    assert_eq!(agent.expect(), json!({"jsonrpc": "2.0", "id": "q", "error": cancelled}));
}

#[test]
fn a_large_diff_is_judged_by_its_path() {
    let (mut client, mut agent) = start();
    let mut call = edit("/p/src/a");
    call["content"] = json!([{"type": "diff", "newText": "\u{e9}\n".repeat(1 << 20), "path": "/p/src/a"}]);
    assert_decided(&mut client, &mut agent, &call, "second");
    call["content"][0]["path"] = json!("/p/.env");
    assert_decided(&mut client, &mut agent, &call, "no");
}

/// A chain from a configuration file, as a user would write it, whose proxy has as little memory as it can start with.
fn start_in_little_memory(directory: &Directory) -> (Client, Agent) {
    let text = format!(
        r#"
[[proxies]]
file = {:?}
grant = ["decide-permissions"]
limits.memory = "1280 KiB"
config.default = "ask"

[[proxies.config.rules]]
decide = "allow"
kind = ["read", "edit"]
path = "/p/**"
"#,
        proxy("permission")
    );
    let file = directory.file("consort.toml", text);
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &[OsString::from("--config"), file.into()]);
    let agent = begin(&mut client, &listener);
    (client, agent)
}

#[test]
fn a_question_that_it_fails_on_is_an_error_and_neither_asked_nor_allowed() {
    let directory = Directory::new();
    let (mut client, mut agent) = start_in_little_memory(&directory);
    // What it would read of this is more than the memory that it has.
    let mut call = edit("/p/a");
    call["rawInput"] = json!({"content": "x".repeat(500 << 10)});
    for number in 0..10 {
        agent.send_json(&request(number, ASK, &question(SESSION, &call)));
        let refused = agent.expect();
        assert_eq!(
            (&refused["id"], &refused["error"]["code"]),
            (&json!(number), &json!(-32603)),
            "{refused}"
        );
        assert_eq!(refused["error"]["data"]["proxy"], "permission", "{refused}");
        if number == 0 {
            assert_eq!(refused["error"]["data"]["class"], "memory", "{refused}");
        }
    }
    // It has failed too often by now, so nothing that it protects passes.
    agent.send_json(&request("fine", ASK, &question(SESSION, &edit("/p/a"))));
    let refused = agent.expect();
    assert_eq!(refused["id"], "fine", "{refused}");
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("nothing passes that it protects"), "{refused}");
    assert_not_asked(&mut client, &mut agent, SESSION);
}

#[test]
fn rules_can_be_written_as_tables_of_the_configuration_file() {
    let directory = Directory::new();
    let (mut client, mut agent) = start_in_little_memory(&directory);
    assert_decided(&mut client, &mut agent, &edit("/p/a"), "first");
    assert_asked(&mut client, &mut agent, &edit("/q/a"));
}

#[test]
fn the_example_of_its_readme_does_what_it_seems_to() {
    let readme = std::fs::read_to_string(root().join("proxies/permission/README.md")).unwrap();
    let (_, example) = readme.split_once("```toml").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let file = proxy("permission");
    let directory = Directory::new();
    let text = example.replace("permission.wasm", file.to_str().unwrap());
    let config = directory.file("consort.toml", text);
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &[OsString::from("--config"), config.into()]);
    let mut agent = begin(&mut client, &listener);
    assert_decided(&mut client, &mut agent, &edit("/home/me/project/src/a.rs"), "first");
    assert_decided(&mut client, &mut agent, &edit("/home/me/project/src/.env"), "no");
    assert_decided(&mut client, &mut agent, &execute("make && make check"), "first");
    assert_asked(&mut client, &mut agent, &execute("git status; git push"));
    assert_asked(&mut client, &mut agent, &edit("/home/me/project/Cargo.toml"));
}

#[test]
fn a_wrong_rule_keeps_the_chain_from_starting() {
    let config = json!({"rules": [
        {"decide": "deny", "kind": "edit"},
        {"decide": "deny", "kind": "execute", "comand": "rm *"},
    ]});
    let (mut client, _listener) = chain(config).fresh();
    client.send_json(&request(1, "initialize", &json!({"protocolVersion": 1})));
    let refused = client.expect();
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("permission") && message.contains("rule 2: ") && message.contains("comand"),
        "{refused}"
    );
}

#[test]
fn without_the_right_to_decide_it_does_not_pretend_to() {
    let initialize = request(1, "initialize", &json!({"protocolVersion": 1}));
    let run = |options: &[&str]| {
        let file = proxy("permission");
        let mut arguments = vec!["run", "--proxy", file.to_str().unwrap(), "--no-config"];
        arguments.extend(options);
        arguments.extend(["--", "sh", "-c", "exit 3"]);
        finish(ungranted(&arguments), format!("{initialize}\n").as_bytes())
    };
    let said = run(&[]).output;
    for words in ["`permission`", "decide-permissions", "--grant", "bypass"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // With what it needs, or if it need not protect, the chain starts; the agent here does not.
    for options in [
        &["--grant", "permission=decide-permissions"][..],
        &["--on-failure", "permission=bypass"],
    ] {
        let said = run(options).output;
        assert!(!said.contains("decide-permissions") && said.contains("agent"), "{said}");
    }
}
