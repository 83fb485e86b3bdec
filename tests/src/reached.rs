//! MCP servers of proxies, as an agent reaches them that knows nothing of MCP over ACP: over HTTP, or by starting a command.

use crate::http::send;
use crate::session::request;
use crate::{Agent, AgentListener, Client};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// What an agent says of itself that reaches servers over HTTP.
pub fn over_http() -> Value {
    json!({"mcpCapabilities": {"http": true}})
}

/// Takes a client and its agent, which says this of its capabilities, through `initialize` and `session/new` in a directory. Returns the
/// agent and the servers that it got; the session is called `s1`.
pub fn begin_in(
    client: &mut Client,
    listener: &AgentListener,
    capabilities: &Value,
    directory: &Path,
    servers: &Value,
) -> (Agent, Vec<Value>) {
    client.send_json(&request("init", "initialize", &json!({"protocolVersion": 1})));
    let mut agent = listener.accept();
    let initialize = agent.expect();
    let result = json!({"protocolVersion": 1, "agentCapabilities": capabilities});
    agent.answer(&initialize, &result);
    assert_eq!(client.expect()["id"], "init");
    let set_up = json!({"cwd": directory, "mcpServers": servers});
    client.send_json(&request("new", "session/new", &set_up));
    let new = agent.expect();
    agent.answer(&new, &json!({"sessionId": "s1"}));
    assert_eq!(client.expect()["id"], "new");
    let servers = new["params"]["mcpServers"]
        .as_array()
        .expect("there is a list of servers");
    (agent, servers.clone())
}

/// What an agent's MCP client says first.
fn hello() -> Value {
    json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}})
}

/// A connection to a server over HTTP.
pub struct Http {
    url: String,
    authorization: String,
    session: String,
    numbers: AtomicU64,
}

impl Http {
    /// Connects to the server of an entry of `mcpServers`.
    pub fn connect(entry: &Value) -> Self {
        assert_eq!(entry["type"], "http", "{entry}");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let mut connection = Self {
            url: text(&entry["url"]),
            authorization: text(&entry["headers"][0]["value"]),
            session: String::new(),
            numbers: AtomicU64::new(1),
        };
        let answer = connection.post(&request(0, "initialize", &hello()));
        connection.session = answer.header("mcp-session-id").expect("a session begins").to_owned();
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(connection.post(&initialized).status, 202);
        connection
    }

    fn post(&self, body: &Value) -> crate::http::Answer {
        let mut headers = vec![
            ("Authorization", self.authorization.as_str()),
            ("Accept", "application/json"),
            ("Content-Type", "application/json"),
        ];
        if body["method"] == "notifications/initialized" || !self.session.is_empty() {
            headers.push(("Mcp-Session-Id", &self.session));
        }
        send("POST", &self.url, &headers, body.to_string().as_bytes())
    }

    /// Sends a request and waits for its answer: the whole message.
    pub fn ask(&self, method: &str, params: &Value) -> Value {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.post(&request(number, method, params)).json()
    }

    /// Sends a notification.
    pub fn tell(&self, method: &str, params: &Value) {
        let body = json!({"jsonrpc": "2.0", "method": method, "params": params});
        assert_eq!(self.post(&body).status, 202);
    }

    /// Calls a tool: the result.
    pub fn tool(&self, name: &str, arguments: &Value) -> Value {
        let mut answer = self.ask("tools/call", &json!({"name": name, "arguments": arguments}));
        match answer.get_mut("result") {
            Some(result) => result.take(),
            None => panic!("{name} fails: {answer}"),
        }
    }

    /// The number that the next request has as its id.
    pub fn next_id(&self) -> u64 {
        self.numbers.load(Ordering::Relaxed)
    }
}

/// The text of a tool's result, which is no failure.
pub fn text(result: &Value) -> &str {
    assert_eq!(result["isError"], false, "{result}");
    result["content"][0]["text"].as_str().expect("there is a text")
}

/// A server that the agent starts.
pub struct Shim {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Shim {
    /// Starts and greets the server of an entry of `mcpServers`.
    pub fn connect(entry: &Value) -> Self {
        let texts = |value: &Value| -> Vec<String> {
            let texts = value.as_array().into_iter().flatten();
            texts.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let variables = entry["env"].as_array().into_iter().flatten();
        let variables = variables.filter_map(|one| Some((one["name"].as_str()?, one["value"].as_str()?)));
        let mut child = Command::new(entry["command"].as_str().expect("there is a command"))
            .args(texts(&entry["args"]))
            .env_clear()
            .envs(variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command can be started");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut shim = Self { child, lines };
        let welcome = shim.ask(0, "initialize", &hello());
        assert_eq!(welcome["result"]["protocolVersion"], "2025-06-18", "{welcome}");
        shim.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        shim
    }

    fn say(&mut self, message: &Value) {
        let input = self.child.stdin.as_mut().expect("it is piped");
        writeln!(input, "{message}").expect("the command listens");
    }

    /// Sends a request and waits for its answer: the whole message.
    pub fn ask(&mut self, id: u64, method: &str, params: &Value) -> Value {
        self.say(&request(id, method, params));
        loop {
            let line = self.lines.next().expect("the command speaks").expect("in text");
            let message: Value = serde_json::from_str(&line).expect("in JSON");
            if message["id"] == id {
                return message;
            }
        }
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
