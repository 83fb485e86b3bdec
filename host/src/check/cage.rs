//! The chain that a component is tried in. Sleeps end at once, files have canned text, saved state is in memory, and the clock of
//! what a proxy holds is turned on by hand.

use super::script::{self, Part, Say};
use super::tally::{Did, Tally, Timing};
use crate::chain::{Effect, ProxySetup, Role, Router, file_answer};
use crate::fault::{Class, Fault, Phase};
use crate::limits::Limit;
use crate::message::{Denial, Message, OnFailure, Outcome, Peer, Registration, Turn};
use crate::sandbox::{Instance, Loaded};
use crate::saved_state::Request as Saved;
use crate::wire::envelope::{self, Incoming, error_text};
use crate::wire::output::Output;
use crate::wire::text::Text;
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Turns and sleeps in answer to one line; who wants more goes round in circles.
const MAX_STEPS: usize = 20_000;

/// What was found out.
#[derive(Default)]
pub(super) struct Trial {
    pub(super) did: Vec<Did>,
    pub(super) changed: Vec<(Peer, Arc<str>, u64)>,
    pub(super) denials: Vec<(Denial, u64)>,
    pub(super) faults: Vec<(&'static str, Fault)>,
    pub(super) unanswered: Vec<(&'static str, u64)>,
    pub(super) timings: Vec<(String, Timing)>,
    pub(super) memory: u64,
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
    /// Operations that sleep, by when they would end.
    sleeps: VecDeque<(Duration, usize, u64)>,
    state: HashMap<String, String>,
    /// Prompts that the agent answers when it is told to stop.
    waiting: Vec<Value>,
    /// The ids of requests of either side that have no answer.
    open: [HashSet<String>; 2],
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
    pub(super) fn new(
        loaded: Arc<Loaded>,
        configuration: Text,
        instance: Instance,
        registration: Registration,
    ) -> Self {
        let tally = Arc::new(Tally::default());
        let setup = ProxySetup {
            name: loaded.name.clone(),
            log: loaded.log().clone(),
            registration,
            on_failure: OnFailure::Bypass,
            hold_time: loaded.limits.time(Limit::HoldTime),
            state: loaded.limits.get(Limit::State),
            servers: (!loaded.policy.hears_all_servers()).then(|| loaded.record.servers.clone()),
        };
        Self {
            router: Router::new(Role::Agent, vec![setup], Some(tally.clone())),
            loaded,
            configuration,
            instance: Some(instance),
            tally,
            trial: Trial::default(),
            timings: BTreeMap::new(),
            part: "",
            sleeps: VecDeque::new(),
            state: HashMap::new(),
            waiting: Vec::new(),
            open: Default::default(),
            ahead: Duration::ZERO,
            lines: VecDeque::new(),
        }
    }

    /// Plays a part of the script to its end.
    pub(super) async fn play(&mut self, part: &Part) {
        self.part = part.name;
        for say in (part.lines)() {
            let (side, text) = match say {
                Say::Client(text) => (Side::Client, text),
                Say::Agent(text) => (Side::Agent, text),
            };
            self.line(side, Bytes::from(text));
            self.settle().await;
        }
        // What is held is given up after a while, as it would be in real life.
        let hold = self.loaded.limits.time(Limit::HoldTime);
        for _ in 0..8 {
            if self.open.iter().all(HashSet::is_empty) {
                break;
            }
            self.ahead += hold;
            self.router.timer(Instant::now() + self.ahead);
            self.settle().await;
        }
        let left: usize = self.open.iter().map(HashSet::len).sum();
        if left > 0 {
            self.trial.unanswered.push((self.part, left as u64));
            self.open.iter_mut().for_each(HashSet::clear);
        }
    }

    fn line(&mut self, side: Side, line: Bytes) {
        let message = envelope::parse(&line);
        if let Ok(Incoming::Request { id, .. }) = &message {
            self.open[side as usize].insert(id.as_json().to_owned());
        }
        match (side, message) {
            (Side::Client, Ok(message)) => self.router.from_client(message),
            (Side::Agent, Ok(message)) => self.router.from_agent(message),
            (Side::Client, Err(malformed)) => self.router.client_malformed(&malformed, &[]),
            (Side::Agent, Err(malformed)) => self.router.agent_malformed(&malformed, &[]),
        }
    }

    /// Goes on until nothing is left to do.
    async fn settle(&mut self) {
        for _ in 0..MAX_STEPS {
            while let Some(effect) = self.router.next_effect() {
                self.effect(effect).await;
            }
            if let Some((index, turn)) = self.router.next_turn() {
                self.turn(index, turn).await;
            } else if self.read_lines() {
                while let Some((side, line)) = self.lines.pop_front() {
                    self.line(side, line);
                }
            } else if let Some((_, proxy, operation)) = self.sleeps.pop_front() {
                self.router.host_answer(proxy, operation, Ok(Text::of(&json!({}))));
            } else {
                return;
            }
        }
        let cause = "it goes on and on in answer to one message";
        self.failed(Fault::new(Class::Flood, Phase::Receive, cause));
        self.sleeps.clear();
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
        let begun = Instant::now();
        let result = instance.turn(turn).await;
        self.timings.entry(method).or_default().add(begun.elapsed());
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
        if !self.trial.faults.iter().any(same) {
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

    async fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::StartAgent => self.router.agent_started(Ok(())),
            Effect::Sleep {
                operation,
                proxy,
                duration,
            } => {
                let at = self.sleeps.partition_point(|(other, _, _)| *other <= duration);
                self.sleeps.insert(at, (duration, proxy, operation));
            }
            Effect::Forget { operation } => self.sleeps.retain(|(_, _, other)| *other != operation),
            Effect::ReadFile {
                operation, proxy, path, ..
            } => {
                let text = format!("What {path} says in the cage.\n");
                let outcome = file_answer(Ok((text.into_bytes(), false)));
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
            Effect::Restart { proxy, .. } => {
                let started = Instance::start(&self.loaded, self.configuration.clone()).await;
                let result = match started {
                    Ok((instance, registration)) => {
                        self.instance = Some(instance);
                        Ok(registration)
                    }
                    Err(fault) => {
                        self.failed(fault.clone());
                        // It is not tried for ever.
                        return;
                    }
                };
                self.router.proxy_restarted(proxy, result);
            }
            // Turns are over at once here, and time is turned on by hand.
            Effect::Abort { .. } | Effect::Timer(_) | Effect::InitializeSent => {}
        }
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
            let replies = match side {
                Side::Client => script::client_replies(method, &value),
                Side::Agent if script::waits(method, &value) => {
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
    let mut bytes = Vec::new();
    while output.waiting() > 0 {
        let mut slices = [IoSlice::new(&[]); 16];
        let count = output.slices(&mut slices);
        let before = bytes.len();
        for slice in &slices[..count] {
            bytes.extend_from_slice(slice);
        }
        output.written(bytes.len() - before);
    }
    bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap_or_else(|_| outline(line)))
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
