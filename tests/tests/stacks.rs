//! Consort on top of, below and inside of other conductors: nobody notices, whatever the dialect and however deep.

use consort_tests::guests::{guest, proxy};
use consort_tests::session::{SESSION, begin, chunk, notification, prompt, request};
use consort_tests::stack::{self, Stack, Words, stack};
use consort_tests::{Agent, AgentListener, Client};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;

fn passthrough() -> Vec<PathBuf> {
    vec![proxy("passthrough")]
}

fn deep(agent: Words) -> Words {
    let inner = stack::run(&passthrough(), agent);
    stack::run(&passthrough(), stack::run(&[], inner))
}

fn plain(agent: Words) -> Words {
    stack::scripted("plain", &[stack::proxy(&passthrough()), agent])
}

fn underscored(agent: Words) -> Words {
    stack::scripted("underscored", &[stack::proxy(&passthrough()), agent])
}

fn empty_proxy(agent: Words) -> Words {
    stack::scripted("plain", &[stack::proxy(&[]), agent])
}

fn mixed(agent: Words) -> Words {
    let below = stack::run(&passthrough(), agent);
    let two = [proxy("passthrough"), guest("observer")];
    let middle = stack::scripted(
        "underscored",
        &[stack::proxy(&two), stack::proxy(&passthrough()), below],
    );
    stack::run(&passthrough(), middle)
}

/// Every conversation in front of every stack.
fn everywhere(conversation: fn(&Stack, Client, Agent)) {
    for stack in [
        stack("three times Consort", deep),
        stack("a proxy of a plain conductor", plain),
        stack("a proxy of an underscored conductor", underscored),
        stack("a proxy without proxies", empty_proxy),
        stack("above, inside of and below a conductor", mixed),
    ] {
        let listener = AgentListener::new();
        let mut client = Client::spawn(stack.command(&listener), listener.transcript().clone());
        let agent = begin(&mut client, &listener);
        eprintln!("in front of: {}", stack.name);
        conversation(&stack, client, agent);
    }
}

/// The text of a member of a line.
fn member(line: &str, name: &str) -> String {
    let members: HashMap<String, Box<RawValue>> = serde_json::from_str(line).expect("a line is an object");
    members.get(name).map_or_else(String::new, |raw| raw.get().to_owned())
}

#[test]
fn odd_params_and_results_pass_byte_for_byte() {
    everywhere(|_, mut client, mut agent| {
        let odd = format!(
            r#"{{"sessionId":"{SESSION}", "n":[1.10,1e400,12345678901234567890123],"_meta":{{"x":null}},"u":"\u00e9✓"}}"#
        );
        client.send(&format!(
            r#"{{"jsonrpc":"2.0","id":"1","method":"session/prompt","params":{odd}}}"#
        ));
        let line = agent.expect_line();
        assert_eq!(member(&line, "params"), odd);
        agent.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{odd}}}"#,
            member(&line, "id")
        ));
        let line = client.expect_line();
        assert_eq!(
            (member(&line, "id"), member(&line, "result")),
            ("\"1\"".into(), odd.clone())
        );
        for error in [
            r#"{"code":-32000,"message":"m","data":null}"#,
            r#"{"code":7,"message":"","data":{"a":1.50}}"#,
        ] {
            client.send(r#"{"jsonrpc":"2.0","id":null,"method":"_x/y"}"#);
            let line = agent.expect_line();
            assert_eq!(
                (member(&line, "method"), member(&line, "params")),
                ("\"_x/y\"".into(), String::new())
            );
            agent.send(&format!(
                r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#,
                member(&line, "id")
            ));
            let line = client.expect_line();
            assert_eq!(
                (member(&line, "id"), member(&line, "error")),
                ("null".into(), error.into())
            );
        }
    });
}

#[test]
fn a_turn_with_updates_and_questions_keeps_its_order() {
    everywhere(|_, mut client, mut agent| {
        client.send_json(&prompt(1, "go"));
        let asked = agent.expect();
        let question = json!({"sessionId": SESSION, "toolCall": {"toolCallId": "t"}, "options": []});
        agent.send_json(&chunk("one"));
        agent.send_json(&request(1, "session/request_permission", &question));
        agent.send_json(&chunk("two"));
        assert_eq!(client.expect(), chunk("one"));
        let permission = client.expect();
        assert_eq!(
            (&permission["method"], &permission["params"]),
            (&json!("session/request_permission"), &question)
        );
        assert_eq!(client.expect(), chunk("two"));
        let outcome = json!({"outcome": {"outcome": "cancelled"}});
        client.send_json(&json!({"jsonrpc": "2.0", "id": permission["id"], "result": outcome}));
        assert_eq!(agent.expect(), json!({"jsonrpc": "2.0", "id": 1, "result": outcome}));
        for number in 0..200 {
            agent.send_json(&chunk(&number.to_string()));
        }
        agent.answer(&asked, &json!({"stopReason": "end_turn"}));
        for number in 0..200 {
            assert_eq!(client.expect(), chunk(&number.to_string()));
        }
        assert_eq!(
            client.expect(),
            json!({"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "end_turn"}})
        );
    });
}

#[test]
fn cancels_go_down_and_up_with_each_hops_id() {
    everywhere(|_, mut client, mut agent| {
        let cancel = |id: &Value| notification("$/cancel_request", &json!({ "requestId": id }));
        client.send_json(&prompt("p", "go"));
        let asked = agent.expect();
        agent.send_json(&request(
            "a",
            "fs/read_text_file",
            &json!({"sessionId": SESSION, "path": "/x"}),
        ));
        let read = client.expect();
        agent.send_json(&cancel(&json!("a")));
        assert_eq!(client.expect(), cancel(&read["id"]));
        client.send_json(&json!({"jsonrpc": "2.0", "id": read["id"], "error": {"code": -32800, "message": "c"}}));
        assert_eq!(agent.expect()["error"]["code"], -32800);
        client.send_json(&cancel(&json!("p")));
        assert_eq!(agent.expect(), cancel(&asked["id"]));
        agent.answer(&asked, &json!({"stopReason": "cancelled"}));
        assert_eq!(client.expect()["result"]["stopReason"], "cancelled");
        client.send_json(&prompt("q", "again"));
        assert_eq!(agent.expect()["method"], "session/prompt", "no cancel came twice");
    });
}

#[test]
fn mcp_messages_of_both_generations_pass_both_ways() {
    everywhere(|_, mut client, mut agent| {
        let bodies = [
            ("mcp/connect", json!({"acpId": "a"})),
            ("mcp/connect", json!({"serverId": "a", "_meta": {"x": 1}})),
            (
                "mcp/message",
                json!({"connectionId": "c", "method": "tools/list", "params": {}}),
            ),
            (
                "mcp/message",
                json!({"serverId": "s", "requestId": "r", "method": "tools/call", "_meta": {}}),
            ),
            ("mcp/disconnect", json!({"connectionId": "c"})),
        ];
        for (method, params) in &bodies {
            agent.send_json(&request(5, method, params));
            let line = client.expect();
            assert_eq!((&line["method"], &line["params"]), (&json!(method), params));
            let result = json!({"error": {"code": -1, "message": "inner"}, "_meta": {"y": 2}});
            client.send_json(&json!({"jsonrpc": "2.0", "id": line["id"], "result": result}));
            assert_eq!(agent.expect(), json!({"jsonrpc": "2.0", "id": 5, "result": result}));
            client.send_json(&notification(method, params));
            assert_eq!(agent.expect(), notification(method, params));
            agent.send_json(&notification(method, params));
            assert_eq!(client.expect(), notification(method, params));
        }
    });
}

#[test]
fn initialize_again_reaches_the_agent_again() {
    everywhere(|_, mut client, mut agent| {
        let params = json!({"protocolVersion": 1, "x": {"y": 1}});
        client.send_json(&request("again", "initialize", &params));
        let line = agent.expect();
        assert_eq!((&line["method"], &line["params"]), (&json!("initialize"), &params));
        agent.answer(&line, &json!({"protocolVersion": 1, "z": []}));
        assert_eq!(
            client.expect(),
            json!({"jsonrpc": "2.0", "id": "again", "result": {"protocolVersion": 1, "z": []}})
        );
    });
}
