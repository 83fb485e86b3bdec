//! The beginning of every conversation.

use crate::{Agent, AgentListener, Client};
use serde_json::{Value, json};

/// The id of the session that [`begin`] makes.
pub const SESSION: &str = "s1";

/// A request as a client would send it.
pub fn request(id: impl Into<Value>, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

/// A notification.
pub fn notification(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// A prompt of one text block for [`SESSION`].
pub fn prompt(id: impl Into<Value>, text: &str) -> Value {
    let params = json!({"sessionId": SESSION, "prompt": [{"type": "text", "text": text}]});
    request(id, "session/prompt", &params)
}

/// A chunk of an answer in [`SESSION`].
pub fn chunk(text: &str) -> Value {
    let update = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}});
    notification("session/update", &json!({"sessionId": SESSION, "update": update}))
}

/// Takes a client and its agent through `initialize` and `session/new`, and returns the agent.
pub fn begin(client: &mut Client, listener: &AgentListener) -> Agent {
    let (mut agent, new) = set_up(client, listener);
    agent.answer(&new, &json!({"sessionId": SESSION}));
    assert_eq!(client.expect()["id"], "new");
    agent
}

/// Takes a client and its agent through `initialize`, and returns the agent and the `session/new` that it got.
pub fn set_up(client: &mut Client, listener: &AgentListener) -> (Agent, Value) {
    client.send_json(&request("init", "initialize", &json!({"protocolVersion": 1})));
    let mut agent = listener.accept();
    let initialize = agent.expect();
    assert_eq!(initialize["method"], "initialize");
    // It reaches MCP servers over ACP, so that they pass as they are.
    let capabilities = json!({"mcpCapabilities": {"acp": true}});
    agent.answer(
        &initialize,
        &json!({"protocolVersion": 1, "agentCapabilities": capabilities}),
    );
    assert_eq!(client.expect()["id"], "init");
    client.send_json(&request("new", "session/new", &json!({"cwd": "/", "mcpServers": []})));
    let new = agent.expect();
    assert_eq!(new["method"], "session/new");
    (agent, new)
}

/// Sends a hundred updates in another session, and sees each of them come through an `arrow` before the next one is sent.
pub fn updates_pass_elsewhere(client: &mut Client, agent: &mut Agent) {
    for number in 0..100 {
        let mut update = chunk(&number.to_string());
        update["params"]["sessionId"] = json!("other");
        agent.send_json(&update);
        let seen = client.expect();
        assert_eq!(seen["params"]["update"]["content"]["text"], format!(">{number}"));
    }
}
