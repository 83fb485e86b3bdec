//! What the agent asks the client passes as it was asked, and each question gets its own answer.

use consort_tests::chains::every;
use consort_tests::raw::{id, last};
use consort_tests::session::{SESSION, notification, prompt, request};
use serde_json::{Value, json};

const ASK: &str = "session/request_permission";

#[test]
fn a_permission_for_a_session_that_nobody_announced_is_asked() {
    for chain in every(10, &[ASK]) {
        let (mut client, mut agent) = chain.start();
        let params = json!({"sessionId": "child-of-s1", "toolCall": {"toolCallId": "t"}, "options": [{"optionId": "a", "name": "A", "kind": "allow_once"}]});
        agent.send_json(&request(0, ASK, &params));
        let asked = client.expect();
        assert_eq!(
            (&asked["method"], &asked["params"]),
            (&json!(ASK), &params),
            "{}",
            chain.name
        );
        let result = json!({"outcome": {"outcome": "selected", "optionId": "a"}});
        client.send_json(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
        assert_eq!(
            agent.expect(),
            json!({"jsonrpc": "2.0", "id": 0, "result": result}),
            "{}",
            chain.name
        );
    }
}

#[test]
fn options_of_one_kind_are_all_there_with_names_and_order() {
    let params = r#"{"sessionId":"s1","options":[{"optionId":"z","name":"Allow \u2713","kind":"allow_once"},{"name":"Allow","optionId":"y","kind":"allow_once"},{"optionId":"a","name":"Allow","kind":"allow_once","_meta":{"n":1.0}},{"optionId":"","name":"","kind":"allow_once"}],"toolCall":{"toolCallId":"t","kind":"switch_mode","rawInput":{"big":12345678901234567890123}}}"#;
    for chain in every(10, &[ASK]) {
        let (mut client, mut agent) = chain.start();
        agent.send(&format!(
            r#"{{"jsonrpc":"2.0","id":"q","method":"{ASK}","params":{params}}}"#
        ));
        let asked = client.expect_line();
        assert_eq!(last(&asked, "params"), params, "{}", chain.name);
        let result = r#"{"outcome":{"outcome":"selected","optionId":"a","_meta":{"n":1.0}}}"#;
        client.send(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id(&asked)));
        assert_eq!(
            agent.expect_line(),
            format!(r#"{{"jsonrpc":"2.0","id":"q","result":{result}}}"#),
            "{}",
            chain.name
        );
    }
}

#[test]
fn two_permissions_for_the_same_tool_call_each_get_their_own_answer() {
    for chain in every(10, &[ASK]) {
        let (mut client, mut agent) = chain.start();
        let params = json!({"sessionId": SESSION, "toolCall": {"toolCallId": "same"}, "options": []});
        agent.send_json(&request(1, ASK, &params));
        agent.send_json(&request("1", ASK, &params));
        let (first, second) = (client.expect(), client.expect());
        assert_ne!(first["id"], second["id"], "{}", chain.name);
        let chosen = |option: &str| json!({"outcome": {"outcome": "selected", "optionId": option}});
        client.send_json(&json!({"jsonrpc": "2.0", "id": second["id"], "result": chosen("second")}));
        client.send_json(&json!({"jsonrpc": "2.0", "id": first["id"], "result": chosen("first")}));
        assert_eq!(
            agent.expect(),
            json!({"jsonrpc": "2.0", "id": "1", "result": chosen("second")}),
            "{}",
            chain.name
        );
        assert_eq!(
            agent.expect(),
            json!({"jsonrpc": "2.0", "id": 1, "result": chosen("first")}),
            "{}",
            chain.name
        );
    }
}

#[test]
fn the_host_neither_widens_nor_answers_what_a_client_cannot_do() {
    let offers = [
        json!({"fs": {"readTextFile": false}}),
        json!({"elicitation": {"form": {}}}),
        json!({}),
    ];
    for chain in every(10, &["elicitation/create", "fs/read_text_file"]) {
        for capabilities in &offers {
            let (mut client, listener) = chain.fresh();
            let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
            client.send_json(&request(1, "initialize", &params));
            let mut agent = listener.accept();
            let first = agent.expect();
            assert_eq!(
                first["params"], params,
                "{}: nothing is offered that the client did not offer",
                chain.name
            );
            agent.answer(&first, &json!({"protocolVersion": 1}));
            assert_eq!(client.expect()["id"], 1, "{}", chain.name);
            for (method, params) in [
                (
                    "elicitation/create",
                    json!({"sessionId": SESSION, "mode": "url", "url": "https://example.org", "message": "m"}),
                ),
                ("fs/read_text_file", json!({"sessionId": SESSION, "path": "/x"})),
            ] {
                agent.send_json(&request("q", method, &params));
                let asked = client.expect();
                assert_eq!(
                    (&asked["method"], &asked["params"]),
                    (&json!(method), &params),
                    "{}",
                    chain.name
                );
                let error = json!({"code": -32601, "message": "Method not found", "data": {"method": method}});
                client.send_json(&json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}));
                assert_eq!(
                    agent.expect(),
                    json!({"jsonrpc": "2.0", "id": "q", "error": error}),
                    "{}",
                    chain.name
                );
            }
        }
    }
}

#[test]
fn what_is_asked_within_a_prompt_is_withdrawn_if_the_agent_withdraws_it() {
    for chain in every(10, &[ASK, "session/cancel"]) {
        let (mut client, mut agent) = chain.start();
        client.send_json(&prompt("p", "go"));
        let prompted = agent.expect();
        agent.send_json(&request("q", ASK, &json!({"sessionId": SESSION})));
        let asked = client.expect();
        client.send_json(&notification("session/cancel", &json!({"sessionId": SESSION})));
        assert_eq!(agent.expect()["method"], "session/cancel", "{}", chain.name);
        agent.send_json(&notification("$/cancel_request", &json!({"requestId": "q"})));
        let withdrawn = notification("$/cancel_request", &json!({"requestId": asked["id"]}));
        assert_eq!(client.expect(), withdrawn, "{}", chain.name);
        client
            .send_json(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"outcome": {"outcome": "cancelled"}}}));
        let answer = agent.expect();
        assert_eq!(
            answer,
            json!({"jsonrpc": "2.0", "id": "q", "result": {"outcome": {"outcome": "cancelled"}}}),
            "{}",
            chain.name
        );
        agent.answer(&prompted, &json!({"stopReason": "cancelled"}));
        assert_eq!(client.expect()["id"], "p", "{}", chain.name);
    }
}

#[test]
fn an_answer_goes_down_while_everything_is_held_up_on_the_way_to_the_client() {
    // The agent waits for the answer to go on with what is held: a host that kept the answer back would stand still.
    for chain in every(200, &["session/update"]) {
        let (mut client, mut agent) = chain.start();
        agent.send_json(&request("q", ASK, &json!({"sessionId": SESSION})));
        let asked = client.expect();
        agent.send_json(&notification(
            "session/update",
            &json!({"sessionId": SESSION, "update": {"n": 1}}),
        ));
        client.send_json(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": Value::Null}));
        assert_eq!(
            agent.expect(),
            json!({"jsonrpc": "2.0", "id": "q", "result": null}),
            "{}",
            chain.name
        );
        assert_eq!(client.expect()["params"]["update"]["n"], 1, "{}", chain.name);
    }
}
