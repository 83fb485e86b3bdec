//! MCP servers of proxies, as an agent reaches them that knows nothing of MCP over ACP: over HTTP on the loopback interface.

use consort_tests::chains::Chain;
use consort_tests::http::{Answer, send};
use consort_tests::session::request;
use consort_tests::{Agent, Client, PATIENCE};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const BOTH: (&str, &str) = ("Accept", "application/json, text/event-stream");
const JSON: (&str, &str) = ("Accept", "application/json");

fn offering() -> Chain {
    Chain::new("a proxy that offers tools", &[("offers", json!({}))])
}

/// A server, as the agent was told of it.
struct Server {
    url: String,
    authorization: String,
}

impl Server {
    fn of(entry: &Value) -> Self {
        assert_eq!(entry["type"], "http", "{entry}");
        assert_eq!(entry["headers"][0]["name"], "Authorization");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self {
            url: text(&entry["url"]),
            authorization: text(&entry["headers"][0]["value"]),
        }
    }

    fn send(&self, method: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut all = vec![("Authorization", self.authorization.as_str())];
        all.extend(headers);
        send(method, &self.url, &all, body)
    }

    fn post(&self, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.send("POST", headers, body.to_string().as_bytes())
    }

    /// Begins a session of MCP.
    fn connect(&self) -> Session<'_> {
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        let answer = self.post(&[JSON], &call(0, "initialize", &hello));
        let id = answer.header("mcp-session-id").unwrap().to_owned();
        let welcome = answer.json();
        assert_eq!(welcome["result"]["serverInfo"]["name"], "offers", "{welcome}");
        let session = Session { server: self, id };
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(session.post(BOTH, &initialized).status, 202);
        session
    }
}

struct Session<'s> {
    server: &'s Server,
    id: String,
}

impl Session<'_> {
    fn post(&self, accept: (&str, &str), body: &Value) -> Answer {
        self.server.post(&[accept, ("Mcp-Session-Id", &self.id)], body)
    }

    fn get(&self, more: &[(&str, &str)]) -> Answer {
        let mut headers = vec![("Accept", "text/event-stream"), ("Mcp-Session-Id", self.id.as_str())];
        headers.extend(more);
        self.server.send("GET", &headers, b"")
    }

    /// Calls a tool and gives what comes of it.
    fn tool(&self, name: &str, arguments: &Value) -> Value {
        let params = json!({"name": name, "arguments": arguments});
        self.post(JSON, &call(7, "tools/call", &params)).json()
    }
}

fn call(id: impl Into<Value>, method: &str, params: &Value) -> Value {
    request(id, method, params)
}

/// A client, an agent that reaches servers over HTTP, and the set-up of a session that has not been answered.
fn set_up(chain: &Chain, servers: &Value) -> (Client, Agent, Value) {
    set_up_with(chain, &json!({"http": true, "sse": false}), servers)
}

/// The same with what the agent says of the servers that it reaches.
fn set_up_with(chain: &Chain, reached: &Value, servers: &Value) -> (Client, Agent, Value) {
    let (mut client, listener) = chain.fresh();
    client.send_json(&request("init", "initialize", &json!({"protocolVersion": 1})));
    let mut agent = listener.accept();
    let initialize = agent.expect();
    let capabilities = json!({"mcpCapabilities": reached});
    agent.answer(
        &initialize,
        &json!({"protocolVersion": 1, "agentCapabilities": capabilities}),
    );
    let told = client.expect();
    let mut bridged = reached.clone();
    bridged["acp"] = json!(true);
    assert_eq!(told["result"]["agentCapabilities"]["mcpCapabilities"], bridged);
    client.send_json(&request(
        "new",
        "session/new",
        &json!({"cwd": "/", "mcpServers": servers}),
    ));
    let new = agent.expect();
    (client, agent, new)
}

fn start() -> (Client, Agent, Server) {
    let (mut client, mut agent, new) = set_up(&offering(), &json!([]));
    let server = Server::of(&new["params"]["mcpServers"][0]);
    agent.answer(&new, &json!({"sessionId": "s1"}));
    assert_eq!(client.expect()["id"], "new");
    (client, agent, server)
}

#[test]
fn a_tool_of_a_proxy_is_called_over_http() {
    let (_client, _agent, server) = start();
    let session = server.connect();
    let listed = session.post(JSON, &call("l", "tools/list", &json!({}))).json();
    assert_eq!(listed["id"], "l");
    assert_eq!(listed["result"]["tools"][0]["name"], "echo");
    assert_eq!(
        session.tool("echo", &json!({"text": "é\n\"x\""})),
        json!({"jsonrpc": "2.0", "id": 7, "result": {"content": [{"type": "text", "text": "é\n\"x\""}], "isError": false}})
    );
    assert_eq!(
        session.tool("session", &json!({}))["result"]["structuredContent"],
        json!({"session": "s1"})
    );
    assert_eq!(session.tool("fail", &json!({"text": "no"}))["result"]["isError"], true);
    assert_eq!(session.tool("break", &json!({}))["error"]["code"], -32042);
    let much = session.tool("much", &json!({"bytes": 3_000_000}));
    assert_eq!(much["result"]["content"][0]["text"].as_str().unwrap().len(), 3_000_000);
    let read = session
        .post(JSON, &call(8, "resources/read", &json!({"uri": "offers://text"})))
        .json();
    assert_eq!(read["result"]["contents"][0]["text"], "a text");
    let prompt = session
        .post(
            JSON,
            &call(
                9,
                "prompts/get",
                &json!({"name": "greet", "arguments": {"text": "you"}}),
            ),
        )
        .json();
    assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "Hello, you");
}

#[test]
fn what_else_stands_in_the_set_up_stays_as_it_is() {
    let others = json!([{"name": "x", "command": "/x", "args": [], "env": [{"name": "A", "value": "1"}]}, {"type": "sse", "name": "y", "url": "http://y", "headers": []}]);
    let (_client, _agent, new) = set_up(&offering(), &others);
    let servers = new["params"]["mcpServers"].as_array().unwrap();
    assert_eq!((&servers[0], &servers[1]), (&others[0], &others[1]));
    assert_eq!((servers.len(), &servers[2]["name"]), (3, &json!("offers")));
}

#[test]
fn an_answer_comes_as_a_stream_with_what_is_told_on_the_way() {
    let (_client, _agent, server) = start();
    let session = server.connect();
    let params = json!({"name": "wait", "arguments": {"milliseconds": 40}, "_meta": {"progressToken": "t"}});
    let mut stream = session.post(BOTH, &call("w", "tools/call", &params));
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    for step in 0..4 {
        let (_, told) = stream.event().unwrap();
        assert_eq!(told["method"], "notifications/progress");
        assert_eq!(
            (&told["params"]["progressToken"], &told["params"]["progress"]),
            (&json!("t"), &json!(f64::from(step)))
        );
    }
    assert_eq!(stream.event().unwrap().1["method"], "notifications/message");
    let (_, last) = stream.event().unwrap();
    assert_eq!(
        (&last["id"], &last["result"]["content"][0]["text"]),
        (&json!("w"), &json!("done"))
    );
    assert!(stream.event().is_none(), "the stream ends with the answer");
}

#[test]
fn a_stream_that_broke_goes_on_where_it_was() {
    let (_client, _agent, server) = start();
    let session = server.connect();
    let params = json!({"name": "wait", "arguments": {"milliseconds": 400}, "_meta": {"progressToken": 1}});
    let mut stream = session.post(BOTH, &call(1, "tools/call", &params));
    let (first, _) = stream.event().unwrap();
    drop(stream);
    let mut rest = session.get(&[("Last-Event-ID", &first)]);
    assert_eq!(rest.event().unwrap().1["params"]["progress"], 1.0);
    let last = std::iter::from_fn(|| rest.event()).last().unwrap().1;
    assert_eq!(last["result"]["content"][0]["text"], "done");
}

#[test]
fn the_server_asks_its_client() {
    let (_client, _agent, server) = start();
    let session = server.connect();
    let mut news = session.get(&[]);
    assert_eq!(news.status, 200);
    for (outcome, told) in [
        (json!({"result": {"roots": []}}), json!(r#"{"roots":[]}"#)),
        (json!({"error": {"code": -1, "message": "not now"}}), json!("not now")),
    ] {
        let params = json!({"name": "ask", "arguments": {"method": "roots/list"}});
        let mut answer = session.post(BOTH, &call(1, "tools/call", &params));
        let (_, asked) = news.event().unwrap();
        assert_eq!(asked["method"], "roots/list");
        let mut reply = json!({"jsonrpc": "2.0", "id": asked["id"]});
        reply
            .as_object_mut()
            .unwrap()
            .extend(outcome.as_object().unwrap().clone());
        assert_eq!(session.post(BOTH, &reply).status, 202);
        assert_eq!(answer.event().unwrap().1["result"]["content"][0]["text"], told);
    }
}

#[test]
fn requests_without_a_session_are_answered_as_the_latest_revision_has_it() {
    let (_client, _agent, server) = start();
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let found = server
        .post(&[JSON], &call(1, "server/discover", &json!({"_meta": meta})))
        .json();
    assert_eq!(found["result"]["supportedVersions"][0], "2026-07-28");
    let params = json!({"name": "echo", "arguments": {"text": "a"}, "_meta": meta});
    let called = server.post(&[JSON], &call(2, "tools/call", &params)).json();
    assert_eq!(called["result"]["resultType"], "complete");
}

#[test]
fn a_request_is_given_up() {
    let (_client, _agent, server) = start();
    let session = server.connect();
    let params = json!({"name": "wait", "arguments": {"milliseconds": 600_000}});
    let mut stream = session.post(BOTH, &call("long", "tools/call", &params));
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "long"}});
    assert_eq!(session.post(BOTH, &cancel).status, 202);
    assert_eq!(stream.event().unwrap().1["error"]["code"], -32800);
    assert_eq!(session.tool("echo", &json!({"text": "a"}))["result"]["isError"], false);
}

#[test]
fn nobody_comes_in_without_the_secret() {
    let (_client, _agent, server) = start();
    let session = server.connect();
    let ping = call(1, "ping", &json!({})).to_string();
    let port = server.url.split(['/', ':']).nth(4).unwrap().to_owned();
    let (base, secret) = server.url.rsplit_once('/').unwrap();
    let known = ("Mcp-Session-Id", session.id.as_str());
    let elsewhere = format!("evil.example:{port}");
    let page = format!("http://evil.example:{port}");
    for (what, url, headers, status) in [
        ("no secret", base.to_owned() + "/", vec![], 401),
        (
            "a guess",
            format!("{base}/{}", "0".repeat(secret.len())),
            vec![known],
            401,
        ),
        ("another path", format!("{}/x", server.url), vec![], 401),
        (
            "a wrong bearer",
            server.url.clone(),
            vec![("Authorization", "Bearer 0")],
            401,
        ),
        ("no bearer but the path", server.url.clone(), vec![], 200),
        (
            "another name for this address",
            server.url.clone(),
            vec![("Host", elsewhere.as_str())],
            403,
        ),
        ("no port", server.url.clone(), vec![("Host", "127.0.0.1")], 403),
        (
            "a page of elsewhere",
            server.url.clone(),
            vec![("Origin", page.as_str())],
            403,
        ),
        (
            "a page without origin",
            server.url.clone(),
            vec![("Origin", "null")],
            403,
        ),
        (
            "a guessed session",
            server.url.clone(),
            vec![("Mcp-Session-Id", "0")],
            404,
        ),
    ] {
        let mut headers = headers;
        headers.push(JSON);
        assert_eq!(send("POST", &url, &headers, ping.as_bytes()).status, status, "{what}");
    }
}

#[test]
fn other_methods_and_bad_bodies_get_clear_answers() {
    let (_client, _agent, server) = start();
    for (method, headers) in [
        ("GET", vec![]),
        ("GET", vec![BOTH]),
        ("DELETE", vec![]),
        ("PUT", vec![]),
    ] {
        let answer = server.send(method, &headers, b"");
        assert_eq!(
            (answer.status, answer.header("allow")),
            (405, Some("POST, GET, DELETE")),
            "{method}"
        );
    }
    for (body, code) in [
        ("", -32700),
        ("{", -32700),
        ("[]", -32600),
        ("{}", -32600),
        (r#"{"id":1}"#, -32600),
    ] {
        let answer = server.send("POST", &[JSON], body.as_bytes());
        assert_eq!(answer.status, 400, "{body}");
        assert_eq!(answer.json()["error"]["code"], code, "{body}");
    }
    for accept in [None, Some(("Accept", "*/*")), Some(JSON), Some(BOTH)] {
        let headers: Vec<_> = accept.into_iter().collect();
        assert_eq!(
            server.post(&headers, &call(1, "ping", &json!({}))).status,
            200,
            "{accept:?}"
        );
    }
}

#[test]
fn a_session_that_is_over_is_over_for_everybody() {
    let (mut client, mut agent, server) = start();
    let session = server.connect();
    assert_eq!(
        server.send("DELETE", &[("Mcp-Session-Id", &session.id)], b"").status,
        200
    );
    assert_eq!(session.post(JSON, &call(1, "ping", &json!({}))).status, 404);
    let session = server.connect();
    let mut news = session.get(&[]);
    client.send_json(&request("close", "session/close", &json!({"sessionId": "s1"})));
    let close = agent.expect();
    agent.answer(&close, &json!({}));
    assert_eq!(client.expect()["id"], "close");
    assert!(news.event().is_none(), "the stream ends");
    let address = server.url.split('/').nth(2).unwrap();
    let begun = Instant::now();
    while TcpStream::connect(address).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "somebody listens still");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_proxy_that_fails_costs_its_calls_and_comes_back() {
    let (_client, _agent, server) = start();
    let session = server.connect();
    let failed = session.tool("trap", &json!({}));
    assert!(
        failed["error"]["message"].as_str().unwrap().contains("offers"),
        "{failed}"
    );
    assert_eq!(
        session.tool("echo", &json!({"text": "again"}))["result"]["content"][0]["text"],
        "again"
    );
}

/// A server that the agent starts.
struct Shim {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Shim {
    fn start(entry: &Value) -> Self {
        assert_eq!(entry.get("type"), None, "{entry}");
        let command = entry["command"].as_str().unwrap();
        assert!(Path::new(command).is_absolute());
        let arguments = entry["args"]
            .as_array()
            .unwrap()
            .iter()
            .map(|argument| argument.as_str().unwrap());
        let variables = entry["env"].as_array().unwrap().iter();
        let variables =
            variables.map(|variable| (variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap()));
        let mut child = Command::new(command)
            .args(arguments)
            .env_clear()
            .envs(variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn send(&mut self, value: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{value}").unwrap();
    }

    /// The next line; none at the end.
    fn next(&mut self) -> Option<Value> {
        let line = self.lines.next()?.unwrap();
        Some(serde_json::from_str(&line).unwrap())
    }
}

#[test]
fn an_agent_that_only_starts_servers_starts_one_that_comes_back() {
    let (mut client, mut agent, new) = set_up_with(&offering(), &json!({}), &json!([]));
    let mut shim = Shim::start(&new["params"]["mcpServers"][0]);
    agent.answer(&new, &json!({"sessionId": "s1"}));
    assert_eq!(client.expect()["id"], "new");
    shim.send(&call(
        0,
        "initialize",
        &json!({"protocolVersion": "2025-03-26", "capabilities": {}}),
    ));
    assert_eq!(shim.next().unwrap()["result"]["protocolVersion"], "2025-03-26");
    shim.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let params = json!({"name": "wait", "arguments": {"milliseconds": 40}, "_meta": {"progressToken": "t"}});
    shim.send(&call("w", "tools/call", &params));
    let told: Vec<Value> = std::iter::from_fn(|| shim.next()).take(6).collect();
    assert_eq!(
        (&told[0]["params"]["progress"], &told[5]["id"]),
        (&json!(0.0), &json!("w"))
    );
    shim.send(&call(
        2,
        "tools/call",
        &json!({"name": "ask", "arguments": {"method": "roots/list"}}),
    ));
    let asked = shim.next().unwrap();
    assert_eq!(asked["method"], "roots/list");
    shim.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}}));
    assert_eq!(shim.next().unwrap()["result"]["content"][0]["text"], r#"{"roots":[]}"#);
    shim.send(&json!("no message"));
    assert_eq!(shim.next().unwrap()["error"]["code"], -32700);
    shim.send(&call(3, "tools/call", &json!({"name": "session"})));
    assert_eq!(shim.next().unwrap()["result"]["structuredContent"]["session"], "s1");
    client.send_json(&request("close", "session/close", &json!({"sessionId": "s1"})));
    let close = agent.expect();
    agent.answer(&close, &json!({}));
    assert!(shim.next().is_none(), "it ends with its session");
    assert!(shim.child.wait().unwrap().success());
}

#[test]
fn a_shim_without_the_secret_is_turned_away() {
    let (_client, _agent, new) = set_up_with(&offering(), &json!({}), &json!([]));
    let mut entry = new["params"]["mcpServers"][0].clone();
    entry["env"][0]["value"] = json!("0".repeat(32));
    let mut shim = Shim::start(&entry);
    assert!(shim.next().is_none());
    entry["env"] = json!([]);
    assert!(!Shim::start(&entry).child.wait().unwrap().success());
}
