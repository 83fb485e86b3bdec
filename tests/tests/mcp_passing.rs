//! MCP over ACP between client and agent: the messages of both generations pass untouched, in both directions, through proxies that
//! do not ask for them and through one that takes them.

use consort_tests::chains::{Chain, none, passing, slow};
use consort_tests::raw::{id, last};
use serde_json::json;

fn chains() -> Vec<Chain> {
    let everything = json!({"method": "mcp/*"});
    vec![
        none(),
        Chain::new(
            "proxies that do not ask for them",
            &[("arrow", json!({})), ("arrow", json!({}))],
        ),
        passing(2),
        slow(10, &["mcp/*"]),
        Chain::new("a proxy that takes them under its own ids", &[("rewriter", everything)]),
    ]
}

/// Requests of both generations: method and params.
const REQUESTS: [(&str, &str); 8] = [
    ("mcp/connect", r#"{"acpId":"server-1","sessionId":"s1"}"#),
    (
        "mcp/connect",
        r#"{"serverId":"server-1","sessionId":"s1","_meta":{"n":1.0}}"#,
    ),
    (
        "mcp/message",
        r#"{"connectionId":"c1","method":"tools/call","params":{"name":"t","arguments":{"n":1.10,"n":2}}}"#,
    ),
    ("mcp/message", r#"{"connectionId":"c1","method":"ping"}"#),
    ("mcp/disconnect", r#"{"connectionId":"c1"}"#),
    (
        "mcp/message",
        r#"{"serverId":"server-1","requestId":"r-1","method":"tools/call","params":{"name":"t","_meta":{"progressToken":1.0}},"_meta":{"hop":true}}"#,
    ),
    (
        "mcp/message",
        r#"{"serverId":"server-1","requestId":"r-1","method":"tools/list","params":null}"#,
    ),
    (
        "mcp/message",
        r#"{"method":"sampling/createMessage","serverId":"\u00e9","requestId":""}"#,
    ),
];

/// Notifications of both generations.
const NOTIFICATIONS: [(&str, &str); 4] = [
    (
        "mcp/message",
        r#"{"connectionId":"c1","method":"notifications/initialized"}"#,
    ),
    (
        "mcp/message",
        r#"{"connectionId":"c1","method":"notifications/progress","params":{"progress":0.10,"progressToken":"x"}}"#,
    ),
    (
        "mcp/message",
        r#"{"serverId":"server-1","requestId":"r-1","method":"notifications/progress","params":{"progress":1e2},"_meta":{}}"#,
    ),
    ("mcp/disconnect", r#"{"connectionId":"c1"}"#),
];

/// Answers: results, errors of MCP inside of a result, and errors of the carrier.
const OUTCOMES: [&str; 9] = [
    r#""result":{"connectionId":"c1"}"#,
    r#""result":{"content":[{"type":"text","text":"\u00e9"}],"isError":false,"structuredContent":{"n":1.10}}"#,
    r#""result":{"result":{"resultType":"future","n":12345678901234567890123},"_meta":{"hop":1}}"#,
    r#""result":{"result":null}"#,
    r#""result":{"error":{"code":-32602,"message":"Unknown tool","data":null},"_meta":{}}"#,
    r#""result":{"error":{"code":-32000,"message":"","extra":[]}}"#,
    r#""result":null"#,
    r#""error":{"code":-32601,"message":"Method not found"}"#,
    r#""error":{"code":-32042,"message":"no such connection","data":{"connectionId":"c1","n":1.0}}"#,
];

#[test]
fn requests_of_both_generations_pass_from_the_agent_to_the_client() {
    for chain in chains() {
        let (mut client, mut agent) = chain.start();
        for (method, params) in REQUESTS {
            for outcome in OUTCOMES {
                agent.send(&format!(
                    r#"{{"jsonrpc":"2.0","id":"m","method":"{method}","params":{params}}}"#
                ));
                let line = client.expect_line();
                assert!(
                    line.contains(&format!(r#""method":"{method}""#)),
                    "{}: {line}",
                    chain.name
                );
                assert_eq!(last(&line, "params"), params, "{}", chain.name);
                client.send(&format!(r#"{{"jsonrpc":"2.0","id":{},{outcome}}}"#, id(&line)));
                assert_eq!(
                    agent.expect_line(),
                    format!(r#"{{"jsonrpc":"2.0","id":"m",{outcome}}}"#),
                    "{}",
                    chain.name
                );
            }
        }
    }
}

#[test]
fn requests_of_both_generations_pass_from_the_client_to_the_agent() {
    for chain in chains() {
        let (mut client, mut agent) = chain.start();
        for (method, params) in REQUESTS {
            for outcome in OUTCOMES {
                client.send(&format!(
                    r#"{{"jsonrpc":"2.0","id":"m","method":"{method}","params":{params}}}"#
                ));
                let line = agent.expect_line();
                assert!(
                    line.contains(&format!(r#""method":"{method}""#)),
                    "{}: {line}",
                    chain.name
                );
                assert_eq!(last(&line, "params"), params, "{}", chain.name);
                agent.send(&format!(r#"{{"jsonrpc":"2.0","id":{},{outcome}}}"#, id(&line)));
                assert_eq!(
                    client.expect_line(),
                    format!(r#"{{"jsonrpc":"2.0","id":"m",{outcome}}}"#),
                    "{}",
                    chain.name
                );
            }
        }
    }
}

#[test]
fn notifications_of_both_generations_pass_in_both_directions() {
    for chain in chains() {
        let (mut client, mut agent) = chain.start();
        for (method, params) in NOTIFICATIONS {
            let line = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#);
            agent.send(&line);
            assert_eq!(client.expect_line(), line, "{}", chain.name);
            client.send(&line);
            assert_eq!(agent.expect_line(), line, "{}", chain.name);
        }
    }
}

#[test]
fn servers_of_type_acp_that_the_client_offers_reach_the_agent_as_they_are() {
    let servers = r#"[{"type":"acp","name":"a","id":"server-1"},{"name":"b","serverId":"server-2","type":"acp","_meta":{"n":1.0}},{"name":"c","command":"/c","args":[],"env":[]}]"#;
    for chain in chains() {
        let (mut client, listener) = chain.fresh();
        let result = r#"{"protocolVersion":1,"agentCapabilities":{"mcpCapabilities":{"http":false,"acp":true}}}"#;
        client.send(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#);
        let mut agent = listener.accept();
        let line = agent.expect_line();
        agent.send(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id(&line)));
        assert_eq!(last(&client.expect_line(), "result"), result, "{}", chain.name);
        for method in ["session/new", "session/load"] {
            let params = format!(r#"{{"sessionId":"s1","cwd":"/","mcpServers":{servers}}}"#);
            client.send(&format!(
                r#"{{"jsonrpc":"2.0","id":2,"method":"{method}","params":{params}}}"#
            ));
            let line = agent.expect_line();
            assert_eq!(last(&line, "params"), params, "{}", chain.name);
            agent.send(&format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{{"sessionId":"s1"}}}}"#,
                id(&line)
            ));
            assert_eq!(client.expect()["id"], 2, "{}", chain.name);
        }
    }
}

#[test]
fn a_request_within_an_mcp_request_is_answered_first_and_a_cancel_finds_the_right_one() {
    for chain in chains() {
        let (mut client, mut agent) = chain.start();
        let call = r#"{"serverId":"x","requestId":"r-1","method":"tools/call"}"#;
        let ask = r#"{"serverId":"x","requestId":"r-2","method":"sampling/createMessage"}"#;
        agent.send(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"mcp/message","params":{call}}}"#
        ));
        let outer = client.expect();
        client.send(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"mcp/message","params":{ask}}}"#
        ));
        let inner = agent.expect();
        agent.answer(&inner, &json!({"result": {"inner": true}}));
        assert_eq!(client.expect()["result"]["result"]["inner"], true, "{}", chain.name);
        agent.send(r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}"#);
        let cancel = client.expect();
        assert_eq!(
            cancel["params"],
            json!({"requestId": outer["id"]}),
            "{}: {cancel}",
            chain.name
        );
        client.send_json(
            &json!({"jsonrpc": "2.0", "id": outer["id"], "error": {"code": -32800, "message": "cancelled"}}),
        );
        let answer = agent.expect();
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!(1), &json!(-32800)),
            "{}",
            chain.name
        );
    }
}
