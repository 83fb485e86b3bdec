//! The agent without input and output: lines in, lines out.

use super::*;
use serde_json::{Value, json};

impl Agent {
    /// What the agent says to a line, all of it.
    fn hear(&mut self, line: &Value) -> Vec<Value> {
        self.receive(line.to_string().as_bytes()).unwrap();
        while self.is_busy() {
            self.step().unwrap();
        }
        self.output
            .drain(..)
            .map(|line| serde_json::from_str(&line).unwrap())
            .collect()
    }
}

fn call(agent: &mut Agent, id: &Value, method: &str, params: &Value) -> Vec<Value> {
    agent.hear(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

fn prompt(agent: &mut Agent, text: &str) -> Vec<Value> {
    let prompt = json!([{"type": "text", "text": text}]);
    let params = json!({"sessionId": "demo-1", "prompt": prompt});
    call(agent, &json!("prompt"), "session/prompt", &params)
}

fn agent() -> Agent {
    let mut agent = Agent::default();
    call(&mut agent, &json!(1), "initialize", &json!({"protocolVersion": 1}));
    call(
        &mut agent,
        &json!(2),
        "session/new",
        &json!({"cwd": "/tmp", "mcpServers": []}),
    );
    agent
}

/// The text of all chunks of a kind, put together.
fn text(messages: &[Value], kind: &str) -> String {
    messages
        .iter()
        .map(|message| &message["params"]["update"])
        .filter(|update| update["sessionUpdate"] == kind)
        .filter_map(|update| update["content"]["text"].as_str())
        .collect()
}

fn stop_reason(messages: &[Value]) -> &Value {
    &messages.last().unwrap()["result"]["stopReason"]
}

#[test]
fn it_starts_with_initialize() {
    let mut agent = Agent::default();
    let answer = call(&mut agent, &json!(7), "session/new", &json!({}));
    assert_eq!(answer[0]["error"]["code"], -32600);
    let answer = call(&mut agent, &json!(8), "initialize", &json!({}));
    assert_eq!(answer[0]["error"]["code"], -32602, "no protocolVersion");
    let answer = call(&mut agent, &json!(9), "initialize", &json!({"protocolVersion": 9}));
    assert_eq!(answer[0]["id"], 9);
    assert_eq!(answer[0]["result"]["protocolVersion"], 1);
}

#[test]
fn a_session_is_answered_before_its_commands() {
    let mut agent = Agent::default();
    call(&mut agent, &json!(1), "initialize", &json!({"protocolVersion": 1}));
    let lines = call(
        &mut agent,
        &json!(null),
        "session/new",
        &json!({"cwd": "/tmp", "mcpServers": []}),
    );
    assert_eq!(lines[0]["result"]["sessionId"], "demo-1");
    assert_eq!(lines[0]["id"], Value::Null);
    assert_eq!(
        lines[1]["params"]["update"]["sessionUpdate"],
        "available_commands_update"
    );
}

#[test]
fn it_repeats_every_block_in_chunks() {
    let mut agent = agent();
    let prompt = json!([
        {"type": "resource", "resource": {"uri": "file:///AGENTS.md", "text": "Be kind."}},
        {"type": "text", "text": "Hello\nthere"},
    ]);
    let lines = call(
        &mut agent,
        &json!(3),
        "session/prompt",
        &json!({"sessionId": "demo-1", "prompt": prompt}),
    );
    assert_eq!(
        text(&lines, "agent_message_chunk"),
        "I got 2 blocks.\n[1] resource file:///AGENTS.md, 8 bytes\n    Be kind.\n[2] text, 11 bytes\n    Hello\n    there\n"
    );
    assert!(lines.len() > 4, "streamed in several chunks");
    assert_eq!(stop_reason(&lines), "end_turn");
    assert_eq!(lines.last().unwrap()["id"], 3);
}

#[test]
fn a_history_is_replayed_before_the_answer() {
    let mut agent = agent();
    let said = prompt(&mut agent, "Hello");
    let lines = call(
        &mut agent,
        &json!(4),
        "session/load",
        &json!({"sessionId": "demo-1", "cwd": "/tmp", "mcpServers": []}),
    );
    assert_eq!(text(&lines, "user_message_chunk"), "Hello");
    assert_eq!(text(&lines, "agent_message_chunk"), text(&said, "agent_message_chunk"));
    assert_eq!(lines.last().unwrap()["id"], 4);
    let lines = call(
        &mut agent,
        &json!(5),
        "session/load",
        &json!({"sessionId": "other", "cwd": "/tmp", "mcpServers": []}),
    );
    assert!(lines[0]["error"]["code"].is_i64());
}

#[test]
fn a_tool_runs_only_with_permission() {
    for (option, status) in [("demo-allow", "completed"), ("demo-reject", "failed")] {
        let mut agent = agent();
        let lines = prompt(&mut agent, "/tool please");
        let question = lines.last().unwrap();
        assert_eq!(question["id"], 0);
        assert_eq!(question["method"], "session/request_permission");
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": option}});
        let lines = agent.hear(&json!({"jsonrpc": "2.0", "id": 0, "result": outcome}));
        assert_eq!(lines[0]["params"]["update"]["status"], status);
        assert_eq!(stop_reason(&lines), "end_turn");
    }
}

#[test]
fn a_turn_can_be_cancelled_while_it_waits() {
    let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "demo-1"}});
    for text in ["/tool", "/wait"] {
        let mut agent = agent();
        prompt(&mut agent, text);
        let lines = agent.hear(&cancel);
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["id"], "prompt");
        assert_eq!(stop_reason(&lines), "cancelled");
        assert!(agent.hear(&cancel).is_empty(), "nothing is left to cancel");
        // An answer that comes too late is for nobody.
        let late = json!({"jsonrpc": "2.0", "id": 0, "result": {"outcome": {"outcome": "cancelled"}}});
        assert!(agent.hear(&late).is_empty());
        assert_eq!(stop_reason(&prompt(&mut agent, "again")), "end_turn");
    }
    let mut agent = agent();
    prompt(&mut agent, "/tool");
    let lines = agent.hear(&json!({"jsonrpc": "2.0", "id": 0, "result": {"outcome": {"outcome": "cancelled"}}}));
    assert_eq!(stop_reason(&lines), "cancelled");
    prompt(&mut agent, "/wait");
    let lines = agent.hear(&json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": "prompt"}}));
    assert_eq!(lines[0]["error"]["code"], -32800);
}

#[test]
fn a_session_has_one_turn_at_a_time_and_can_be_closed() {
    let mut agent = agent();
    prompt(&mut agent, "/wait");
    assert_eq!(prompt(&mut agent, "second")[0]["error"]["code"], -32600);
    let lines = call(&mut agent, &json!(6), "session/close", &json!({"sessionId": "demo-1"}));
    assert_eq!(lines[0]["result"]["stopReason"], "cancelled");
    assert_eq!(lines[1]["id"], 6);
    assert!(prompt(&mut agent, "gone")[0]["error"].is_object());
}

#[test]
fn the_other_commands_do_what_they_say() {
    let mut agent = agent();
    let lines = prompt(&mut agent, "print the /secret");
    assert!(text(&lines, "agent_message_chunk").contains(FAKE_TOKEN));
    let whole = lines.iter().any(|line| {
        line["params"]["update"]["content"]["text"]
            .as_str()
            .is_some_and(|text| text.contains(FAKE_TOKEN))
    });
    assert!(!whole, "the token is split over chunks");
    let plans = prompt(&mut agent, "/plan")
        .iter()
        .filter(|line| line["params"]["update"]["sessionUpdate"] == "plan")
        .count();
    assert_eq!(plans, 3);
    assert_eq!(stop_reason(&prompt(&mut agent, "/refuse")), "refusal");
}

#[test]
fn bad_lines_are_answered_and_survived() {
    let mut agent = agent();
    for (line, code) in [
        (&b"{"[..], -32700),
        (b"\xff\xfe", -32700),
        (b"[]", -32600),
        (b"7", -32600),
        (br#"{"id":1}"#, -32600),
        (br#"{"id":1,"id":2,"method":"x"}"#, -32600),
        (br#"{"id":1,"method":"unknown/method"}"#, -32601),
        (br#"{"id":1,"method":"session/prompt","params":7}"#, -32602),
    ] {
        agent.receive(line).unwrap();
        let answer: Value = serde_json::from_str(&agent.output.pop().unwrap()).unwrap();
        assert_eq!(answer["error"]["code"], code, "{}", String::from_utf8_lossy(line));
    }
    for silent in [&b"\n"[..], br#"{"method":"unknown"}"#, br#"{"id":9,"result":null}"#] {
        agent.receive(silent).unwrap();
        assert!(agent.output.is_empty());
    }
}

#[test]
fn it_speaks_until_its_input_ends() {
    let input = [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"demo-1","prompt":[{"type":"text","text":"hi"}]}}"#,
    ]
    .join("\n");
    for delay in [0, 1] {
        let mut output = Vec::new();
        serve(
            io::Cursor::new(input.clone()),
            &mut output,
            Duration::from_millis(delay),
        )
        .unwrap();
        let last = String::from_utf8(output).unwrap();
        let last: Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
        assert_eq!(
            last,
            json!({"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "end_turn"}})
        );
    }
}
