//! Versions of the protocol: lowered on the way down, never raised and never changed on the way back; and a conversation in the draft
//! of version 2 passes undamaged where no proxy stands in between that does not speak it.

use consort_tests::chains::{Chain, every, none, passing, slow};
use consort_tests::raw::{id, last};
use consort_tests::session::{prompt, request};
use consort_tests::{Agent, AgentListener, Client};
use serde_json::{Value, json};

/// Chains without a proxy that takes part in anything.
fn bystanders() -> Vec<Chain> {
    let watching = json!({"answers": false});
    vec![
        none(),
        // It says that it understands version 2.
        passing(1),
        Chain::new("a proxy without interests", &slow_without_methods()),
        Chain::new("a proxy that only watches", &[("observer", watching.clone())]),
        Chain::new(
            "bystanders",
            &[
                ("observer", watching.clone()),
                slow_without_methods()[0].clone(),
                ("observer", watching),
            ],
        ),
    ]
}

fn slow_without_methods() -> [(&'static str, Value); 1] {
    [("slow", json!({"milliseconds": 0, "methods": []}))]
}

/// Offers a version to the chain; gives what the agent was offered.
fn offer(client: &mut Client, listener: &AgentListener, version: u64) -> (Agent, Value) {
    client.send_json(&request(
        "init",
        "initialize",
        &json!({"protocolVersion": version, "_meta": {"x": 1}}),
    ));
    let mut agent = listener.accept();
    let initialize = agent.expect();
    assert_eq!(initialize["method"], "initialize");
    (agent, initialize)
}

#[test]
fn an_offer_is_lowered_to_what_the_proxies_speak_and_the_rest_of_it_stays() {
    let params =
        r#"{ "capabilities":{"n":1.10}, "protocolVersion" : 2 ,"info":{"name":"é","version":"1"},"_meta":{"a":[]} }"#;
    let lowered = params.replace(": 2 ,", ": 1 ,");
    let taking_part = every(10, &["session/prompt"])
        .into_iter()
        // No proxy, and one that understands 2.
        .skip(2)
        .map(|chain| (chain, lowered.as_str()));
    for (chain, expected) in bystanders().into_iter().map(|chain| (chain, params)).chain(taking_part) {
        let (mut client, listener) = chain.fresh();
        client.send(&format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{params}}}"#
        ));
        assert_eq!(
            last(&listener.accept().expect_line(), "params"),
            expected,
            "{}",
            chain.name
        );
    }
}

#[test]
fn a_client_that_offers_2_and_an_agent_that_speaks_1_agree_on_1() {
    for chain in bystanders().into_iter().chain(every(10, &["session/prompt"])) {
        let (mut client, listener) = chain.fresh();
        let (mut agent, initialize) = offer(&mut client, &listener, 2);
        agent.answer(&initialize, &json!({"protocolVersion": 1, "agentCapabilities": {}}));
        let answer = client.expect();
        assert_eq!(
            answer["result"],
            chain.bridged(&json!({"protocolVersion": 1, "agentCapabilities": {}})),
            "{}",
            chain.name
        );
        client.send_json(&prompt(3, "go"));
        let asked = agent.expect();
        agent.answer(&asked, &json!({"stopReason": "end_turn"}));
        assert_eq!(
            client.expect()["result"],
            json!({"stopReason": "end_turn"}),
            "{}",
            chain.name
        );
    }
}

#[test]
fn an_agent_that_answers_more_than_it_was_offered_is_one_clear_failure() {
    for chain in bystanders().into_iter().chain(every(10, &["session/prompt"])) {
        let (mut client, listener) = chain.fresh();
        let (mut agent, initialize) = offer(&mut client, &listener, 1);
        assert_eq!(initialize["params"]["protocolVersion"], 1, "{}", chain.name);
        agent.answer(
            &initialize,
            &json!({"protocolVersion": 2, "info": {"name": "a", "version": "0"}}),
        );
        let answer = client.expect();
        assert_eq!(answer["id"], "init", "{}", chain.name);
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(
            message.contains("version 2") && message.contains('1'),
            "{}: {answer}",
            chain.name
        );
        // Nothing of one version goes on under the other.
        client.send_json(&request(2, "session/new", &json!({"cwd": "/", "mcpServers": []})));
        let refused = client.expect();
        assert_eq!(
            (&refused["id"], &refused["error"]["code"]),
            (&json!(2), &json!(-32600)),
            "{}",
            chain.name
        );
        assert!(agent.is_quiet(), "{}", chain.name);
    }
}

#[test]
fn an_agent_that_answers_2_to_a_proxied_offer_of_2_is_a_failure_too() {
    // The client would take it, but the proxies in between do not speak it.
    for chain in every(10, &["session/prompt"]).into_iter().skip(2) {
        let (mut client, listener) = chain.fresh();
        let (mut agent, initialize) = offer(&mut client, &listener, 2);
        assert_eq!(initialize["params"]["protocolVersion"], 1, "{}", chain.name);
        agent.answer(&initialize, &json!({"protocolVersion": 2}));
        assert!(client.expect()["error"]["message"].is_string(), "{}", chain.name);
    }
}

/// A proxy that puts a version into the offer and into the answer.
fn meddling(offered: u64, answered: u64) -> Chain {
    let put = |version: u64| json!([{"op": "replace", "path": "/protocolVersion", "value": version}]);
    Chain::new(
        "a proxy that edits versions",
        &[(
            "rewriter",
            json!({"method": "initialize", "params": put(offered), "result": put(answered)}),
        )],
    )
}

#[test]
fn a_proxy_may_lower_the_offer_and_neither_raise_it_nor_change_the_answer() {
    // What the client offers, what the proxy makes of offer and answer; what the agent sees, answers, and the client gets.
    for (offered, proxy, seen, answered) in [
        (1, (2, 2), 1, 1),
        (1, (9, 1), 1, 1),
        (1, (0, 1), 0, 0),
        (1, (1, 0), 1, 1),
        (2, (2, 2), 1, 1),
        (2, (1, 2), 1, 0),
    ] {
        let chain = meddling(proxy.0, proxy.1);
        let (mut client, listener) = chain.fresh();
        let (mut agent, initialize) = offer(&mut client, &listener, offered);
        assert_eq!(
            initialize["params"],
            json!({"protocolVersion": seen, "_meta": {"x": 1}}),
            "{offered}, {proxy:?}"
        );
        agent.answer(&initialize, &json!({"protocolVersion": answered, "n": 1}));
        let answer = client.expect();
        assert_eq!(
            answer["result"],
            chain.bridged(&json!({"protocolVersion": answered, "n": 1})),
            "{offered}, {proxy:?}: {answer}"
        );
    }
}

#[test]
fn versions_that_nobody_knows_yet_pass_where_nobody_takes_part() {
    for chain in bystanders().into_iter().filter(|chain| chain.name != passing(1).name) {
        let (mut client, listener) = chain.fresh();
        let (mut agent, initialize) = offer(&mut client, &listener, 65535);
        assert_eq!(initialize["params"]["protocolVersion"], 65535, "{}", chain.name);
        agent.answer(&initialize, &json!({"protocolVersion": 3}));
        assert_eq!(
            client.expect()["result"],
            json!({"protocolVersion": 3}),
            "{}",
            chain.name
        );
    }
}

/// Somebody's line in a conversation.
enum Line {
    /// A request of the client and the agent's answer, as text of params and of `"result":…` or `"error":…`.
    Client(&'static str, &'static str, &'static str),
    /// A request of the agent and the client's answer.
    Agent(&'static str, &'static str, &'static str),
    /// A notification of the client.
    Tells(&'static str, &'static str),
    /// Updates of the agent, in one write.
    Updates(&'static [&'static str]),
}

/// A conversation in the draft of version 2: a prompt is answered at once, states and messages come as updates, and so does the end.
const CONVERSATION: &[Line] = &[
    Line::Client(
        "initialize",
        r#"{"protocolVersion":2,"info":{"name":"editor","title":"Editor","version":"1.0"},"capabilities":{"elicitation":{"form":{}},"_meta":{"n":1.0}}}"#,
        r#""result":{"protocolVersion":2,"info":{"name":"agent","version":"0.1"},"capabilities":{"session":{"prompt":{"image":{}},"mcp":{"stdio":{},"http":{},"acp":{}},"resume":{}}},"authMethods":[{"type":"agent","methodId":"a","name":"A"}]}"#,
    ),
    Line::Client("auth/login", r#"{"methodId":"a"}"#, r#""result":{}"#),
    Line::Client(
        "session/new",
        r#"{"cwd":"/","mcpServers":[{"type":"acp","name":"x","serverId":"server-1"}]}"#,
        r#""result":{"sessionId":"s1","configOptions":[{"id":"mode","name":"Mode","type":"select","currentValue":"ask","options":[]}]}"#,
    ),
    Line::Updates(&[
        r#"{"sessionId":"s1","update":{"sessionUpdate":"available_commands_update","availableCommands":[]}}"#,
    ]),
    Line::Client(
        "session/prompt",
        r#"{"sessionId":"s1","prompt":[{"type":"text","text":"Hello"}],"idempotencyKey":"k-1"}"#,
        r#""result":{"messageId":"msg_user_8f7a1"}"#,
    ),
    Line::Updates(&[
        r#"{"sessionId":"s1","update":{"sessionUpdate":"user_message","messageId":"msg_user_8f7a1","content":[{"type":"text","text":"Hello"}]}}"#,
        r#"{"sessionId":"s1","update":{"sessionUpdate":"state_update","state":"running"}}"#,
        r#"{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk","messageId":"msg_agent_c42b9","content":{"type":"text","text":"On "}}}"#,
        r#"{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk","messageId":"msg_agent_c42b9","content":{"type":"text","text":"it."}}}"#,
        r#"{"sessionId":"s1","update":{"sessionUpdate":"tool_call_update","toolCallId":"call_001","title":"Edit","status":"pending","rawInput":{"n":1.10}}}"#,
        r#"{"sessionId":"s1","update":{"sessionUpdate":"tool_call_content_chunk","toolCallId":"call_001","content":{"type":"content","content":{"type":"text","text":"partial"}}}}"#,
        r#"{"sessionId":"s1","update":{"sessionUpdate":"terminal_output_chunk","terminalId":"t1","data":"G1szMm0="}}"#,
        r#"{"sessionId":"s1","update":{"sessionUpdate":"state_update","state":"requires_action"}}"#,
    ]),
    Line::Agent(
        "session/request_permission",
        r#"{"sessionId":"s1","title":"Approve file edit?","subject":{"type":"tool_call","toolCall":{"toolCallId":"call_001"}},"options":[{"optionId":"allow","name":"Allow","kind":"allow_once"}]}"#,
        r#""result":{"outcome":{"outcome":"selected","optionId":"allow"}}"#,
    ),
    // A second prompt while the first one is worked on, which version 1 does not know.
    Line::Client(
        "session/prompt",
        r#"{"sessionId":"s1","prompt":[{"type":"text","text":"And be quick"}]}"#,
        r#""result":{"messageId":"msg_user_2"}"#,
    ),
    Line::Client(
        "tool_call/cancel",
        r#"{"sessionId":"s1","toolCallId":"call_001"}"#,
        r#""result":{}"#,
    ),
    Line::Tells("session/cancel", r#"{"sessionId":"s1"}"#),
    Line::Updates(&[
        r#"{"sessionId":"s1","update":{"sessionUpdate":"usage_update","used":1,"size":2}}"#,
        r#"{"sessionId":"s1","update":{"sessionUpdate":"agent_message","messageId":"msg_agent_c42b9","content":[]}}"#,
        r#"{"sessionId":"s1","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"error","error":{"code":-32099,"message":"Provider unavailable","data":{"status":503}}}}"#,
    ]),
    Line::Client(
        "session/prompt",
        r#"{"sessionId":"s1","prompt":[]}"#,
        r#""error":{"code":-32602,"message":"Invalid params","data":null}"#,
    ),
    Line::Agent(
        "mcp/message",
        r#"{"serverId":"server-1","requestId":"r-1","method":"tools/list","_meta":{"n":1.0}}"#,
        r#""result":{"result":{"tools":[]},"_meta":{"n":1.0}}"#,
    ),
    Line::Client(
        "session/resume",
        r#"{"sessionId":"s1","cwd":"/","mcpServers":[],"replayFrom":{"type":"start"}}"#,
        r#""result":{}"#,
    ),
    Line::Updates(&[
        r#"{"sessionId":"s1","update":{"sessionUpdate":"replay_complete"}}"#,
        r#"{"sessionId":"s1","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}}"#,
    ]),
];

/// A request of one side and the other side's answer.
fn exchange(chain: &Chain, method: &str, params: &str, outcome: &str, ends: [&mut dyn Peer; 2]) {
    let [asking, answering] = ends;
    asking.say(&format!(
        r#"{{"jsonrpc":"2.0","id":"q","method":"{method}","params":{params}}}"#
    ));
    let line = answering.hear();
    assert!(
        line.contains(&format!(r#""method":"{method}""#)),
        "{}: {line}",
        chain.name
    );
    assert_eq!(last(&line, "params"), params, "{}", chain.name);
    answering.say(&format!(r#"{{"jsonrpc":"2.0","id":{},{outcome}}}"#, id(&line)));
    assert_eq!(
        asking.hear(),
        format!(r#"{{"jsonrpc":"2.0","id":"q",{outcome}}}"#),
        "{}",
        chain.name
    );
}

/// Either end of a conversation.
trait Peer {
    fn say(&mut self, line: &str);
    fn hear(&mut self) -> String;
}

impl Peer for Client {
    fn say(&mut self, line: &str) {
        self.send(line);
    }

    fn hear(&mut self) -> String {
        self.expect_line()
    }
}

impl Peer for Agent {
    fn say(&mut self, line: &str) {
        self.send(line);
    }

    fn hear(&mut self) -> String {
        self.expect_line()
    }
}

#[test]
fn a_conversation_in_version_2_passes_undamaged() {
    for chain in bystanders() {
        let (mut client, listener) = chain.fresh();
        let mut lines = CONVERSATION.iter();
        let Some(Line::Client(method, params, outcome)) = lines.next() else {
            panic!("a conversation begins with `initialize`");
        };
        client.send(&format!(
            r#"{{"jsonrpc":"2.0","id":"q","method":"{method}","params":{params}}}"#
        ));
        let mut agent = listener.accept();
        let line = agent.expect_line();
        assert_eq!(last(&line, "params"), *params, "{}", chain.name);
        agent.send(&format!(r#"{{"jsonrpc":"2.0","id":{},{outcome}}}"#, id(&line)));
        assert_eq!(
            client.expect_line(),
            format!(r#"{{"jsonrpc":"2.0","id":"q",{outcome}}}"#),
            "{}",
            chain.name
        );
        for line in lines {
            match line {
                Line::Client(method, params, outcome) => {
                    exchange(&chain, method, params, outcome, [&mut client, &mut agent]);
                }
                Line::Agent(method, params, outcome) => {
                    exchange(&chain, method, params, outcome, [&mut agent, &mut client]);
                }
                Line::Tells(method, params) => {
                    client.send(&format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#));
                    assert_eq!(last(&agent.expect_line(), "params"), *params, "{}", chain.name);
                }
                Line::Updates(updates) => {
                    let update =
                        |params: &str| format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{params}}}"#);
                    let text: String = updates.iter().map(|params| format!("{}\n", update(params))).collect();
                    agent.send_raw(text.as_bytes());
                    for params in *updates {
                        assert_eq!(client.expect_line(), update(params), "{}", chain.name);
                    }
                }
            }
        }
    }
}

#[test]
fn the_answer_to_a_prompt_of_version_2_comes_before_what_follows_it() {
    for chain in bystanders() {
        let (mut client, listener) = chain.fresh();
        let (mut agent, initialize) = offer(&mut client, &listener, 2);
        agent.answer(
            &initialize,
            &json!({"protocolVersion": 2, "info": {"name": "a", "version": "0"}}),
        );
        client.expect();
        for round in 0..100 {
            client.send_json(&request(
                round,
                "session/prompt",
                &json!({"sessionId": "s1", "prompt": []}),
            ));
            let asked = agent.expect();
            let update = json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s1", "update": {"sessionUpdate": "state_update", "state": "idle", "n": round}}});
            agent.send_raw(
                format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"messageId\":\"m\"}}}}\n{update}\n",
                    asked["id"]
                )
                .as_bytes(),
            );
            assert_eq!(client.expect()["id"], round, "{}", chain.name);
            assert_eq!(client.expect(), update, "{}", chain.name);
        }
    }
}

#[test]
fn a_version_that_was_agreed_on_is_kept_by_a_second_initialize() {
    for chain in [none(), passing(1), slow(10, &["session/prompt"])] {
        let (mut client, listener) = chain.fresh();
        let (mut agent, initialize) = offer(&mut client, &listener, 1);
        agent.answer(&initialize, &json!({"protocolVersion": 1}));
        assert_eq!(client.expect()["id"], "init", "{}", chain.name);
        client.send_json(&request("again", "initialize", &json!({"protocolVersion": 1})));
        let again = agent.expect();
        agent.answer(&again, &json!({"protocolVersion": 2}));
        let answer = client.expect();
        assert_eq!(answer["id"], "again", "{}", chain.name);
        assert!(answer["error"]["message"].is_string(), "{}: {answer}", chain.name);
    }
}

#[test]
fn an_agent_that_answers_more_than_a_proxy_left_of_the_offer_is_a_failure() {
    let (mut client, listener) = meddling(0, 0).fresh();
    let (mut agent, initialize) = offer(&mut client, &listener, 1);
    assert_eq!(initialize["params"]["protocolVersion"], 0);
    agent.answer(&initialize, &json!({"protocolVersion": 1}));
    let answer = client.expect();
    assert!(answer["error"]["message"].is_string(), "{answer}");
}
