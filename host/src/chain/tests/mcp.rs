//! What MCP servers say over ACP stays in order, and nobody's call waits for another one's.

use crate::chain::bench::{Bench, answer, everything, ok, pass, request};
use crate::grants::OwnServers;
use crate::message::Peer;
use serde_json::{Value, json};
use std::sync::Arc;

fn note(server: &str, number: u64) -> Value {
    json!({"method": "mcp/message", "params": {"connectionId": server, "method": "progress", "params": {"n": number}}})
}

fn call(id: u64, server: &str) -> Value {
    json!({"id": id, "method": "mcp/message", "params": {"serverId": server, "requestId": id, "method": "tools/call"}})
}

#[test]
fn a_result_does_not_overtake_the_progress_before_it() {
    let mut bench = Bench::new(vec![everything()]);
    let connection = json!({"id": 1, "method": "mcp/message", "params": {"connectionId": "c", "method": "tools/call"}});
    bench.agent(connection);
    bench.pass_all();
    let asked = bench.at_client()[0]["id"].clone();
    // The proxy is at work on the first one while the others come.
    bench.client(note("c", 1));
    let (index, turn) = bench.turn();
    assert_eq!(turn.source, Peer::Client);
    bench.client(note("c", 2));
    bench.client(json!({"id": asked, "result": {"content": []}}));
    assert_eq!(bench.at_agent(), [] as [Value; 0]);
    bench.done(index, pass(&turn));
    bench.pass_all();
    let seen: Vec<Value> = bench
        .at_agent()
        .iter()
        .map(|line| line["params"]["params"]["n"].clone())
        .collect();
    assert_eq!(seen, [json!(1), json!(2), Value::Null], "the result comes last");
}

#[test]
fn a_call_that_is_held_delays_neither_other_calls_nor_its_own_cancel() {
    let mut bench = Bench::new(vec![everything()]);
    bench.agent(call(1, "s"));
    let (index, _held) = bench.turn();
    bench.kept(index, Vec::new());
    bench.agent(call(2, "s"));
    bench.agent(note("s", 7));
    bench.pass_all();
    let seen = bench.at_client();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!(seen[0]["params"]["requestId"], 2);
    assert_eq!(seen[1]["params"]["params"]["n"], 7);
}

#[test]
fn nothing_is_said_over_a_connection_before_it_is_there_or_after_its_end() {
    let mut bench = Bench::new(vec![everything()]);
    bench.agent(json!({"id": 1, "method": "mcp/connect", "params": {"serverId": "s"}}));
    let (index, connect) = bench.turn();
    let own = request(
        Peer::Client,
        Some(1),
        Some(connect.ticket),
        "mcp/connect",
        json!({"serverId": "s"}),
    );
    bench.done(index, vec![own]);
    let asked = bench.at_client()[0]["id"].clone();
    bench.client(json!({"id": asked, "result": {"connectionId": "c"}}));
    bench.client(note("c", 1));
    let (index, _) = bench.turn();
    assert!(bench.at_agent().is_empty(), "the proxy has the news of the connection");
    bench.done(
        index,
        vec![answer(Peer::Agent, connect.ticket, ok(json!({"connectionId": "c"})))],
    );
    let (index, _held) = bench.turn();
    bench.kept(index, Vec::new());
    bench.client(json!({"id": 2, "method": "mcp/disconnect", "params": {"connectionId": "c"}}));
    let seen = bench.at_agent();
    assert_eq!((seen.len(), &seen[0]["id"]), (1, &json!(1)), "{seen:?}");
}

#[test]
fn a_connection_of_somebody_else_s_is_not_taken_over() {
    let mut bench = Bench::new(vec![everything()]);
    let own = Arc::new(OwnServers::default());
    own.add("mine");
    own.add("stolen");
    bench.router.proxies[0].servers = Some(own.clone());
    // The client brings a server that the proxy has called its own before.
    let set_up = json!({"cwd": "/", "mcpServers": [{"type": "acp", "name": "s", "id": "stolen"}]});
    bench.client(json!({"id": 1, "method": "session/new", "params": set_up}));
    bench.pass_all();
    bench.agent(json!({"id": 1, "method": "mcp/connect", "params": {"serverId": "stolen"}}));
    let asked = bench.at_client();
    assert_eq!(asked.len(), 1, "it goes to the client");
    bench.client(json!({"id": asked[0]["id"], "result": {"connectionId": "c"}}));
    bench.at_agent();
    bench.agent(json!({"id": 2, "method": "mcp/connect", "params": {"serverId": "mine"}}));
    let (index, turn) = bench.turn();
    bench.done(
        index,
        vec![answer(Peer::Agent, turn.ticket, ok(json!({"connectionId": "c"})))],
    );
    let lines = bench.at_agent();
    assert_eq!(lines[0]["error"]["code"], -32603, "{lines:?}");
    bench.agent(json!({"id": 3, "method": "mcp/message", "params": {"connectionId": "c", "method": "x"}}));
    assert_eq!(bench.at_client().len(), 1, "what is said over it is the client's");
    bench.agent(json!({"id": 4, "method": "mcp/connect", "params": {"serverId": "mine"}}));
    let (index, turn) = bench.turn();
    bench.done(
        index,
        vec![answer(Peer::Agent, turn.ticket, ok(json!({"connectionId": "d"})))],
    );
    assert_eq!(bench.at_agent()[0]["result"]["connectionId"], "d");
    bench.agent(json!({"id": 5, "method": "mcp/message", "params": {"connectionId": "d", "method": "x"}}));
    assert!(bench.router.next_turn().is_some());
}

#[test]
fn more_connections_than_are_remembered_come_and_go() {
    let mut bench = Bench::new(vec![everything()]);
    let own = Arc::new(OwnServers::default());
    own.add("mine");
    bench.router.proxies[0].servers = Some(own);
    for number in 0..10_050 {
        bench.agent(json!({"id": "a", "method": "mcp/connect", "params": {"serverId": "mine"}}));
        let (index, turn) = bench.turn();
        let connection = format!("c{number}");
        let connected = answer(Peer::Agent, turn.ticket, ok(json!({ "connectionId": connection })));
        bench.done(index, vec![connected]);
        bench.agent(json!({"id": "b", "method": "mcp/disconnect", "params": {"connectionId": connection}}));
        let (index, turn) = bench.turn();
        bench.done(index, vec![answer(Peer::Agent, turn.ticket, ok(json!({})))]);
        assert_eq!(bench.at_agent().len(), 2, "connection {number} is the proxy's");
    }
}
