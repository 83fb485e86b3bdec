//! What a proxy keeps while nobody owes it anything is taken from it after a while.

use crate::chain::Effect;
use crate::chain::bench::{Bench, HOLD_TIME, chunk, everything, method, notify, prompt, registered, request};
use crate::message::{OnFailure, Peer};
use serde_json::json;
use std::time::{Duration, Instant};

/// Looks at the proxies again and again for so long.
fn pass_time(bench: &mut Bench, from: Instant, time: Duration) -> Instant {
    let mut now = from;
    while now < from + time {
        now += Duration::from_secs(5);
        bench.router.timer(now);
    }
    now
}

#[test]
fn a_request_that_nothing_is_done_about_is_answered_and_others_go_on() {
    let mut bench = Bench::new(vec![everything()]);
    bench.client(prompt(1, "a"));
    let (index, _) = bench.turn();
    bench.done(index, Vec::new());
    let now = pass_time(&mut bench, Instant::now(), HOLD_TIME / 2);
    assert!(bench.at_client().is_empty(), "there is still time");
    pass_time(&mut bench, now, HOLD_TIME);
    let lines = bench.at_client();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(
        (&lines[0]["id"], &lines[0]["error"]["data"]["class"]),
        (&json!(1), &json!("timeout"))
    );
    assert!(lines[0]["error"]["message"].as_str().unwrap().contains("hold-time"));
    bench.client(prompt(2, "a"));
    bench.pass_all();
    assert_eq!(bench.at_agent().len(), 1, "the proxy is still there");
}

#[test]
fn the_clock_stands_still_while_somebody_else_owes_an_answer() {
    let mut bench = Bench::new(vec![everything()]);
    bench.client(prompt(1, "a"));
    let (index, turn) = bench.turn();
    bench.done(
        index,
        vec![request(Peer::Client, Some(7), Some(turn.ticket), "ask", json!({}))],
    );
    let asked = bench.at_client()[0]["id"].clone();
    let now = pass_time(&mut bench, Instant::now(), HOLD_TIME * 10);
    assert!(bench.at_client().is_empty(), "the client thinks about it");
    bench.client(json!({"id": asked, "result": {}}));
    let now = pass_time(&mut bench, now, HOLD_TIME * 10);
    assert!(bench.at_client().is_empty(), "the answer waits for its turn");
    let (index, _) = bench.turn();
    bench.done(index, Vec::new());
    pass_time(&mut bench, now, HOLD_TIME * 2);
    assert_eq!(bench.at_client()[0]["error"]["data"]["class"], "timeout");
}

#[test]
fn what_was_passed_on_takes_as_long_as_it_takes() {
    let mut bench = Bench::new(vec![everything()]);
    bench.client(prompt(1, "a"));
    bench.pass_all();
    pass_time(&mut bench, Instant::now(), HOLD_TIME * 100);
    assert!(bench.at_client().is_empty());
}

#[test]
fn a_kept_notification_goes_on_unless_the_proxy_protects() {
    for (on_failure, arrive) in [(OnFailure::Bypass, 2), (OnFailure::Closed, 1)] {
        let mut bench = Bench::new(vec![everything()]);
        bench.router.proxies[0].on_failure = on_failure;
        bench.agent(chunk("a", 1));
        let (index, _) = bench.turn();
        bench.kept(index, Vec::new());
        bench.agent(chunk("a", 2));
        pass_time(&mut bench, Instant::now(), HOLD_TIME * 2);
        bench.pass_all();
        assert_eq!(bench.at_client().len(), arrive, "{on_failure:?}");
    }
}

#[test]
fn a_notification_is_kept_while_its_proxy_waits_for_an_answer() {
    let mut bench = Bench::new(vec![everything()]);
    bench.agent(chunk("a", 1));
    let (index, turn) = bench.turn();
    bench.kept(
        index,
        vec![
            request(Peer::Agent, Some(1), Some(turn.ticket), "ask", json!({})),
            notify(Peer::Client, None, "note", json!({})),
        ],
    );
    assert_eq!(bench.at_client().len(), 1);
    pass_time(&mut bench, Instant::now(), HOLD_TIME * 10);
    assert!(bench.at_client().is_empty());
}

#[test]
fn initialize_goes_past_whoever_does_nothing_about_it() {
    for (on_failure, goes_on) in [(OnFailure::Bypass, true), (OnFailure::Closed, false)] {
        let mut bench = Bench::new(vec![everything()]);
        bench.router.proxies[0].on_failure = on_failure;
        bench.client(json!({"id": 9, "method": "initialize", "params": {"protocolVersion": 1, "x": 1.10}}));
        let (index, _) = bench.turn();
        bench.done(index, Vec::new());
        pass_time(&mut bench, Instant::now(), Duration::from_secs(15));
        let (client, agent) = (bench.at_client(), bench.at_agent());
        match goes_on {
            true => assert_eq!(agent[0]["params"]["x"], 1.10, "{client:?}"),
            false => assert_eq!(client[0]["error"]["data"]["class"], "timeout", "{agent:?}"),
        }
    }
}

#[test]
fn the_answer_to_initialize_is_not_lost_with_a_proxy() {
    let begin = |bench: &mut Bench| {
        bench.client(json!({"id": 9, "method": "initialize", "params": {"protocolVersion": 1}}));
        let (index, turn) = bench.turn();
        let onward = request(
            Peer::Agent,
            Some(7),
            Some(turn.ticket),
            "initialize",
            json!({"protocolVersion": 1}),
        );
        bench.done(index, vec![onward]);
        bench.at_agent()[0]["id"].clone()
    };
    let answer = |bench: &mut Bench, id| bench.agent(json!({"id": id, "result": {"protocolVersion": 1, "x": 2}}));
    let answered = |bench: &mut Bench| {
        let lines = bench.at_client();
        assert_eq!((lines.len(), &lines[0]["result"]["x"]), (1, &json!(2)), "{lines:?}");
        assert!(bench.at_agent().is_empty(), "it was sent once");
    };
    // It does nothing about the answer.
    let mut bench = Bench::new(vec![everything()]);
    let id = begin(&mut bench);
    answer(&mut bench, id);
    let (index, _) = bench.turn();
    bench.done(index, Vec::new());
    pass_time(&mut bench, Instant::now(), Duration::from_secs(15));
    answered(&mut bench);
    // It fails with the answer.
    let mut bench = Bench::new(vec![everything()]);
    let id = begin(&mut bench);
    answer(&mut bench, id);
    let (index, _) = bench.turn();
    bench.trap(index);
    answered(&mut bench);
    // It fails before the answer comes.
    let mut bench = Bench::new(vec![everything()]);
    let id = begin(&mut bench);
    bench.agent(chunk("a", 1));
    let (index, _) = bench.turn();
    bench.trap(index);
    bench.at_client();
    answer(&mut bench, id);
    answered(&mut bench);
}

#[test]
fn a_proxy_that_so_much_waits_for_that_nobody_is_read_fails_unless_it_goes_on() {
    let text = "x".repeat(1 << 20);
    let large =
        |number: u64| json!({"method": "session/update", "params": {"sessionId": "a", "n": number, "text": text}});
    for works in [false, true] {
        let mut bench = Bench::new(vec![everything()]);
        for number in 0..20 {
            bench.agent(large(number));
        }
        let (index, turn) = bench.turn();
        bench.at_client();
        let mut now = Instant::now();
        for _ in 0..12 {
            now += Duration::from_secs(1);
            if works {
                // As if there had been many turns.
                bench.router.proxies[index].turns += 5;
            }
            bench.router.timer(now);
        }
        match works {
            true => assert!(bench.at_client().is_empty(), "it is only slow"),
            false => {
                let effects: Vec<Effect> = std::iter::from_fn(|| bench.effect()).collect();
                let given_up = |effect: &Effect| matches!(effect, Effect::Abort { proxy: 0 });
                assert!(effects.iter().any(given_up), "{effects:?}");
                bench.router.proxy_restarted(0, Ok(registered(everything())));
                bench.pass_all();
                let lines = bench.at_client();
                let numbers: Vec<_> = lines.iter().map(|line| line["params"]["n"].clone()).collect();
                assert_eq!(numbers, (0..20).collect::<Vec<u64>>(), "all arrive");
                // What comes of the turn is nobody's.
                bench.done(index, crate::chain::bench::pass(&turn));
                assert!(bench.at_client().is_empty());
            }
        }
    }
}

#[test]
fn what_comes_behind_an_answer_to_a_question_back_is_not_kept_from_whoever_asked() {
    let mut bench = Bench::new(vec![everything()]);
    // A tool is called, and begins a session of its own at the agent that called it.
    bench.agent(json!({"id": "c", "method": "mcp/message", "params": {"serverId": "s", "requestId": "r", "method": "tools/call"}}));
    let (index, called) = bench.turn();
    let set_up = json!({"cwd": "/", "mcpServers": []});
    let begin = request(Peer::Agent, Some(7), Some(called.ticket), "session/new", set_up);
    bench.done(index, vec![begin]);
    let new = bench.at_agent()[0]["id"].clone();
    bench.agent(json!({"id": new, "result": {"sessionId": "child"}}));
    let (index, begun) = bench.turn();
    assert!(method(&begun).starts_with("response"));
    let params = json!({"sessionId": "child", "prompt": []});
    bench.done(
        index,
        vec![request(
            Peer::Agent,
            Some(8),
            Some(called.ticket),
            "session/prompt",
            params,
        )],
    );
    // What the session says comes while the call has no answer yet, and so does what it asks.
    bench.agent(chunk("child", 1));
    let (index, said) = bench.turn();
    assert_eq!(method(&said), "session/update");
    bench.done(index, Vec::new());
    bench.agent(json!({"id": "q", "method": "session/request_permission", "params": {"sessionId": "child"}}));
    let (_, asked) = bench.turn();
    assert_eq!(method(&asked), "session/request_permission");
}
