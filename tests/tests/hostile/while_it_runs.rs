//! A proxy that means harm in its turns: the message goes on without it, and so does everything else.

use super::{Hostile, assert_took_little, goes_on, goes_past, hit, seen};
use consort_tests::session::{prompt, request, updates_pass_elsewhere};
use consort_tests::{Agent, Client, PATIENCE};
use serde_json::json;
use std::collections::HashSet;
use std::time::Instant;

/// A request that a written proxy takes part in goes on without it: the agent gets it once and the client one answer.
#[track_caller]
fn hit_goes_past(client: &mut Client, agent: &mut Agent) {
    client.send_json(&hit("hit"));
    let asked = agent.expect();
    assert_eq!(asked["method"], "_hit", "{asked}");
    agent.answer(&asked, &json!({}));
    assert_eq!(client.expect()["id"], "hit");
}

#[track_caller]
fn nothing_failed(client: &Client) {
    let said = client.standard_error();
    assert!(!said.contains("failed"), "{said}");
}

/// A written proxy that does something in the turn with `_hit` fails with one of these classes, and nobody else notices.
fn fails(what: &str, change: (&str, &str), classes: &[&str]) {
    let hostile = Hostile::written(&[change]).with("limits.cpu = \"500 ms\"");
    let (mut client, mut agent) = hostile.start();
    hit_goes_past(&mut client, &mut agent);
    let said = client.expect_standard_error("proxy `hostile` failed");
    let right = classes.iter().any(|class| said.contains(&format!("failed ({class})")));
    assert!(right, "{what}: {said}");
    goes_on(&mut client, &mut agent);
}

#[test]
fn what_never_ends_is_ended() {
    let cpu = "limits.cpu = \"200 ms\"";
    let time = "limits.time = \"200 ms\"";
    for (hostile, class) in [
        (Hostile::guest("clock", 0).with(cpu), "cpu"),
        (Hostile::guest("edits", 100_000).with(cpu), "cpu"),
        (Hostile::guest("sleep", 3_600_000).with(time), "timeout"),
        (Hostile::guest("clock", 0).with(time), "timeout"),
    ] {
        let (mut client, mut agent) = hostile.start();
        goes_past(&mut client, &mut agent);
        client.expect_standard_error(&format!("proxy `hostile` failed ({class})"));
        goes_on(&mut client, &mut agent);
    }
    fails("a loop", ("HIT", "(call $forever)"), &["cpu"]);
    let realloc = "(if (i32.eq (local.get $size) (i32.const 4)) (then (loop $again (br $again))))";
    fails("a loop while a message is handed over", ("REALLOC", realloc), &["cpu"]);
}

#[test]
fn edits_without_end_hold_up_nobody_else() {
    let (mut client, mut agent) = Hostile::guest("edits", 100_000).with("limits.cpu = \"1 s\"").start();
    client.send_json(&prompt("bad", "GO"));
    updates_pass_elsewhere(&mut client, &mut agent);
    assert!(agent.is_quiet(), "the host was still at it when all updates had passed");
    let asked = agent.expect();
    agent.answer(&asked, &json!({"stopReason": "end_turn"}));
    assert_eq!(client.expect()["id"], "bad");
    client.expect_standard_error("proxy `hostile` failed (cpu)");
}

#[test]
fn a_little_less_than_it_may_every_time_is_too_much_in_a_minute() {
    let hostile = Hostile::guest("compute", 300)
        .with("limits.cpu = \"10 s\"")
        .with("limits.cpu-per-minute = \"1 s\"");
    let (mut client, mut agent) = hostile.start();
    let begun = Instant::now();
    while !client.standard_error().contains("failed too often") {
        goes_past(&mut client, &mut agent);
        assert!(begun.elapsed() < PATIENCE, "{}", client.standard_error());
    }
    client.expect_standard_error("failed (cpu): it computed for more than 1 s in a minute");
    goes_past(&mut client, &mut agent);
    goes_on(&mut client, &mut agent);
}

#[test]
fn what_is_computed_between_waits_counts_in_a_minute() {
    let (mut client, mut agent) = Hostile::guest("naps", 4)
        .with("limits.cpu-per-minute = \"300 ms\"")
        .start();
    goes_past(&mut client, &mut agent);
    client.expect_standard_error("failed (cpu): it computed for more than 300 ms in a minute");
    goes_on(&mut client, &mut agent);
}

#[test]
fn what_a_flood_sent_never_leaves() {
    let (mut client, mut agent) = Hostile::guest("send", 0).start();
    goes_past(&mut client, &mut agent);
    client.expect_standard_error("proxy `hostile` failed (flood): it went on sending after the 1000 messages");
    // Nothing else comes to either end.
    goes_on(&mut client, &mut agent);
}

#[test]
fn memory_that_is_refused_is_no_fault() {
    let (mut client, mut agent) = Hostile::guest("grow", 1 << 30).start();
    assert_eq!(seen(&mut client, "GO"), ["refused"]);
    assert_eq!(seen(&mut client, "GO"), ["refused"]);
    goes_on(&mut client, &mut agent);
    nothing_failed(&client);
}

#[test]
fn tables_and_memories_that_are_refused_are_no_fault() {
    for refused in [
        "(memory.grow (i32.const 60000))",
        "(table.grow $table (ref.null func) (i32.const 9000000))",
    ] {
        let body = format!("(if (i32.ne {refused} (i32.const -1)) (then (unreachable)))");
        let (mut client, mut agent) = Hostile::written(&[("HIT", &body)]).start();
        hit_goes_past(&mut client, &mut agent);
        goes_on(&mut client, &mut agent);
        nothing_failed(&client);
    }
    // What was refused once is not why something else fails later.
    let grow = "(drop (memory.grow (i32.const 60000)))";
    let (mut client, mut agent) = Hostile::written(&[("START", grow), ("HIT", "(unreachable)")]).start();
    hit_goes_past(&mut client, &mut agent);
    client.expect_standard_error("proxy `hostile` failed (trap)");
}

#[test]
fn every_kind_of_trap_is_a_trap() {
    for (what, body) in [
        ("unreachable", "(unreachable)"),
        ("division by zero", "(drop (i32.div_s (i32.const 1) (i32.const 0)))"),
        ("overflow", "(drop (i32.div_s (i32.const 0x80000000) (i32.const -1)))"),
        ("no number", "(drop (i32.trunc_f32_s (f32.const nan)))"),
        ("recursion without end", "(drop (call $recurse (i64.const 0)))"),
        ("out of bounds", "(drop (i32.load (i32.const -4)))"),
        ("a write out of bounds", "(i64.store (i32.const 65532) (i64.const 1))"),
        (
            "a fill out of bounds",
            "(memory.fill (i32.const 0) (i32.const 1) (i32.const -1))",
        ),
        ("no function", "(call_indirect $table (type $nothing) (i32.const 0))"),
        (
            "outside of the table",
            "(call_indirect $table (type $nothing) (i32.const 9))",
        ),
    ] {
        fails(what, ("HIT", body), &["trap"]);
    }
}

#[test]
fn values_that_are_none_end_the_proxy_and_harm_nobody() {
    // A message with this method, and with params if there is a handle.
    let send = |to: &str, kind: &str, method: &str, length: &str, some: &str, handle: &str| {
        format!(
            "(call $send (i32.const {to}) (i32.const {kind}) (i64.const 0) (i64.const 0) (i32.const {method})
               (i64.const {length}) (i32.const {some}) (i32.const {handle}) (i32.const 0) (i32.const 0) (i32.const 128))"
        )
    };
    let place = "(if (i32.eq (local.get $size) (i32.const 4)) (then (return (i32.const -16))))";
    let trap = "(if (i32.eq (local.get $size) (i32.const 4)) (then (unreachable)))";
    for (what, change) in [
        (
            "a method that is not in memory",
            ("HIT", &*send("0", "1", "-16", "64", "0", "0")),
        ),
        (
            "a method without end",
            ("HIT", &send("0", "1", "64", "4294967295", "0", "0")),
        ),
        (
            "a method that is no UTF-8",
            ("HIT", &send("0", "1", "80", "4", "0", "0")),
        ),
        ("no such peer", ("HIT", &send("7", "1", "64", "4", "0", "0"))),
        ("no such kind of message", ("HIT", &send("0", "7", "64", "4", "0", "0"))),
        ("no such option", ("HIT", &send("0", "1", "64", "4", "7", "0"))),
        (
            "a handle that it has not",
            ("HIT", &send("0", "1", "64", "4", "1", "99")),
        ),
        ("no such receipt", ("HIT", "(return (i32.const 7))")),
        ("a place that is not in memory", ("REALLOC", place)),
        ("a trap while a message is handed over", ("REALLOC", trap)),
    ] {
        fails(what, change, &["protocol", "trap"]);
    }
}

#[test]
fn a_slow_leak_costs_the_proxy_its_instance_now_and_then() {
    let config = "{ on = \"session/prompt\", bytes = 8192, keep = true }";
    let (mut client, mut agent) = Hostile::other("greedy", config)
        .with("limits.memory = \"4 MiB\"")
        .start();
    for _ in 0..1_000 {
        goes_past(&mut client, &mut agent);
    }
    client.expect_standard_error("proxy `hostile` failed (memory)");
    let said = client.standard_error();
    let faults = said.matches("`hostile` failed").count();
    assert!(
        said.matches("failed (memory)").count() == faults && faults < 5,
        "{said}"
    );
    goes_on(&mut client, &mut agent);
}

/// Restarts are few: six in a row, and one more for every ten seconds that have passed.
fn assert_no_storm(client: &Client, begun: Instant) {
    let said = client.standard_error();
    let faults = said.matches("proxy `hostile` failed (").count() as u64;
    let most = 7 + begun.elapsed().as_secs() / 10;
    assert!((1..=most).contains(&faults), "{faults} faults: {said}");
}

#[test]
fn traps_on_every_message_are_no_storm_of_restarts() {
    let config = "{ on = \"session/prompt\", source = \"client\", when = \"handler\", text = \"GO\" }";
    let (mut client, mut agent) = Hostile::other("trap", config).start();
    let begun = Instant::now();
    while !client.standard_error().contains("failed too often") {
        goes_past(&mut client, &mut agent);
        assert!(begun.elapsed() < PATIENCE, "{}", client.standard_error());
    }
    for _ in 0..300 {
        goes_past(&mut client, &mut agent);
    }
    assert_no_storm(&client, begun);
    goes_on(&mut client, &mut agent);
}

#[test]
fn traps_on_initialize_are_no_storm_of_restarts() {
    let begun = Instant::now();
    // A new instance is shown `initialize` again, without anybody's doing.
    let (mut client, mut agent) = Hostile::guest("always", 0).start();
    goes_past(&mut client, &mut agent);
    client.expect_standard_error("failed too often");
    assert_no_storm(&client, begun);
    goes_on(&mut client, &mut agent);
}

#[test]
fn many_requests_in_flight_get_one_error_each_that_names_it() {
    const REQUESTS: u64 = 200;
    let config = "{ on = \"_work\", source = \"client\", when = \"response\" }";
    let (mut client, mut agent) = Hostile::other("trap", config).start();
    let mut asked = Vec::new();
    for number in 0..REQUESTS {
        client.send_json(&request(number, "_work", &json!({})));
        asked.push(agent.expect());
    }
    agent.answer(&asked[150], &json!({}));
    let mut answered = HashSet::new();
    for _ in 0..REQUESTS {
        let answer = client.expect();
        let data = &answer["error"]["data"];
        assert_eq!(
            (&data["proxy"], &data["class"]),
            (&json!("hostile"), &json!("trap")),
            "{answer}"
        );
        let id = answer["id"].as_u64().expect("the client asked with numbers");
        assert!(id < REQUESTS && answered.insert(id), "once: {answer}");
    }
    for _ in 1..REQUESTS {
        assert_eq!(agent.expect()["method"], "$/cancel_request");
    }
    // What the agent still answers is for nobody.
    for question in &asked {
        agent.answer(question, &json!({}));
    }
    goes_on(&mut client, &mut agent);
}

#[test]
fn what_cannot_be_sent_is_refused_as_a_value() {
    let hostile = Hostile::guest("junk", 0).with("limits.message-size = \"512 KiB\"");
    let (mut client, mut agent) = hostile.start();
    let seen = seen(&mut client, "GO");
    for (place, words) in [
        "nested deeper than 128 levels",
        "not one JSON value",
        "not one JSON value",
        "not one JSON value",
        "larger than 524288 bytes",
        "nested deeper than 128 levels",
        "not one JSON value",
        "larger than 524288 bytes",
        "nest deeper than 128 levels",
        "too-large",
    ]
    .iter()
    .enumerate()
    {
        assert!(seen[place].contains(words), "{place}: {words}: {seen:?}");
    }
    goes_on(&mut client, &mut agent);
    nothing_failed(&client);
}

#[test]
fn a_long_name_and_an_edit_that_doubles_cost_little() {
    let (mut client, mut agent) = Hostile::guest("names", 200).start();
    assert_eq!(seen(&mut client, "GO"), ["too-large"]);
    goes_on(&mut client, &mut agent);
    let (mut client, mut agent) = Hostile::guest("doubling", 1_000).with("limits.cpu = \"100 s\"").start();
    assert_eq!(
        seen(&mut client, "GO"),
        ["the value would be larger than 67108864 bytes"]
    );
    goes_on(&mut client, &mut agent);
}

#[test]
fn handles_that_grow_when_they_are_there_are_counted_as_well() {
    let (mut client, mut agent) = Hostile::guest("swelling", 500).with("limits.cpu = \"100 s\"").start();
    let refused = "more than 67108864 bytes of its own behind JSON handles";
    assert_eq!(seen(&mut client, "GO"), ["fine", refused]);
    goes_on(&mut client, &mut agent);
}

#[test]
fn messages_larger_than_its_own_may_be_are_given_to_it_and_go_on() {
    let (mut client, mut agent) = Hostile::guest("count", 0)
        .with("limits.message-size = \"1 KiB\"")
        .start();
    for number in 0..20 {
        let text = "x".repeat(1 << (number % 18));
        client.send_json(&prompt("large", &text));
        let asked = agent.expect();
        assert_eq!(asked["params"]["prompt"][0]["text"], text);
        agent.answer(&asked, &json!({"stopReason": text}));
        assert_eq!(client.expect()["result"]["stopReason"], text);
    }
    goes_on(&mut client, &mut agent);
    nothing_failed(&client);
}

#[test]
fn a_part_that_is_kept_does_not_keep_the_rest() {
    let (mut client, mut agent) = Hostile::guest("crumbs", 300).with("limits.cpu = \"100 s\"").start();
    assert_eq!(seen(&mut client, "GO"), ["300"]);
    goes_on(&mut client, &mut agent);
}

#[test]
fn handles_that_are_never_given_back_are_a_memory_fault() {
    for hostile in [
        Hostile::guest("handles", 0),
        Hostile::guest("texts", 900_000).with("limits.message-size = \"1 MiB\""),
    ] {
        let (mut client, mut agent) = hostile.start();
        goes_past(&mut client, &mut agent);
        client.expect_standard_error("proxy `hostile` failed (memory): it used up its memory or its JSON handles");
        goes_on(&mut client, &mut agent);
    }
}

#[test]
fn an_instance_that_failed_is_never_called_again() {
    let (mut client, mut agent) = Hostile::guest("count", 0).start();
    assert_eq!(seen(&mut client, "GO"), ["1"]);
    assert_eq!(seen(&mut client, "GO"), ["2"]);
    client.send_json(&prompt("bad", "GO BOOM"));
    let asked = agent.expect();
    agent.answer(&asked, &json!({"stopReason": "end_turn"}));
    assert_eq!(client.expect()["id"], "bad");
    assert_eq!(seen(&mut client, "GO"), ["1"], "what it knew is gone");
    assert_took_little(&client);
}
