//! Agents, clients and a conductor that others wrote, from their package registries, and a model for those that want one.

use crate::{Directory, root};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Installs packages into a folder of their own under `target/`, once, and returns that folder. Tests run in several
/// processes; whoever comes second waits.
pub fn npm(name: &str, packages: &[&str]) -> PathBuf {
    let folder = root().join("target/real").join(name);
    fs::create_dir_all(&folder).expect("a folder can be made");
    let lock = fs::File::create(folder.join("lock")).expect("a lock file can be made");
    lock.lock().expect("the lock can be taken");
    let done = folder.join("installed");
    let wanted = packages.join("\n");
    if fs::read_to_string(&done).is_ok_and(|installed| installed == wanted) {
        return folder;
    }
    fs::write(folder.join("package.json"), r#"{"private":true}"#).expect("a file can be written");
    let output = Command::new("npm")
        .args(["install", "--no-audit", "--no-fund", "--loglevel=error"])
        .args(packages)
        .current_dir(&folder)
        .output()
        .expect("these tests need Node.js: install `node` and `npm`");
    assert!(
        output.status.success(),
        "npm cannot install {packages:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    fs::write(done, wanted).expect("a file can be written");
    folder
}

/// The reference conductor, version 5.0.0, installed once under `target/`. Compiling it takes some minutes.
pub fn reference_conductor() -> PathBuf {
    const CRATE: &str = "agent-client-protocol-conductor";
    let folder = root().join("target/real/conductor");
    fs::create_dir_all(&folder).expect("a folder can be made");
    let lock = fs::File::create(folder.join("lock")).expect("a lock file can be made");
    lock.lock().expect("the lock can be taken");
    let program = folder.join("bin").join(CRATE);
    if !program.is_file() {
        let output = Command::new("cargo")
            .args(["install", "--locked", "--version", "5.0.0", "--root"])
            .arg(&folder)
            .arg(CRATE)
            .output()
            .expect("cargo is there");
        assert!(
            output.status.success(),
            "the reference conductor cannot be installed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    program
}

/// A model on loopback that streams one sentence in the shape of OpenAI's Responses API, and remembers what it was asked.
pub struct Model {
    port: u16,
    asked: Arc<Mutex<String>>,
}

/// What the model says.
pub const MODEL_SAYS: &str = "The model has read it.";

impl Model {
    /// Starts the model. It ends with the test.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let asked = Arc::new(Mutex::new(String::new()));
        let seen = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = seen.clone();
                // A client that hangs up is the client's business.
                thread::spawn(move || drop(answer(stream, &seen)));
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
}

fn answer(stream: TcpStream, seen: &Mutex<String>) -> std::io::Result<()> {
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
    if !first.contains("/responses") {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    seen.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push_str(&String::from_utf8_lossy(&body));
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")?;
    for (number, mut event) in events().into_iter().enumerate() {
        event["sequence_number"] = json!(number);
        write!(
            stream,
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap_or_default()
        )?;
    }
    Ok(())
}

fn events() -> Vec<Value> {
    let message = |status: &str, content: Value| json!({"type": "message", "id": "m", "role": "assistant", "status": status, "content": content});
    let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
    let whole = message("completed", json!([part(MODEL_SAYS)]));
    let usage = json!({"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2});
    let response = |status: &str, output: Value, usage: Value| {
        json!({"id": "r", "object": "response", "created_at": 0,
        "status": status, "model": "test", "output": output, "usage": usage})
    };
    let mut events = vec![
        json!({"type": "response.created", "response": response("in_progress", json!([]), Value::Null)}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": message("in_progress", json!([]))}),
        json!({"type": "response.content_part.added", "item_id": "m", "output_index": 0, "content_index": 0, "part": part("")}),
    ];
    for word in MODEL_SAYS.split_inclusive(' ') {
        events.push(json!({"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": word}));
    }
    events.extend([
        json!({"type": "response.output_text.done", "item_id": "m", "output_index": 0, "content_index": 0, "text": MODEL_SAYS}),
        json!({"type": "response.content_part.done", "item_id": "m", "output_index": 0, "content_index": 0, "part": part(MODEL_SAYS)}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": whole}),
        json!({"type": "response.completed", "response": response("completed", json!([whole]), usage)}),
    ]);
    events
}

/// A home for an agent, so that it neither reads nor writes the user's own files.
pub fn home(files: &[(&str, &str)]) -> Directory {
    let home = Directory::new();
    for (name, content) in files {
        home.file(name, content);
    }
    home
}
