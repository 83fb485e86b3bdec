//! `subagent`, the proxy that gives tasks to the same agent in sessions of their own, in a real chain with no more than the grants that it asks
//! for.

use consort_tests::command::{finish, ungranted};
use consort_tests::guests::proxy;
use consort_tests::reached::{Http, Shim, begin_in, over_http, text};
use consort_tests::session::{notification, prompt, request};
use consort_tests::{Agent, AgentListener, Client};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::Path;
use std::thread;

fn options(config: &Value, grants: &str) -> Vec<OsString> {
    vec![
        "--no-config".into(),
        "--proxy".into(),
        proxy("passthrough").into(),
        "--proxy".into(),
        proxy("subagent").into(),
        "--proxy-config".into(),
        format!("subagent={config}").into(),
        "--grant".into(),
        format!("subagent={grants}").into(),
    ]
}

fn start(config: &Value, capabilities: &Value) -> (Client, Agent, Value) {
    let listener = AgentListener::new();
    let options = options(config, "own-sessions,decide-permissions");
    let mut client = Client::in_front_of(&listener, &options);
    let (agent, servers) = begin_in(&mut client, &listener, capabilities, Path::new("/tmp"), &json!([]));
    (client, agent, servers[0].clone())
}

fn task() -> Value {
    json!({"name": "subagent", "arguments": {"task": "Count."}})
}

fn chunk(session: &str, text: &str) -> Value {
    let update = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}});
    notification("session/update", &json!({"sessionId": session, "update": update}))
}

/// The agent begins the session `child` and gets its prompt.
fn begin_child(agent: &mut Agent) -> Value {
    let new = agent.expect();
    assert_eq!(
        (&new["method"], &new["params"]),
        (&json!("session/new"), &json!({"cwd": "/tmp", "mcpServers": []}))
    );
    // Agents say something of a session before they have told its name.
    agent.send_json(&chunk("child", "Let me think. "));
    agent.answer(&new, &json!({"sessionId": "child"}));
    let prompted = agent.expect();
    assert_eq!(
        (&prompted["method"], &prompted["params"]["sessionId"]),
        (&json!("session/prompt"), &json!("child"))
    );
    prompted
}

#[test]
fn a_task_is_done_in_a_session_that_the_client_does_not_see() {
    let mut capabilities = over_http();
    capabilities["sessionCapabilities"] = json!({"close": {}});
    let (mut client, mut agent, server) = start(&json!({}), &capabilities);
    client.send_json(&prompt("p", "go"));
    let parent = agent.expect();
    let called = thread::spawn(move || Http::connect(&server).tool("subagent", &task()["arguments"]));
    let prompted = begin_child(&mut agent);
    agent.send_json(&chunk("s1", "of the parent"));
    assert_eq!(client.expect()["params"]["update"]["content"]["text"], "of the parent");
    let options = json!([{"optionId": "y", "name": "Yes", "kind": "allow_once"}]);
    let question = json!({"sessionId": "child", "toolCall": {"toolCallId": "c", "title": "ls"}, "options": options});
    agent.send_json(&request("q", "session/request_permission", &question));
    let asked = client.expect();
    assert_eq!(
        (&asked["method"], &asked["params"]["sessionId"]),
        (&json!("session/request_permission"), &json!("s1"))
    );
    assert_eq!(
        asked["params"]["toolCall"],
        json!({"toolCallId": "subagent:c", "title": "Subagent: ls"})
    );
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": "y"}});
    client.send_json(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": outcome}));
    assert_eq!(agent.expect(), json!({"jsonrpc": "2.0", "id": "q", "result": outcome}));
    agent.send_json(&chunk("child", "Three."));
    agent.answer(&prompted, &json!({"stopReason": "end_turn"}));
    let close = agent.expect();
    assert_eq!(
        (&close["method"], &close["params"]),
        (&json!("session/close"), &json!({"sessionId": "child"}))
    );
    agent.answer(&close, &json!({}));
    assert_eq!(text(&called.join().expect("the call ends")), "Let me think. Three.");
    agent.answer(&parent, &json!({"stopReason": "end_turn"}));
    assert_eq!(client.expect()["id"], "p", "nothing else has come");
}

#[test]
fn an_agent_that_starts_its_servers_gets_the_same() {
    let (_client, mut agent, server) = start(&json!({"permissions": "deny"}), &json!({}));
    let called = thread::spawn(move || Shim::connect(&server).ask(1, "tools/call", &task()));
    let prompted = begin_child(&mut agent);
    let options = json!([{"optionId": "n", "name": "No", "kind": "reject_once"}]);
    let question = json!({"sessionId": "child", "toolCall": {"toolCallId": "c"}, "options": options});
    agent.send_json(&request("q", "session/request_permission", &question));
    assert_eq!(agent.expect()["result"]["outcome"]["optionId"], "n");
    agent.answer(&prompted, &json!({"stopReason": "end_turn"}));
    let answer = called.join().expect("the call ends");
    assert_eq!(text(&answer["result"]), "Let me think. ");
}

/// What the agent is told when a subagent is stopped: it in the order in which it comes.
fn expect_stop(agent: &mut Agent) {
    loop {
        let told = agent.expect();
        match told["method"].as_str() {
            Some("session/cancel") => {
                assert_eq!(told["params"]["sessionId"], "child");
                return;
            }
            Some("$/cancel_request") => {}
            _ => panic!("the subagent is not stopped: {told}"),
        }
    }
}

#[test]
fn a_call_that_is_given_up_stops_the_subagent() {
    let (_client, mut agent, server) = start(&json!({}), &over_http());
    let server = Http::connect(&server);
    let id = server.next_id();
    thread::scope(|scope| {
        let called = scope.spawn(|| server.ask("tools/call", &task()));
        begin_child(&mut agent);
        server.tell("notifications/cancelled", &json!({"requestId": id}));
        expect_stop(&mut agent);
        assert_eq!(called.join().expect("the call ends")["error"]["code"], -32800);
    });
}

#[test]
fn a_session_that_begins_too_late_is_closed_and_not_shown() {
    let mut capabilities = over_http();
    capabilities["sessionCapabilities"] = json!({"close": {}});
    let (mut client, mut agent, server) = start(&json!({}), &capabilities);
    let server = Http::connect(&server);
    let id = server.next_id();
    thread::scope(|scope| {
        let called = scope.spawn(|| server.ask("tools/call", &task()));
        let new = agent.expect();
        assert_eq!(new["method"], "session/new");
        server.tell("notifications/cancelled", &json!({"requestId": id}));
        assert_eq!(called.join().expect("the call ends")["error"]["code"], -32800);
        agent.send_json(&chunk("child", "Hello"));
        agent.answer(&new, &json!({"sessionId": "child"}));
        let close = loop {
            let told = agent.expect();
            if told["method"] != "$/cancel_request" {
                break told;
            }
        };
        assert_eq!(
            (&close["method"], &close["params"]),
            (&json!("session/close"), &json!({"sessionId": "child"}))
        );
        agent.send_json(&chunk("child", "I am still here"));
        agent.answer(&close, &json!({}));
        agent.send_json(&chunk("s1", "of the parent"));
        assert_eq!(client.expect()["params"]["update"]["content"]["text"], "of the parent");
    });
}

#[test]
fn the_end_of_the_turn_that_it_works_for_stops_the_subagent() {
    let (mut client, mut agent, server) = start(&json!({}), &over_http());
    client.send_json(&prompt("p", "go"));
    let parent = agent.expect();
    let called = thread::spawn(move || Http::connect(&server).tool("subagent", &task()["arguments"]));
    begin_child(&mut agent);
    client.send_json(&notification("session/cancel", &json!({"sessionId": "s1"})));
    let mut sessions = Vec::new();
    while sessions.len() < 2 {
        let told = agent.expect();
        if told["method"] == "session/cancel" {
            sessions.push(told["params"]["sessionId"].as_str().unwrap_or_default().to_owned());
        }
    }
    sessions.sort();
    assert_eq!(sessions, ["child", "s1"]);
    let result = called.join().expect("the call ends");
    assert_eq!(result["isError"], true, "{result}");
    agent.answer(&parent, &json!({"stopReason": "cancelled"}));
    assert_eq!(client.expect()["id"], "p");
}

#[test]
fn an_agent_that_refuses_is_a_failure_of_the_tool() {
    let (_client, mut agent, server) = start(&json!({"maxAtOnce": 1}), &over_http());
    let called = thread::spawn(move || Http::connect(&server).tool("subagent", &task()["arguments"]));
    let new = agent.expect();
    let error = json!({"code": -32000, "message": "log in first"});
    agent.send_json(&json!({"jsonrpc": "2.0", "id": new["id"], "error": error}));
    let result = called.join().expect("the call ends");
    assert!(
        result["isError"] == true && result.to_string().contains("log in first"),
        "{result}"
    );
}

#[test]
fn without_the_grants_it_does_not_start() {
    let initialize = request(1, "initialize", &json!({"protocolVersion": 1}));
    for (grants, missing) in [("offer-tools", "own-sessions"), ("own-sessions", "decide-permissions")] {
        let mut arguments: Vec<OsString> = vec!["run".into()];
        arguments.extend(options(&json!({}), grants));
        arguments.extend(["--", "sh", "-c", "exit 3"].map(OsString::from));
        let said = finish(ungranted(&arguments), format!("{initialize}\n").as_bytes()).output;
        assert!(said.contains("`subagent`") && said.contains(missing), "{said}");
    }
}
