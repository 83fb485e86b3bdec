//! Ids of requests: each side's own, of every kind that JSON-RPC allows, told apart by type, and answered once.

use consort_tests::chains::{every, none, passing};
use consort_tests::session::{chunk, notification, prompt, request};
use consort_tests::{Agent, Client};
use serde_json::{Value, json};

/// Ids as their peers write them; no two are the same.
const IDS: [&str; 14] = [
    "1",
    "\"1\"",
    "0",
    "\"0\"",
    "-1",
    "null",
    "\"null\"",
    "\"\"",
    "9007199254740993",
    "18446744073709551616",
    "\"6a1b\"",
    "\"é✓\"",
    "\" 1\"",
    "\"true\"",
];

/// The request that has this id, with the id in its params as text.
fn named(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"x/echo","params":{{"id":{}}}}}"#,
        json!(id)
    )
}

/// The answer to it.
fn echoed(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"id":{}}}}}"#, json!(id))
}

#[test]
fn ids_of_both_sides_keep_their_type_and_owner() {
    for chain in every(20, &["x/echo"]) {
        let (mut client, mut agent) = chain.start();
        for id in IDS {
            client.send(&named(id));
            agent.send(&named(id));
        }
        let at_agent: Vec<Value> = IDS.iter().map(|_| agent.expect()).collect();
        let at_client: Vec<Value> = IDS.iter().map(|_| client.expect()).collect();
        for request in at_agent.iter().rev() {
            agent.answer(request, &request["params"]);
        }
        for request in at_client.iter().rev() {
            client.send_json(&json!({"jsonrpc": "2.0", "id": request["id"], "result": request["params"]}));
        }
        let mut to_client: Vec<String> = IDS.iter().map(|_| client.expect_line()).collect();
        let mut to_agent: Vec<String> = IDS.iter().map(|_| agent.expect_line()).collect();
        let mut expected = IDS.map(echoed);
        to_client.sort();
        to_agent.sort();
        expected.sort();
        assert_eq!(to_client, expected, "{}", chain.name);
        assert_eq!(to_agent, expected, "{}", chain.name);
    }
}

#[test]
fn an_id_that_is_no_id_is_refused_with_id_null_or_logged() {
    for chain in [none(), passing(1)] {
        let (mut client, mut agent) = chain.start();
        for id in ["1.5", "1.0", "1e2", "true", "false", "{}", "{\"a\":1}", "[]", "[1]"] {
            client.send(&named(id));
            let answer = client.expect();
            assert_eq!(
                (&answer["id"], &answer["error"]["code"]),
                (&Value::Null, &json!(-32600)),
                "{id}: {answer}"
            );
            agent.send(&named(id));
        }
        client.send_json(&notification("marker", &json!({})));
        assert_eq!(agent.expect()["method"], "marker", "{}", chain.name);
        agent.send_json(&notification("marker", &json!({})));
        assert_eq!(client.expect()["method"], "marker", "{}", chain.name);
    }
}

#[test]
fn a_request_of_the_agent_is_no_answer_whatever_its_id_is() {
    for chain in every(20, &["session/request_permission"]) {
        let (mut client, mut agent) = chain.start();
        client.send_json(&prompt(3, "go"));
        let asked = agent.expect();
        agent.send_json(&request(
            asked["id"].clone(),
            "session/request_permission",
            &json!({"sessionId": "s1", "n": 1}),
        ));
        let question = client.expect();
        assert_eq!(question["method"], "session/request_permission", "{}", chain.name);
        client.send_json(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"n": 2}}));
        assert_eq!(
            agent.expect(),
            json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"n": 2}}),
            "{}",
            chain.name
        );
        agent.answer(&asked, &json!({"stopReason": "end_turn"}));
        assert_eq!(client.expect()["id"], 3, "{}", chain.name);
    }
}

#[test]
fn a_request_of_the_client_is_no_answer_whatever_its_id_is() {
    for chain in every(20, &["x/y"]) {
        let (mut client, mut agent) = chain.start();
        agent.send_json(&request("a", "session/request_permission", &json!({"sessionId": "s1"})));
        let question = client.expect();
        client.send_json(&request(question["id"].clone(), "x/y", &json!({})));
        let asked = agent.expect();
        assert_eq!(asked["method"], "x/y", "{}", chain.name);
        agent.answer(&asked, &json!({"n": 1}));
        assert_eq!(
            client.expect(),
            json!({"jsonrpc": "2.0", "id": question["id"], "result": {"n": 1}}),
            "{}",
            chain.name
        );
        client.send_json(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"n": 2}}));
        assert_eq!(
            agent.expect(),
            json!({"jsonrpc": "2.0", "id": "a", "result": {"n": 2}}),
            "{}",
            chain.name
        );
    }
}

/// Sends a marker both ways: everything before it was let through or dropped by then.
fn nothing_but_a_marker(client: &mut Client, agent: &mut Agent, after: &str) {
    client.send_json(&notification("marker", &json!({})));
    assert_eq!(agent.expect()["method"], "marker", "after {after}");
    agent.send_json(&notification("marker", &json!({})));
    assert_eq!(client.expect()["method"], "marker", "after {after}");
}

#[test]
fn an_answer_to_nothing_is_dropped() {
    for chain in every(20, &["session/prompt"]) {
        let (mut client, mut agent) = chain.start();
        client.send_json(&prompt(3, "go"));
        let asked = agent.expect();
        let number = asked["id"].as_u64().expect("Consort's ids are numbers");
        let others = [
            "null".to_owned(),
            format!("\"{number}\""),
            format!("-{number}"),
            format!("{number}000"),
            "3".to_owned(),
            "99999999999999999999999".to_owned(),
        ];
        for id in others.iter().filter(|id| **id != number.to_string()) {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"stopReason":"forged"}}}}"#);
            agent.send(&answer);
            client.send(&answer);
            let error = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":1,"message":"forged"}}}}"#);
            agent.send(&error);
            client.send(&error);
            nothing_but_a_marker(&mut client, &mut agent, id);
        }
        // The client cannot answer what the agent was asked.
        client.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{number},"result":{{"stopReason":"forged"}}}}"#
        ));
        nothing_but_a_marker(&mut client, &mut agent, "an answer from the wrong side");
        agent.answer(&asked, &json!({"stopReason": "end_turn"}));
        assert_eq!(client.expect()["result"]["stopReason"], "end_turn", "{}", chain.name);
    }
}

#[test]
fn a_second_answer_is_dropped() {
    for chain in every(20, &["session/prompt"]) {
        let (mut client, mut agent) = chain.start();
        client.send_json(&prompt(3, "go"));
        agent.send_json(&request("a", "x/ask", &json!({})));
        let (asked, question) = (agent.expect(), client.expect());
        for number in [1, 2] {
            agent.answer(&asked, &json!({"n": number}));
            client.send_json(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"n": number}}));
        }
        assert_eq!(
            client.expect(),
            json!({"jsonrpc": "2.0", "id": 3, "result": {"n": 1}}),
            "{}",
            chain.name
        );
        assert_eq!(
            agent.expect(),
            json!({"jsonrpc": "2.0", "id": "a", "result": {"n": 1}}),
            "{}",
            chain.name
        );
        nothing_but_a_marker(&mut client, &mut agent, "two answers");
    }
}

#[test]
fn requests_with_the_same_id_are_each_answered() {
    for chain in every(20, &["x/y"]) {
        let (mut client, mut agent) = chain.start();
        for n in [1, 2] {
            client.send_json(&request("same", "x/y", &json!({"n": n, "sessionId": "s1"})));
        }
        let (first, second) = (agent.expect(), agent.expect());
        assert_eq!(
            (&first["params"]["n"], &second["params"]["n"]),
            (&json!(1), &json!(2)),
            "{}",
            chain.name
        );
        agent.answer(&second, &json!({"n": 2}));
        agent.answer(&first, &json!({"n": 1}));
        for n in [2, 1] {
            assert_eq!(
                client.expect(),
                json!({"jsonrpc": "2.0", "id": "same", "result": {"n": n}}),
                "{}",
                chain.name
            );
        }
    }
}

#[test]
fn a_cancel_tells_ids_apart_by_their_type() {
    for chain in [none(), passing(2)] {
        let (mut client, mut agent) = chain.start();
        client.send_json(&request(1, "x/y", &json!({"n": 1})));
        client.send_json(&request("1", "x/y", &json!({"n": 2})));
        let (_number, text) = (agent.expect(), agent.expect());
        for unknown in [json!(2), json!(null), json!(1.0), json!({"id": 1}), json!([1])] {
            client.send_json(&notification("$/cancel_request", &json!({"requestId": unknown})));
        }
        client.send_json(&notification("$/cancel_request", &json!({})));
        client.send_json(&notification("$/cancel_request", &json!([1])));
        client.send_json(&notification("$/cancel_request", &json!({"requestId": "1"})));
        assert_eq!(
            agent.expect(),
            notification("$/cancel_request", &json!({"requestId": text["id"]})),
            "{}",
            chain.name
        );
        nothing_but_a_marker(&mut client, &mut agent, "cancels");
    }
}

#[test]
fn notifications_need_no_session_and_no_params() {
    for chain in every(20, &["x/y"]) {
        let (mut client, mut agent) = chain.start();
        for line in [
            r#"{"jsonrpc":"2.0","method":"x/y"}"#,
            r#"{"jsonrpc":"2.0","method":"x/y","params":null}"#,
            r#"{"jsonrpc":"2.0","method":"x/y","params":[]}"#,
            r#"{"jsonrpc":"2.0","method":"x/y","params":{"sessionId":7}}"#,
            r#"{"jsonrpc":"2.0","method":"x/y","params":{"sessionId":""}}"#,
            r#"{"jsonrpc":"2.0","method":""}"#,
            r#"{"jsonrpc":"2.0","method":"é\"\\\n"}"#,
        ] {
            client.send(line);
            assert_eq!(agent.expect_line(), line, "{}", chain.name);
            agent.send(line);
            assert_eq!(client.expect_line(), line, "{}", chain.name);
        }
        agent.send_json(&chunk("fine"));
        assert_eq!(client.expect(), chunk("fine"), "{}", chain.name);
    }
}
