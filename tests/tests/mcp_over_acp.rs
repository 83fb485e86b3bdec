//! Agents that reach MCP servers over ACP themselves: everything passes, and proxies hear which session a call comes from, where there
//! is no doubt.

use consort_tests::chains::Chain;
use consort_tests::mcp::{answer, close, initialize, new_session};
use consort_tests::raw::{id, last};
use consort_tests::reached::{Http, begin_in, over_http};
use consort_tests::session::request;
use consort_tests::{Agent, Client};
use serde_json::{Value, json};
use std::path::Path;

const SERVER: &str = "consort:offers";

/// A client and an agent that reaches servers over ACP, with a proxy in between that offers one.
fn start(config: Value) -> (Client, Agent) {
    let chain = Chain::new("a proxy that offers tools", &[("offers", config)]);
    initialize(&chain, &json!({"http": true, "acp": true}))
}

/// Sets a session up; gives the id of the server that stands last in it, which stays as it is.
fn session(client: &mut Client, agent: &mut Agent, name: &str, servers: &Value) -> String {
    let new = new_session(client, agent, servers);
    let entry = answer(client, agent, &new, name);
    assert_eq!((&entry["type"], &entry["name"]), (&json!("acp"), &json!("offers")));
    entry["serverId"].as_str().unwrap().to_owned()
}

fn ask(agent: &mut Agent, method: &str, params: &Value) -> Value {
    agent.send_json(&request("q", method, params));
    agent.expect()["result"].clone()
}

fn connect(agent: &mut Agent, params: &Value) -> Value {
    ask(agent, "mcp/connect", params)["connectionId"].clone()
}

/// The session that a tool hears of over a connection.
fn heard(agent: &mut Agent, connection: &Value) -> Value {
    let params = json!({"connectionId": connection, "method": "tools/call", "params": {"name": "session"}});
    ask(agent, "mcp/message", &params)["structuredContent"]["session"].clone()
}

/// The session that a tool hears of without a connection.
fn heard_at_once(agent: &mut Agent, server: &str, more: &Value) -> Value {
    let mut params =
        json!({"serverId": server, "requestId": "r", "method": "tools/call", "params": {"name": "session"}});
    let members = more.as_object().unwrap().clone();
    params.as_object_mut().unwrap().extend(members);
    ask(agent, "mcp/message", &params)["result"]["structuredContent"]["session"].clone()
}

#[test]
fn a_tool_hears_the_session_in_both_generations() {
    let (mut client, mut agent) = start(json!({}));
    let server = session(&mut client, &mut agent, "s1", &json!([]));
    assert_eq!(server, SERVER);
    for name in ["serverId", "acpId"] {
        let connection = connect(&mut agent, &json!({name: SERVER}));
        assert_eq!(heard(&mut agent, &connection), "s1");
    }
    assert_eq!(heard_at_once(&mut agent, SERVER, &json!({})), "s1");
    for meta in [json!({"_meta": null}), json!({"_meta": {"n": 1}})] {
        assert_eq!(heard_at_once(&mut agent, SERVER, &meta), "s1");
    }
    // Whoever says it is taken at the word.
    for said in [
        json!({"sessionId": "other"}),
        json!({"_meta": {"consort/sessionId": "other"}}),
    ] {
        assert_eq!(heard_at_once(&mut agent, SERVER, &said), "other");
    }
}

#[test]
fn a_server_of_several_sessions_hears_it_only_over_connections_that_say_so() {
    let (mut client, mut agent) = start(json!({}));
    session(&mut client, &mut agent, "s1", &json!([]));
    let first = connect(&mut agent, &json!({"serverId": SERVER}));
    session(&mut client, &mut agent, "s2", &json!([]));
    let doubtful = connect(&mut agent, &json!({"serverId": SERVER}));
    let second = connect(&mut agent, &json!({"serverId": SERVER, "sessionId": "s2"}));
    assert_eq!(heard(&mut agent, &first), "s1");
    assert_eq!(heard(&mut agent, &doubtful), Value::Null);
    assert_eq!(heard(&mut agent, &second), "s2");
    assert_eq!(heard_at_once(&mut agent, SERVER, &json!({})), Value::Null);
    close(&mut client, &mut agent, "s2");
    assert_eq!(heard(&mut agent, &second), Value::Null, "its session is over");
    assert_eq!(heard_at_once(&mut agent, SERVER, &json!({})), "s1");
}

#[test]
fn a_server_of_each_session_always_hears_it() {
    let (mut client, mut agent) = start(json!({"scope": "session"}));
    let servers = ["s1", "s2"].map(|name| session(&mut client, &mut agent, name, &json!([])));
    for (server, name) in servers.iter().zip(["s1", "s2"]) {
        let connection = connect(&mut agent, &json!({"serverId": server}));
        assert_eq!(heard(&mut agent, &connection), name);
        assert_eq!(heard_at_once(&mut agent, server, &json!({})), name);
    }
}

#[test]
fn a_connection_of_a_set_up_that_is_not_answered_yet_hears_it_later() {
    let (mut client, mut agent) = start(json!({}));
    client.send_json(&request("new", "session/new", &json!({"cwd": "/", "mcpServers": []})));
    let new = agent.expect();
    let connection = connect(&mut agent, &json!({"serverId": SERVER}));
    assert_eq!(heard(&mut agent, &connection), Value::Null);
    agent.answer(&new, &json!({"sessionId": "s1"}));
    assert_eq!(client.expect()["id"], "new");
    assert_eq!(heard(&mut agent, &connection), "s1");
}

#[test]
fn what_is_said_to_servers_of_the_client_passes_as_it_is() {
    let (mut client, mut agent) = start(json!({}));
    let own = json!([{"type": "acp", "name": "own", "serverId": "own-1", "id": "own-1"}]);
    session(&mut client, &mut agent, "s1", &own);
    for (method, params) in [
        ("mcp/connect", r#"{"serverId":"own-1"}"#),
        (
            "mcp/message",
            r#"{"serverId":"own-1","requestId":"r","method":"tools/list","_meta":{"n":1.0}}"#,
        ),
        ("mcp/message", r#"{"connectionId":"c1","method":"tools/list"}"#),
    ] {
        agent.send(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#
        ));
        let line = client.expect_line();
        assert_eq!(last(&line, "params"), params);
        client.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"connectionId":"c1"}}}}"#,
            id(&line)
        ));
        assert_eq!(agent.expect()["result"], json!({"connectionId": "c1"}));
    }
}

#[test]
fn two_proxies_with_a_server_of_the_same_name_are_both_reached() {
    for (proxy, config) in [
        ("offers", json!({})),
        ("offers", json!({"scope": "session"})),
        ("tools", json!({})),
    ] {
        let chain = Chain::new("two servers of one name", &[(proxy, config.clone()), (proxy, config)]);
        let (mut client, listener) = chain.fresh();
        let (_agent, servers) = begin_in(&mut client, &listener, &over_http(), Path::new("/tmp"), &json!([]));
        let names: Vec<&Value> = servers.iter().map(|server| &server["name"]).collect();
        assert_eq!(names, [&json!(proxy), &json!(format!("{proxy}-2"))]);
        for server in &servers {
            let listed = Http::connect(server).ask("tools/list", &json!({}));
            assert!(listed["result"]["tools"][0]["name"].is_string(), "{listed}");
        }
    }
}
