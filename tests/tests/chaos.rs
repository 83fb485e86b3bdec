//! Chains of eight proxies that misbehave at random, under load: the host neither panics nor hangs nor leaks, each request gets one answer,
//! what is `closed` lets nothing past it unmarked, and what is `bypass` costs no message but the requests that it held.
//!
//! Each run has a seed, which a failure names. `CHAOS_RUNS=3000 CHAOS_SEED=1 cargo test --release -p consort-tests --test chaos` is for longer.

use consort_tests::guests::guest;
use consort_tests::session::{SESSION, begin, chunk, prompt};
use consort_tests::{Agent, AgentListener, Client, Directory};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Prompts of one run.
const PROMPTS: u64 = 8;

/// Chunks in the answer to each.
const CHUNKS: u64 = 25;

/// Runs if nothing else is asked for.
const RUNS: u64 = 6;

/// The most memory of the host at any time, in KiB: eight proxies of at most 16 MiB, and itself, in a debug build.
const MEMORY: u64 = 400 * 1024;

const KINDS: [&str; 10] = [
    "trap", "late", "sent", "spin", "memory", "exit", "block", "hold", "storm", "lie",
];

/// Numbers that are the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// What is known of one proxy of the chain.
struct Member {
    mark: char,
    closed: bool,
}

/// A chain, as a configuration file.
fn chain(random: &mut Random) -> (String, Vec<Member>) {
    let mut text = String::new();
    let mut members = Vec::new();
    for mark in 'a'..='h' {
        let closed = random.below(3) == 0;
        let rate = [0, 10, 30, 100, 500][random.below(5) as usize];
        let mut kinds: Vec<&str> = KINDS.into_iter().filter(|_| random.below(3) == 0).collect();
        if kinds.is_empty() {
            kinds.push(KINDS[random.below(KINDS.len() as u64) as usize]);
        }
        let on_failure = if closed { "closed" } else { "bypass" };
        let limits = r#"{ memory = "16 MiB", cpu = "50 ms", time = "100 ms", hold-time = "150 ms" }"#;
        write!(
            text,
            "[[proxies]]\nname = \"{mark}\"\nfile = {:?}\non-failure = \"{on_failure}\"\nlimits = {limits}\nconfig = {{ seed = {}, mark = \
             \"{mark}\", rate = {rate}, kinds = {kinds:?} }}\n\n",
            guest("chaotic"),
            random.below(1 << 31),
        )
        .expect("strings can be written to");
        members.push(Member { mark, closed });
    }
    (text, members)
}

/// The agent's side of a run: answers each prompt with numbered chunks.
fn serve(mut agent: Agent, members: &[Member], said: &AtomicU64) {
    while let Some(line) = agent.listen() {
        if line["method"] != "session/prompt" {
            assert_ne!(line["method"], "terminal/create", "nobody may ask for this");
            continue;
        }
        let blocks = line["params"]["prompt"].as_array().expect("a prompt has blocks");
        let marks: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
        for member in members.iter().filter(|member| member.closed) {
            let mark = member.mark.to_string();
            assert!(
                marks.contains(&mark.as_str()),
                "a prompt came past `{mark}`, which is closed: {line}"
            );
        }
        for _ in 0..CHUNKS {
            let number = said.fetch_add(1, Ordering::SeqCst);
            agent.send_json(&chunk(&format!("{number} ")));
        }
        agent.answer(&line, &json!({"stopReason": "end_turn"}));
    }
}

/// One run.
fn run(seed: u64) {
    let mut random = Random(seed);
    let (text, members) = chain(&mut random);
    let directory = Directory::new();
    let config = directory.file("consort.toml", text);
    let listener = AgentListener::new();
    let options: [OsString; 4] = [
        "--config".into(),
        config.into(),
        "--grant".into(),
        "*=originate:client:_chaos/*".into(),
    ];
    let mut client = Client::in_front_of(&listener, &options);
    let agent = begin(&mut client, &listener);
    let all_pass = members.iter().all(|member| !member.closed);
    let said = AtomicU64::new(0);
    thread::scope(|scope| {
        let served = scope.spawn(|| serve(agent, &members, &said));
        let mut answers: HashMap<String, u64> = HashMap::new();
        let mut last: Option<u64> = None;
        let mut updates = 0;
        let mut answered = 0;
        for number in 0..PROMPTS {
            client.send_json(&prompt(number, "go"));
        }
        // Where nothing is kept back, every chunk arrives, if some of them after a while.
        while answered < PROMPTS || (all_pass && updates < said.load(Ordering::SeqCst)) {
            let line = client.expect();
            match line["method"].as_str() {
                None => {
                    *answers.entry(line["id"].to_string()).or_default() += 1;
                    answered += 1;
                    let named = line["error"]["message"]
                        .as_str()
                        .is_none_or(|message| message.contains("proxy `"));
                    assert!(named, "an error that names no proxy: {line}");
                }
                Some("_chaos/storm") => {}
                Some("session/update") => {
                    assert_eq!(line["params"]["sessionId"], SESSION, "{line}");
                    let number = checked(&line, &members);
                    assert!(last.is_none_or(|last| last < number), "{number} came after {last:?}");
                    last = Some(number);
                    updates += 1;
                }
                Some(other) => panic!("nobody may send `{other}`: {line}"),
            }
        }
        client.close_input();
        // What is still held comes before the end.
        while let Some(line) = client.listen() {
            match line["method"].as_str() {
                Some("session/update") => {
                    let number = checked(&line, &members);
                    assert!(last.is_none_or(|last| last < number), "{number} came after {last:?}");
                    last = Some(number);
                    updates += 1;
                }
                Some("_chaos/storm") => {}
                _ => panic!("nothing else is owed: {line}"),
            }
        }
        for number in 0..PROMPTS {
            assert_eq!(
                answers.get(&number.to_string()),
                Some(&1),
                "answers to {number}: {answers:?}"
            );
        }
        assert!(updates <= said.load(Ordering::SeqCst), "{updates} updates");
        let memory = client.peak_memory();
        assert!(memory.is_none_or(|memory| memory < MEMORY), "{memory:?} KiB");
        assert_eq!(client.wait().code(), Some(0));
        served.join().expect("the agent's side is content");
        let error = client.standard_error();
        assert!(!error.contains("(host)"), "a fault of Consort itself: {error}");
        assert!(!error.contains("tokio"), "a thread of Consort panicked: {error}");
    });
}

/// The number of an update, which has the marks of all that are closed.
fn checked(line: &Value, members: &[Member]) -> u64 {
    let text = line["params"]["update"]["content"]["text"].as_str().unwrap_or_default();
    let (number, marks) = text.split_once(' ').unwrap_or((text, ""));
    for member in members.iter().filter(|member| member.closed) {
        assert!(
            marks.contains(member.mark),
            "an update came past `{}`, which is closed: {line}",
            member.mark
        );
    }
    number
        .parse()
        .unwrap_or_else(|_| panic!("an update of nobody's: {line}"))
}

fn number(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} must be a number")),
        Err(_) => otherwise,
    }
}

#[test]
fn chains_of_proxies_that_misbehave_keep_what_is_promised() {
    let (runs, first) = (number("CHAOS_RUNS", RUNS), number("CHAOS_SEED", 1));
    for seed in first..first + runs {
        if catch_unwind(AssertUnwindSafe(|| run(seed))).is_err() {
            panic!("the run with seed {seed} failed; CHAOS_RUNS=1 CHAOS_SEED={seed} repeats it");
        }
        if seed % 100 == 0 {
            println!("{} runs", seed + 1 - first);
        }
    }
}
