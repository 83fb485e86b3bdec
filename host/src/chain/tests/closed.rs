//! A proxy that protects and fails lets nothing past it that it would have had in its hands.

use crate::chain::bench::{Bench, chunk, everything, pass, prompt, prompt_at_agent, registered};
use crate::chain::{Effect, Role};
use crate::message::OnFailure;
use serde_json::{Value, json};

fn closed() -> Bench {
    let mut bench = Bench::new(vec![everything()]);
    bench.router.proxies[0].on_failure = OnFailure::Closed;
    assert_eq!(bench.router.role, Role::Agent);
    bench
}

/// The chain's next effect is to make the proxy anew; it is, with `initialize` again.
fn make_anew(bench: &mut Bench) {
    assert!(matches!(bench.effect(), Some(Effect::Restart { .. })));
    bench.router.proxy_restarted(0, Ok(registered(everything())));
    let (index, turn) = bench.turn();
    assert!(turn.replay);
    let sent = pass(&turn);
    bench.done(index, sent);
}

#[test]
fn the_message_of_the_failed_turn_and_what_waited_goes_nowhere() {
    let mut bench = closed();
    let passed = prompt_at_agent(&mut bench, 1, "a");
    bench.client(prompt(2, "b"));
    bench.client(prompt(3, "c"));
    bench.client(json!({"method": "note", "params": {"sessionId": "c"}}));
    bench.agent(chunk("a", 1));
    let (index, _) = bench.turn();
    bench.trap(index);
    assert!(bench.at_agent().is_empty());
    let failed = bench.at_client();
    let ids: Vec<&Value> = failed.iter().map(|line| &line["id"]).collect();
    assert_eq!(
        ids,
        [2, 3],
        "each request is answered once, and the chunk is gone: {failed:?}"
    );
    assert!(failed.iter().all(|line| line["error"]["data"]["class"] == "trap"));
    assert_eq!(
        bench.router.proxies[0].shut_out, 3,
        "the note behind the prompt was not its yet"
    );
    // What it had passed on is answered as ever.
    bench.agent(json!({"id": passed, "result": {}}));
    assert_eq!(bench.at_client()[0]["id"], 1);
}

#[test]
fn what_comes_while_it_is_made_anew_waits_for_it() {
    let mut bench = closed();
    bench.client(prompt(1, "a"));
    let (index, _) = bench.turn();
    bench.trap(index);
    bench.at_client();
    bench.client(prompt(2, "a"));
    bench.agent(chunk("a", 1));
    assert!(bench.at_agent().is_empty() && bench.at_client().is_empty());
    make_anew(&mut bench);
    bench.pass_all();
    assert_eq!(bench.at_agent()[0]["params"]["sessionId"], "a");
    assert_eq!(bench.at_client()[0]["method"], "session/update");
}

#[test]
fn when_it_rests_requests_are_refused_and_notifications_dropped() {
    let mut bench = closed();
    for number in 0..7 {
        bench.client(prompt(number, "a"));
        let (index, _) = bench.turn();
        bench.trap(index);
        if number < 6 {
            make_anew(&mut bench);
        }
    }
    bench.at_client();
    bench.client(prompt(20, "a"));
    bench.agent(chunk("a", 1));
    bench.agent(json!({"id": 9, "method": "fs/read_text_file", "params": {"sessionId": "a"}}));
    let refused = bench.at_client();
    assert_eq!((refused.len(), &refused[0]["id"]), (1, &json!(20)), "{refused:?}");
    let message = refused[0]["error"]["message"].as_str().unwrap();
    assert!(message.contains("`p0`") && message.contains("on-failure"), "{message}");
    let refused = bench.at_agent();
    assert_eq!((refused.len(), &refused[0]["id"]), (1, &json!(9)), "{refused:?}");
    assert!(matches!(bench.effect(), Some(Effect::Restart { after, .. }) if after.as_secs() == 60));
    // After that it is tried again.
    bench.router.proxy_restarted(0, Ok(registered(everything())));
    bench.pass_all();
    bench.client(prompt(21, "a"));
    bench.pass_all();
    assert_eq!(bench.at_agent().last().unwrap()["method"], "session/prompt");
}

#[test]
fn a_kept_notification_ends_with_it() {
    let mut bench = closed();
    bench.agent(chunk("a", 1));
    let (index, _) = bench.turn();
    bench.kept(index, Vec::new());
    bench.client(prompt(1, "b"));
    let (index, _) = bench.turn();
    bench.trap(index);
    assert!(bench.at_client().iter().all(|line| line.get("method").is_none()));
}
