//! The chain that a component is tried in. Sleeps end at once, files have canned text, saved state is in memory, and the clock of
//! what a proxy holds is turned on by hand. Only the time that a turn takes is real, and that of the whole.

use super::script::{self, Part, Say};
use super::tally::{Did, Tally, Timing};
use crate::chain::{Effect, Role, Router, file_answer};
use crate::connection::{Started, contained, setup};
use crate::fault::{Class, Fault, Phase};
use crate::limits::Limit;
use crate::message::{Denial, Message, Outcome, Peer, Turn};
use crate::sandbox::{Instance, Loaded};
use crate::saved_state::Request as Saved;
use crate::units;
use crate::wire::envelope::{self, Incoming, error_text};
use crate::wire::output::Output;
use crate::wire::skim::Skim;
use crate::wire::text::Text;
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Messages that may wait for each other while the proxy does nothing about them.
const MAX_HOLDS: usize = 5_000;

/// Turns and sleeps in answer to one line; who wants more goes round in circles.
const MAX_STEPS: usize = 20_000;

/// Faults that are told apart.
const MAX_FAULTS: usize = 100;

/// A proxy that would be started again only after this long rests for the part of the script at hand.
const REST: Duration = Duration::from_secs(10);

/// Lines that wait to be read; with more the ends answer only what they must.
const MAX_LINES: usize = 10_000;

/// Prompts that wait until the agent is told to stop.
const MAX_WAITING: usize = 1_000;

/// Bytes of a line that the ends look into.
const MAX_READ: usize = 1024 * 1024;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// A turn.
    pub(super) turn: Duration,
    /// When the whole must be over.
    pub(super) end: Instant,
}

/// What happens when nothing else is left to do.
enum Due {
    Sleep { proxy: usize, operation: u64 },
    Restart { proxy: usize },
}

/// What was found out.
#[derive(Default)]
pub struct Trial {
    /// What it did, in no order.
    pub did: Vec<Did>,
    /// How many messages it changed, by where they came from and their method.
    pub changed: Vec<(Peer, Arc<str>, u64)>,
    /// What it was denied, each once, with how often.
    pub denials: Vec<(Denial, u64)>,
    /// Its faults, each with the part of the script in which it came.
    pub faults: Vec<(&'static str, Fault)>,
    /// Requests that it did nothing about, by the part of the script.
    pub unanswered: Vec<(&'static str, u64)>,
    /// The parts of the script that were not played to their end when the time for it was over.
    pub not_played: Vec<&'static str>,
    /// How long its turns took, by method.
    pub timings: Vec<(String, Timing)>,
    /// The most memory in bytes that an instance had.
    pub memory: u64,
}

pub(super) struct Cage {
    router: Router,
    loaded: Arc<Loaded>,
    configuration: Text,
    instance: Option<Instance>,
    tally: Arc<Tally>,
    trial: Trial,
    timings: BTreeMap<String, Timing>,
    part: &'static str,
    /// What waits, by how long it would.
    due: VecDeque<(Duration, Due)>,
    times: Times,
    state: HashMap<String, String>,
    /// Prompts that the agent answers when it is told to stop.
    waiting: Vec<Value>,
    /// The ids of requests of either side that have no answer.
    open: [HashSet<String>; 2],
    /// Messages that were taken from the proxy, as far as that was told.
    holds_ended: u64,
    /// How far the clock was turned on.
    ahead: Duration,
    lines: VecDeque<(Side, Bytes)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Agent,
}

impl Cage {
    pub(super) fn new(started: Started, times: Times) -> Self {
        let Started {
            loaded,
            configuration,
            instance,
            registration,
            on_failure,
        } = started;
        let tally = Arc::new(Tally::default());
        let setup = setup(&loaded, registration, on_failure);
        Self {
            router: Router::new(Role::Agent, vec![setup], Some(tally.clone())),
            loaded,
            configuration,
            instance: Some(instance.hurry(times.turn)),
            tally,
            trial: Trial::default(),
            timings: BTreeMap::new(),
            part: "",
            due: VecDeque::new(),
            times,
            state: HashMap::new(),
            waiting: Vec::new(),
            open: Default::default(),
            holds_ended: 0,
            ahead: Duration::ZERO,
            lines: VecDeque::new(),
        }
    }

    /// Plays a part of the script to its end.
    pub(super) async fn play(&mut self, part: &Part) {
        self.part = part.name;
        for (_, due) in std::mem::take(&mut self.due) {
            if let Due::Restart { proxy } = due {
                self.restart(proxy).await;
            }
        }
        for say in (part.lines)() {
            if self.is_over() {
                return;
            }
            let (side, text) = match say {
                Say::Client(text) => (Side::Client, text),
                Say::Agent(text) => (Side::Agent, text),
            };
            self.line(side, Bytes::from(text));
            self.settle().await;
        }
        // What is held is given up after a while, as it would be in real life.
        let hold = self.loaded.limits.time(Limit::HoldTime);
        // One by one, if they wait for each other.
        for _ in 0..MAX_HOLDS {
            if self.open.iter().all(HashSet::is_empty) {
                break;
            }
            self.ahead += hold;
            self.router.timer(Instant::now() + self.ahead);
            self.settle().await;
        }
        let held = self.router.holds_ended() - self.holds_ended;
        if held > 0 {
            self.holds_ended += held;
            let cause = format!(
                "it did nothing about {held} messages, which were taken from it after {}",
                units::time(hold)
            );
            self.failed(Fault::new(Class::Timeout, Phase::Receive, cause));
        }
        if self.is_over() {
            return;
        }
        let left: usize = self.open.iter().map(HashSet::len).sum();
        if left > 0 {
            self.trial.unanswered.push((self.part, left as u64));
            self.open.iter_mut().for_each(HashSet::clear);
        }
    }

    /// Whether the rest of the part at hand is not played.
    fn is_over(&mut self) -> bool {
        let over = Instant::now() >= self.times.end;
        if over && self.trial.not_played.last() != Some(&self.part) {
            self.trial.not_played.push(self.part);
        }
        over
    }

    fn line(&mut self, side: Side, line: Bytes) {
        let message = envelope::parse(&line);
        if let Ok(Incoming::Request { id, .. }) = &message {
            self.open[side as usize].insert(id.as_json().to_owned());
        }
        match (side, message) {
            (Side::Client, Ok(message)) => self.router.from_client(message),
            (Side::Agent, Ok(message)) => self.router.from_agent(message),
            (Side::Client, Err(malformed)) => self.router.client_malformed(&malformed, &Skim::all_of(&line)),
            (Side::Agent, Err(malformed)) => self.router.agent_malformed(&malformed, &Skim::all_of(&line)),
        }
    }

    /// Goes on until nothing is left to do.
    async fn settle(&mut self) {
        for _ in 0..MAX_STEPS {
            if self.is_over() {
                return;
            }
            while let Some(effect) = self.router.next_effect() {
                self.effect(effect);
            }
            if let Some((index, turn)) = self.router.next_turn() {
                self.turn(index, turn).await;
            } else if self.read_lines() {
                while let Some((side, line)) = self.lines.pop_front() {
                    self.line(side, line);
                }
            } else if let Some(due) = self.next_due() {
                match due {
                    Due::Sleep { proxy, operation } => {
                        self.router.host_answer(proxy, operation, Ok(Text::of(&json!({}))));
                    }
                    Due::Restart { proxy } => self.restart(proxy).await,
                }
            } else {
                return;
            }
        }
        let cause = "it goes on and on in answer to one message";
        self.failed(Fault::new(Class::Flood, Phase::Receive, cause));
        self.due.retain(|(_, due)| matches!(due, Due::Restart { .. }));
    }

    fn next_due(&mut self) -> Option<Due> {
        let rests = |(after, due): &(Duration, Due)| matches!(due, Due::Restart { .. }) && *after >= REST;
        let next = self.due.iter().position(|due| !rests(due))?;
        self.due.remove(next).map(|(_, due)| due)
    }

    async fn restart(&mut self, proxy: usize) {
        let start = Instance::start(&self.loaded, self.configuration.clone());
        match contained(Phase::Start, start).await {
            Ok((instance, registration)) => {
                self.instance = Some(instance.hurry(self.times.turn));
                self.router.proxy_restarted(proxy, Ok(registration));
            }
            // It is not tried for ever.
            Err(fault) => self.failed(fault),
        }
    }

    async fn turn(&mut self, index: usize, turn: Turn) {
        let Some(instance) = self.instance.take() else {
            let fault = Fault::new(
                Class::Host,
                Phase::Receive,
                "it has no instance; this is a fault of Consort",
            );
            return self.router.finish_turn(index, Err(fault));
        };
        let method = match &turn.message {
            Message::Request(request) => request.method.to_string(),
            Message::Notification(notification) => notification.method.to_string(),
            Message::Response(_) => "answers".to_owned(),
        };
        let before = instance.memory();
        let begun = Instant::now();
        // One that computes is ended by its own clock, one that waits by this one.
        let left = self.times.end.saturating_duration_since(begun);
        let turn = contained(Phase::Receive, instance.hurry(left).turn(turn));
        let Ok(result) = tokio::time::timeout_at(self.times.end.into(), turn).await else {
            let fault = Fault::new(Class::Timeout, Phase::Receive, "the time for the trial was over");
            return self.router.finish_turn(index, Err(fault));
        };
        let time = begun.elapsed();
        let after = result.as_ref().map_or(before, |(instance, _)| instance.memory());
        let timing = self.timings.entry(method).or_default();
        timing.add(time, after.saturating_sub(before));
        let result = match result {
            Ok((instance, result)) => {
                self.trial.memory = self.trial.memory.max(instance.memory());
                self.instance = Some(instance);
                Ok(result)
            }
            Err(fault) => {
                self.failed(fault.clone());
                Err(fault)
            }
        };
        self.news();
        self.router.finish_turn(index, result);
    }

    fn failed(&mut self, fault: Fault) {
        let same = |(part, known): &(&str, Fault)| *part == self.part && known.cause == fault.cause;
        if self.trial.faults.len() < MAX_FAULTS && !self.trial.faults.iter().any(same) {
            self.trial.faults.push((self.part, fault));
        }
    }

    fn news(&mut self) {
        let Some(news) = self.loaded.record.news() else { return };
        for (denial, times) in news.denials {
            let same = |(known, _): &&mut (Denial, u64)| known.peer == denial.peer && known.method == denial.method;
            match self.trial.denials.iter_mut().find(same) {
                Some((_, count)) => *count += times,
                None => self.trial.denials.push((denial, times)),
            }
        }
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::StartAgent => self.router.agent_started(Ok(())),
            Effect::Sleep {
                operation,
                proxy,
                duration,
            } => self.later(duration, Due::Sleep { proxy, operation }),
            Effect::Forget { operation } => self.due.retain(|(_, due)| match due {
                Due::Sleep { operation: other, .. } => *other != operation,
                Due::Restart { .. } => true,
            }),
            Effect::ReadFile {
                operation, proxy, path, ..
            } => {
                let text = format!("What {path} says in the cage.\n");
                let outcome = file_answer(Ok((text.into_bytes(), false)));
                self.router.host_answer(proxy, operation, outcome);
            }
            Effect::ListFiles {
                operation,
                proxy,
                request,
                ..
            } => {
                let parts = [request.path.as_str(), "notes.md"];
                let path = parts.map(|part| part.trim_matches('/')).join("/");
                let entry = json!({"path": path.trim_start_matches('/'), "type": "file", "size": 5});
                let outcome = Ok(Text::of(&json!({"entries": [entry], "truncated": false})));
                self.router.host_answer(proxy, operation, outcome);
            }
            Effect::SavedState {
                operation,
                proxy,
                request,
            } => {
                let outcome = self.saved(request);
                self.router.host_answer(proxy, operation, outcome);
            }
            Effect::Restart { proxy, after } => self.later(after, Due::Restart { proxy }),
            // Turns are over at once here, and time is turned on by hand.
            Effect::Abort { .. } | Effect::Timer(_) | Effect::InitializeSent => {}
        }
    }

    fn later(&mut self, after: Duration, due: Due) {
        let at = self.due.partition_point(|(other, _)| *other <= after);
        self.due.insert(at, (after, due));
    }

    fn saved(&mut self, request: Saved) -> Outcome {
        let most = self.loaded.limits.count(Limit::State);
        match request {
            Saved::Get { key } => Ok(match self.state.get(&key) {
                Some(value) => Text::trusted(format!("{{\"value\":{value}}}")),
                None => Text::of(&json!({})),
            }),
            Saved::Set { key, value } => {
                let used: usize = self.state.iter().map(|(key, value)| key.len() + value.len()).sum();
                if used + key.len() + value.len() > most {
                    return Err(error_text(-32010, "more than its limit for saved state", None));
                }
                self.state.insert(key, value);
                Ok(Text::of(&json!({})))
            }
            Saved::Delete { key } => {
                self.state.remove(&key);
                Ok(Text::of(&json!({})))
            }
            Saved::Keys => Ok(Text::of(&json!({ "keys": self.state.keys().collect::<Vec<_>>() }))),
        }
    }

    /// What the two ends have got: they answer requests.
    fn read_lines(&mut self) -> bool {
        for (side, value) in [
            (Side::Client, take(self.router.client_output())),
            (Side::Agent, take(self.router.agent_output())),
        ]
        .into_iter()
        .flat_map(|(side, values)| values.into_iter().map(move |value| (side, value)))
        {
            let Some(method) = value["method"].as_str() else {
                self.open[side as usize].remove(&value["id"].to_string());
                continue;
            };
            let mut replies: Vec<Value> = match side {
                Side::Client => script::client_replies(method, &value),
                Side::Agent if script::waits(method, &value) && self.waiting.len() < MAX_WAITING => {
                    self.waiting.push(value);
                    continue;
                }
                Side::Agent if script::ends_waiting(method) => {
                    let waiting = std::mem::take(&mut self.waiting);
                    let cancelled = waiting.iter().map(script::cancelled_reply);
                    cancelled.chain(script::agent_replies(method, &value)).collect()
                }
                Side::Agent => script::agent_replies(method, &value),
            };
            if self.lines.len() > MAX_LINES {
                // The last one is the answer.
                replies.drain(..replies.len().saturating_sub(1));
            }
            for reply in replies {
                self.lines.push_back((side, Bytes::from(reply.to_string())));
            }
        }
        !self.lines.is_empty()
    }

    /// What was found out in all parts.
    pub(super) fn end(mut self) -> Trial {
        self.news();
        self.trial.did = self.tally.take();
        self.trial.changed = self.loaded.record.take_changed();
        self.trial.timings = self.timings.into_iter().collect();
        self.trial
    }
}

/// Takes the lines that wait for one end.
fn take(output: &mut Output) -> Vec<Value> {
    output
        .take()
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| match line.len() {
            0..=MAX_READ => serde_json::from_slice(line).unwrap_or_else(|_| outline(line)),
            // Decoded it would take far more memory.
            _ => outline(line),
        })
        .collect()
}

/// What can be said of a line with text in it that has no meaning, such as half a character.
fn outline(line: &[u8]) -> Value {
    let raw = |id: &envelope::Id| serde_json::from_str(id.as_json()).unwrap_or(Value::Null);
    match envelope::parse(&Bytes::copy_from_slice(line)) {
        Ok(Incoming::Request { id, method, .. }) => json!({"id": raw(&id), "method": &*method, "params": {}}),
        Ok(Incoming::Notification { method, .. }) => json!({"method": &*method, "params": {}}),
        Ok(Incoming::Response { id, .. }) => json!({"id": raw(&id)}),
        Err(_) => Value::Null,
    }
}
