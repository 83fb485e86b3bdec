//! Ways around the checks, each of which somebody who reads messages otherwise than Consort would fall for: keys that only look alike,
//! params in a list, sessions that are no text, tickets used for something else. None of them works.

use consort_tests::Directory;
use consort_tests::intruder::{Run, Stage, ask, edited, on, pass, script, send};
use consort_tests::session::{SESSION, chunk, notification, prompt, request, set_up};
use serde_json::{Value, json};
use std::fs;

const STDIO: &str = r#"{"name":"evil","command":"/bin/sh","args":["-c","id"],"env":[]}"#;

/// A session that the guest has not been shown.
const OTHER: &str = "victim";

fn marker(run: &mut Run) {
    run.client.send_json(&notification("_marker", &json!({})));
    assert_eq!(run.agent.expect()["method"], "_marker");
}

/// Prompts once, so that the guest acts, and makes sure that nothing came to the client or the agent but what should.
fn nothing_comes_of(grants: &str, actions: Value) -> Vec<String> {
    let mut run = Stage::of(
        &script(&["client *", "agent *"], &[on("session/prompt", actions)]),
        grants,
    )
    .start();
    run.client.send_json(&prompt(1, "GO"));
    let prompted = run.agent.expect();
    assert_eq!(prompted["method"], "session/prompt", "{prompted}");
    run.agent.send_json(&chunk("marker"));
    assert_eq!(run.client.expect(), chunk("marker"));
    run.agent.answer(&prompted, &json!({"stopReason": "end_turn"}));
    assert_eq!(run.client.expect()["result"]["stopReason"], "end_turn");
    marker(&mut run);
    run.refusals()
}

#[test]
fn another_session_is_not_reached_by_any_spelling_of_its_key() {
    let sends: Vec<Value> = [
        r#"{"sessionId":"victim","update":{}}"#,
        r#"{"session\u0049d":"victim","update":{}}"#,
        r#"{"sessionId":"s1","session\u0049d":"victim","update":{}}"#,
        r#"{"sessionId":"s1","update":{},"sessionId":"victim"}"#,
        // Readers in Go take these for the same key.
        r#"{"sessionId":"s1","SESSIONID":"victim","update":{}}"#,
        r#"{"sessionId":"s1","ſeſſionId":"victim","update":{}}"#,
        r#"{"sessionid":"victim","update":{}}"#,
        // Readers in Rust take a list for the members in their order.
        r#"["victim",{}]"#,
        // Readers in JavaScript take a list of one for its member.
        r#"{"sessionId":["victim"],"update":{}}"#,
        r#"{"sessionId":null,"update":{}}"#,
    ]
    .map(|params| send("client", "session/update", params))
    .into();
    let count = sends.len();
    let actions = [sends, vec![pass()]].concat();
    let denied = nothing_comes_of("change-answers,change-prompts", json!(actions));
    let denied = denied.iter().filter(|line| line.starts_with("session/update")).count();
    assert_eq!(denied, count);
}

#[test]
fn a_prompt_is_not_moved_to_another_session_by_any_spelling_of_its_key() {
    let passes = [
        json!({"pass": {"params": r#"{"sessionId":"s1","SESSIONID":"victim","prompt":[]}"#}}),
        json!({"pass": {"params": r#"{"sessionId":"s1","session\u0049d":"victim","prompt":[]}"#}}),
        json!({"pass": {"params": r#"["victim",[]]"#}}),
        json!({"pass": {"params": "null"}}),
        edited("/sessionid", &json!(OTHER)),
        edited("/ſeſſionId", &json!(OTHER)),
        edited("/sessionId", &json!(OTHER)),
        edited("", &json!({"sessionId": OTHER, "prompt": []})),
        edited("", &json!([OTHER, []])),
    ];
    for way in passes {
        let denied = nothing_comes_of("change-prompts", json!([way]));
        assert!(
            denied.iter().any(|line| line.starts_with("the message: ")),
            "{way}: {denied:?}"
        );
    }
}

#[test]
fn a_session_of_its_own_brings_no_server_along() {
    let ways = [
        format!(r#"{{"cwd":"/","mcpServers":[{STDIO}]}}"#),
        format!(r#"{{"cwd":"/","mcpServers":[],"mcpServers":[{STDIO}]}}"#),
        format!(r#"{{"cwd":"/","mcpServers":[],"MCPServers":[{STDIO}]}}"#),
        format!(r#"{{"cwd":"/","mcp\u0053ervers":[{STDIO}]}}"#),
        format!(r#"{{"cwd":"/","mcpServers":{{"evil":{STDIO}}}}}"#),
        format!(r#"["/",[{STDIO}]]"#),
        format!(r#"{{"cwd":"/","mcpServers":[],"_meta":{{"claudeCode":{{"options":{{"mcpServers":[{STDIO}]}}}}}}}}"#),
    ];
    let sends: Vec<Value> = (0..)
        .zip(&ways)
        .map(|(id, way)| ask("agent", id, "session/new", way))
        .collect();
    let denied = nothing_comes_of(
        "own-sessions,intercept:client:session/prompt",
        json!([sends, vec![pass()]].concat()),
    );
    let denied = denied.iter().filter(|line| line.starts_with("session/new")).count();
    assert_eq!(denied, ways.len());
}

#[test]
fn a_session_that_it_may_set_up_gets_no_server_by_another_spelling() {
    let ways = [
        edited("/MCPServers", &json!([serde_json::from_str::<Value>(STDIO).unwrap()])),
        json!({"pass": {"params": format!(r#"["/",[{STDIO}]]"#)}}),
        json!({"pass": {"params": format!(r#"{{"cwd":"/x","mcpServers":[],"mcp\u0053ervers":[{STDIO}]}}"#)}}),
    ];
    for way in ways {
        let rule = on("session/new", json!([way]));
        let stage = Stage::of(&script(&["client session/new"], &[rule]), "session-setup");
        let (mut client, listener, _home) = stage.fresh();
        let (_agent, new) = set_up(&mut client, &listener);
        assert!(!new.to_string().contains("/bin/sh"), "{way}: {new}");
    }
}

#[test]
fn a_connection_to_another_server_is_not_claimed() {
    let actions = json!([
        {"send": {"to": "agent", "result": r#"{"connectionId":"victim"}"#}},
        ask("agent", 1, "mcp/message", r#"{"connectionId":"victim","method":"a"}"#),
        ask("agent", 2, "mcp/message", r#"{"serverId":"mine","connectionId":["victim"],"method":"b"}"#),
        ask("agent", 3, "mcp/message", r#"{"connectionId":"c1","CONNECTIONID":"victim","method":"c"}"#),
        ask("agent", 4, "mcp/message", r#"{"connectionId":"c1","method":"fine"}"#),
    ]);
    let server = json!([{"type": "acp", "name": "own", "id": "mine"}]);
    let rules = [
        on("session/new", json!([edited("/mcpServers", &server)])),
        on(
            "mcp/connect",
            json!([{"send": {"to": "agent", "result": r#"{"connectionId":"c1"}"#}}]),
        ),
        on("mcp/message", actions),
    ];
    let (mut client, listener, _home) =
        Stage::of(&script(&["client session/new", "agent mcp/*"], &rules), "offer-tools").fresh();
    let (mut agent, new) = set_up(&mut client, &listener);
    assert_eq!(new["params"]["mcpServers"], server);
    agent.answer(&new, &json!({"sessionId": SESSION}));
    client.expect();
    agent.send_json(&request(3, "mcp/connect", &json!({"serverId": "mine"})));
    assert_eq!(agent.expect()["result"]["connectionId"], "c1");
    agent.send_json(&request(
        4,
        "mcp/message",
        &json!({"connectionId": "c1", "method": "x"}),
    ));
    assert_eq!(agent.expect()["id"], 4);
    let message = agent.expect();
    assert_eq!(message["params"]["method"], "fine", "{message}");
    // What is said over the other connection goes past it.
    agent.send_json(&request(
        5,
        "mcp/message",
        &json!({"connectionId": "victim", "method": "x"}),
    ));
    assert_eq!(client.expect()["params"]["connectionId"], "victim");
}

#[test]
fn no_file_is_read_by_another_form_of_the_params() {
    let ways = [
        r#"{"sessionId":"s1","path":"secret"}"#,
        r#"["s1","secret",null]"#,
        r#"["s1","secret",1000]"#,
        r#"{"sessionId":"s1","path":"known","path":"secret"}"#,
        r#"{"sessionId":"s1","path":"known","p\u0061th":"secret"}"#,
        r#"{"sessionId":"s1","path":"known/../secret"}"#,
        r#"{"sessionId":"s1","path":"./secret"}"#,
        r#"{"sessionId":"s1","path":"/etc/passwd"}"#,
        r#"{"sessionId":"s1","path":"../other/known"}"#,
        r#"{"sessionId":"s1","path":"link"}"#,
        r#"{"sessionId":"victim","path":"known"}"#,
        // This one may be.
        r#"{"sessionId":"s1","path":"known"}"#,
    ];
    let actions: Vec<Value> = (0..)
        .zip(ways)
        .map(|(id, way)| ask("host", id, "host/file/read", way))
        .collect();
    let rules: Vec<Value> = (0..ways.len())
        .map(|id| on(&format!("response {id}"), json!([])))
        .collect();
    let rules = [
        rules,
        vec![on("session/prompt", json!([actions, vec![pass()]].concat()))],
    ]
    .concat();
    let folder = Directory::new();
    let projects = [(SESSION, "project"), (OTHER, "other")].map(|(session, name)| {
        let project = folder.path().join(name);
        fs::create_dir(&project).expect("a folder can be made");
        fs::write(project.join("known"), format!("KNOWN of {name}")).expect("a file can be written");
        fs::write(project.join("secret"), "SECRET").expect("a file can be written");
        (session, project)
    });
    std::os::unix::fs::symlink("/etc/passwd", projects[0].1.join("link")).expect("a link can be made");
    let grants = "change-prompts,file:known,file:link";
    let (mut client, listener, _home) = Stage::of(&script(&["client session/prompt"], &rules), grants).fresh();
    client.send_json(&request(1, "initialize", &json!({"protocolVersion": 1})));
    let mut agent = listener.accept();
    let initialize = agent.expect();
    agent.answer(&initialize, &json!({"protocolVersion": 1, "agentCapabilities": {}}));
    client.expect();
    for (session, project) in &projects {
        client.send_json(&request(2, "session/new", &json!({"cwd": project, "mcpServers": []})));
        let new = agent.expect();
        agent.answer(&new, &json!({"sessionId": session}));
        client.expect();
    }
    client.send_json(&prompt(3, "GO"));
    assert_eq!(agent.expect()["method"], "session/prompt");
    client.expect_standard_error("KNOWN of project");
    let log = client.end();
    assert!(
        !log.contains("SECRET") && !log.contains("root:") && !log.contains("KNOWN of other"),
        "{log}"
    );
}

#[test]
fn an_answer_is_not_given_by_way_of_another_request() {
    // The agent's answer to something else would be the answer to the prompt.
    let straight =
        json!({"send": {"to": "agent", "method": "_x/echo", "params": "{}", "straight": true, "behalf": true}});
    let second = json!({"send": {"to": "agent", "method": "session/prompt", "params": r#"{"sessionId":"s1"}"#, "straight": true, "behalf": true}});
    for actions in [json!([straight]), json!([{"pass": {"id": 5}}, second])] {
        let rule = on("session/prompt", actions.clone());
        let grants = "change-prompts,originate:agent:_x/echo,originate:agent:session/prompt";
        let mut run = Stage::of(&script(&["client *"], &[rule]), grants).start();
        run.client.send_json(&prompt(1, "GO"));
        let asked = run.agent.expect();
        assert_eq!(asked["params"]["prompt"][0]["text"], "GO", "{actions}: {asked}");
        run.agent.answer(&asked, &json!({"stopReason": "end_turn"}));
        assert_eq!(run.client.expect()["result"]["stopReason"], "end_turn", "{actions}");
        marker(&mut run);
    }
}

#[test]
fn who_may_answer_requests_swallows_no_notification() {
    let ways = [
        json!([]),
        json!([{"send": {"to": "agent", "method": "_x", "params": "{}", "behalf": true}}]),
        json!([{"send": {"to": "agent", "method": "_x", "params": "{}", "behalf": true, "id": 3}}]),
        json!([{"send": {"to": "agent", "method": "$/cancel_request", "params": "{}", "behalf": true}}]),
    ];
    for way in ways {
        let rule = on("_note", way.clone());
        let mut run = Stage::of(
            &script(&["client *"], &[rule]),
            "answer:client:_note,originate:agent:_x",
        )
        .start();
        run.client.send_json(&notification("_note", &json!({"n": 1})));
        assert_eq!(run.agent.expect(), notification("_note", &json!({"n": 1})), "{way}");
        marker(&mut run);
        let denied = run.denied("intruder");
        assert!(
            denied.iter().any(|line| line.contains("intercept:client:_note")),
            "{way}: {denied:?}"
        );
    }
}

#[test]
fn what_only_conductors_say_is_nobody_s() {
    let mut actions: Vec<Value> = Vec::new();
    for (id, method) in (0..).zip([
        "proxy/successor",
        "_proxy/successor",
        "proxy/initialize",
        "_proxy/initialize",
        "initialize",
    ]) {
        let params = r#"{"protocolVersion":1,"method":"session/prompt","params":{}}"#;
        actions.push(ask("agent", id, method, params));
        actions.push(ask("client", 10 + id, method, params));
        actions.push(send("agent", method, params));
    }
    actions.push(pass());
    let denied = nothing_comes_of("everything", json!(actions));
    assert_eq!(denied.len(), 15, "{denied:?}");
}

#[test]
fn initialize_goes_on_once_and_is_answered_by_the_agent() {
    let raised = r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}"#;
    let again = json!({"send": {"to": "agent", "method": "initialize", "params": raised, "id": 9, "behalf": true}});
    let answered = json!({"send": {"to": "client", "result": raised}});
    for actions in [json!([pass(), again, answered]), json!([answered])] {
        let rule = on("initialize", actions.clone());
        let (mut client, listener, _home) = Stage::of(&script(&[], &[rule]), "own-sessions,change-answers").fresh();
        client.send_json(&request(1, "initialize", &json!({"protocolVersion": 1})));
        let mut agent = listener.accept();
        let initialize = agent.expect();
        let result = json!({"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": {"acp": true}}});
        agent.answer(&initialize, &result);
        assert_eq!(client.expect()["result"], result, "{actions}");
        client.send_json(&notification("_marker", &json!({})));
        assert_eq!(agent.expect()["method"], "_marker", "{actions}");
    }
}

#[test]
fn tickets_and_ids_that_are_not_its_own_are_refused() {
    let mut actions: Vec<Value> = Vec::new();
    for ticket in [0, 1, 2, 3, 4, 1_000_000, u64::MAX] {
        let response = |to: &str| json!({"send": {"to": to, "result": "{}", "ticket": ticket}});
        actions.extend([response("agent"), response("host")]);
    }
    actions.push(json!({"send": {"to": "agent", "result": "{}"}}));
    actions.push(json!({"send": {"to": "agent", "method": "session/prompt", "straight": true}}));
    actions.push(pass());
    let stage = Stage::of(
        &script(&["client *", "agent *"], &[on("session/prompt", json!(actions))]),
        "everything",
    );
    let mut run = stage.start();
    run.client.send_json(&prompt(1, "GO"));
    assert_eq!(run.agent.expect()["method"], "session/prompt");
    marker(&mut run);
    let log = run.client.end();
    assert_eq!(log.matches("refused").count(), actions_refused(7), "{log}");
}

/// Two for each ticket, one to the wrong side, and one request without an id or a ticket.
fn actions_refused(tickets: usize) -> usize {
    2 * tickets + 2
}

#[test]
fn a_name_without_end_fills_neither_log_nor_memory() {
    let long =
        json!({"send": {"to": "client", "method": "_x/\u{1b}", "params": "{}", "padding": 2_000_000, "times": 20}});
    let session = json!({"send": {"to": "client", "method": "session/update", "params": format!(r#"{{"sessionId":"{}"}}"#, "y".repeat(60_000))}});
    let rule = on("session/prompt", json!([long, session, pass()]));
    let mut run = Stage::of(&script(&["client *"], &[rule]), "change-prompts,change-answers").start();
    run.client.send_json(&prompt(1, "GO"));
    assert_eq!(run.agent.expect()["method"], "session/prompt");
    let lines = run.audit("intruder");
    let log = run.client.standard_error();
    assert!(log.len() < 50_000, "{} bytes of log", log.len());
    assert!(!log.contains('\u{1b}'), "{log}");
    let denied = lines.iter().filter(|line| line["event"] == "denied").count();
    assert!(denied >= 1, "{lines:#?}");
}
