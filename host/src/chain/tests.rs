//! The chain by itself, one rule a test.

mod ahead;
mod audit;
mod closed;
mod holding;
mod mcp;
mod versions;
mod waiting;

use super::bench::{
    Bench, answer, chunk, everything, incoming, method, notify, ok, pass, prompt, prompt_at_agent, registered, request,
    take,
};
use super::{Effect, Role, Router};
use crate::message::{How, Interest, Peer};
use crate::wire::text::Text;
use serde_json::{Value, json};

#[test]
fn an_answer_never_overtakes_what_a_proxy_holds() {
    let mut bench = Bench::new(vec![everything()]);
    let at_agent = prompt_at_agent(&mut bench, 7, "s");
    bench.agent(chunk("s", 1));
    bench.agent(json!({"id": at_agent, "result": {"stopReason": "end_turn"}}));
    bench.agent(chunk("t", 2));
    let (index, first) = bench.turn();
    bench.kept(
        index,
        vec![request(
            Peer::Host,
            Some(1),
            None,
            "host/sleep",
            json!({"milliseconds": 1}),
        )],
    );
    bench.pass_all();
    // The other session went on, the answer waits behind the chunk.
    assert_eq!(
        bench.at_client(),
        [json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "t", "n": 2}})]
    );
    let Some(Effect::Sleep { operation, .. }) = bench.effect() else {
        panic!("the sleep is an effect");
    };
    bench.router.host_answer(0, operation, ok(json!({})));
    let (index, woken) = bench.turn();
    assert_eq!(method(&woken), "response 1");
    bench.done(
        index,
        vec![notify(
            Peer::Client,
            Some(first.ticket),
            "session/update",
            json!({"sessionId": "s", "n": 1}),
        )],
    );
    let lines = bench.at_client();
    assert_eq!(lines[0]["params"]["n"], 1);
    assert_eq!(lines[1]["id"], 7);
    assert_eq!(lines.len(), 2);
}

#[test]
fn a_response_under_an_own_id_holds_later_messages_until_the_request_is_answered() {
    let mut bench = Bench::new(vec![everything()]);
    bench.client(prompt(7, "s"));
    let (index, turn) = bench.turn();
    bench.done(
        index,
        vec![request(
            Peer::Agent,
            Some(5),
            Some(turn.ticket),
            "session/prompt",
            json!({"sessionId": "s"}),
        )],
    );
    let at_agent = bench.at_agent()[0]["id"].clone();
    bench.agent(json!({"id": at_agent, "result": {"stopReason": "end_turn"}}));
    bench.agent(chunk("s", 1));
    let (index, response) = bench.turn();
    assert_eq!(method(&response), "response 5");
    bench.done(index, Vec::new());
    assert!(
        bench.router.next_turn().is_none(),
        "the chunk waits behind the response"
    );
    // A sleep's answer is a turn of its own, in which the proxy answers the prompt.
    bench.client(json!({"method": "other"}));
    let (index, other) = bench.turn();
    let mut sent = pass(&other);
    sent.push(answer(Peer::Client, turn.ticket, ok(json!({"stopReason": "edited"}))));
    bench.done(index, sent);
    bench.pass_all();
    let lines = bench.at_client();
    assert_eq!(lines[0]["result"]["stopReason"], "edited");
    assert_eq!(lines[1]["params"]["n"], 1);
}

#[test]
fn a_cancel_follows_its_prompt_and_is_announced() {
    let mut bench = Bench::new(vec![everything()]);
    bench.client(prompt(7, "s"));
    bench.client(json!({"method": "session/cancel", "params": {"sessionId": "s"}}));
    let (index, held) = bench.turn();
    bench.kept(
        index,
        vec![request(
            Peer::Agent,
            Some(9),
            None,
            "session/prompt",
            json!({"sessionId": "s"}),
        )],
    );
    let (index, news) = bench.turn();
    assert_eq!((method(&news).as_str(), news.copy), ("session/cancel", true));
    assert_eq!(bench.at_agent()[0]["method"], "session/prompt");
    bench.done(
        index,
        vec![request(
            Peer::Agent,
            None,
            Some(held.ticket),
            "session/prompt",
            json!({"sessionId": "s", "late": 1}),
        )],
    );
    bench.pass_all();
    let lines = bench.at_agent();
    assert_eq!(lines[0]["params"]["late"], 1);
    assert_eq!(lines[1]["method"], "session/cancel");
    assert_eq!(lines.len(), 2);
}

#[test]
fn a_cancel_behind_a_prompt_reaches_the_holders_own_requests_at_once() {
    let mut bench = Bench::new(vec![everything()]);
    bench.client(prompt(7, "s"));
    let (index, held) = bench.turn();
    bench.kept(
        index,
        vec![request(
            Peer::Agent,
            Some(9),
            None,
            "session/prompt",
            json!({"sessionId": "s"}),
        )],
    );
    assert_eq!(bench.at_agent().len(), 1);
    bench.client(json!({"method": "session/cancel", "params": {"sessionId": "s"}}));
    assert_eq!(bench.at_agent()[0]["method"], "session/cancel");
    let (index, _) = bench.turn();
    bench.done(
        index,
        vec![answer(
            Peer::Client,
            held.ticket,
            ok(json!({"stopReason": "cancelled"})),
        )],
    );
    bench.pass_all();
    // The original is dropped: its prompt never went to the agent.
    assert_eq!(bench.at_agent(), [] as [Value; 0]);
    assert_eq!(bench.at_client()[0]["id"], 7);
}

#[test]
fn a_cancelled_request_is_cancelled_once_a_hop_and_answered_once() {
    let mut bench = Bench::new(vec![everything(), everything()]);
    bench.client(prompt(7, "s"));
    let (first, turn) = bench.turn();
    bench.done(
        first,
        vec![request(
            Peer::Agent,
            Some(1),
            Some(turn.ticket),
            "session/prompt",
            json!({"sessionId": "s"}),
        )],
    );
    bench.pass_all();
    let at_agent = bench.at_agent()[0]["id"].clone();
    bench.client(json!({"method": "$/cancel_request", "params": {"requestId": 7}}));
    bench.client(json!({"method": "$/cancel_request", "params": {"requestId": 7}}));
    bench.client(json!({"method": "$/cancel_request", "params": {"requestId": "7"}}));
    let lines = bench.at_agent();
    assert_eq!(
        lines,
        [json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": at_agent}})]
    );
    let (index, told) = bench.turn();
    assert_eq!((index, method(&told).as_str()), (0, "$/cancel_request"));
    let error = json!({"code": -32800, "message": "cancelled"});
    bench.done(
        0,
        vec![
            notify(Peer::Agent, None, "$/cancel_request", json!({"requestId": 1})),
            answer(Peer::Client, turn.ticket, Err(Text::of(&error))),
        ],
    );
    assert_eq!(bench.at_client()[0]["error"]["code"], -32800);
    assert_eq!(bench.at_agent(), [] as [Value; 0]);
    bench.agent(json!({"id": at_agent, "result": {}}));
    bench.pass_all();
    assert_eq!(bench.at_client(), [] as [Value; 0]);
    assert_eq!(bench.router.open_requests(), 0);
}

#[test]
fn a_failed_turn_costs_what_the_proxy_had_in_its_hands_and_nothing_else() {
    let mut bench = Bench::new(vec![everything()]);
    let passed = prompt_at_agent(&mut bench, 1, "a");
    bench.client(prompt(2, "b"));
    let (index, _held) = bench.turn();
    bench.kept(index, Vec::new());
    bench.client(prompt(3, "c"));
    let (index, own) = bench.turn();
    bench.done(
        index,
        vec![request(
            Peer::Agent,
            Some(9),
            Some(own.ticket),
            "session/prompt",
            json!({"sessionId": "c"}),
        )],
    );
    let carried = bench.at_agent()[0]["id"].clone();
    bench.client(prompt(4, "d"));
    bench.client(prompt(5, "e"));
    let (index, _) = bench.turn();
    bench.trap(index);
    let to_agent = bench.at_agent();
    let summary: Vec<String> = to_agent
        .iter()
        .map(|line| {
            format!(
                "{} {}{}",
                line["method"], line["params"]["sessionId"], line["params"]["requestId"]
            )
        })
        .collect();
    assert_eq!(
        summary,
        [
            "\"session/cancel\" \"c\"null".to_owned(),
            format!("\"$/cancel_request\" null{carried}"),
            "\"session/prompt\" \"d\"null".to_owned(),
            "\"session/prompt\" \"e\"null".to_owned(),
        ]
    );
    let failed: Vec<Value> = bench.at_client();
    let ids: Vec<&Value> = failed.iter().map(|line| &line["id"]).collect();
    assert_eq!(ids, [2, 3]);
    for line in &failed {
        assert_eq!(line["error"]["data"]["proxy"], "p0");
        assert_eq!(line["error"]["data"]["class"], "trap");
        assert_eq!(line["error"]["data"]["phase"], "receive");
    }
    bench.agent(json!({"id": passed, "result": {}}));
    bench.agent(json!({"id": carried, "result": {}}));
    assert_eq!(bench.at_client()[0]["id"], 1);
    assert_eq!(bench.at_client(), [] as [Value; 0]);
}

#[test]
fn a_new_instance_gets_initialize_again_before_what_waited() {
    let mut bench = Bench::new(vec![everything()]);
    bench.client(prompt(1, "a"));
    let (index, _) = bench.turn();
    bench.trap(index);
    assert!(matches!(bench.effect(), Some(Effect::Restart { proxy: 0, .. })));
    bench.client(prompt(2, "b"));
    assert!(bench.router.next_turn().is_none(), "there is no instance yet");
    bench.router.proxy_restarted(0, Ok(registered(everything())));
    let (index, turn) = bench.turn();
    assert!(turn.replay);
    assert_eq!(method(&turn), "initialize");
    bench.done(
        index,
        vec![request(
            Peer::Agent,
            Some(3),
            Some(turn.ticket),
            "initialize",
            json!({}),
        )],
    );
    let (index, turn2) = bench.turn();
    assert_eq!(method(&turn2), "response 3");
    bench.done(index, vec![answer(Peer::Client, turn.ticket, ok(json!({})))]);
    let (_, turn) = bench.turn();
    assert_eq!(method(&turn), "session/prompt");
    assert_eq!(bench.at_agent().len(), 1, "only the prompt of the failed turn is there");
}

#[test]
fn a_proxy_that_fails_again_and_again_is_passed_by() {
    let mut bench = Bench::new(vec![everything()]);
    for round in 0..10 {
        bench.client(prompt(round, "a"));
        match bench.router.next_turn() {
            Some((index, _)) => bench.trap(index),
            None => assert_ne!(round, 0),
        }
        while let Some(effect) = bench.effect() {
            if let Effect::Restart { after, .. } = effect
                && after.is_zero()
            {
                bench.router.proxy_restarted(0, Ok(registered(everything())));
                bench.pass_all();
            }
        }
    }
    assert_eq!(bench.at_agent().len(), 10);
}

#[test]
fn notifications_of_a_session_wait_for_its_birth() {
    let mut bench = Bench::new(vec![]);
    bench.client(json!({"id": 1, "method": "session/new", "params": {"cwd": "/"}}));
    let at_agent = bench.at_agent()[0]["id"].clone();
    bench.agent(chunk("new", 1));
    bench.agent(json!({"id": 1, "method": "fs/read_text_file", "params": {"sessionId": "new"}}));
    assert_eq!(
        bench.at_client()[0]["method"],
        "fs/read_text_file",
        "requests never wait"
    );
    bench.agent(json!({"id": at_agent, "result": {"sessionId": "new"}}));
    let lines = bench.at_client();
    assert_eq!(lines[0]["id"], 1);
    assert_eq!(lines[1]["params"]["n"], 1);
}

#[test]
fn after_a_failed_initialize_nothing_goes_past_it() {
    let mut router = Router::new(Role::Agent, Vec::new(), None);
    router.from_client(incoming(&json!({"id": 1, "method": "session/new"})));
    router.from_client(incoming(&json!({"id": 2, "method": "initialize", "params": {}})));
    router.from_client(incoming(
        &json!({"id": 3, "method": "initialize", "params": {"protocolVersion": 1}}),
    ));
    router.from_client(incoming(&json!({"id": 4, "method": "session/new"})));
    router.agent_started(Err(Text::of(&json!({"code": -32603, "message": "no"}))));
    let lines = take(router.client_output());
    let codes: Vec<String> = lines
        .iter()
        .map(|line| format!("{} {}", line["id"], line["error"]["code"]))
        .collect();
    assert_eq!(codes, ["1 -32600", "2 -32602", "3 -32603", "4 -32600"]);
}

#[test]
fn an_observer_gets_copies_of_both_and_delays_nothing() {
    let observe = [Peer::Client, Peer::Agent].map(|source| Interest {
        source,
        method: "*".into(),
        how: How::Observe,
    });
    let mut bench = Bench::new(vec![observe.to_vec()]);
    bench.client(prompt(1, "s"));
    let at_agent = bench.at_agent()[0]["id"].clone();
    for number in 0..1000 {
        bench.agent(chunk("s", number));
    }
    bench.agent(json!({"id": at_agent, "result": {}}));
    assert_eq!(bench.at_client().len(), 1001);
    let (index, first) = bench.turn();
    assert!(first.copy);
    bench.done(index, Vec::new());
    let mut seen = 1;
    while let Some((index, turn)) = bench.router.next_turn() {
        assert!(turn.copy);
        bench.done(index, Vec::new());
        seen += 1;
    }
    assert_eq!(seen, 256);
    bench.agent(chunk("s", 0));
    let (index, news) = bench.turn();
    assert_eq!(method(&news), "host/lost");
    bench.done(index, Vec::new());
    assert_eq!(method(&bench.turn().1), "session/update");
}

#[test]
fn ids_of_both_sides_never_mix() {
    let mut bench = Bench::new(vec![everything()]);
    for id in [json!(1), json!("1"), json!(null)] {
        bench.client(json!({"id": id, "method": "x/y"}));
    }
    for id in [json!(1), json!(0)] {
        bench.agent(json!({"id": id, "method": "fs/z"}));
    }
    bench.pass_all();
    let to_agent = bench.at_agent();
    let to_client = bench.at_client();
    for line in to_agent.iter().rev() {
        bench.agent(json!({"id": line["id"], "result": {"echo": line["id"]}}));
    }
    for line in &to_client {
        bench.client(json!({"id": line["id"], "result": null}));
    }
    bench.pass_all();
    let ids: Vec<Value> = bench.at_client().iter().map(|line| line["id"].clone()).collect();
    assert_eq!(ids, [json!(null), json!("1"), json!(1)]);
    let ids: Vec<Value> = bench.at_agent().iter().map(|line| line["id"].clone()).collect();
    assert_eq!(ids, [json!(1), json!(0)]);
}

#[test]
fn the_end_of_either_side_answers_every_request() {
    let mut bench = Bench::new(vec![everything()]);
    let _ = prompt_at_agent(&mut bench, 1, "s");
    bench.agent(json!({"id": 9, "method": "session/request_permission", "params": {"sessionId": "s"}}));
    bench.pass_all();
    let asked = bench.at_client()[0]["id"].clone();
    bench
        .router
        .agent_ended(Text::of(&json!({"code": -32603, "message": "gone"})));
    bench.pass_all();
    let lines = bench.at_client();
    assert_eq!(lines[0]["id"], 1);
    assert_eq!(lines[0]["error"]["message"], "gone");
    assert_eq!(
        lines[1],
        json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": asked}})
    );
    bench.client(prompt(2, "s"));
    bench.pass_all();
    assert_eq!(bench.at_client()[0]["error"]["message"], "gone");
    assert_eq!(bench.router.open_requests(), 0);
}

#[test]
fn a_proxy_that_waits_with_each_message_loses_none() {
    const NOTES: u64 = 13_000;
    let mut bench = Bench::new(vec![everything()]);
    let mut given = Vec::new();
    let mut sleeps = Vec::new();
    for number in 0..NOTES {
        bench.agent(json!({"method": "note", "params": {"n": number}}));
    }
    let mut next_id = 0;
    loop {
        while let Some((index, turn)) = bench.router.next_turn() {
            if method(&turn).starts_with("response") {
                let crate::message::Message::Response(response) = &turn.message else {
                    unreachable!()
                };
                let held: &crate::message::Turn = &given[usize::try_from(response.id).unwrap()];
                bench.done(index, pass(held));
            } else {
                given.push(turn);
                bench.kept(
                    index,
                    vec![request(
                        Peer::Host,
                        Some(next_id),
                        None,
                        "host/sleep",
                        json!({"milliseconds": 1}),
                    )],
                );
                next_id += 1;
            }
            while let Some(effect) = bench.effect() {
                if let Effect::Sleep { operation, .. } = effect {
                    sleeps.push(operation);
                }
            }
            assert!(sleeps.len() < 13_000, "there is a limit to what is given at once");
        }
        let Some(operation) = sleeps.pop() else { break };
        bench.router.host_answer(0, operation, ok(json!({})));
    }
    assert_eq!(bench.at_client().len(), usize::try_from(NOTES).unwrap());
}
