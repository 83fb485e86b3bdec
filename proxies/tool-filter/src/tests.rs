//! What passes and what does not, and how somebody might try to get it past.

use consort_proxy::Peer::{Agent, Client};
use consort_proxy::testing::{Harness, Kind, Sent};
use serde_json::{Value, json};

use super::ToolFilter;

fn start(config: Value) -> Harness {
    Harness::start::<ToolFilter>(config).unwrap()
}

/// Rules for most tests, and a connection `c` to the server `files`.
fn filtering() -> Harness {
    let mut host = start(json!({"rules": [
        {"do": "hide", "server": "evil"},
        {"do": "hide", "tool": "delete_*"},
        {"do": "deny", "server": "files", "tool": "write_*"},
    ]}));
    let servers = json!([
        {"type": "acp", "name": "files", "id": "1"},
        {"type": "acp", "name": "evil", "serverId": "2"},
        {"name": "evil", "command": "/evil", "args": [], "env": []},
        {"type": "http", "name": "web", "url": "http://x", "headers": []},
    ]);
    assert_eq!(names(&set_up(&mut host, servers)), ["files", "web"]);
    connect(&mut host, "1", "c");
    host.logs();
    host
}

/// Sets a session up, and gives the servers that are left.
fn set_up(host: &mut Harness, servers: Value) -> Value {
    host.request(Client, "session/new", json!({"cwd": "/", "mcpServers": servers}));
    host.next().params()["mcpServers"].clone()
}

fn names(servers: &Value) -> Vec<&str> {
    let servers = servers.as_array().unwrap().iter();
    servers.map(|server| server["name"].as_str().unwrap()).collect()
}

fn connect(host: &mut Harness, server: &str, connection: &str) {
    host.request(Agent, "mcp/connect", json!({"serverId": server, "acpId": server}));
    let connect = host.next();
    assert_eq!((connect.to(), connect.method()), (Client, "mcp/connect"));
    host.answer(&connect, json!({"connectionId": connection}));
    assert_eq!(host.next().result(), json!({"connectionId": connection}));
}

/// What comes of a message to a server: the message that goes on, or the answer.
fn say(host: &mut Harness, params: &str) -> Sent {
    host.request_text(Agent, "mcp/message", params);
    host.next()
}

fn call(host: &mut Harness, tool: &str) -> Sent {
    let params = json!({"connectionId": "c", "method": "tools/call", "params": {"name": tool, "arguments": {"n": 1}}});
    say(host, &params.to_string())
}

fn passes(sent: &Sent) -> bool {
    matches!(sent.kind(), Kind::Request { .. }) && sent.to() == Client
}

#[test]
fn calls_are_passed_on_hidden_or_denied() {
    let mut host = filtering();
    let text = r#"{"connectionId":"c", "method":"tools/call","params":{"name":"read","arguments":{"n":1.10,"n":2}}}"#;
    let passed = say(&mut host, text);
    assert!(passes(&passed) && passed.text() == text, "byte for byte");
    let hidden = call(&mut host, "delete_all").error();
    assert_eq!(
        (&hidden["code"], &hidden["message"]),
        (&json!(-32602), &json!("there is no tool `delete_all`"))
    );
    let denied = call(&mut host, "write_file").result();
    assert_eq!(denied["isError"], true);
    assert!(
        denied["content"][0]["text"].as_str().unwrap().contains("denied"),
        "{denied}"
    );
    assert_eq!(host.logs().len(), 2, "what is refused is told");
}

#[test]
fn calls_without_a_connection_are_answered_in_their_own_way() {
    let mut host = filtering();
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    let mut call = |tool: &str| {
        let params = json!({"name": tool, "_meta": meta});
        let message = json!({"serverId": "1", "requestId": "r", "method": "tools/call", "params": params});
        say(&mut host, &message.to_string())
    };
    assert!(passes(&call("read")));
    assert_eq!(call("delete_x").result()["error"]["code"], -32602);
    let denied = call("write_x").result();
    assert_eq!(
        (&denied["result"]["isError"], &denied["result"]["resultType"]),
        (&json!(true), &json!("complete"))
    );
}

#[test]
fn lists_lose_what_is_hidden_and_nothing_else() {
    let mut host = filtering();
    for (params, before, after) in [
        (
            r#"{"connectionId":"c","method":"tools/list"}"#,
            r#"{"tools":[{"name":"read","n":1.10},{"name":"delete_a"},{"title":"?"},{"name":"write_a"},{"name":"Delete_b"},{"name":"a","name":"b"},7],"nextCursor":"x"}"#,
            r#"{"tools":[{"name":"read","n":1.10},{"name":"write_a"}],"nextCursor":"x"}"#,
        ),
        (
            r#"{"serverId":"1","requestId":"r","method":"tools/list","params":{}}"#,
            r#"{"result":{"tools":[{"name":"delete_a"}],"ttlMs":0},"_meta":{}}"#,
            r#"{"result":{"tools":[],"ttlMs":0},"_meta":{}}"#,
        ),
        (
            r#"{"serverId":"1","requestId":"r","method":"tools/list","params":null}"#,
            r#"{"error":{"code":-1,"message":"no"}}"#,
            r#"{"error":{"code":-1,"message":"no"}}"#,
        ),
    ] {
        let list = say(&mut host, params);
        assert_eq!(list.text(), params);
        host.answer_text(&list, Ok(before));
        assert_eq!(host.next().text(), after);
    }
}

#[test]
fn lists_that_are_not_understood_do_not_pass() {
    let mut host = filtering();
    for list in [
        r#"{"tools":[{"name":"read"}],"tools":[{"name":"delete_a"}]}"#,
        r#"{"Tools":[{"name":"delete_a"}]}"#,
        r#"{"tools":{"0":{"name":"delete_a"}}}"#,
        r#"[{"name":"delete_a"}]"#,
        r#"{"result":{"tools":[{"name":"delete_a"}]}}"#,
        r#"{"error":{"code":-1,"message":"no"}}"#,
        "{}",
        "null",
    ] {
        let asked = say(&mut host, r#"{"connectionId":"c","method":"tools/list"}"#);
        host.answer_text(&asked, Ok(list));
        assert_eq!(host.next().error()["code"], -32603, "{list}");
    }
    for list in [
        "{}",
        r#"{"tools":[{"name":"delete_a"}]}"#,
        r#"{"result":null}"#,
        r#"{"result":{}}"#,
        r#"{"result":{"items":[{"name":"delete_a"}]}}"#,
        r#"{"result":{},"error":{"code":-1,"message":"no"}}"#,
        r#"{"error":null,"tools":[{"name":"delete_a"}]}"#,
        r#"{"Result":{"tools":[{"name":"delete_a"}]},"error":{"code":-1,"message":"no"}}"#,
    ] {
        let asked = say(&mut host, r#"{"serverId":"1","requestId":"r","method":"tools/list"}"#);
        host.answer_text(&asked, Ok(list));
        assert_eq!(host.next().result()["error"]["code"], -32603, "{list}");
    }
    let asked = say(&mut host, r#"{"connectionId":"c","method":"tools/list"}"#);
    host.answer_error(&asked, -32000, "not now");
    assert_eq!(host.next().error()["message"], "not now");
}

#[test]
fn nothing_gets_a_call_past() {
    let mut host = filtering();
    for attempt in [
        // In other letters.
        r#"{"connectionId":"c","method":"tools/call","params":{"name":"DELETE_ALL"}}"#,
        r#"{"connectionId":"c","method":"tools/call","params":{"name":"\u0064elete_all"}}"#,
        r#"{"connectionId":"c","method":"tools/call","params":{"name":"ｄｅｌｅｔｅ_all"}}"#,
        r#"{"connectionId":"c","method":"tools/call","params":{"name":" delete_all"}}"#,
        r#"{"connectionId":"c","method":"tools/call","params":{"name":"delete_all\u0000"}}"#,
        r#"{"connectionId":"c","method":"tools/call","params":{"name":"del\u00adete_all"}}"#,
        // Twice, for readers that take the other one.
        r#"{"connectionId":"c","method":"tools/call","params":{"name":"read","name":"delete_all"}}"#,
        r#"{"connectionId":"c","method":"tools/call","params":{"name":"read","Name":"delete_all"}}"#,
        r#"{"connectionId":"c","method":"ping","method":"tools/call","params":{"name":"delete_all"}}"#,
        r#"{"connectionId":"c","method":"tools/call","params":{"name":"read"},"PARAMS":{"name":"delete_all"}}"#,
        r#"{"connectionId":"c","method":"tools/call","params":{"name":"read"},"paramſ":{"name":"delete_all"}}"#,
        // In another shape.
        r#"{"connectionId":"c","method":"tools/call","params":["delete_all"]}"#,
        r#"{"connectionId":"c","method":"tools/call","params":{"name":["delete_all"]}}"#,
        r#"{"connectionId":"c","method":"tools/call"}"#,
        r#"{"connectionId":"c","method":["tools/call"],"params":{"name":"delete_all"}}"#,
        r#"{"connectionId":"c","params":{"name":"delete_all"}}"#,
        r#"[{"connectionId":"c","method":"tools/call","params":{"name":"delete_all"}}]"#,
        r#"{"connectionId":"c","method":"Tools/Call","params":{"name":"delete_all"}}"#,
        r#"{"connectionId":"c","method":"tools/call ","params":{"name":"delete_all"}}"#,
        r#"{"connectionId":"c","method":"batch","params":{"messages":[{"method":"tools/call"}]}}"#,
        r#"{"connectionId":"c","method":"mcp/message","params":{"method":"tools/call","params":{"name":"delete_all"}}}"#,
        // To another server.
        r#"{"serverId":"2","requestId":"r","method":"tools/call","params":{"name":"read"}}"#,
        r#"{"serverId":"2","requestId":"r","method":"resources/read","params":{"uri":"x"}}"#,
        r#"{"connectionId":"c","serverId":"2","method":"tools/call","params":{"name":"read"}}"#,
        r#"{"connectionId":"c","connectionid":"d","method":"tools/call","params":{"name":"read"}}"#,
        r#"{"connectionId":"unheard of","method":"tools/call","params":{"name":"read"}}"#,
        r#"{"connectionId":7,"method":"tools/call","params":{"name":"read"}}"#,
        r#"{"method":"tools/call","params":{"name":"read"}}"#,
    ] {
        let sent = say(&mut host, attempt);
        assert!(!passes(&sent), "{attempt}: {sent:?}");
        host.notify_text(Agent, "mcp/message", attempt);
        assert!(host.sent().is_empty(), "{attempt}");
    }
    host.request(Agent, "mcp/call", json!({"connectionId": "c", "name": "delete_all"}));
    assert_eq!(host.next().error()["code"], -32601);
    host.notify(Agent, "mcp/call", json!({"connectionId": "c"}));
    host.notify(
        Agent,
        "mcp/message",
        json!({"connectionId": "c", "method": "tools/call", "params": {"name": "read"}}),
    );
    assert!(host.sent().is_empty(), "a call is no notification");
    // As it was called in drafts.
    host.request(
        Agent,
        "_mcp/message",
        json!({"connectionId": "c", "method": "tools/call", "params": {"name": "delete_all"}}),
    );
    assert_eq!(host.next().error()["code"], -32602);
    let large = json!({"connectionId": "c", "method": "tools/call", "params": {"name": "read", "arguments": "x".repeat(17 << 20)}});
    assert!(!passes(&say(&mut host, &large.to_string())));
}

#[test]
fn what_is_no_call_passes() {
    let mut host = filtering();
    for method in [
        "initialize",
        "ping",
        "resources/read",
        "prompts/get",
        "completion/complete",
        "tasks/result",
    ] {
        let message = format!(r#"{{"connectionId":"c","method":"{method}","params":{{"name":"delete_all"}}}}"#);
        let sent = say(&mut host, &message);
        assert!(passes(&sent) && sent.text() == message, "{method}");
    }
    for method in ["notifications/initialized", "notifications/cancelled"] {
        host.notify(Agent, "mcp/message", json!({"connectionId": "c", "method": method}));
        assert_eq!(host.next().params()["method"], method);
    }
    let mut host = start(json!({"methods": ["x/own"]}));
    set_up(&mut host, json!([{"type": "acp", "name": "a", "id": "1"}]));
    assert!(passes(&say(&mut host, r#"{"serverId":"1","method":"x/own"}"#)));
    assert!(!passes(&say(&mut host, r#"{"serverId":"1","method":"x/other"}"#)));
}

#[test]
fn a_denied_server_under_another_name_is_the_same() {
    let mut host = filtering();
    let servers = json!([
        {"type": "acp", "name": "harmless", "id": "2"},
        {"type": "acp", "name": "evil-2", "id": "9"},
        {"type": "acp", "name": "EVIL", "id": "10"},
        {"type": "acp", "name": "files", "id": "1"},
    ]);
    assert_eq!(names(&set_up(&mut host, servers)), ["files"]);
    host.request(Agent, "mcp/connect", json!({"serverId": "2"}));
    assert_eq!(host.next().error()["code"], -32002);
    // Its rules come along as well.
    let servers = json!([{"type": "acp", "name": "renamed", "id": "1"}]);
    assert_eq!(names(&set_up(&mut host, servers)), ["renamed"]);
    assert_eq!(call(&mut host, "write_x").result()["isError"], true);
}

#[test]
fn entries_that_are_unclear_are_left_out_and_set_ups_refused() {
    let mut host = filtering();
    let servers = r#"[{"name":"a","name":"evil","command":"/x"},{"Name":"evil","name":"a","command":"/x"},{"command":"/x"},{"name":7},"evil",{"name":"ｅvil","command":"/x"},{"name":"a","command":"/x"}]"#;
    host.request_text(
        Client,
        "session/load",
        &format!(r#"{{"sessionId":"s","cwd":"/","mcpServers":{servers}}}"#),
    );
    assert_eq!(names(&host.next().params()["mcpServers"]), ["a"]);
    for params in [
        r#"{"cwd":"/","mcpServers":[],"mcpServers":[{"name":"evil"}]}"#,
        r#"{"cwd":"/","mcpservers":[{"name":"evil"}]}"#,
        r#"{"cwd":"/","mcpServers":{"evil":{}}}"#,
        r#"["/",[{"name":"evil"}]]"#,
    ] {
        host.request_text(Client, "session/new", params);
        assert_eq!(host.next().error()["code"], -32602, "{params}");
    }
    for params in [
        r#"{"cwd":"/","mcpServers":null}"#,
        r#"{"cwd":"/"}"#,
        r#"{"cwd":"/", "mcpServers":[ ]}"#,
    ] {
        host.request_text(Client, "session/new", params);
        assert_eq!(host.next().text(), params);
    }
}

#[test]
fn servers_whose_tools_cannot_be_filtered_are_told_of_or_left_out() {
    let rules = json!([{"do": "deny", "server": "web", "tool": "x"}]);
    let servers =
        || json!([{"type": "http", "name": "web", "url": "x", "headers": []}, {"name": "other", "command": "x"}]);
    let mut host = start(json!({"rules": rules}));
    assert_eq!(names(&set_up(&mut host, servers())), ["web", "other"]);
    assert!(host.logs()[0].1.contains("stays, with all of its tools"));
    let mut host = start(json!({"rules": rules, "unfiltered": "drop"}));
    assert_eq!(names(&set_up(&mut host, servers())), ["other"]);
}

#[test]
fn a_list_of_what_is_allowed_can_be_all() {
    let mut host = start(json!({"otherwise": "hide", "rules": [{"do": "allow", "server": "files", "tool": "read_*"}]}));
    let servers = json!([{"type": "acp", "name": "files", "id": "1"}, {"type": "acp", "name": "new", "id": "2"}]);
    assert_eq!(names(&set_up(&mut host, servers)), ["files"]);
    connect(&mut host, "1", "c");
    assert!(passes(&call(&mut host, "read_x")));
    for tool in ["Read_x", "write", "read_\u{e4}"] {
        assert!(!passes(&call(&mut host, tool)), "{tool}");
    }
    host.notify(Agent, "mcp/disconnect", json!({"connectionId": "c"}));
    assert_eq!(host.next().method(), "mcp/disconnect");
    assert!(!passes(&call(&mut host, "read_x")), "the connection is over");
}

#[test]
fn a_wrong_configuration_does_not_start() {
    for (config, said) in [
        (json!({"rule": []}), "rule"),
        (
            json!({"rules": [{"do": "allow", "server": "a"}, {"do": "deny", "tools": "x"}]}),
            "tools",
        ),
        (json!({"rules": [{"do": "block", "tool": "x"}]}), "block"),
        (json!({"rules": [{"do": "hide"}]}), "rule 1"),
        (json!({"otherwise": "ask"}), "ask"),
        (json!({"rules": [{"do": "hide", "tool": 7}]}), "data did not match"),
    ] {
        let error = Harness::start::<ToolFilter>(config).err().unwrap();
        assert!(error.contains(said), "{error}");
    }
}
