//! A server that the client brings, and an agent that reaches it over HTTP: what the server asks and hears, and how connections and
//! requests end, with both ends in the hands of the test.

use consort_tests::chains::none;
use consort_tests::mcp::{BOTH, JSON, Server, Shim, answer, close, offering, own_server, set_up};
use consort_tests::session::{notification, prompt, request};
use consort_tests::{Agent, Client};
use serde_json::{Value, json};
use std::thread;

#[test]
fn a_request_without_a_session_is_given_up_with_its_connection() {
    let (mut client, _agent, new) = set_up(&offering(), &json!({"http": true}), &own_server());
    let server = Server::of(&new["params"]["mcpServers"][0]);
    let asking = thread::spawn(move || server.post(&[BOTH], &request(1, "tools/list", &json!({}))));
    let connect = client.expect();
    assert_eq!(connect["method"], "mcp/connect");
    client.send_json(&json!({"jsonrpc": "2.0", "id": connect["id"], "result": {"connectionId": "c1"}}));
    let listed = client.expect();
    assert_eq!(listed["params"]["method"], "tools/list");
    drop(asking.join().unwrap());
    let cancel = client.expect();
    assert_eq!(
        (&cancel["method"], &cancel["params"]["requestId"]),
        (&json!("$/cancel_request"), &listed["id"])
    );
}

/// A client whose own server an agent reaches over HTTP, and a client of that.
fn serving() -> (Client, Agent, Server, String) {
    let (mut client, mut agent, new) = set_up(&none(), &json!({"http": true}), &own_server());
    let server = Server::of(&answer(&mut client, &mut agent, &new, "s1"));
    let asking = thread::spawn({
        let server = server.clone();
        move || {
            server
                .post(&[JSON], &hello())
                .header("mcp-session-id")
                .unwrap()
                .to_owned()
        }
    });
    reply(&mut client, "mcp/connect", &json!({"connectionId": "c1"}));
    reply(&mut client, "mcp/message", &json!({"protocolVersion": "2025-06-18"}));
    (client, agent, server, asking.join().unwrap())
}

fn hello() -> Value {
    request(
        0,
        "initialize",
        &json!({"protocolVersion": "2025-06-18", "capabilities": {}}),
    )
}

/// Answers the next message, a request of this method.
fn reply(client: &mut Client, method: &str, result: &Value) {
    let asked = client.expect();
    assert_eq!(asked["method"], method, "{asked}");
    client.send_json(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
}

/// A request of a server to its client.
fn of_server(id: &str, connection: &str) -> Value {
    let params = json!({"connectionId": connection, "method": "sampling/createMessage", "params": {}});
    request(id, "mcp/message", &params)
}

/// What the agent gets next is a prompt: nothing of the bridge came to it.
fn agent_heard_nothing(client: &mut Client, agent: &mut Agent) {
    client.send_json(&prompt("p", "go"));
    let asked = agent.expect();
    assert_eq!(asked["method"], "session/prompt", "{asked}");
    agent.answer(&asked, &json!({"stopReason": "end_turn"}));
    assert_eq!(client.expect()["id"], "p");
}

#[test]
fn a_session_whose_beginning_is_refused_has_no_id() {
    for accept in [JSON, BOTH] {
        let (mut client, mut agent, new) = set_up(&none(), &json!({"http": true}), &own_server());
        let server = Server::of(&answer(&mut client, &mut agent, &new, "s1"));
        let asking = thread::spawn(move || server.post(&[accept], &hello()));
        reply(&mut client, "mcp/connect", &json!({"connectionId": "c1"}));
        let asked = client.expect();
        let error = json!({"code": -32602, "message": "no"});
        client.send_json(&json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}));
        assert_eq!(client.expect()["method"], "mcp/disconnect");
        let mut refused = asking.join().unwrap();
        assert_eq!(refused.header("mcp-session-id"), None);
        let said = match accept {
            JSON => refused.json(),
            _ => refused.event().unwrap().1,
        };
        assert_eq!(said["error"], error);
    }
}

#[test]
fn a_request_that_the_client_cannot_hear_is_answered() {
    let (mut client, mut agent, server, session) = serving();
    let asking = thread::spawn(move || {
        let headers = [JSON, ("Mcp-Session-Id", session.as_str())];
        server.post(&headers, &request(1, "tools/call", &json!({}))).json()
    });
    let call = client.expect();
    assert_eq!(call["params"]["method"], "tools/call");
    client.send_json(&of_server("q", "c1"));
    let refused = client.expect();
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&json!("q"), &json!(-32603)),
        "{refused}"
    );
    client.send_json(&json!({"jsonrpc": "2.0", "id": call["id"], "result": {"content": []}}));
    assert_eq!(asking.join().unwrap()["id"], 1);
    agent_heard_nothing(&mut client, &mut agent);
}

#[test]
fn a_request_that_its_server_gives_up_is_answered_and_the_agent_never_hears_of_it() {
    let (mut client, mut agent, server, session) = serving();
    let mut news = server.send(
        "GET",
        &[("Accept", "text/event-stream"), ("Mcp-Session-Id", session.as_str())],
        b"",
    );
    client.send_json(&of_server("q", "c1"));
    let (_, asked) = news.event().unwrap();
    assert_eq!(asked["method"], "sampling/createMessage");
    client.send_json(&notification("$/cancel_request", &json!({"requestId": "q"})));
    let given_up = client.expect();
    assert_eq!(
        (&given_up["id"], &given_up["error"]["code"]),
        (&json!("q"), &json!(-32800)),
        "{given_up}"
    );
    assert_eq!(news.event().unwrap().1["params"]["requestId"], asked["id"]);
    agent_heard_nothing(&mut client, &mut agent);
}

#[test]
fn a_server_may_ask_for_the_end_of_its_connection() {
    let (mut client, mut agent, ..) = serving();
    client.send_json(&request("d", "mcp/disconnect", &json!({"connectionId": "c1"})));
    let said = [client.expect(), client.expect()];
    let answered = said.iter().find(|said| said["id"] == "d").unwrap();
    assert_eq!(answered["result"], json!({}));
    agent_heard_nothing(&mut client, &mut agent);
}

#[test]
fn what_belongs_to_no_connection_does_not_come_to_the_agent() {
    let (mut client, mut agent, ..) = serving();
    client.send_json(&notification(
        "mcp/message",
        &json!({"connectionId": "c2", "method": "notifications/message"}),
    ));
    client.send_json(&of_server("q", "c2"));
    assert_eq!(client.expect()["error"]["code"], -32603);
    agent_heard_nothing(&mut client, &mut agent);
}

#[test]
fn what_is_said_right_behind_the_birth_of_a_connection_is_heard() {
    let (mut client, mut agent, new) = set_up(&none(), &json!({}), &own_server());
    let mut shim = Shim::start(&answer(&mut client, &mut agent, &new, "s1"));
    shim.send(&hello());
    let connect = client.expect();
    let connected = json!({"jsonrpc": "2.0", "id": connect["id"], "result": {"connectionId": "c1"}});
    let told = notification(
        "mcp/message",
        &json!({"connectionId": "c1", "method": "notifications/message"}),
    );
    client.send_raw(format!("{connected}\n{told}\n").as_bytes());
    assert_eq!(shim.hear().unwrap()["method"], "notifications/message");
    reply(&mut client, "mcp/message", &json!({"protocolVersion": "2025-06-18"}));
    assert_eq!(shim.hear().unwrap()["id"], 0);
    agent_heard_nothing(&mut client, &mut agent);
}

#[test]
fn a_connection_that_nobody_waits_for_any_more_ends() {
    let (mut client, mut agent, new) = set_up(&none(), &json!({}), &own_server());
    let mut shim = Shim::start(&answer(&mut client, &mut agent, &new, "s1"));
    shim.send(&hello());
    let connect = client.expect();
    assert_eq!(connect["method"], "mcp/connect");
    // Its session ends meanwhile, and the shim with it.
    shim.child.kill().unwrap();
    close(&mut client, &mut agent, "s1");
    let cancel = client.expect();
    assert_eq!(cancel["method"], "$/cancel_request", "{cancel}");
    client.send_json(&json!({"jsonrpc": "2.0", "id": connect["id"], "result": {"connectionId": "c1"}}));
    let end = client.expect();
    assert_eq!(
        (&end["method"], &end["params"]["connectionId"]),
        (&json!("mcp/disconnect"), &json!("c1")),
        "{end}"
    );
}
