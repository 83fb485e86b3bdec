//! A conductor that is not Consort, as plain as can be: runs proxies and an agent as processes and speaks the dialect of the proxy
//! protocol that it is told to. For tests only: it believes everybody and its queues have no bounds.
//!
//! `scripted-conductor plain|underscored PROXY... AGENT`, each component a JSON array of the words of its command.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use std::collections::HashMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;

type Raw = Box<RawValue>;

/// A message, its parts untouched.
#[derive(Clone, Default, Deserialize, Serialize)]
struct Message {
    #[serde(default)]
    jsonrpc: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    id: Option<Raw>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    params: Option<Raw>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    result: Option<Raw>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    error: Option<Raw>,
}

/// The params of `proxy/successor`.
#[derive(Deserialize, Serialize)]
struct Envelope {
    method: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    params: Option<Raw>,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Raw>, D::Error> {
    Raw::deserialize(deserializer).map(Some)
}

/// A line of somebody, or the end of what somebody says. 0 is the client, the last one the agent, in between are the proxies.
type Event = (usize, Option<Vec<u8>>);

struct Conductor {
    prefix: &'static str,
    /// Where lines for each of them go.
    lines: Vec<Sender<Vec<u8>>>,
    /// Requests that wait for their answers, by the id on the next hop: who asked under which id, and who was asked.
    waiting: HashMap<u64, (usize, Raw, usize)>,
    next: u64,
}

impl Conductor {
    fn agent(&self) -> usize {
        self.lines.len() - 1
    }

    fn is_proxy(&self, who: usize) -> bool {
        who > 0 && who < self.agent()
    }

    fn said(&mut self, from: usize, line: &[u8]) -> Result<(), Box<dyn Error>> {
        let mut message: Message = serde_json::from_slice(line)?;
        let Some(method) = message.method.clone() else {
            return self.answered(message);
        };
        if method == "$/cancel_request" {
            return self.cancelled(from, message);
        }
        let successor = format!("{}/successor", self.prefix);
        if self.is_proxy(from) && method == successor {
            let envelope: Envelope = serde_json::from_str(message.params.as_ref().ok_or("no envelope")?.get())?;
            message.method = Some(envelope.method);
            message.params = envelope.params;
            if message.method.as_deref() == Some("$/cancel_request") {
                return self.cancelled(from, message);
            }
            return self.call(from, from + 1, message);
        }
        let to = if from == 0 { 1 } else { from - 1 };
        self.call(from, to, message)
    }

    /// Hands a request or notification on. A proxy gets what comes from behind it in an envelope.
    fn call(&mut self, from: usize, to: usize, mut message: Message) -> Result<(), Box<dyn Error>> {
        let method = message.method.take().unwrap_or_default();
        if let Some(id) = message.id.take() {
            self.next += 1;
            self.waiting.insert(self.next, (from, id, to));
            message.id = Some(to_raw_value(&self.next)?);
        }
        if self.is_proxy(to) && from > to {
            let params = message.params.take();
            message.params = Some(to_raw_value(&Envelope { method, params })?);
            message.method = Some(format!("{}/successor", self.prefix));
        } else if self.is_proxy(to) && method == "initialize" {
            message.method = Some(format!("{}/initialize", self.prefix));
        } else {
            message.method = Some(method);
        }
        self.tell(to, &message)
    }

    fn answered(&mut self, mut message: Message) -> Result<(), Box<dyn Error>> {
        let id: u64 = serde_json::from_str(message.id.as_ref().ok_or("an answer without an id")?.get())?;
        let (asker, id, _) = self.waiting.remove(&id).ok_or("an answer that nobody waits for")?;
        message.id = Some(id);
        self.tell(asker, &message)
    }

    fn cancelled(&mut self, from: usize, message: Message) -> Result<(), Box<dyn Error>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Cancel {
            request_id: Raw,
        }
        let cancel: Cancel = serde_json::from_str(message.params.as_ref().ok_or("no params")?.get())?;
        let wanted = cancel.request_id.get();
        let found = self
            .waiting
            .iter()
            .find(|(_, (asker, id, _))| *asker == from && id.get() == wanted);
        if let Some((&id, &(_, _, to))) = found {
            let params = to_raw_value(&serde_json::json!({ "requestId": id }))?;
            let cancel = Message {
                method: Some("$/cancel_request".into()),
                params: Some(params),
                ..Message::default()
            };
            self.tell(to, &cancel)?;
        }
        Ok(())
    }

    fn tell(&self, to: usize, message: &Message) -> Result<(), Box<dyn Error>> {
        let message = Message {
            jsonrpc: "2.0".into(),
            ..message.clone()
        };
        let mut line = serde_json::to_vec(&message)?;
        line.push(b'\n');
        // Whoever has ended is not told any more.
        let _ = self.lines[to].send(line);
        Ok(())
    }
}

fn listen(who: usize, input: impl Read + Send + 'static, events: Sender<Event>) {
    thread::spawn(move || {
        for line in BufReader::new(input).split(b'\n').map_while(Result::ok) {
            if events.send((who, Some(line))).is_err() {
                return;
            }
        }
        // The loop may be over.
        let _ = events.send((who, None));
    });
}

fn writer(mut output: impl Write + Send + 'static) -> (Sender<Vec<u8>>, thread::JoinHandle<()>) {
    let (sender, lines) = mpsc::channel::<Vec<u8>>();
    let written = thread::spawn(move || {
        for line in lines {
            if output.write_all(&line).and_then(|()| output.flush()).is_err() {
                return;
            }
        }
    });
    (sender, written)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let prefix = match arguments.next().as_deref() {
        Some("plain") => "proxy",
        Some("underscored") => "_proxy",
        _ => return Err("the first argument is plain or underscored".into()),
    };
    let (events, heard) = mpsc::channel();
    let (client, written) = writer(std::io::stdout());
    listen(0, std::io::stdin(), events.clone());
    let mut lines = vec![client];
    let mut children: Vec<Child> = Vec::new();
    for component in arguments {
        let words: Vec<String> = serde_json::from_str(&component)?;
        let (program, words) = words.split_first().ok_or("a component without words")?;
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        listen(lines.len(), child.stdout.take().ok_or("piped")?, events.clone());
        lines.push(writer(child.stdin.take().ok_or("piped")?).0);
        children.push(child);
    }
    let mut conductor = Conductor {
        prefix,
        lines,
        waiting: HashMap::new(),
        next: 0,
    };
    for (from, line) in heard {
        match line {
            Some(line) => {
                if let Err(error) = conductor.said(from, &line) {
                    eprintln!("{from} said {}: {error}", String::from_utf8_lossy(&line));
                }
            }
            None => break,
        }
    }
    // Their inputs end with this; what they still write nobody reads.
    drop(conductor);
    written
        .join()
        .map_err(|_| "the writer of standard output has panicked")?;
    for mut child in children {
        child.wait()?;
    }
    Ok(())
}
