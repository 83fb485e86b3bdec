//! What a proxy may do: nothing that it was not granted, and what it was granted as far as the words of the grant go. What it must not
//! do leaves messages as they were, byte for byte, and is told and recorded.

use consort_tests::intruder::{Run, Stage, answer, ask, edited, on, pass, script, send};
use consort_tests::raw::last;
use consort_tests::session::{SESSION, chunk, notification, prompt, request};
use serde_json::{Value, json};

const EVERYTHING: [&str; 4] = ["client *", "agent *", "?client *", "?agent *"];

/// A line goes down, and its answer comes up, byte for byte.
fn passes_as_it_is(run: &mut Run) {
    let params = r#"{ "sessionId":"s1", "prompt":[{"type":"text","text":"GO \u2713"}], "n":1.10, "big":12345678901234567890123 }"#;
    run.client.send(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{params}}}"#
    ));
    let asked = run.agent.expect_line();
    assert_eq!(last(&asked, "params"), params);
    let update = r#"{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\ud83d"}}, "sessionId":"s1"}"#;
    run.agent.send(&format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{update}}}"#
    ));
    assert_eq!(last(&run.client.expect_line(), "params"), update);
    let result = r#"{ "stopReason":"end_turn", "e":1E400 }"#;
    let id = consort_tests::raw::id(&asked).to_owned();
    run.agent
        .send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
    assert_eq!(last(&run.client.expect_line(), "result"), result);
}

/// What the guest has heard, in the words of its log.
fn heard(run: &Run, what: &str) -> bool {
    run.client.standard_error().contains(&format!("heard {what}"))
}

/// A rule that does this to prompts with `GO` in them.
fn on_go(actions: Value) -> Value {
    json!({"on": "session/prompt", "text": "GO", "do": actions})
}

#[test]
fn without_manifest_and_grant_it_sees_initialize_and_nothing_else() {
    let mut run = Stage::of(&script(&EVERYTHING, &[]), "").start();
    passes_as_it_is(&mut run);
    let denied = run.denied("intruder");
    let log = run.client.standard_error();
    assert_eq!(log.matches("intruder: heard ").count(), 1, "{log}");
    assert!(heard(&run, "initialize"), "{log}");
    assert!(log.contains("taking part in all of `*` from the client needs"), "{log}");
    for interest in ["client *: ", "agent *: "] {
        assert!(denied.iter().any(|line| line.starts_with(interest)), "{denied:?}");
    }
}

#[test]
fn what_is_ordinary_is_given_for_being_asked_for_and_what_is_dangerous_is_not() {
    let manifest = "[grants]\nread-prompts = \"to count\"\ndecide-permissions = \"to help\"\n";
    let stage = Stage::new().with_manifest("intruder", manifest, &script(&EVERYTHING, &[]));
    let mut run = stage.start();
    passes_as_it_is(&mut run);
    run.agent.send_json(&request(
        1,
        "session/request_permission",
        &json!({"sessionId": SESSION}),
    ));
    assert_eq!(run.client.expect()["method"], "session/request_permission");
    run.client.expect_standard_error("heard session/prompt");
    let granted = run.audit("intruder").remove(0);
    assert!(heard(&run, "session/prompt") && !heard(&run, "session/update"));
    assert!(!heard(&run, "session/request_permission"));
    assert_eq!(granted["grants"], json!(["read-prompts"]), "{granted}");
}

#[test]
fn what_is_dangerous_is_given_by_option_and_by_configuration() {
    let manifest = "[grants]\ndecide-permissions = \"to help\"\n";
    let rule = on("session/request_permission", json!([answer("agent", "{\"yes\":1}")]));
    let script = script(&EVERYTHING, &[rule]);
    let by_option = Stage::new()
        .with_manifest("intruder", manifest, &script)
        .option(["--grant", "intruder=decide-permissions"]);
    let stage = Stage::new();
    let file = stage.component("intruder", Some(manifest));
    let config = stage.home().join("script.json");
    std::fs::write(&config, script.to_string()).expect("a file can be written");
    let by_configuration = stage
        .configured(&format!(
            "[[proxies]]\nfile = {file:?}\ngrant = [\"decide-permissions\"]\n"
        ))
        .option(["--proxy-config", &format!("intruder=@{}", config.display())]);
    for stage in [by_option, by_configuration] {
        let mut run = stage.start();
        run.agent.send_json(&request(
            1,
            "session/request_permission",
            &json!({"sessionId": SESSION}),
        ));
        assert_eq!(run.agent.expect()["result"], json!({"yes": 1}));
    }
}

#[test]
fn what_is_granted_but_not_asked_for_is_not_given() {
    let manifest = "[grants]\nread-prompts = \"to count\"\n";
    let rule = on(
        "session/prompt",
        json!([ask("client", 1, "terminal/create", r#"{"sessionId":"s1"}"#)]),
    );
    let stage = Stage::new()
        .with_manifest("intruder", manifest, &script(&EVERYTHING, &[rule]))
        .option(["--grant", "intruder=editor-commands,read-answers,environment:HOME"]);
    let mut run = stage.start();
    passes_as_it_is(&mut run);
    run.client.expect_standard_error("denied terminal/create");
    let lines = run.audit("intruder");
    assert_eq!(lines[0]["grants"], json!(["read-prompts"]), "{lines:#?}");
    assert!(
        lines.iter().any(|line| line["what"] == "client terminal/create"),
        "{lines:#?}"
    );
}

#[test]
fn who_may_only_look_on_gets_copies_and_changes_nothing() {
    // It tries all that one can do with a message that one owns.
    let rules = [
        on(
            "session/prompt",
            json!([edited("/prompt", &json!([])), answer("client", "{}"), {"keep": {}}]),
        ),
        on("session/update", json!([edited("/update", &json!({})), {"keep": {}}])),
    ];
    let mut run = Stage::of(&script(&EVERYTHING, &rules), "read-prompts,read-answers").start();
    passes_as_it_is(&mut run);
    run.client
        .expect_standard_error("refused an answer: Refusal::UnknownId");
    run.client.expect_standard_error("heard session/update");
}

#[test]
fn an_edit_without_the_right_lets_the_original_go_on() {
    // It owns prompts, since it may answer them.
    let ways = [
        edited("/prompt/0/text", &json!("EVIL")),
        json!({"pass": {"params": r#"{"sessionId":"s1","prompt":[]}"#}}),
        json!({"pass": {"id": 4, "edits": [["/n", 2]]}}),
    ];
    for way in ways {
        let rule = on_go(json!([way]));
        let mut run = Stage::of(&script(&EVERYTHING, &[rule]), "change-answers").start();
        passes_as_it_is(&mut run);
        let reason = "changing `session/prompt` needs the grant `change-prompts` (changes your prompts)";
        let denied = run.denied("intruder");
        let log = run.client.standard_error();
        assert_eq!(log.matches(&format!("denied something: {reason}")).count(), 1, "{log}");
        assert!(
            denied.contains(&format!("client session/prompt: {reason}")),
            "{denied:?}"
        );
    }
}

#[test]
fn an_answer_without_the_right_lets_the_original_answer_come() {
    let forged = r#"{"stopReason":"refusal"}"#;
    let at_once = [on_go(json!([answer("client", forged)]))];
    let after_passing_on = [on_go(json!([pass(), answer("client", forged)]))];
    let own_id = json!({"pass": {"id": 7}});
    let instead = [
        on_go(json!([own_id])),
        on(
            "response 7",
            json!([{"send": {"to": "client", "result": forged, "to-passed": true}}]),
        ),
    ];
    let an_error = [
        on_go(json!([own_id])),
        on(
            "response 7",
            json!([{"send": {"to": "client", "error": r#"{"code":1,"message":"no"}"#, "to-passed": true}}]),
        ),
    ];
    let edited_answer = [
        on_go(json!([own_id])),
        on("response 7", json!([edited("/stopReason", &json!("x"))])),
    ];
    let while_it_waits = [on_go(json!([own_id, answer("client", forged)]))];
    let cases: [&[Value]; 6] = [
        &at_once,
        &after_passing_on,
        &instead,
        &an_error,
        &edited_answer,
        &while_it_waits,
    ];
    for rules in cases {
        let mut run = Stage::of(&script(&EVERYTHING, rules), "change-prompts").start();
        passes_as_it_is(&mut run);
        let denied = run.denied("intruder");
        let wanted = "answering `session/prompt` needs the grant `change-answers`";
        assert!(denied.iter().any(|line| line.contains(wanted)), "{rules:?}: {denied:?}");
    }
}

#[test]
fn the_same_denied_again_is_told_once_and_counted() {
    let rule = on("session/prompt", json!([send("agent", "_x/y", "{}"), pass()]));
    let mut run = Stage::of(&script(&EVERYTHING, &[rule]), "change-prompts").start();
    for _ in 0..3 {
        passes_as_it_is(&mut run);
    }
    let lines = run.audit("intruder");
    let log = run.client.standard_error();
    assert_eq!(
        log.matches("denied something: sending `_x/y` needs the grant `originate:agent:_x/y`")
            .count(),
        1,
        "{log}"
    );
    let counted: u64 = lines
        .iter()
        .filter(|line| line["detail"].to_string().contains("sending `_x/y` needs"))
        .filter_map(|line| line["count"].as_u64())
        .sum();
    assert_eq!(counted, 3, "{lines:#?}");
}

#[test]
fn a_raw_right_is_for_its_methods_and_its_side() {
    let rules = [on(
        "session/prompt",
        json!([
            send("client", "_x/a", "{}"),
            send("agent", "_x/a", "{}"),
            send("client", "_x", "{}"),
            send("client", "_X/a", "{}"),
            send("client", "_xx/a", "{}"),
            send("client", "_y/a", "{}"),
            pass(),
        ]),
    )];
    let grants = "originate:client:_x/*,intercept:client:session/prompt";
    let mut run = Stage::of(&script(&EVERYTHING, &rules), grants).start();
    run.client.send_json(&prompt(1, "GO"));
    assert_eq!(run.agent.expect()["method"], "session/prompt");
    run.agent.send_json(&chunk("marker"));
    assert_eq!(run.client.expect()["method"], "_x/a");
    assert_eq!(run.client.expect()["method"], "session/update");
    run.client.send_json(&notification("_marker", &json!({})));
    assert_eq!(run.agent.expect()["method"], "_marker");
    let refusals = run.refusals();
    assert_eq!(refusals.len(), 5, "{refusals:?}");
}
