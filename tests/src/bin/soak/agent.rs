//! The agent: does in each turn what its script says, one turn after the other in a session and sessions side by side. What it finds
//! wrong it tells the client in a notification.

use crate::Result;
use crate::script::{self, Script};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How long an answer of the client may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Reads until the end of input.
pub(crate) fn run() -> Result<()> {
    let agent = Arc::new(Agent::default());
    let mut reader = Reader::default();
    for line in io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        reader.take(&agent, message);
    }
    Ok(())
}

/// What the threads share.
#[derive(Default)]
struct Agent {
    asked: Mutex<Asked>,
    sessions: Mutex<HashMap<String, Arc<Mutex<Cancelled>>>>,
}

/// Requests to the client.
#[derive(Default)]
struct Asked {
    count: u64,
    answered: u64,
    waiting: HashMap<u64, Sender<Value>>,
}

/// One of them.
struct Question {
    /// Where in its session it belongs; the answer has to repeat it.
    place: Value,
    what: String,
    answer: Receiver<Value>,
}

/// Which turns of a session were cancelled.
#[derive(Default)]
struct Cancelled {
    /// Turns that came.
    came: u64,
    /// All turns up to this one.
    up_to: u64,
    /// The requests of single ones.
    requests: HashSet<u64>,
}

/// What only the reader needs.
#[derive(Default)]
struct Reader {
    workers: HashMap<String, Sender<(u64, Value)>>,
    /// Ids that came; none may come twice.
    ids: HashSet<u64>,
    born: u64,
}

impl Reader {
    fn take(&mut self, agent: &Arc<Agent>, message: Value) {
        let session = message["params"]["sessionId"].as_str().unwrap_or_default().to_owned();
        let Some(method) = message["method"].as_str() else {
            return agent.answered(message);
        };
        let Some(id) = message["id"].as_u64() else {
            return agent.notified(method, &message["params"], &session);
        };
        if !self.ids.insert(id) {
            agent.complain(&format!("request {id} came twice"));
        }
        match method {
            "session/new" => {
                self.born += 1;
                let session = format!("s{}", self.born);
                let (sender, turns) = mpsc::channel();
                let cancelled = Arc::<Mutex<Cancelled>>::default();
                lock(&agent.sessions).insert(session.clone(), cancelled.clone());
                let (worker, name) = (agent.clone(), session.clone());
                thread::spawn(move || worker.work(&name, &turns, &cancelled));
                self.workers.insert(session.clone(), sender);
                let commands = json!({"sessionUpdate": "available_commands_update", "availableCommands": []});
                // An update may come before its session's name does.
                agent.update(&session, &commands);
                answer(id, &json!({"sessionId": session}));
                agent.update(&session, &commands);
            }
            "session/prompt" | "session/load" => {
                if let Some(cancelled) = lock(&agent.sessions).get(&session) {
                    lock(cancelled).came += 1;
                }
                let rewritten = message["params"]["rewritten"] == 1;
                if rewritten != (method == "session/prompt") {
                    agent.complain(&format!("{method} came with rewritten = {rewritten}"));
                }
                match self.workers.get(&session) {
                    Some(worker) => worker.send((id, message)).unwrap_or_default(),
                    None => agent.complain(&format!("{method} came for the session {session:?}")),
                }
            }
            // Behind the turns that are not over yet.
            "session/close" => match self.workers.remove(&session) {
                Some(worker) => worker.send((id, message)).unwrap_or_default(),
                None => agent.complain(&format!("the session {session:?} was closed")),
            },
            "initialize" => answer(
                id,
                &json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": true}}),
            ),
            "_soak/report" => {
                let asked = lock(&agent.asked);
                answer(
                    id,
                    &json!({"asked": asked.count, "answered": asked.answered, "waiting": asked.waiting.len()}),
                );
            }
            other => agent.complain(&format!("the request {other} came")),
        }
    }
}

impl Agent {
    fn notified(&self, method: &str, params: &Value, session: &str) {
        match method {
            "session/cancel" => {
                if let Some(cancelled) = lock(&self.sessions).get(session) {
                    let mut cancelled = lock(cancelled);
                    cancelled.up_to = cancelled.came;
                }
            }
            "$/cancel_request" => {
                let Some(id) = params["requestId"].as_u64() else {
                    return self.complain(&format!("a request was cancelled with {params}"));
                };
                for cancelled in lock(&self.sessions).values() {
                    lock(cancelled).requests.insert(id);
                }
            }
            other => self.complain(&format!("the notification {other} came")),
        }
    }

    fn answered(&self, message: Value) {
        let mut asked = lock(&self.asked);
        let sender = message["id"].as_u64().and_then(|id| asked.waiting.remove(&id));
        let Some(sender) = sender else {
            drop(asked);
            return self.complain(&format!("an answer to no open request came: {message:.300}"));
        };
        asked.answered += 1;
        // Whoever asked may have lost patience, and has said so.
        let _ = sender.send(message);
    }

    /// Does the turns of one session.
    fn work(&self, session: &str, turns: &Receiver<(u64, Value)>, cancelled: &Mutex<Cancelled>) {
        let mut done = 0;
        while let Ok((id, message)) = turns.recv() {
            if message["method"] == "session/close" {
                lock(&self.sessions).remove(session);
                return answer(id, &json!({}));
            }
            done += 1;
            let script = Script::from_json(&message["params"]["script"]);
            let is_cancelled = || {
                let cancelled = lock(cancelled);
                cancelled.up_to >= done || cancelled.requests.contains(&id)
            };
            let sent = self.turn(session, &script, is_cancelled);
            let reason = if is_cancelled() { "cancelled" } else { "end_turn" };
            let result = json!({"stopReason": reason, "updates": sent});
            answer(id, &result);
            if script.junk {
                // Once more, to nobody's question, and a question that nobody can have asked.
                answer(id, &result);
                answer(u64::MAX, &json!({}));
            }
            lock(cancelled).requests.remove(&id);
        }
    }

    fn turn(&self, session: &str, script: &Script, is_cancelled: impl Fn() -> bool) -> u64 {
        let questions = script.asks + script.reads;
        let mut open = Vec::new();
        let mut sent = 0;
        while !is_cancelled() {
            let number = sent;
            // Questions are spread over the stream, which goes on behind them.
            let asked = open.len() as u64;
            if asked < questions && asked * (script.updates + 1) <= number * questions {
                open.push(self.ask(session, script, asked, number));
                continue;
            }
            if number == script.updates {
                break;
            }
            sent += 1;
            if script.junk && number % 10 == 0 {
                write(b"a banner that is no JSON\n[]\n\xff\xfe\n{\"id\":{}}\n");
            }
            let text = script::text(script.turn, number, script.size);
            let content = json!({"type": "text", "text": text});
            self.update(
                session,
                &json!({"sessionUpdate": "agent_message_chunk", "content": content}),
            );
            if number % 10 == 9 {
                thread::sleep(Duration::from_millis(script.rest));
            }
        }
        for question in open {
            self.check(&question, script);
        }
        sent
    }

    /// Asks the client something.
    fn ask(&self, session: &str, script: &Script, number: u64, after: u64) -> Question {
        let (sender, receiver) = mpsc::channel();
        let mut asked = lock(&self.asked);
        asked.count += 1;
        let id = asked.count;
        asked.waiting.insert(id, sender);
        drop(asked);
        let place = json!({"turn": script.turn, "number": number, "after": after});
        let (method, mut params) = match number < script.asks {
            true => ("session/request_permission", json!({"toolCall": {}, "options": []})),
            false => ("fs/read_text_file", json!({"path": "/x"})),
        };
        params["sessionId"] = session.into();
        params["place"] = place.clone();
        send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        if script.gives_up {
            send(&json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": id}}));
        }
        Question {
            place,
            what: format!("{method} {params}"),
            answer: receiver,
        }
    }

    fn check(&self, question: &Question, script: &Script) {
        let Ok(answer) = question.answer.recv_timeout(PATIENCE) else {
            return self.complain(&format!("{} got no answer", question.what));
        };
        let error = &answer["error"];
        let right = answer["result"]["place"] == question.place
            || error["data"]["proxy"].is_string()
            || (script.gives_up && error["code"] == -32800);
        if !right {
            self.complain(&format!("{} was answered with {answer:.300}", question.what));
        }
    }

    fn update(&self, session: &str, update: &Value) {
        let params = json!({"sessionId": session, "update": update});
        send(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
    }

    /// Tells the client what is wrong.
    fn complain(&self, what: &str) {
        send(&json!({"jsonrpc": "2.0", "method": "_soak/wrong", "params": {"what": what}}));
    }
}

fn answer(id: u64, result: &Value) {
    send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

fn send(message: &Value) {
    write(format!("{message}\n").as_bytes());
}

/// Once the chain has closed the pipe, nobody is left to be told anything.
fn write(line: &[u8]) {
    let mut output = io::stdout().lock();
    let _ = output.write_all(line);
    let _ = output.flush();
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
