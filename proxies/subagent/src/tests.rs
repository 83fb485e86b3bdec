//! What comes of a task, what is kept apart, and what ends a subagent.

use std::time::Duration;

use consort_proxy::Peer::{Agent, Client};
use consort_proxy::testing::{Harness, Kind, Sent, Ticket, live_handles};
use serde_json::{Value, json};

use super::Subagent;

fn start(config: Value) -> Harness {
    let mut host = Harness::start::<Subagent>(config).unwrap();
    host.request(Client, "initialize", json!({"protocolVersion": 1}));
    let initialize = host.next();
    let capabilities = json!({"sessionCapabilities": {"close": {}}});
    host.answer(
        &initialize,
        json!({"protocolVersion": 1, "agentCapabilities": capabilities}),
    );
    host.next();
    host.request(Client, "session/new", json!({"cwd": "/p", "mcpServers": []}));
    let new = host.next();
    assert_eq!(new.params()["mcpServers"][0]["name"], "subagent");
    host.answer(&new, json!({"sessionId": "s1"}));
    host.next();
    host
}

/// Calls the tool in a session.
fn call(host: &mut Harness, session: &str, task: &str) -> Ticket {
    let params = json!({"name": "subagent", "arguments": {"task": task}, "_meta": {"progressToken": "t"}});
    host.request(
        Agent,
        "mcp/message",
        json!({"connectionId": "consort:subagent#1", "method": "tools/call", "params": params, "_meta": {"consort/sessionId": session}}),
    )
}

/// A subagent at work in the session `child`, and its prompt.
fn working(host: &mut Harness) -> (Ticket, Sent) {
    let ticket = call(host, "s1", "Count the files.");
    let new = host.next();
    assert_eq!((new.to(), new.method()), (Agent, "session/new"));
    assert_eq!(new.params(), json!({"cwd": "/p", "mcpServers": []}));
    assert_eq!(new.on_behalf_of(), Some(ticket));
    host.answer(&new, json!({"sessionId": "child"}));
    let prompt = host.next();
    assert_eq!(prompt.method(), "session/prompt");
    assert_eq!(
        prompt.params(),
        json!({"sessionId": "child", "prompt": [{"type": "text", "text": "Count the files."}]})
    );
    (ticket, prompt)
}

fn says(host: &mut Harness, session: &str, text: &str) {
    let content = json!({"type": "text", "text": text});
    let update = json!({"sessionUpdate": "agent_message_chunk", "content": content});
    host.notify(Agent, "session/update", json!({"sessionId": session, "update": update}));
}

fn uses_tool(host: &mut Harness, title: &str) {
    let update = json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": title});
    host.notify(Agent, "session/update", json!({"sessionId": "child", "update": update}));
}

/// Ends a subagent's turn, with the session's end.
fn ends(host: &mut Harness, prompt: &Sent, reason: &str) {
    host.answer(prompt, json!({"stopReason": reason}));
    let close = host.next();
    assert_eq!(
        (close.method(), close.params()),
        ("session/close", json!({"sessionId": "child"}))
    );
    host.answer(&close, json!({}));
}

/// What the tool's caller is told, and whether it went well.
fn told(host: &mut Harness) -> (String, bool) {
    let result = host.next().result();
    (
        result["content"][0]["text"].as_str().unwrap().to_owned(),
        result["isError"] == false,
    )
}

fn ask(host: &mut Harness, session: &str) -> Ticket {
    let options = json!([{"optionId": "y", "kind": "allow_once"}, {"optionId": "n", "kind": "reject_once"}]);
    let call = json!({"toolCallId": "c", "title": "rm x"});
    host.request(
        Agent,
        "session/request_permission",
        json!({"sessionId": session, "toolCall": call, "options": options}),
    )
}

#[test]
fn a_task_is_done_in_a_session_of_its_own() {
    let mut host = start(json!({}));
    let before = live_handles();
    let (_, prompt) = working(&mut host);
    says(&mut host, "child", "Let me look.");
    uses_tool(&mut host, "ls");
    let progress = host.next();
    assert_eq!((progress.to(), progress.method()), (Agent, "mcp/message"));
    assert_eq!(progress.params()["params"]["message"], "ls");
    says(&mut host, "child", "There are ");
    says(&mut host, "child", "three.");
    assert!(host.sent().is_empty(), "nothing of it is shown");
    says(&mut host, "s1", "mine");
    assert_eq!(host.next().params()["update"]["content"]["text"], "mine", "others pass");
    ends(&mut host, &prompt, "end_turn");
    assert_eq!(told(&mut host), ("There are three.".into(), true));
    says(&mut host, "child", "late");
    assert!(host.sent().is_empty());
    assert_eq!(
        (host.waiting_handlers(), live_handles(), host.sleeping()),
        (0, before, Vec::new())
    );
}

#[test]
fn what_stops_it_early_is_told() {
    let mut host = start(json!({"maxBytes": 5}));
    for (text, reason, said, well) in [
        ("", "end_turn", "has said nothing", true),
        ("", "refusal", "stopped (refusal)", false),
        (
            "abc",
            "max_tokens",
            "abc\n[The subagent has stopped early: max_tokens.]",
            true,
        ),
        (
            "abcdefg",
            "end_turn",
            "abcde\n[The rest of the answer is left out.]",
            true,
        ),
        ("abc", "cancelled", "was cancelled", false),
    ] {
        let (_, prompt) = working(&mut host);
        says(&mut host, "child", text);
        ends(&mut host, &prompt, reason);
        let told = told(&mut host);
        assert!(told.0.contains(said) && told.1 == well, "{told:?}");
    }
}

#[test]
fn errors_of_the_agent_are_failures_of_the_tool() {
    let mut host = start(json!({}));
    call(&mut host, "s1", "x");
    let new = host.next();
    host.answer_error(&new, -32000, "log in first");
    let (said, well) = told(&mut host);
    assert!(!well && said.contains("log in first"), "{said}");
    let (_, prompt) = working(&mut host);
    host.answer_error(&prompt, -32603, "out of money");
    assert_eq!(host.next().method(), "session/close");
    let (said, well) = told(&mut host);
    assert!(!well && said.contains("out of money"), "{said}");
    host.deny(Agent, "session/new");
    call(&mut host, "s1", "x");
    let (said, well) = told(&mut host);
    assert!(!well && said.contains("--grant subagent=own-sessions"), "{said}");
    for (session, task) in [
        ("unknown", "x"),
        ("s1", " "),
        ("s1", &*"x".repeat(70_000)),
        ("child", "x"),
    ] {
        call(&mut host, session, task);
        assert!(!told(&mut host).1, "{session}");
    }
}

#[test]
fn a_call_that_is_given_up_stops_it() {
    let mut host = start(json!({"maxAtOnce": 1}));
    for _ in 0..2 {
        let (ticket, prompt) = working(&mut host);
        host.cancel(ticket);
        let sent = host.sent();
        let methods: Vec<&str> = sent.iter().map(Sent::method).collect();
        assert!(
            methods.contains(&"session/cancel") && methods.contains(&"$/cancel_request"),
            "{methods:?}"
        );
        assert!(
            sent.iter()
                .any(|sent| sent.kind() == Kind::Error && sent.ticket() == ticket)
        );
        host.answer(&prompt, json!({"stopReason": "cancelled"}));
        assert_eq!((host.waiting_handlers(), host.sleeping()), (0, Vec::new()));
    }
}

/// What the agent is told when a subagent is stopped.
fn is_stopped(sent: &[Sent]) {
    let told: Vec<&str> = sent
        .iter()
        .map(Sent::method)
        .filter(|method| method.starts_with("session/"))
        .collect();
    assert_eq!(told, ["session/cancel", "session/close"], "{sent:?}");
}

#[test]
fn its_session_is_closed_however_it_ends() {
    let mut host = start(json!({"maxSeconds": 60, "maxAtOnce": 1}));
    let before = live_handles();
    let (ticket, _) = working(&mut host);
    host.cancel(ticket);
    is_stopped(&host.sent());
    working(&mut host);
    host.notify(Client, "session/cancel", json!({"sessionId": "s1"}));
    is_stopped(&host.sent());
    working(&mut host);
    host.advance(Duration::from_secs(60));
    let sent = host.sent();
    is_stopped(&sent);
    let close = sent.iter().find(|sent| sent.method() == "session/close").unwrap();
    host.answer_error(close, -32603, "no");
    let (_, prompt) = working(&mut host);
    host.answer_error(&prompt, -32603, "out of money");
    let close = host.next();
    assert_eq!(
        (close.method(), close.params()),
        ("session/close", json!({"sessionId": "child"}))
    );
    host.answer(&close, json!({}));
    assert!(!told(&mut host).1);
    drop((sent, close, prompt));
    assert_eq!(
        (host.waiting_handlers(), live_handles(), host.sleeping()),
        (0, before, Vec::new())
    );
}

#[test]
fn a_session_that_begins_when_nobody_waits_for_it_any_more_is_closed() {
    for ends in ["the call", "the turn", "the time"] {
        let mut host = start(json!({"maxSeconds": 60, "maxAtOnce": 1}));
        let ticket = call(&mut host, "s1", "x");
        let new = host.next();
        match ends {
            "the call" => host.cancel(ticket),
            "the turn" => {
                host.notify(Client, "session/cancel", json!({"sessionId": "s1"}));
            }
            _ => host.advance(Duration::from_secs(60)),
        }
        let answer = host.next();
        assert_eq!(answer.ticket(), ticket, "{ends}");
        call(&mut host, "s1", "y");
        assert!(told(&mut host).0.contains("which is the most"), "it keeps its place");
        host.answer(&new, json!({"sessionId": "child"}));
        let close = host.next();
        assert_eq!(
            (close.method(), close.params()),
            ("session/close", json!({"sessionId": "child"})),
            "{ends}"
        );
        says(&mut host, "child", "hello");
        ask(&mut host, "child");
        assert_eq!(host.next().error()["code"], -32800);
        assert!(host.sent().is_empty(), "nobody hears it");
        working(&mut host);
    }
}

#[test]
fn it_stops_with_the_session_that_it_works_for() {
    let mut host = start(json!({}));
    working(&mut host);
    host.notify(Client, "session/cancel", json!({"sessionId": "other"}));
    assert!(host.sent().is_empty());
    host.notify(Client, "session/cancel", json!({"sessionId": "s1"}));
    let sent = host.sent();
    assert!(
        sent.iter()
            .any(|sent| sent.method() == "session/cancel" && sent.params()["sessionId"] == "child")
    );
    let answer = sent.iter().find(|sent| sent.kind() == Kind::Result).unwrap();
    assert_eq!(answer.result()["isError"], true);
}

#[test]
fn its_time_is_bounded_and_so_is_its_number() {
    let mut host = start(json!({"maxSeconds": 60, "maxAtOnce": 1}));
    working(&mut host);
    call(&mut host, "s1", "another");
    let (said, well) = told(&mut host);
    assert!(!well && said.contains("which is the most"), "{said}");
    host.advance(Duration::from_secs(59));
    assert!(host.sent().is_empty());
    host.advance(Duration::from_secs(1));
    let sent = host.sent();
    assert!(sent.iter().any(|sent| sent.method() == "session/cancel"));
    let answer = sent.iter().find(|sent| sent.kind() == Kind::Result).unwrap();
    assert!(answer.text().contains("within 60 seconds"), "{answer:?}");
    working(&mut host);
}

#[test]
fn its_questions_are_put_to_the_client_in_the_session_that_it_works_for() {
    let mut host = start(json!({}));
    let (_, prompt) = working(&mut host);
    let ticket = ask(&mut host, "child");
    let asked = host.next();
    assert_eq!(asked.to(), Client);
    let params = asked.params();
    assert_eq!(
        (&params["sessionId"], &params["toolCall"]),
        (
            &json!("s1"),
            &json!({"toolCallId": "subagent:c", "title": "Subagent: rm x"})
        )
    );
    let answer = json!({"outcome": {"outcome": "selected", "optionId": "y"}});
    host.answer(&asked, answer.clone());
    let answered = host.next();
    assert_eq!((answered.ticket(), answered.result()), (ticket, answer));
    ask(&mut host, "child");
    let asked = host.next();
    host.answer_error(&asked, -32601, "what?");
    assert_eq!(
        host.next().result()["outcome"]["optionId"],
        "n",
        "who cannot be asked has not allowed it"
    );
    // A question of a subagent that is over is of no use.
    let ticket = ask(&mut host, "child");
    host.next();
    host.answer(&prompt, json!({"stopReason": "end_turn"}));
    let sent = host.sent();
    assert!(sent.iter().any(|sent| sent.method() == "$/cancel_request"));
    let answer = sent
        .iter()
        .find(|sent| sent.kind() == Kind::Result && sent.ticket() == ticket);
    assert_eq!(answer.unwrap().result()["outcome"]["outcome"], "cancelled");
    ask(&mut host, "s1");
    assert_eq!(host.next().params()["sessionId"], "s1", "others pass");
}

#[test]
fn its_questions_can_be_denied() {
    let mut host = start(json!({"permissions": "deny"}));
    working(&mut host);
    ask(&mut host, "child");
    assert_eq!(
        host.next().result(),
        json!({"outcome": {"outcome": "selected", "optionId": "n"}})
    );
    host.request(
        Agent,
        "session/request_permission",
        json!({"sessionId": "child", "options": []}),
    );
    assert_eq!(host.next().result(), json!({"outcome": {"outcome": "cancelled"}}));
}

#[test]
fn what_it_wants_of_the_editor_can_go_there() {
    let mut host = start(json!({"editor": true}));
    working(&mut host);
    let params = |session: &str| json!({"sessionId": session, "path": "/p/x"});
    host.request(Agent, "fs/read_text_file", params("child"));
    let read = host.next();
    assert_eq!((read.to(), read.params()), (Client, params("s1")));
    host.answer(&read, json!({"content": "x"}));
    assert_eq!(host.next().result(), json!({"content": "x"}));
    host.request(Agent, "fs/read_text_file", params("s1"));
    assert_eq!(host.next().params(), params("s1"));
}

#[test]
fn wrong_configurations_are_named() {
    for (config, named) in [
        (json!({"permission": "ask"}), "permission"),
        (json!({"permissions": "allow"}), "allow"),
        (json!({"maxAtOnce": 0}), "maxAtOnce"),
        (json!({"maxSeconds": 100_000}), "maxSeconds"),
        (json!({"maxBytes": 0}), "maxBytes"),
    ] {
        let error = Harness::start::<Subagent>(config).err().unwrap();
        assert!(error.contains(named), "{error}");
    }
}
