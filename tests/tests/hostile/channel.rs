//! A proxy that means harm on the channel: it says what is not its to say.

use super::{Hostile, goes_on};
use consort_tests::guests::proxy;
use consort_tests::session::{begin, prompt, request};
use serde_json::json;

#[test]
fn ids_that_are_not_its_own_are_refused_and_nobody_gets_a_forged_answer() {
    // Another proxy has a request of the client in its hands, and one of the agent.
    let neighbour = format!("[[proxies]]\nfile = {:?}", proxy("passthrough"));
    // What is refused counts as well.
    let hostile = Hostile::guest("forge", 0)
        .with("limits.messages = 100000")
        .with(&neighbour);
    let mut client = hostile.fresh();
    let mut agent = begin(&mut client, &hostile.listener);
    client.send_json(&request("held", "_held", &json!({})));
    let held = agent.expect();
    agent.send_json(&request("asked", "_asked", &json!({})));
    let asked = client.expect();

    client.send_json(&prompt("go", "GO"));
    let answer = client.expect();
    assert_eq!(answer["id"], "go");
    assert_eq!(answer["result"], json!({"first": true}), "its own request, once");
    let verdicts = client.expect();
    // All that is not its own; a request and another with the same id; an answer and another; passing on what was answered.
    let expected = "_verdicts/unknown-id/sent/unknown-id/sent/unknown-id/unknown-id";
    assert_eq!(verdicts["method"], expected, "{verdicts}");
    let own = agent.expect();
    assert_eq!(own["method"], "_own", "{own}");

    agent.answer(&own, &json!({}));
    agent.answer(&own, &json!({"again": true}));
    agent.answer(&held, &json!({"true": "answer"}));
    let answer = client.expect();
    assert_eq!(
        (&answer["id"], &answer["result"]),
        (&json!("held"), &json!({"true": "answer"}))
    );
    client.send_json(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"true": "answer"}}));
    let answer = agent.expect();
    assert_eq!(
        (&answer["id"], &answer["result"]),
        (&json!("asked"), &json!({"true": "answer"}))
    );
    goes_on(&mut client, &mut agent);
}
