//! A peer that does not read costs little, gets everything in the end, and keeps nobody else from being served.

use consort_tests::chains::{Chain, none, passing, slow};
use consort_tests::session::{SESSION, notification, request};
use consort_tests::{Agent, Client, PATIENCE};
use serde_json::json;
use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Updates that nobody reads at first, each about a kibibyte.
const UPDATES: u64 = 100_000;

/// How long nobody reads them.
const STALL: Duration = Duration::from_secs(10);

/// What the process may take then, in KiB.
const MOST: u64 = 64 * 1024;

/// How far above what it took before it may stay when all is over, in KiB.
const LEFT: u64 = 8 * 1024;

/// A line of the flood.
fn flood_line(number: u64) -> String {
    let update = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": format!("{number} {}", "x".repeat(900))}});
    notification("session/update", &json!({"sessionId": SESSION, "update": update})).to_string()
}

/// A figure of `/proc/PID/status`, in KiB.
fn status(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = text
        .lines()
        .find(|line| line.starts_with(name))
        .unwrap_or_else(|| panic!("no {name} in {text}"));
    let figure = line.split_whitespace().nth(1).expect("it has a figure");
    figure.parse().expect("it is a number")
}

/// Panics, and ends the process before, since whoever writes to it waits for ever otherwise.
fn complain(pid: u32, complaint: &str) -> ! {
    kill(pid);
    panic!("{complaint}");
}

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    // It may have ended.
    let _ = rustix::process::kill_process(pid.expect("it is a process id"), rustix::process::Signal::KILL);
}

/// What the process takes now; its peak counts from here.
fn begin_to_measure(pid: u32) -> u64 {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the peak can be set back");
    status(pid, "VmRSS:")
}

/// Waits until the process has given back what the flood took.
fn gives_back(pid: u32, before: u64, chain: &Chain) {
    let begun = Instant::now();
    loop {
        let now = status(pid, "VmRSS:");
        if now <= before + LEFT {
            return;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{}: {before} KiB before, {now} KiB for good",
            chain.name
        );
        thread::sleep(Duration::from_millis(50));
    }
}

/// Starts a chain that is in the cache, since compiling takes memory of its own, and lets some lines through, so that what is
/// measured is not the first use of the program's own pages.
fn start(chain: &Chain) -> (Client, Agent) {
    drop(chain.start());
    let (mut client, mut agent) = chain.start();
    for number in 0..2_000 {
        let line = flood_line(number);
        agent.send(&line);
        assert_eq!(client.expect_line(), line, "{}", chain.name);
        client.send(&line);
        assert_eq!(agent.expect_line(), line, "{}", chain.name);
    }
    (client, agent)
}

fn a_client_that_does_not_read(chain: &Chain) {
    let (mut client, mut agent) = start(chain);
    let before = begin_to_measure(client.pid());
    let pid = client.pid();
    let said = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for batch in (0..UPDATES).collect::<Vec<_>>().chunks(50) {
                let lines: String = batch
                    .iter()
                    .map(|number| format!("{}\n", flood_line(*number)))
                    .collect();
                agent.send_raw(lines.as_bytes());
                said.fetch_add(50, Ordering::Relaxed);
            }
        });
        thread::sleep(STALL);
        let stalled_at = said.load(Ordering::Relaxed);
        let peak = status(pid, "VmHWM:");
        if stalled_at >= UPDATES {
            complain(pid, &format!("{}: the agent was never stopped", chain.name));
        }
        if peak >= MOST {
            complain(pid, &format!("{}: {peak} KiB, {before} KiB before", chain.name));
        }
        for number in 0..UPDATES {
            let line = client.expect_line();
            assert!(
                line.contains(&format!("\"text\":\"{number} x")),
                "{}: {number}: {line:.200}",
                chain.name
            );
        }
    });
    let peak = status(pid, "VmHWM:");
    assert!(
        peak < MOST,
        "{}: {peak} KiB in the end, {before} KiB before",
        chain.name
    );
    gives_back(pid, before, chain);
}

#[test]
fn a_client_that_does_not_read_costs_little_without_proxies() {
    a_client_that_does_not_read(&none());
}

#[test]
fn a_client_that_does_not_read_costs_little_with_a_proxy_that_passes_on() {
    a_client_that_does_not_read(&passing(1));
}

#[test]
fn a_client_that_does_not_read_costs_little_with_a_proxy_that_watches() {
    a_client_that_does_not_read(&Chain::new(
        "a proxy that watches",
        &[("observer", json!({"answers": false}))],
    ));
}

fn an_agent_that_does_not_read(chain: &Chain) {
    let (mut client, mut agent) = start(chain);
    let before = begin_to_measure(client.pid());
    let pid = client.pid();
    let said = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..UPDATES {
                client.send(&flood_line(number));
                said.fetch_add(1, Ordering::Relaxed);
            }
        });
        thread::sleep(STALL);
        let stalled_at = said.load(Ordering::Relaxed);
        let peak = status(pid, "VmHWM:");
        if stalled_at >= UPDATES {
            complain(pid, &format!("{}: the client was never stopped", chain.name));
        }
        if peak >= MOST {
            complain(pid, &format!("{}: {peak} KiB, {before} KiB before", chain.name));
        }
        for number in 0..UPDATES {
            let line = agent.expect_line();
            assert!(
                line.contains(&format!("\"text\":\"{number} x")),
                "{}: {number}: {line:.200}",
                chain.name
            );
        }
    });
    gives_back(pid, before, chain);
}

#[test]
fn an_agent_that_does_not_read_costs_little_without_proxies() {
    an_agent_that_does_not_read(&none());
}

#[test]
fn an_agent_that_does_not_read_costs_little_with_a_proxy_that_passes_on() {
    an_agent_that_does_not_read(&passing(1));
}

#[test]
fn a_client_that_does_not_read_is_still_heard() {
    for chain in [none(), passing(1), slow(5, &["session/prompt"])] {
        let (mut client, mut agent) = chain.start();
        let mut voice = agent.voice();
        let updates = 5_000;
        thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..updates {
                    voice.say(format!("{}\n", flood_line(number)).as_bytes());
                }
            });
            for number in 0..100 {
                client.send_json(&request(
                    number,
                    "session/prompt",
                    &json!({"sessionId": "other", "n": number}),
                ));
                assert_eq!(agent.expect()["params"]["n"], number, "{}", chain.name);
            }
            for number in 0..updates {
                let line = client.expect_line();
                assert!(
                    line.contains(&format!("\"text\":\"{number} x")),
                    "{}: {line:.200}",
                    chain.name
                );
            }
        });
    }
}

#[test]
fn an_agent_that_does_not_read_is_still_heard() {
    for chain in [none(), passing(1), slow(5, &["session/update"])] {
        let (mut client, mut agent) = chain.start();
        let mut input = client.take_input();
        // More than may wait for it.
        let lines = 25_000;
        thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..lines {
                    let line = flood_line(number).replace("session/update", "x/flood");
                    writeln!(input, "{line}").expect("the process reads on");
                }
                input
            });
            for number in 0..100 {
                let update = notification("session/update", &json!({"sessionId": "other", "n": number}));
                agent.send_json(&update);
                assert_eq!(client.expect(), update, "{}", chain.name);
            }
            for number in 0..lines {
                let line = agent.expect_line();
                assert!(
                    line.contains(&format!("\"text\":\"{number} x")),
                    "{}: {line:.200}",
                    chain.name
                );
            }
        });
    }
}

/// How many requests have to come through a flood.
const ROUNDS: u64 = 20;

#[test]
fn a_flood_from_the_agent_does_not_keep_the_client_waiting() {
    for chain in [none(), passing(1), slow(5, &["x/ask"])] {
        let (mut client, mut agent) = chain.start();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let flood: String = (0..20).map(|number| format!("{}\n", flood_line(number))).collect();
                while !over.load(Ordering::Relaxed) {
                    agent.send_raw(flood.as_bytes());
                    while let Some(asked) = agent.heard() {
                        agent.answer(&asked, &json!({}));
                    }
                }
            });
            let mut updates = 0;
            for round in 0..ROUNDS {
                client.send_json(&request(round, "x/ask", &json!({"sessionId": "other"})));
                loop {
                    let line = client.expect_line();
                    if !line.contains("session/update") {
                        assert!(line.contains(&format!("\"id\":{round},")), "{}: {line}", chain.name);
                        break;
                    }
                    updates += 1;
                }
            }
            over.store(true, Ordering::Relaxed);
            assert!(updates > ROUNDS, "{}: that was no flood: {updates}", chain.name);
            // Lets the agent say the rest.
            while client.heard().is_some() {}
        });
    }
}

#[test]
fn a_flood_from_the_client_does_not_keep_the_agent_waiting() {
    for chain in [none(), passing(1), slow(5, &["x/ask"])] {
        let (mut client, mut agent) = chain.start();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let flood: String = (0..20).map(|number| format!("{}\n", flood_line(number))).collect();
                while !over.load(Ordering::Relaxed) {
                    client.send_raw(flood.as_bytes());
                    while let Some(asked) = client.heard() {
                        client.send_json(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {}}));
                    }
                }
            });
            let mut updates = 0;
            for round in 0..ROUNDS {
                agent.send_json(&request(round, "x/ask", &json!({"sessionId": "other"})));
                loop {
                    let line = agent.expect_line();
                    if !line.contains("session/update") {
                        assert!(line.contains(&format!("\"id\":{round},")), "{}: {line}", chain.name);
                        break;
                    }
                    updates += 1;
                }
            }
            over.store(true, Ordering::Relaxed);
            assert!(updates > ROUNDS, "{}: that was no flood: {updates}", chain.name);
            while agent.heard().is_some() {}
        });
    }
}

#[test]
fn two_floods_against_each_other_both_end() {
    let lines = 30_000;
    for chain in [none(), passing(1), slow(5, &["x/ask"])] {
        let (mut client, mut agent) = chain.start();
        let (mut voice, mut input) = (agent.voice(), client.take_input());
        let arrived = |line: String, number: u64| {
            assert!(
                line.contains(&format!("\"text\":\"{number} x")),
                "{number}: {line:.200}"
            );
        };
        thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..lines {
                    voice.say(format!("{}\n", flood_line(number)).as_bytes());
                }
            });
            scope.spawn(|| {
                for number in 0..lines {
                    writeln!(input, "{}", flood_line(number)).expect("the process reads on");
                }
            });
            // One side begins to read when the other one has everything.
            for number in 0..lines {
                arrived(agent.expect_line(), number);
            }
            for number in 0..lines {
                arrived(client.expect_line(), number);
            }
        });
    }
}

#[test]
fn what_waits_behind_a_held_message_has_a_cap_that_ends_in_an_error_and_not_in_a_stop() {
    let (mut client, mut agent) = slow(3_600_000, &["x/hold"]).start();
    client.send_json(&request("held", "x/hold", &json!({"sessionId": SESSION})));
    let lines = 70;
    let filling = "x".repeat(1024 * 1024);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..lines {
                let params = json!({"sessionId": SESSION, "n": number, "filling": filling});
                client.send_json(&notification("x/behind", &params));
            }
            let answer = client.expect();
            assert_eq!(answer["id"], "held");
            let message = answer["error"]["message"].as_str().unwrap_or_default();
            assert!(message.contains("slow"), "it names the proxy: {answer}");
        });
        for number in 0..lines {
            assert_eq!(agent.expect()["params"]["n"], number);
        }
    });
}

/// Writes lines that are refused until nothing more is taken, and says what the process takes then, in KiB.
fn refused_without_end(pid: u32, line: &str, mut write: impl FnMut(&[u8]) + Send) -> u64 {
    let line = line.repeat(4 * 1024).into_bytes();
    let written = AtomicU64::new(0);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            // Far more than what may wait, each line answered with some hundred bytes.
            for _ in 0..256 {
                write(&line);
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut before = u64::MAX;
        while !writer.is_finished() {
            let now = written.load(Ordering::Relaxed);
            if now == before {
                break;
            }
            before = now;
            thread::sleep(Duration::from_secs(2));
        }
        let most = status(pid, "VmHWM:");
        // Ends the writer, who waits for ever otherwise.
        kill(pid);
        most
    })
}

#[test]
fn a_client_whose_lines_are_refused_and_that_reads_nothing_is_not_read_any_more() {
    let (mut client, _agent) = none().start();
    let before = begin_to_measure(client.pid());
    let pid = client.pid();
    let most = refused_without_end(pid, "x\n", |line| client.send_raw(line));
    assert!(most < MOST, "{most} KiB, {before} KiB before");
}

#[test]
fn an_agent_whose_requests_are_refused_and_that_reads_nothing_is_not_read_any_more() {
    let (client, mut agent) = none().start();
    let before = begin_to_measure(client.pid());
    let line = "{\"id\":1,\"method\":\"x\",\"params\":7}\n";
    let most = refused_without_end(client.pid(), line, |line| agent.send_raw(line));
    assert!(most < MOST, "{most} KiB, {before} KiB before");
}
