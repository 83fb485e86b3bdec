//! A model on loopback for agents that want one, in the shapes of OpenAI's Responses and Chat APIs: it says one sentence, or asks for a tool
//! and says what came of it, and remembers what it was asked.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// What the model says without a tool.
pub const MODEL_SAYS: &str = "The model has read it.";

/// What it says before what came of a tool.
pub const TOOL_SAYS: &str = "The tool has said: ";

/// The model.
pub struct Model {
    port: u16,
    asked: Arc<Mutex<String>>,
}

/// A tool that it asks for as soon as one is offered whose name ends like this, and the arguments.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The end of the tool's name.
    pub tool: &'static str,
    /// The arguments.
    pub arguments: Value,
}

impl Model {
    /// Starts a model that uses no tools. It ends with the test.
    pub fn start() -> Self {
        Self::wishing(None)
    }

    /// Starts one that may want to use a tool.
    pub fn wishing(wish: Option<Wish>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let asked = Arc::new(Mutex::new(String::new()));
        let seen = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, wish) = (seen.clone(), wish.clone());
                // A client that hangs up is the client's business.
                thread::spawn(move || drop(answer(stream, &seen, wish.as_ref())));
            }
        });
        Self { port, asked }
    }

    /// The base URL.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// All requests so far.
    pub fn asked(&self) -> String {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A configuration of Codex that uses this.
    pub fn codex(&self) -> String {
        format!(
            "model = \"test\"\nmodel_provider = \"test\"\n[model_providers.test]\nname = \"test\"\nbase_url = \"{}\"\n\
             env_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\nrequires_openai_auth = false\nsupports_websockets = false\n",
            self.url()
        )
    }
}

/// What the model does.
enum Step {
    Says(String),
    /// A tool, the namespace that it was offered in, and the arguments.
    Calls(String, Option<String>, String),
}

fn answer(stream: TcpStream, seen: &Mutex<String>, wish: Option<&Wish>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    seen.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push_str(&String::from_utf8_lossy(&body));
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let streams = body["stream"] == true;
    let (kind, text) = if first.contains("/responses") {
        (
            "text/event-stream",
            responses(&step(&body["input"], &body["tools"], wish)),
        )
    } else if first.contains("/chat/completions") {
        let step = step(&body["messages"], &body["tools"], wish);
        match streams {
            true => ("text/event-stream", chat(&step)),
            false => ("application/json", whole_chat(&step).to_string()),
        }
    } else if first.contains("/models") {
        let models =
            json!({"object": "list", "data": [{"id": "test", "object": "model", "created": 1, "owned_by": "test"}]});
        ("application/json", models.to_string())
    } else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{text}"
    )
}

/// What comes next, after these messages, with these tools.
fn step(messages: &Value, tools: &Value, wish: Option<&Wish>) -> Step {
    let Some(wish) = wish else {
        return Step::Says(MODEL_SAYS.to_owned());
    };
    let messages = messages.as_array().into_iter().flatten();
    let is_result = |message: &&Value| {
        message["role"] == "tool" || message["type"].as_str().is_some_and(|kind| kind.ends_with("_output"))
    };
    if let Some(result) = messages.clone().rfind(is_result) {
        let said = [&result["content"], &result["output"]].map(Value::to_string).concat();
        return Step::Says(format!("{TOOL_SAYS}{said}"));
    }
    for tool in tools.as_array().into_iter().flatten() {
        let namespace = tool["name"].as_str().filter(|_| tool["type"] == "namespace");
        let inner = tool["tools"].as_array().into_iter().flatten();
        for tool in inner.chain([tool]) {
            let name = tool["function"]["name"].as_str().or(tool["name"].as_str());
            if let Some(name) = name
                && name.ends_with(wish.tool)
            {
                let arguments = wish.arguments.to_string();
                return Step::Calls(name.to_owned(), namespace.map(str::to_owned), arguments);
            }
        }
    }
    Step::Says(MODEL_SAYS.to_owned())
}

/// A stream of the Responses API.
fn responses(step: &Step) -> String {
    let usage = json!({"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2});
    let response = |status: &str, output: Value, usage: Value| {
        json!({"id": "r", "object": "response", "created_at": 0,
        "status": status, "model": "test", "output": output, "usage": usage})
    };
    let mut events =
        vec![json!({"type": "response.created", "response": response("in_progress", json!([]), Value::Null)})];
    let whole = match step {
        Step::Says(text) => {
            let message = |status: &str, content: Value| json!({"type": "message", "id": "m", "role": "assistant", "status": status, "content": content});
            let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
            let place = |event: Value| {
                let mut event = event;
                event["item_id"] = json!("m");
                event["output_index"] = json!(0);
                event["content_index"] = json!(0);
                event
            };
            events.push(json!({"type": "response.output_item.added", "output_index": 0, "item": message("in_progress", json!([]))}));
            events.push(place(json!({"type": "response.content_part.added", "part": part("")})));
            for word in text.split_inclusive(' ') {
                events.push(place(json!({"type": "response.output_text.delta", "delta": word})));
            }
            events.push(place(json!({"type": "response.output_text.done", "text": text})));
            events.push(place(json!({"type": "response.content_part.done", "part": part(text)})));
            message("completed", json!([part(text)]))
        }
        Step::Calls(name, namespace, arguments) => {
            let mut call = json!({"type": "function_call", "id": "f", "call_id": "call", "name": name, "arguments": arguments, "status": "completed"});
            if let Some(namespace) = namespace {
                call["namespace"] = json!(namespace);
            }
            events.push(json!({"type": "response.output_item.added", "output_index": 0, "item": call}));
            call
        }
    };
    events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": whole}));
    events.push(json!({"type": "response.completed", "response": response("completed", json!([whole]), usage)}));
    let mut text = String::new();
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = json!(number);
        text.push_str(&format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap_or_default()
        ));
    }
    text
}

/// The message of the Chat API, and why it ends.
fn message(step: &Step) -> (Value, &'static str) {
    match step {
        Step::Says(text) => (json!({"role": "assistant", "content": text}), "stop"),
        Step::Calls(name, _, arguments) => {
            let call = json!({"index": 0, "id": "call", "type": "function", "function": {"name": name, "arguments": arguments}});
            (
                json!({"role": "assistant", "content": null, "tool_calls": [call]}),
                "tool_calls",
            )
        }
    }
}

const USAGE: [(&str, u64); 3] = [("prompt_tokens", 1), ("completion_tokens", 1), ("total_tokens", 2)];

fn usage() -> Value {
    USAGE
        .into_iter()
        .map(|(name, count)| (name.to_owned(), json!(count)))
        .collect()
}

/// A stream of the Chat API.
fn chat(step: &Step) -> String {
    let (message, end) = message(step);
    let chunk = |choices: Value, usage: Value| json!({"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "test", "choices": choices, "usage": usage});
    let choice = |delta: Value, end: Value| json!([{"index": 0, "delta": delta, "finish_reason": end}]);
    let chunks = [
        chunk(choice(message, Value::Null), Value::Null),
        chunk(choice(json!({}), json!(end)), Value::Null),
        chunk(json!([]), usage()),
    ];
    let chunks = chunks.map(|chunk| format!("data: {chunk}\n\n"));
    format!("{}data: [DONE]\n\n", chunks.concat())
}

/// An answer of the Chat API in one piece.
fn whole_chat(step: &Step) -> Value {
    let (message, end) = message(step);
    json!({"id": "c", "object": "chat.completion", "created": 0, "model": "test", "usage": usage(),
        "choices": [{"index": 0, "message": message, "finish_reason": end}]})
}
