//! Lists of a session's files, as a proxy gets them from the host: what its grants allow, and what stands in the audit otherwise.

use consort_tests::command::{command, ungranted};
use consort_tests::guests::guest;
use consort_tests::session::request;
use consort_tests::{Agent, AgentListener, Client, Directory};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;

/// A chain of the guest that hands requests to the host, in a session of this directory.
fn start(project: &Directory, grants: &str, more: &[OsString]) -> (Client, Agent) {
    let listener = AgentListener::new();
    let mut arguments: Vec<OsString> = vec!["run".into(), "--proxy".into(), guest("keeper").into()];
    arguments.extend(["--grant".into(), format!("keeper={grants}").into()]);
    arguments.extend(more.iter().cloned());
    arguments.push("--".into());
    arguments.extend(listener.command());
    let mut client = Client::spawn(ungranted(&arguments), listener.transcript().clone());
    client.send_json(&request("init", "initialize", &json!({"protocolVersion": 1})));
    let mut agent = listener.accept();
    let initialize = agent.expect();
    agent.answer(&initialize, &json!({"protocolVersion": 1}));
    assert_eq!(client.expect()["id"], "init");
    let set_up = json!({"cwd": project.path(), "mcpServers": []});
    client.send_json(&request("new", "session/new", &set_up));
    let new = agent.expect();
    agent.answer(&new, &json!({"sessionId": "s1"}));
    assert_eq!(client.expect()["id"], "new");
    (client, agent)
}

/// What the guest answers: the result or the error.
fn list(client: &mut Client, params: &Value) -> Value {
    client.send_json(&request(1, "_file/list", params));
    let mut answer = client.expect();
    assert_eq!(answer["id"], 1, "{answer}");
    match answer.get_mut("result") {
        Some(result) => result.take(),
        None => answer["error"].take(),
    }
}

fn project() -> Directory {
    let project = Directory::new();
    for folder in ["docs/deep", ".git"] {
        fs::create_dir_all(project.path().join(folder)).expect("a folder can be made");
    }
    for file in ["README.md", "docs/a.md", "docs/deep/b.md", ".git/config", ".env"] {
        project.file(file, "12345");
    }
    project
}

const RIGHTS: &str = "intercept:client:_file/list,answer:client:_file/list,observe:client:session/new";

#[test]
fn a_proxy_sees_what_it_may_read() {
    let project = project();
    let (mut client, _agent) = start(&project, &format!("{RIGHTS},file:**"), &[]);
    let listed = list(&mut client, &json!({"sessionId": "s1", "depth": 5}));
    let paths: Vec<&str> = listed["entries"]
        .as_array()
        .expect("there are entries")
        .iter()
        .filter_map(|entry| entry["path"].as_str())
        .collect();
    assert_eq!(paths, ["README.md", "docs", "docs/a.md", "docs/deep", "docs/deep/b.md"]);
    let page = list(
        &mut client,
        &json!({"sessionId": "s1", "path": "docs", "maxEntries": 1}),
    );
    let entry = json!({"path": "docs/a.md", "type": "file", "size": 5});
    assert_eq!(page, json!({"entries": [entry], "truncated": true}));
    let rest = list(
        &mut client,
        &json!({"sessionId": "s1", "path": "docs", "after": "docs/a.md"}),
    );
    let entry = json!({"path": "docs/deep", "type": "directory"});
    assert_eq!(rest, json!({"entries": [entry], "truncated": false}));
    for (params, code) in [
        (json!({"sessionId": "s1", "path": "none"}), -32002),
        (json!({"sessionId": "s1", "path": "README.md"}), -32603),
        (json!({"sessionId": "s1", "after": "../x"}), -32602),
        (json!({"sessionId": "s1", "depth": "all"}), -32602),
        (json!({"sessionId": "s1", "skip": vec!["x"; 257]}), -32602),
    ] {
        let refused = list(&mut client, &params);
        assert_eq!(refused["code"], code, "{params}: {refused}");
    }
}

#[test]
fn what_it_may_not_read_is_denied_and_on_record() {
    let (project, home) = (project(), Directory::new());
    let audit = home.path().join("audit.jsonl");
    let options = ["--audit".into(), audit.clone().into()];
    let (mut client, _agent) = start(&project, &format!("{RIGHTS},file:docs/**"), &options);
    let listed = list(&mut client, &json!({"sessionId": "s1"}));
    let entry = json!({"path": "docs", "type": "directory"});
    assert_eq!(listed, json!({"entries": [entry], "truncated": false}));
    for path in [".git", "..", "README.md"] {
        let params = json!({"sessionId": "s1", "path": path});
        let refused = list(&mut client, &params);
        assert_eq!(refused["code"], -32011, "{refused}");
    }
    client.end();
    let audit = fs::read_to_string(audit).expect("there is an audit");
    let denied = audit.lines().filter(|line| line.contains("host/file/list")).count();
    assert!(denied > 0 && audit.contains("file:.git/**"), "{audit}");
}

#[test]
fn without_a_grant_for_files_nothing_is_listed() {
    let project = project();
    let (mut client, _agent) = start(&project, RIGHTS, &[]);
    assert_eq!(list(&mut client, &json!({"sessionId": "s1"}))["code"], -32011);
}

#[test]
fn a_session_that_has_no_directory_has_no_list() {
    let listener = AgentListener::new();
    let mut arguments: Vec<OsString> = vec!["run".into(), "--proxy".into(), guest("keeper").into(), "--".into()];
    arguments.extend(listener.command());
    let mut client = Client::spawn(command(&arguments), listener.transcript().clone());
    let _agent = consort_tests::session::begin(&mut client, &listener);
    assert_eq!(list(&mut client, &json!({"sessionId": "unheard of"}))["code"], -32002);
}
