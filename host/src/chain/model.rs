//! Random interleavings of everything that can happen on random chains, against what must hold whatever happens: every
//! request gets one answer, nothing is lost or doubled, nothing of a session overtakes anything, nothing is left over.

use super::bench::{Bench, answer, everything, incoming, notify, ok, registered, request};
use super::{Effect, Router};
use crate::fault::{Class, Fault, Phase};
use crate::message::{How, Interest, Message, Peer, Receipt, Sent, Ticket, Turn, TurnResult};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};

/// What a proxy does with its messages.
#[derive(Clone, Copy, Debug)]
enum Manner {
    Pass,
    OwnId,
    Late,
    /// Keeps every third notification until a sleep is over, and says something of its own in every turn.
    Third,
    Observe,
    Idle,
}

/// Where random decisions come from; zero when used up.
struct Dice<'a>(std::slice::Iter<'a, u32>);

impl Dice<'_> {
    fn roll(&mut self, sides: usize) -> usize {
        self.0.next().map_or(0, |number| *number as usize % sides)
    }
}

/// A proxy's own memory, gone when it traps.
#[derive(Default)]
struct Memory {
    next: u64,
    /// Own requests at a peer: the ticket and side to answer.
    own: HashMap<u64, (Peer, Ticket)>,
    /// Sleeps: the message to pass on afterwards.
    asleep: HashMap<u64, Turn>,
    /// Requests that it has passed on without an id, until it hears that they have ended.
    passed: HashSet<Ticket>,
    turns: u64,
}

/// What came of turns, by ticket.
type Results = HashMap<Ticket, Result<TurnResult, Fault>>;

struct World {
    bench: Bench,
    manners: Vec<Manner>,
    memories: Vec<Memory>,
    /// What came of turns that were taken ahead.
    ahead: Vec<Results>,
    sleeps: Vec<(usize, u64)>,
    restarts: Vec<usize>,
    next: u64,
    /// Requests of the client and of the agent: how many answers came.
    answers: [BTreeMap<u64, u32>; 2],
    /// Requests that wait at the agent and at the client: wire id, session.
    waiting: [Vec<(Value, Value)>; 2],
    /// What was sent and what arrived, by direction and session.
    sent: [HashMap<String, Vec<u64>>; 2],
    /// What each proxy was given of what came from the agent, by session.
    given: HashMap<(usize, String), Vec<u64>>,
    arrived: [HashMap<String, Vec<u64>>; 2],
}

const SESSIONS: [&str; 3] = ["a", "b", "c"];

impl World {
    fn new(manners: Vec<Manner>) -> Self {
        let interests = |manner: &Manner| match manner {
            Manner::Observe => [Peer::Client, Peer::Agent]
                .map(|source| Interest {
                    source,
                    method: "*".into(),
                    how: How::Observe,
                })
                .to_vec(),
            Manner::Idle => Vec::new(),
            _ => everything(),
        };
        Self {
            bench: Bench::new(manners.iter().map(interests).collect()),
            memories: manners.iter().map(|_| Memory::default()).collect(),
            ahead: manners.iter().map(|_| Results::default()).collect(),
            manners,
            sleeps: Vec::new(),
            restarts: Vec::new(),
            next: 100,
            answers: Default::default(),
            waiting: Default::default(),
            sent: Default::default(),
            given: HashMap::new(),
            arrived: Default::default(),
        }
    }

    fn router(&mut self) -> &mut Router {
        &mut self.bench.router
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A peer's message: side 0 is the client, side 1 the agent.
    fn say(&mut self, side: usize, value: &Value) {
        match side {
            0 => self.router().from_client(incoming(value)),
            _ => self.router().from_agent(incoming(value)),
        }
        self.look();
    }

    /// Reads what arrived at both ends.
    fn look(&mut self) {
        let lines = [self.bench.at_client(), self.bench.at_agent()];
        for (side, lines) in lines.into_iter().enumerate() {
            for line in lines {
                let params = &line["params"];
                if line.get("method").is_none() {
                    let id = line["id"].as_u64().expect("the peers use numbers");
                    *self.answers[side].get_mut(&id).expect("an answer to a known request") += 1;
                    if let Some(tag) = line["result"]["tag"].as_u64() {
                        let session = line["result"]["session"].as_str().unwrap_or_default();
                        self.arrive(1 - side, session, tag);
                    }
                } else if line.get("id").is_some() {
                    self.waiting[1 - side].push((line["id"].clone(), params["sessionId"].clone()));
                    self.arrive(
                        1 - side,
                        params["sessionId"].as_str().unwrap_or_default(),
                        params["n"].as_u64().expect("numbered"),
                    );
                } else if line["method"] == "note" {
                    self.arrive(
                        1 - side,
                        params["sessionId"].as_str().unwrap_or_default(),
                        params["n"].as_u64().expect("numbered"),
                    );
                }
            }
        }
    }

    fn arrive(&mut self, from: usize, session: &str, number: u64) {
        self.arrived[from].entry(session.into()).or_default().push(number);
    }

    fn note(&mut self, side: usize, session: &str) {
        let number = self.number();
        self.sent[side].entry(session.into()).or_default().push(number);
        self.say(
            side,
            &json!({"method": "note", "params": {"sessionId": session, "n": number}}),
        );
    }

    fn ask(&mut self, side: usize, session: &str) {
        let number = self.number();
        self.sent[side].entry(session.into()).or_default().push(number);
        self.answers[side].insert(number, 0);
        self.say(
            side,
            &json!({"id": number, "method": "ask", "params": {"sessionId": session, "n": number}}),
        );
    }

    fn cancel(&mut self, side: usize, dice: &mut Dice) {
        let open: Vec<u64> = self.answers[side]
            .iter()
            .filter(|(_, count)| **count == 0)
            .map(|(id, _)| *id)
            .collect();
        if !open.is_empty() {
            let id = open[dice.roll(open.len())];
            self.say(
                side,
                &json!({"method": "$/cancel_request", "params": {"requestId": id}}),
            );
        }
    }

    /// A peer answers a request that waits at it. Answers carry a number, so that their order is seen too.
    fn reply(&mut self, side: usize, dice: &mut Dice) {
        let waiting = &mut self.waiting[1 - side];
        if waiting.is_empty() {
            return;
        }
        let (id, session) = waiting.remove(dice.roll(waiting.len()));
        let number = self.number();
        self.say(side, &json!({"id": id, "result": {"tag": number, "session": session}}));
    }

    /// One turn of some proxy; says whether there was one.
    fn turn(&mut self, dice: &mut Dice, may_trap: bool) -> bool {
        let Some((index, mut turn)) = self.router().next_turn() else {
            return false;
        };
        let result = match self.ahead[index].remove(&turn.ticket) {
            Some(result) => {
                self.router().tell_later(index, std::mem::take(&mut turn.closed));
                result
            }
            None => self.take(index, &turn, dice, may_trap),
        };
        self.router().finish_turn(index, result);
        self.effects();
        self.look();
        true
    }

    /// Takes a turn, and perhaps some of those after it.
    fn take(&mut self, index: usize, turn: &Turn, dice: &mut Dice, may_trap: bool) -> Result<TurnResult, Fault> {
        let (router, ahead) = (&self.bench.router, &mut self.ahead[index]);
        ahead.retain(|ticket, _| router.may_come(index, *ticket));
        // It has failed already, in a turn that has not come yet.
        if let Some(fault) = ahead.values().find_map(|result| result.clone().err()) {
            return Err(fault);
        }
        let row = match ahead.is_empty() && dice.roll(3) > 0 {
            true => self.router().turns_ahead(index, turn, 1..=dice.roll(5), 1 << 20),
            false => Vec::new(),
        };
        let first = self.one(index, turn, dice, may_trap);
        let mut goes_on = first.as_ref().is_ok_and(|result| result.receipt == Receipt::Done);
        for next in row {
            if !goes_on {
                break;
            }
            let result = self.one(index, &next, dice, may_trap);
            goes_on = result.as_ref().is_ok_and(|result| result.receipt == Receipt::Done);
            self.ahead[index].insert(next.ticket, result);
        }
        let ahead = &self.ahead[index];
        self.bench.router.row_over(index, |ticket| ahead.contains_key(&ticket));
        first
    }

    fn one(&mut self, index: usize, turn: &Turn, dice: &mut Dice, may_trap: bool) -> Result<TurnResult, Fault> {
        if may_trap && dice.roll(12) == 11 {
            self.memories[index] = Memory::default();
            return Err(Fault::new(Class::Trap, Phase::Receive, "unreachable"));
        }
        Ok(self.behave(index, turn))
    }

    /// Notes what a proxy is given, unless it is one that holds messages up and so gets its own answers early.
    fn note_given(&mut self, index: usize, turn: &Turn) {
        let text = match &turn.message {
            Message::Request(request) => request.params.as_ref(),
            Message::Notification(notification) => notification.params.as_ref(),
            Message::Response(response) => response.outcome.as_ref().ok(),
        };
        let Some(value) = text.and_then(|text| text.decode::<Value>()) else {
            return;
        };
        let number = value["n"].as_u64().or(value["tag"].as_u64());
        let session = value["sessionId"].as_str().or(value["session"].as_str());
        if let (Peer::Agent, false, Some(number), Some(session)) = (turn.source, turn.copy, number, session) {
            self.given.entry((index, session.to_owned())).or_default().push(number);
        }
    }

    fn behave(&mut self, index: usize, turn: &Turn) -> TurnResult {
        let manner = self.manners[index];
        if !matches!(manner, Manner::Late | Manner::Third) {
            self.note_given(index, turn);
        }
        let number = self.number();
        let memory = &mut self.memories[index];
        memory.turns += 1;
        let mut receipt = Receipt::Done;
        let mut sent = Vec::new();
        let onward = if turn.source == Peer::Client {
            Peer::Agent
        } else {
            Peer::Client
        };
        for closed in &turn.closed {
            memory.asleep.retain(|_, turn| turn.ticket != *closed);
            memory.passed.remove(closed);
        }
        match &turn.message {
            _ if turn.copy => {
                if let Message::Notification(news) = &turn.message
                    && &*news.method == "$/cancel_request"
                {
                    let ticket = news.params.as_ref().and_then(|params| params.decode::<Value>());
                    let ticket = ticket
                        .and_then(|params| params["requestId"].as_u64())
                        .unwrap_or_default();
                    let side = memory
                        .own
                        .values()
                        .find(|(_, own)| *own == ticket)
                        .map(|(side, _)| *side);
                    let late = memory
                        .asleep
                        .values()
                        .find(|turn| turn.ticket == ticket)
                        .map(|turn| turn.source);
                    memory.own.retain(|_, (_, own)| *own != ticket);
                    memory.asleep.retain(|_, turn| turn.ticket != ticket);
                    if let Some(side) = side.or(late) {
                        let error = crate::wire::envelope::error_text(-32800, "cancelled", None);
                        sent.push(answer(side, ticket, Err(error)));
                    }
                }
            }
            Message::Response(response) => {
                if let Some((side, ticket)) = memory.own.remove(&response.id) {
                    sent.push(answer(side, ticket, response.outcome.clone()));
                } else if let Some(slept) = memory.asleep.remove(&response.id) {
                    sent = super::bench::pass(&slept);
                }
            }
            Message::Request(asked) => match manner {
                Manner::OwnId => {
                    memory.next += 1;
                    memory.own.insert(memory.next, (turn.source, turn.ticket));
                    let params = asked
                        .params
                        .as_ref()
                        .and_then(|params| params.decode())
                        .unwrap_or(Value::Null);
                    sent.push(request(
                        onward,
                        Some(memory.next),
                        Some(turn.ticket),
                        &asked.method,
                        params,
                    ));
                }
                Manner::Late if !turn.replay => sent.push(sleep(memory, turn)),
                _ => {
                    sent = super::bench::pass(turn);
                    memory.passed.insert(turn.ticket);
                }
            },
            Message::Notification(noted) => match manner {
                Manner::OwnId => {
                    let params = noted
                        .params
                        .as_ref()
                        .and_then(|params| params.decode())
                        .unwrap_or(Value::Null);
                    sent.push(notify(onward, Some(turn.ticket), &noted.method, params));
                }
                Manner::Third if !memory.turns.is_multiple_of(3) => sent = super::bench::pass(turn),
                Manner::Late | Manner::Third => {
                    receipt = Receipt::Kept;
                    sent.push(sleep(memory, turn));
                }
                _ => sent = super::bench::pass(turn),
            },
        }
        if matches!(manner, Manner::Third) && !turn.replay {
            let own = json!({"sessionId": format!("of proxy {index}"), "n": number});
            sent.push(notify(Peer::Client, None, "note", own));
        }
        TurnResult { receipt, sent }
    }

    fn effects(&mut self) {
        while let Some(effect) = self.router().next_effect() {
            match effect {
                Effect::Sleep { operation, proxy, .. } => self.sleeps.push((proxy, operation)),
                Effect::Restart { proxy, .. } => {
                    self.ahead[proxy].clear();
                    self.restarts.push(proxy);
                }
                _ => {}
            }
        }
    }

    fn wake(&mut self, dice: &mut Dice) -> bool {
        if self.sleeps.is_empty() {
            return false;
        }
        let at = dice.roll(self.sleeps.len());
        let (proxy, operation) = self.sleeps.remove(at);
        self.router().host_answer(proxy, operation, ok(json!({})));
        self.look();
        true
    }

    fn restart(&mut self) -> bool {
        let Some(proxy) = self.restarts.pop() else {
            return false;
        };
        self.router().proxy_restarted(proxy, Ok(registered(everything())));
        self.effects();
        self.look();
        true
    }

    fn step(&mut self, dice: &mut Dice) {
        let session = SESSIONS[dice.roll(3)];
        match dice.roll(12) {
            0 => self.ask(0, session),
            1 => self.ask(1, session),
            2 => self.note(0, session),
            3 | 4 => self.note(1, session),
            5 => self.reply(1, dice),
            6 => self.reply(0, dice),
            7 => self.cancel(dice.roll(2), dice),
            8 => drop(self.wake(dice)),
            9 => drop(self.restart()),
            _ => drop(self.turn(dice, true)),
        }
    }

    /// Lets everything come to its end.
    fn drain(&mut self) {
        let mut dice = Dice([].iter());
        loop {
            let before = self.waiting.iter().map(Vec::len).sum::<usize>();
            self.reply(1, &mut dice);
            self.reply(0, &mut dice);
            let moved = self.turn(&mut dice, false) | self.wake(&mut dice) | self.restart();
            if !moved && before == 0 {
                return;
            }
        }
    }
}

fn sleep(memory: &mut Memory, turn: &Turn) -> Sent {
    memory.next += 1;
    memory.asleep.insert(memory.next, turn.clone());
    request(
        Peer::Host,
        Some(memory.next),
        None,
        "host/sleep",
        json!({"milliseconds": 1}),
    )
}

/// Whether one is what is left of the other when some are taken out.
fn is_subsequence(part: &[u64], whole: &[u64]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|number| whole.any(|other| other == number))
}

/// Few enough for every run of the tests; `PROPTEST_CASES` asks for more.
fn cases() -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(400),
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn whatever_happens(
        manners in prop::collection::vec(prop::sample::select(vec![Manner::Pass, Manner::OwnId, Manner::Late, Manner::Third, Manner::Observe, Manner::Idle]), 0..4),
        rolls in prop::collection::vec(any::<u32>(), 0..400),
    ) {
        let mut world = World::new(manners);
        let mut dice = Dice(rolls.iter());
        while dice.0.len() > 0 {
            world.step(&mut dice);
        }
        world.drain();
        for side in 0..2 {
            for (id, count) in &world.answers[side] {
                prop_assert_eq!(*count, 1, "request {} of side {}", id, side);
            }
            for (session, sent) in &world.sent[side] {
                let arrived = world.arrived[side].get(session).cloned().unwrap_or_default();
                let notes: Vec<u64> = arrived.iter().filter(|number| sent.contains(number)).copied().collect();
                // A request that was cancelled early, or that a trap ended, need not arrive; notifications must.
                prop_assert!(is_subsequence(&notes, sent), "side {} session {}: {:?} sent as {:?}", side, session, notes, sent);
                for number in sent {
                    if !world.answers[side].contains_key(number) {
                        prop_assert!(notes.contains(number), "note {} of side {} was lost", number, side);
                    }
                }
            }
        }
        // Answers keep their place among notifications too; towards the agent they may pass what a proxy keeps for later.
        let keeps = world.manners.iter().any(|manner| matches!(manner, Manner::Late | Manner::Third));
        for (side, arrived) in world.arrived.iter().enumerate().filter(|(side, _)| *side == 1 || !keeps) {
            for (session, arrived) in arrived {
                let mut sorted = arrived.clone();
                sorted.sort_unstable();
                prop_assert_eq!(arrived, &sorted, "session {} to side {}", session, 1 - side);
            }
        }
        for ((index, session), given) in &world.given {
            let mut sorted = given.clone();
            sorted.sort_unstable();
            prop_assert_eq!(given, &sorted, "session {} at proxy {}", session, index);
        }
        let router = &world.bench.router;
        prop_assert!(router.calls.is_empty(), "calls are left: {:?}", router.calls);
        for (proxy, memory) in router.proxies.iter().zip(&world.memories) {
            for ticket in &memory.passed {
                prop_assert!(proxy.closed.contains(ticket), "nobody tells that {} has ended", ticket);
            }
            prop_assert!(proxy.row.is_empty(), "a row is left: {:?}", proxy.row);
            prop_assert_eq!(proxy.bytes_of_others(), 0);
            prop_assert!(proxy.tickets.is_empty(), "tickets are left: {:?}", proxy.tickets);
            prop_assert!(proxy.requests.is_empty(), "requests are left: {:?}", proxy.requests);
            for lanes in &proxy.lanes {
                prop_assert!(lanes.is_empty(), "lanes are left: {:?}", lanes);
            }
        }
    }
}
