//! MCP servers of proxies as agents reach them: sessions in front of agents of every kind, and raw clients of MCP over HTTP and over
//! standard input and output.

use crate::chains::Chain;
use crate::http::{Answer, send};
use crate::session::request;
use crate::{Agent, Client};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// For streams of events.
pub const BOTH: (&str, &str) = ("Accept", "application/json, text/event-stream");

/// For answers in one piece.
pub const JSON: (&str, &str) = ("Accept", "application/json");

/// A chain with a proxy that offers tools.
pub fn offering() -> Chain {
    Chain::new("a proxy that offers tools", &[("offers", json!({}))])
}

/// A client, and an agent that says this of the MCP servers that it reaches.
pub fn initialize(chain: &Chain, reached: &Value) -> (Client, Agent) {
    let (mut client, listener) = chain.fresh();
    client.send_json(&request("init", "initialize", &json!({"protocolVersion": 1})));
    let mut agent = listener.accept();
    let initialize = agent.expect();
    let result = json!({"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": reached}});
    agent.answer(&initialize, &result);
    assert_eq!(client.expect()["result"], chain.bridged(&result));
    (client, agent)
}

/// The same, and the set-up of a session with these servers, which has not been answered.
pub fn set_up(chain: &Chain, reached: &Value, servers: &Value) -> (Client, Agent, Value) {
    let (mut client, mut agent) = initialize(chain, reached);
    let new = new_session(&mut client, &mut agent, servers);
    (client, agent, new)
}

/// The set-up of one more session, as the agent gets it.
pub fn new_session(client: &mut Client, agent: &mut Agent, servers: &Value) -> Value {
    let params = json!({"cwd": "/", "mcpServers": servers});
    client.send_json(&request("new", "session/new", &params));
    agent.expect()
}

/// Answers the set-up of a session, and gives the entry of the server that stands last in it.
pub fn answer(client: &mut Client, agent: &mut Agent, new: &Value, session: &str) -> Value {
    agent.answer(new, &json!({"sessionId": session}));
    assert_eq!(client.expect()["id"], "new");
    let servers = new["params"]["mcpServers"].as_array().expect("servers are an array");
    servers.last().expect("the proxy has added its server").clone()
}

/// A client, an agent that says this of the MCP servers that it reaches, and the entry of a proxy's server in their session `s1`.
pub fn start(reached: &Value) -> (Client, Agent, Value) {
    let (mut client, mut agent, new) = set_up(&offering(), reached, &json!([]));
    let entry = answer(&mut client, &mut agent, &new, "s1");
    (client, agent, entry)
}

/// The same with an agent that reaches servers over HTTP.
pub fn start_over_http() -> (Client, Agent, Server) {
    let (client, agent, entry) = start(&json!({"http": true, "sse": false}));
    (client, agent, Server::of(&entry))
}

/// Closes a session for agent and client.
pub fn close(client: &mut Client, agent: &mut Agent, session: &str) {
    client.send_json(&request("close", "session/close", &json!({"sessionId": session})));
    let close = agent.expect();
    agent.answer(&close, &json!({}));
    assert_eq!(client.expect()["id"], "close");
}

/// A server over HTTP, as the agent was told of it.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its address, with the secret in the path.
    pub url: String,
    /// What stands in the header `Authorization`.
    pub authorization: String,
}

impl Server {
    /// By its entry in the set-up of a session.
    pub fn of(entry: &Value) -> Self {
        assert_eq!(entry["type"], "http", "{entry}");
        assert_eq!(entry["headers"][0]["name"], "Authorization");
        let text = |value: &Value| value.as_str().expect("it is text").to_owned();
        Self {
            url: text(&entry["url"]),
            authorization: text(&entry["headers"][0]["value"]),
        }
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        self.url.split('/').nth(2).expect("an address has an authority")
    }

    /// Sends a request.
    pub fn send(&self, method: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut all = vec![("Authorization", self.authorization.as_str())];
        all.extend(headers);
        send(method, &self.url, &all, body)
    }

    /// Posts a message.
    pub fn post(&self, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.send("POST", headers, body.to_string().as_bytes())
    }

    /// Begins a session of MCP.
    pub fn connect(&self) -> Session<'_> {
        self.connect_with("2025-06-18")
    }

    /// The same in a revision.
    pub fn connect_with(&self, revision: &str) -> Session<'_> {
        let hello =
            json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        let answer = self.post(&[JSON], &request(0, "initialize", &hello));
        let id = answer.header("mcp-session-id").expect("it has an id").to_owned();
        let welcome = answer.json();
        assert_eq!(welcome["result"]["serverInfo"]["name"], "offers", "{welcome}");
        assert_eq!(welcome["result"]["protocolVersion"], revision, "{welcome}");
        let session = Session { server: self, id };
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(session.post(BOTH, &initialized).status, 202);
        session
    }
}

/// A session of MCP over HTTP.
#[derive(Debug)]
pub struct Session<'s> {
    server: &'s Server,
    /// Its id.
    pub id: String,
}

impl Session<'_> {
    /// Posts a message.
    pub fn post(&self, accept: (&str, &str), body: &Value) -> Answer {
        self.server.post(&[accept, ("Mcp-Session-Id", &self.id)], body)
    }

    /// Opens a stream of events.
    pub fn get(&self, more: &[(&str, &str)]) -> Answer {
        let mut headers = vec![("Accept", "text/event-stream"), ("Mcp-Session-Id", self.id.as_str())];
        headers.extend(more);
        self.server.send("GET", &headers, b"")
    }

    /// Calls a tool and gives what comes of it.
    pub fn tool(&self, name: &str, arguments: &Value) -> Value {
        let params = json!({"name": name, "arguments": arguments});
        self.post(JSON, &request(7, "tools/call", &params)).json()
    }
}

/// A server that the agent starts.
#[derive(Debug)]
pub struct Shim {
    /// Its process.
    pub child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Shim {
    /// By its entry in the set-up of a session.
    pub fn start(entry: &Value) -> Self {
        assert_eq!(entry.get("type"), None, "{entry}");
        let text = |value: &Value| value.as_str().expect("it is text").to_owned();
        let all = |name: &str| entry[name].as_array().expect("it is an array").clone();
        let command = text(&entry["command"]);
        assert!(Path::new(&command).is_absolute());
        let variables = all("env").into_iter();
        let mut child = Command::new(command)
            .args(all("args").iter().map(text))
            .env_clear()
            .envs(variables.map(|variable| (text(&variable["name"]), text(&variable["value"]))))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Self { child, lines }
    }

    /// Sends a line.
    pub fn send(&mut self, value: &Value) {
        self.send_raw(format!("{value}\n").as_bytes());
    }

    /// Sends bytes; it is no fault if nobody takes them.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        let input = self.child.stdin.as_mut().expect("it is open");
        let _ = input.write_all(bytes);
    }

    /// Ends its input.
    pub fn close_input(&mut self) {
        self.child.stdin = None;
    }

    /// The next line; none at the end.
    pub fn hear(&mut self) -> Option<Value> {
        let line = self.lines.next()?.expect("it can be read");
        Some(serde_json::from_str(&line).expect("lines are JSON"))
    }
}

/// Servers of a session: one of the client's own over ACP.
pub fn own_server() -> Value {
    json!([{"type": "acp", "name": "own", "serverId": "own-1", "id": "own-1"}])
}
