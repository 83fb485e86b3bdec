//! Consort on top of, below and inside of other conductors: nobody notices, whatever the dialect and however deep.

use consort_tests::guests::{guest, proxy};
use consort_tests::real::reference_conductor;
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

/// A conversation with a stack, through a client in front of it and the agent at its end.
type Conversation = fn(&Stack, &mut Client, &mut Agent);

const CONVERSATIONS: [(&str, Conversation); 5] = [
    (
        "odd params and results pass byte for byte",
        odd_params_and_results_pass_byte_for_byte,
    ),
    (
        "a turn with updates and questions keeps its order",
        a_turn_with_updates_and_questions_keeps_its_order,
    ),
    (
        "cancels go down and up with each hops id",
        cancels_go_down_and_up_with_each_hops_id,
    ),
    (
        "mcp messages of both generations pass both ways",
        mcp_messages_of_both_generations_pass_both_ways,
    ),
    (
        "initialize again reaches the agent again",
        initialize_again_reaches_the_agent_again,
    ),
];

fn converse(stacks: &[Stack]) {
    for stack in stacks {
        for (name, conversation) in CONVERSATIONS {
            // Shown if it fails.
            eprintln!("{}: {name}", stack.name);
            let listener = AgentListener::new();
            let mut client = Client::spawn(stack.command(&listener), listener.transcript().clone());
            let mut agent = begin(&mut client, &listener);
            conversation(stack, &mut client, &mut agent);
        }
    }
}

#[test]
fn consort_in_consort_in_consort() {
    converse(&[stack("three times Consort", deep)]);
}

#[test]
fn a_proxy_of_a_plain_conductor() {
    converse(&[stack("a proxy", plain), stack("a proxy without proxies", empty_proxy)]);
}

#[test]
fn a_proxy_of_an_underscored_conductor() {
    converse(&[stack("a proxy", underscored)]);
}

#[test]
fn above_inside_of_and_below_a_conductor() {
    converse(&[stack("all three", mixed)]);
}

#[test]
#[ignore = "compiles the reference conductor, which takes some minutes"]
fn with_the_reference_conductor() {
    converse(
        &[
            stack("the reference above", reference_above),
            stack("the reference below", reference_below),
            stack("a tree with the reference", reference_tree),
        ]
        .map(Stack::rewriting),
    );
}

/// The reference conductor with components as it wants them: each command in one word.
fn reference(mode: &str, components: &[Words]) -> Words {
    let mut words = vec![stack::text(reference_conductor()), mode.to_owned()];
    words.extend(components.iter().map(|component| stack::quoted(component)));
    words
}

fn reference_above(agent: Words) -> Words {
    reference("agent", &[stack::proxy(&passthrough()), stack::proxy(&[]), agent])
}

fn reference_below(agent: Words) -> Words {
    stack::run(
        &passthrough(),
        reference("agent", &[stack::proxy(&passthrough()), agent]),
    )
}

fn reference_tree(agent: Words) -> Words {
    let inner = reference(
        "proxy",
        &[stack::proxy(&passthrough()), stack::proxy(&[guest("observer")])],
    );
    let below = stack::run(&passthrough(), agent);
    reference("agent", &[stack::proxy(&passthrough()), inner, below])
}

/// The text of a member of a line.
fn member(line: &str, name: &str) -> String {
    let members: HashMap<String, Box<RawValue>> = serde_json::from_str(line).expect("a line is an object");
    members.get(name).map_or_else(String::new, |raw| raw.get().to_owned())
}

fn odd_params_and_results_pass_byte_for_byte(stack: &Stack, client: &mut Client, agent: &mut Agent) {
    let odd = match stack.rewrites {
        true => format!(r#"{{"sessionId":"{SESSION}","n":[1.5,-7],"_meta":{{"x":null}},"u":"é✓"}}"#),
        false => format!(
            r#"{{"sessionId":"{SESSION}", "n":[1.10,1e400,12345678901234567890123],"_meta":{{"x":null}},"u":"\u00e9✓"}}"#
        ),
    };
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
        r#"{"code":7,"message":"","data":{"a":1.5}}"#,
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
}

fn a_turn_with_updates_and_questions_keeps_its_order(_: &Stack, client: &mut Client, agent: &mut Agent) {
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
}

fn cancels_go_down_and_up_with_each_hops_id(_: &Stack, client: &mut Client, agent: &mut Agent) {
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
}

fn mcp_messages_of_both_generations_pass_both_ways(_: &Stack, client: &mut Client, agent: &mut Agent) {
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
}

fn initialize_again_reaches_the_agent_again(_: &Stack, client: &mut Client, agent: &mut Agent) {
    let params = json!({"protocolVersion": 1, "x": {"y": 1}});
    client.send_json(&request("again", "initialize", &params));
    let line = agent.expect();
    assert_eq!((&line["method"], &line["params"]), (&json!("initialize"), &params));
    let result = json!({"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": {"acp": true}}, "z": []});
    agent.answer(&line, &result);
    assert_eq!(
        client.expect(),
        json!({"jsonrpc": "2.0", "id": "again", "result": result})
    );
}
