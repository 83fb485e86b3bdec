//! `tool-filter`, the proxy that takes MCP servers and tools away by rules, in a real chain, with no more than the grant that it asks for.

use consort_tests::command::{finish, ungranted};
use consort_tests::guests::{guest, proxy};
use consort_tests::reached::{Http, Shim, begin_in, over_http, text};
use consort_tests::session::request;
use consort_tests::{Agent, AgentListener, Client};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::Path;

fn rules() -> Value {
    json!({"rules": [
        {"do": "hide", "server": "evil"},
        {"do": "hide", "tool": ["much", "tr*"]},
        {"do": "deny", "server": "offers", "tool": "fail"},
    ]})
}

/// The options for a proxy that offers tools, and the filter behind it.
fn options(config: &Value, grants: &str) -> Vec<OsString> {
    vec![
        "--no-config".into(),
        "--proxy".into(),
        guest("offers").into(),
        "--proxy".into(),
        proxy("tool-filter").into(),
        "--proxy-config".into(),
        format!("tool-filter={config}").into(),
        "--grant".into(),
        format!("tool-filter={grants}").into(),
    ]
}

fn start(config: &Value) -> (Client, AgentListener) {
    let listener = AgentListener::new();
    let client = Client::in_front_of(&listener, &options(config, "filter-tools"));
    (client, listener)
}

fn begin(client: &mut Client, listener: &AgentListener, capabilities: &Value, servers: &Value) -> (Agent, Vec<Value>) {
    begin_in(client, listener, capabilities, Path::new("/"), servers)
}

fn tool_names(listed: &Value) -> Vec<&str> {
    let tools = listed["result"]["tools"].as_array().expect("there is a list");
    tools.iter().filter_map(|tool| tool["name"].as_str()).collect()
}

#[test]
fn tools_are_hidden_and_denied_over_http() {
    let (mut client, listener) = start(&rules());
    let others = json!([
        {"name": "evil", "command": "/evil", "args": [], "env": []},
        {"name": "good", "command": "/good", "args": [], "env": []},
        {"type": "http", "name": "Evil", "url": "http://127.0.0.1:1/", "headers": []},
    ]);
    let (_agent, servers) = begin(&mut client, &listener, &over_http(), &others);
    assert_eq!((servers.len(), &servers[0]), (2, &others[1]));
    let server = Http::connect(&servers[1]);
    let listed = server.ask("tools/list", &json!({}));
    let names = tool_names(&listed);
    assert!(names.contains(&"echo") && names.contains(&"fail"), "{names:?}");
    assert!(!names.contains(&"much") && !names.contains(&"trap"), "{names:?}");
    assert_eq!(text(&server.tool("echo", &json!({"text": "a"}))), "a");
    for hidden in ["much", "MUCH", "trap"] {
        let refused = server.ask("tools/call", &json!({"name": hidden, "arguments": {"bytes": 1}}));
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    let denied = server.tool("fail", &json!({"text": "the server's own words"}));
    let said = denied["content"][0]["text"].as_str().unwrap_or_default();
    assert!(denied["isError"] == true && said.contains("denied"), "{denied}");
    let unknown = server.ask(
        "x/batch",
        &json!({"calls": [{"method": "tools/call", "params": {"name": "much"}}]}),
    );
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    let listed = server.ask("tools/list", &json!({"_meta": meta}));
    assert!(!tool_names(&listed).contains(&"much"), "{listed}");
}

#[test]
fn tools_are_hidden_from_an_agent_that_starts_its_servers() {
    let (mut client, listener) = start(&rules());
    let (_agent, servers) = begin(&mut client, &listener, &json!({}), &json!([]));
    let mut server = Shim::connect(&servers[0]);
    let listed = server.ask(1, "tools/list", &json!({}));
    assert!(!tool_names(&listed).contains(&"much"), "{listed}");
    let refused = server.ask(2, "tools/call", &json!({"name": "much", "arguments": {"bytes": 1}}));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

#[test]
fn calls_of_an_agent_that_speaks_mcp_over_acp_are_filtered_in_both_generations() {
    let (mut client, listener) = start(&rules());
    let capabilities = json!({"mcpCapabilities": {"acp": true}});
    let own = json!([{"type": "acp", "name": "editor's", "id": "e"}]);
    let (mut agent, servers) = begin(&mut client, &listener, &capabilities, &own);
    assert_eq!((servers.len(), &servers[0]), (2, &own[0]));
    let id = servers[1]["id"].clone();
    agent.send_json(&request("c", "mcp/connect", &json!({"serverId": id})));
    let connection = agent.expect()["result"]["connectionId"].clone();
    let much = json!({"name": "much", "arguments": {"bytes": 1}});
    let params = json!({"connectionId": connection, "method": "tools/call", "params": much});
    agent.send_json(&request("m", "mcp/message", &params));
    assert_eq!(agent.expect()["error"]["code"], -32602);
    let params = json!({"serverId": id, "requestId": "r", "method": "tools/call", "params": much});
    agent.send_json(&request("m", "mcp/message", &params));
    assert_eq!(agent.expect()["result"]["error"]["code"], -32602);
    // The same for a server of the editor's.
    let params = json!({"serverId": "e", "requestId": "r", "method": "tools/call", "params": much});
    agent.send_json(&request("m", "mcp/message", &params));
    assert_eq!(agent.expect()["result"]["error"]["code"], -32602);
    let params = json!({"serverId": "e", "requestId": "r", "method": "tools/call", "params": {"name": "other"}});
    agent.send_json(&request("m", "mcp/message", &params));
    assert_eq!(client.expect()["params"]["params"]["name"], "other");
}

#[test]
fn a_wrong_configuration_keeps_the_chain_from_starting() {
    let (mut client, _listener) = start(&json!({"rules": [{"do": "hide", "tools": "x"}]}));
    client.send_json(&request(1, "initialize", &json!({"protocolVersion": 1})));
    let refused = client.expect();
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("tool-filter") && message.contains("tools"),
        "{refused}"
    );
}

#[test]
fn without_the_grant_it_does_not_pretend_to_filter() {
    let initialize = request(1, "initialize", &json!({"protocolVersion": 1}));
    let mut arguments: Vec<OsString> = vec!["run".into()];
    arguments.extend(options(&rules(), "offer-tools"));
    arguments.extend(["--", "sh", "-c", "exit 3"].map(OsString::from));
    let said = finish(ungranted(&arguments), format!("{initialize}\n").as_bytes()).output;
    for words in ["`tool-filter`", "filter-tools", "--grant"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn the_example_of_its_readme_starts() {
    let readme =
        std::fs::read_to_string(consort_tests::root().join("proxies/tool-filter/README.md")).expect("it is there");
    let (_, example) = readme.split_once("```toml").expect("there is an example");
    let (example, _) = example.split_once("```").expect("it ends");
    let file = proxy("tool-filter");
    let directory = consort_tests::Directory::new();
    let text = example.replace("tool-filter.wasm", file.to_str().expect("paths are text"));
    let config = directory.file("consort.toml", text);
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &[OsString::from("--config"), config.into()]);
    let others = json!([{"name": "browser", "command": "/x", "args": [], "env": []}]);
    let (_agent, servers) = begin(&mut client, &listener, &over_http(), &others);
    assert!(servers.is_empty(), "{servers:?}");
}
