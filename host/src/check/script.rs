//! What the client and the agent say in the cage: a session as it usually goes, and then what no decent peer would send.

use serde_json::{Value, json};

/// Who says a line.
pub(super) enum Say {
    Client(String),
    Agent(String),
}

/// A part of the script.
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) lines: fn() -> Vec<Say>,
}

/// All of it, in order.
pub(super) const PARTS: &[Part] = &[
    Part {
        name: "a session begins",
        lines: begin,
    },
    Part {
        name: "a prompt and its answer",
        lines: prompts,
    },
    Part {
        name: "a prompt that is cancelled",
        lines: cancelled,
    },
    Part {
        name: "sessions are loaded, forked and closed",
        lines: sessions,
    },
    Part {
        name: "MCP messages",
        lines: mcp,
    },
    Part {
        name: "unknown methods",
        lines: unknown,
    },
    Part {
        name: "params of the wrong shape",
        lines: misshapen,
    },
    Part {
        name: "keys that are there twice",
        lines: twice,
    },
    Part {
        name: "lines that are no messages",
        lines: malformed,
    },
    Part {
        name: "large and deep messages",
        lines: large,
    },
    Part {
        name: "many messages at once",
        lines: many,
    },
];

/// The session of most parts.
const SESSION: &str = "session-1";

fn client(value: &Value) -> Say {
    Say::Client(value.to_string())
}

fn agent(value: &Value) -> Say {
    Say::Agent(value.to_string())
}

fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

fn notification(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

fn result(to: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": to["id"], "result": result})
}

fn update(session: &str, update: Value) -> Value {
    notification("session/update", json!({"sessionId": session, "update": update}))
}

fn chunk(session: &str, text: &str) -> Value {
    let content = json!({"type": "text", "text": text});
    update(
        session,
        json!({"sessionUpdate": "agent_message_chunk", "content": content}),
    )
}

fn prompt(id: impl Into<Value>, blocks: Value) -> Value {
    request(id, "session/prompt", json!({"sessionId": SESSION, "prompt": blocks}))
}

fn text(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

fn begin() -> Vec<Say> {
    let capabilities = json!({"fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true});
    let info = json!({"name": "check", "version": "1"});
    let server = json!({"name": "files", "command": "/bin/mcp", "args": [], "env": [{"name": "TOKEN", "value": "not-a-real-one"}]});
    vec![
        client(&request(
            0,
            "initialize",
            json!({"protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": info}),
        )),
        client(&request(
            1,
            "session/new",
            json!({"cwd": "/project", "mcpServers": [server]}),
        )),
    ]
}

fn prompts() -> Vec<Say> {
    let image = json!({"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="});
    let link = json!({"type": "resource_link", "uri": "file:///project/My%20Docs/%E2%9C%93.rs", "name": "✓.rs"});
    vec![
        client(&prompt(10, text("Please look at src/main.rs."))),
        client(&prompt(
            "eleven",
            json!([{"type": "text", "text": "And this?"}, image, link]),
        )),
        client(&prompt(12, text("/help me"))),
        client(&request(
            13,
            "session/set_mode",
            json!({"sessionId": SESSION, "modeId": "ask"}),
        )),
    ]
}

fn cancelled() -> Vec<Say> {
    vec![
        client(&prompt(20, text("wait"))),
        client(&notification("session/cancel", json!({"sessionId": SESSION}))),
        client(&prompt(21, text("wait again"))),
        client(&notification("$/cancel_request", json!({"requestId": 21}))),
        client(&request(22, "_check/answer", json!({}))),
    ]
}

fn sessions() -> Vec<Say> {
    vec![
        client(&request(
            30,
            "session/load",
            json!({"sessionId": "session-2", "cwd": "/project", "mcpServers": []}),
        )),
        client(&request(
            31,
            "session/fork",
            json!({"sessionId": SESSION, "cwd": "/project", "mcpServers": []}),
        )),
        client(&request(32, "session/close", json!({"sessionId": "session-2"}))),
        client(&request(33, "session/list", json!({}))),
    ]
}

fn mcp() -> Vec<Say> {
    let call = json!({"name": "tool", "arguments": {}});
    vec![
        agent(&request(40, "mcp/connect", json!({"serverId": "server-1"}))),
        agent(&request(
            41,
            "mcp/message",
            json!({"connectionId": "connection-1", "method": "tools/call", "params": call}),
        )),
        agent(&request(42, "mcp/disconnect", json!({"connectionId": "connection-1"}))),
    ]
}

fn unknown() -> Vec<Say> {
    let odd = json!({"sessionId": SESSION, "n": 1e300, "deep": [[[{"x": null}]]], "\u{1b}[31m": "\u{202e}"});
    vec![
        client(&request(50, "_example/ask", odd.clone())),
        client(&notification("_example/tell", odd.clone())),
        agent(&request("51", "_example/ask", odd.clone())),
        agent(&notification("_example/tell", odd)),
        agent(&request(
            52,
            "elicitation/create",
            json!({"sessionId": SESSION, "message": "Sure?"}),
        )),
    ]
}

fn misshapen() -> Vec<Say> {
    const METHODS: [&str; 6] = [
        "session/prompt",
        "session/new",
        "session/load",
        "session/cancel",
        "session/set_mode",
        "session/close",
    ];
    const UPWARDS: [&str; 5] = [
        "session/update",
        "session/request_permission",
        "fs/read_text_file",
        "terminal/create",
        "mcp/message",
    ];
    let shapes = [
        r#"null"#,
        r#"[]"#,
        r#"{}"#,
        r#"{"sessionId":7,"prompt":"text","update":[],"options":{},"path":null}"#,
        r#"{"sessionId":"session-1","prompt":null,"update":null,"toolCall":null,"mcpServers":null,"cwd":7}"#,
        r#"{"sessionId":"session-1","prompt":[null,7,"x",{}, {"type":7}],"update":{"sessionUpdate":[]},"toolCall":{"kind":{},"title":[]}}"#,
        r#"{"sessionId":"session-1","prompt":[{"type":"text"}],"update":{"sessionUpdate":"agent_message_chunk","content":7}}"#,
        r#"{"sessionId":"session-1","update":{"sessionUpdate":"tool_call","content":[{"type":"diff"}],"locations":[{}]},"options":[{}]}"#,
        r#"{"sessionId":"session-1","prompt":[{"type":"text","text":"\ud83d"}],"update":{"sessionUpdate":"never_heard_of","n":1.10}}"#,
    ];
    let mut lines = Vec::new();
    for (number, params) in shapes.iter().enumerate() {
        for method in METHODS {
            let id = format!("misshapen-{number}-{method}");
            lines.push(Say::Client(format!(
                r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}","params":{params}}}"#
            )));
        }
        for method in UPWARDS {
            let id = match method {
                "session/update" => String::new(),
                _ => format!(r#""id":"misshapen-{number}-{method}","#),
            };
            lines.push(Say::Agent(format!(
                r#"{{"jsonrpc":"2.0",{id}"method":"{method}","params":{params}}}"#
            )));
        }
    }
    for method in METHODS {
        lines.push(Say::Client(format!(
            r#"{{"jsonrpc":"2.0","id":"bare-{method}","method":"{method}"}}"#
        )));
    }
    lines
}

fn twice() -> Vec<Say> {
    let both = r#"{"sessionId":"session-1","sessionId":"session-2","prompt":[{"type":"text","text":"one","text":"two"}],"prompt":7}"#;
    let update = r#"{"sessionUpdate":"agent_message_chunk","sessionUpdate":"plan","content":{"type":"text","text":"a","text":"b"},"content":[]}"#;
    vec![
        Say::Client(format!(
            r#"{{"jsonrpc":"2.0","id":"twice","method":"session/prompt","params":{both}}}"#
        )),
        Say::Agent(format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"session-1","update":{update},"update":null}}}}"#
        )),
        Say::Agent(format!(
            r#"{{"jsonrpc":"2.0","id":"twice","method":"session/request_permission","params":{{"sessionId":"session-1","toolCall":{{"kind":"read","kind":"execute"}},"options":[],"options":{{}},"x":{both}}}}}"#
        )),
    ]
}

fn malformed() -> Vec<Say> {
    const LINES: [&str; 12] = [
        "a banner",
        "{",
        "[]",
        "7",
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"1.0","id":70,"method":"session/prompt","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":71,"id":72,"method":"session/prompt","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":73,"method":"session/update","params":7}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"session/prompt","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":74,"result":{},"error":{}}"#,
        r#"{"jsonrpc":"2.0","id":"nobody's","result":{}}"#,
        r#"[{"jsonrpc":"2.0","id":75,"method":"session/prompt","params":{}}]"#,
    ];
    let lines = LINES.iter();
    lines
        .flat_map(|line| [Say::Client((*line).to_owned()), Say::Agent((*line).to_owned())])
        .collect()
}

fn large() -> Vec<Say> {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let (deep, deepest) = (nested(100), nested(10_000));
    let megabyte = "All work and no play makes a dull day. ".repeat(26_887);
    vec![
        client(&prompt(60, text(&megabyte.repeat(8)))),
        client(&prompt(61, json!(vec![json!({"type": "text", "text": "x"}); 500]))),
        agent(&chunk(SESSION, &megabyte)),
        agent(&chunk(SESSION, "\u{1F600}\u{0}\u{7f}")),
        Say::Agent(format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"session-1","update":{{"sessionUpdate":"tool_call","toolCallId":"t","rawInput":{deep}}}}}}}"#
        )),
        Say::Agent(format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"session-1","update":{{"sessionUpdate":"tool_call","toolCallId":"u","rawInput":{deepest}}}}}}}"#
        )),
        Say::Client(format!(
            r#"{{"jsonrpc":"2.0","id":62,"method":"session/prompt","params":{{"sessionId":"session-1","prompt":[{{"type":"text","text":"deep","_meta":{deepest}}}]}}}}"#
        )),
    ]
}

fn many() -> Vec<Say> {
    let mut lines: Vec<Say> = (0..2_000)
        .map(|number| agent(&chunk(SESSION, &format!("{number} "))))
        .collect();
    lines.extend((0..200).map(|number| client(&prompt(1_000 + number, text("quick")))));
    lines.push(client(&request(1_300, "_check/answer", json!({}))));
    lines
}

/// What the client answers.
pub(super) fn client_replies(method: &str, asked: &Value) -> Vec<Value> {
    if asked.get("id").is_none() {
        return Vec::new();
    }
    let answer = match method {
        "session/request_permission" => {
            let option = &asked["params"]["options"][0]["optionId"];
            json!({"outcome": {"outcome": "selected", "optionId": option}})
        }
        "fs/read_text_file" => json!({"content": "fn main() {}\n"}),
        "terminal/create" => json!({"terminalId": "terminal-1"}),
        _ => json!({}),
    };
    vec![result(asked, answer)]
}

/// Whether the agent leaves a prompt unanswered until it is told to stop.
pub(super) fn waits(method: &str, asked: &Value) -> bool {
    let blocks = asked["params"]["prompt"].as_array();
    let waits = |block: &Value| block["text"].as_str().is_some_and(|text| text.starts_with("wait"));
    method == "session/prompt" && blocks.is_some_and(|blocks| blocks.iter().any(waits))
}

/// Whether this tells the agent to stop.
pub(super) fn ends_waiting(method: &str) -> bool {
    matches!(method, "session/cancel" | "$/cancel_request" | "_check/answer")
}

/// The answer to a prompt that was stopped.
pub(super) fn cancelled_reply(asked: &Value) -> Value {
    result(asked, json!({"stopReason": "cancelled"}))
}

/// What the agent does about a message.
pub(super) fn agent_replies(method: &str, asked: &Value) -> Vec<Value> {
    if asked.get("id").is_none() {
        return Vec::new();
    }
    let session = asked["params"]["sessionId"].as_str().unwrap_or(SESSION);
    let mut lines = Vec::new();
    let answer = match method {
        "initialize" => {
            let capabilities =
                json!({"loadSession": true, "promptCapabilities": {"image": true}, "mcpCapabilities": {"http": true}});
            json!({"protocolVersion": 1, "agentCapabilities": capabilities, "authMethods": []})
        }
        "session/new" => json!({"sessionId": SESSION, "modes": {"currentModeId": "ask", "availableModes": []}}),
        "session/fork" => json!({"sessionId": "session-3"}),
        "session/load" => {
            lines.extend((0..50).map(|number| chunk(session, &format!("history {number}"))));
            json!({})
        }
        "session/list" => json!({"sessions": [{"sessionId": SESSION, "cwd": "/project"}]}),
        "session/prompt" => {
            lines.extend(turn(session, asked));
            json!({"stopReason": "end_turn"})
        }
        _ => json!({}),
    };
    lines.push(result(asked, answer));
    lines
}

/// What the agent says and asks in a turn.
fn turn(session: &str, asked: &Value) -> Vec<Value> {
    let first = &asked["params"]["prompt"][0]["text"];
    if first.as_str().is_none_or(|text| !text.starts_with("Please")) {
        return vec![chunk(session, "Done.")];
    }
    let token = ["ghp_", "0123456789abcdefghijklmnopqrstuvwxyz"].concat();
    let call = json!({"toolCallId": "call-1", "title": "cat src/main.rs", "kind": "execute", "status": "pending", "rawInput": {"command": "cat src/main.rs"}});
    let tool_call = |kind: &str| {
        let mut call = call.clone();
        call["sessionUpdate"] = kind.into();
        update(session, call)
    };
    let options = json!([{"optionId": "yes", "name": "Yes", "kind": "allow_once"}, {"optionId": "no", "name": "No", "kind": "reject_once"}]);
    let entry = json!({"content": "look", "priority": "low", "status": "pending"});
    vec![
        chunk(session, "Let me look. The token is "),
        chunk(session, &token[..20]),
        chunk(session, &token[20..]),
        update(session, json!({"sessionUpdate": "plan", "entries": [entry]})),
        tool_call("tool_call"),
        request(
            "permission",
            "session/request_permission",
            json!({"sessionId": session, "toolCall": call, "options": options}),
        ),
        request(
            "read",
            "fs/read_text_file",
            json!({"sessionId": session, "path": "/project/src/main.rs"}),
        ),
        request(
            "terminal",
            "terminal/create",
            json!({"sessionId": session, "command": "cargo", "args": ["test"]}),
        ),
        tool_call("tool_call_update"),
        update(
            session,
            json!({"sessionUpdate": "available_commands_update", "availableCommands": []}),
        ),
        chunk(session, " That is all."),
    ]
}
