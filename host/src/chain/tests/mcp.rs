//! What MCP servers say over ACP stays in order, and nobody's call waits for another one's.

use crate::chain::bench::{Bench, everything, pass};
use crate::message::Peer;
use serde_json::{Value, json};

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
