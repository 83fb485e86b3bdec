//! What the proxy answers, what it leaves to the client, and what it does with wrong configurations.

use consort_proxy::Peer::{Agent, Client};
use consort_proxy::testing::{Harness, live_handles};
use serde_json::{Value, json};

use super::Permission;

mod configuration;

const ASK: &str = "session/request_permission";

fn start(rules: Value) -> Harness {
    Harness::start::<Permission>(json!({"rules": rules})).unwrap()
}

fn params(call: &Value) -> Value {
    json!({
        "sessionId": "s1",
        "toolCall": call,
        "options": [
            {"optionId": "always", "name": "Always", "kind": "allow_always"},
            {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
            {"optionId": "no", "name": "No", "kind": "reject_once"},
        ],
    })
}

/// The option that a question is answered with, or `ask`.
fn decided(host: &mut Harness, params: &Value) -> String {
    let before = live_handles();
    let ticket = host.request(Agent, ASK, params.clone());
    let sent = host.next();
    assert_eq!(sent.ticket(), ticket);
    if sent.to() == Client {
        assert_eq!((sent.method(), sent.params()), (ASK, params.clone()));
        host.answer(&sent, json!({}));
        return "ask".to_owned();
    }
    assert!(host.sent().is_empty());
    let outcome = &sent.result()["outcome"];
    assert_eq!(outcome["outcome"], "selected");
    let option = outcome["optionId"].as_str().unwrap().to_owned();
    drop(sent);
    assert_eq!(live_handles(), before);
    option
}

/// What one rule, or a list of them, does with tool calls.
fn check(rules: Value, calls: &[(Value, &str)]) {
    let rules = match rules {
        Value::Array(_) => rules,
        rule => json!([rule]),
    };
    let mut host = start(rules.clone());
    for (call, expected) in calls {
        assert_eq!(decided(&mut host, &params(call)), *expected, "{rules} {call}");
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    check(
        json!([
            {"decide": "deny", "kind": "edit", "title": "a*"},
            {"decide": "ask", "kind": "edit", "title": "ab*"},
            {"decide": "ask", "kind": "edit", "title": "b*"},
            {"decide": "allow", "kind": ["edit", "move"]},
        ]),
        &[
            (json!({"kind": "edit", "title": "abc"}), "no"),
            (json!({"kind": "edit", "title": "bc"}), "ask"),
            (json!({"kind": "edit", "title": "c"}), "yes"),
            (json!({"kind": "move", "title": "abc"}), "yes"),
            (json!({"kind": "read", "title": "c"}), "ask"),
        ],
    );
}

#[test]
fn a_question_that_is_not_decided_passes_byte_for_byte() {
    let mut host = start(json!([{"decide": "deny", "kind": "edit"}]));
    let text = r#"{"sessionId":"s1", "n":1.10,"toolCall":{"title":"\u00e9","kind":"read"},"options":[]}"#;
    let ticket = host.request_text(Agent, ASK, text);
    let sent = host.next();
    assert_eq!((sent.to(), sent.ticket(), sent.text()), (Client, ticket, text));
    host.answer(&sent, json!({"outcome": {"outcome": "cancelled"}}));
    assert!(host.sent().is_empty(), "the answer goes past the proxy");
    for odd in [
        "[]",
        "{}",
        "null",
        r#"{"toolCall":[]}"#,
        r#"{"toolCall":{"kind":"edit"},"options":{}}"#,
    ] {
        host.request_text(Agent, ASK, odd);
        assert_eq!(host.next().text(), odd);
    }
    host.request_bare(Agent, ASK);
    assert_eq!(host.next().to(), Client);
}

#[test]
fn every_decision_is_in_the_log_with_the_number_of_its_rule() {
    let mut host = start(json!([{"decide": "deny", "kind": "edit"}, {"decide": "allow", "kind": "move"}]));
    for (kind, expected) in [
        ("edit", "denied (rule 1)"),
        ("move", "allowed (rule 2)"),
        ("read", "asked (no rule"),
    ] {
        decided(&mut host, &params(&json!({"toolCallId": "call\n7", "kind": kind})));
        let logs = host.logs();
        assert_eq!(logs.len(), 1, "{logs:?}");
        assert!(
            logs[0].1.contains(expected) && logs[0].1.contains("call\\n7"),
            "{logs:?}"
        );
    }
}

#[test]
fn kinds_that_do_more_than_look_are_allowed_by_name_alone() {
    let calls = |allowed: &[&str]| {
        let kinds = [
            "read",
            "edit",
            "delete",
            "move",
            "search",
            "execute",
            "think",
            "fetch",
            "switch_mode",
            "other",
            "deploy",
        ];
        let mut calls: Vec<_> = kinds
            .iter()
            .map(|kind| {
                let call =
                    json!({"kind": kind, "title": "t", "locations": [{"path": "/a"}], "rawInput": {"command": "t"}});
                (call, if allowed.contains(kind) { "yes" } else { "ask" })
            })
            .collect();
        calls.push((json!({"title": "t"}), "ask"));
        calls.push((json!({"title": "t", "kind": null}), "ask"));
        calls.push((json!({"title": "t", "kind": 7}), "ask"));
        calls
    };
    let looking = calls(&["read", "search", "think"]);
    check(json!({"decide": "allow", "title": "*"}), &looking);
    check(json!({"decide": "allow", "path": "**"}), &looking);
    check(json!({"decide": "allow", "command": "*"}), &calls(&["execute"]));
    check(
        json!({"decide": "allow", "kind": ["other", "fetch"]}),
        &calls(&["other", "fetch"]),
    );
    check(
        json!({"decide": "allow", "kind": "switch_mode", "title": "t"}),
        &calls(&["switch_mode"]),
    );
}

#[test]
fn a_kind_that_nobody_knows_can_be_denied_as_other() {
    check(
        json!({"decide": "deny", "kind": "other"}),
        &[
            (json!({"kind": "deploy"}), "no"),
            (json!({"kind": "other"}), "no"),
            (json!({}), "ask"),
        ],
    );
    check(
        json!({"decide": "deny", "title": "*x*"}),
        &[(json!({"title": "axe"}), "no")],
    );
}

#[test]
fn a_file_is_allowed_if_every_path_is() {
    check(
        json!({"decide": "allow", "kind": "edit", "path": ["/p/src/**", "/p/*.md"]}),
        &[
            (
                json!({"kind": "edit", "locations": [{"path": "/p/src/a"}, {"path": "/p/b.md"}]}),
                "yes",
            ),
            (
                json!({"kind": "edit", "content": [{"type": "diff", "path": "/p/src/a"}, {"type": "content"}]}),
                "yes",
            ),
            (
                json!({"kind": "edit", "rawInput": {"file_path": "/p/src/./x/../a", "content": "/etc"}}),
                "yes",
            ),
            (
                json!({"kind": "edit", "rawInput": {"changes": {"/p/src/a": {"type": "add"}}}}),
                "yes",
            ),
            (json!({"kind": "edit"}), "ask"),
            (json!({"kind": "edit", "title": "/p/src/a"}), "ask"),
            (json!({"kind": "edit", "locations": []}), "ask"),
            (json!({"kind": "edit", "locations": null}), "ask"),
            (
                json!({"kind": "edit", "locations": [{"path": "/p/src/a"}, {"path": "/etc/a"}]}),
                "ask",
            ),
            (
                json!({"kind": "edit", "locations": [{"path": "/p/src/a"}, {"uri": "/etc/a"}]}),
                "ask",
            ),
            (
                json!({"kind": "edit", "locations": [{"path": "/p/src/a"}], "content": [{"type": "diff", "path": "/x"}]}),
                "ask",
            ),
            (
                json!({"kind": "edit", "locations": [{"path": "/p/src/a"}], "content": [{"type": "diff", "path": 7}]}),
                "ask",
            ),
            (
                json!({"kind": "edit", "locations": [{"path": "/p/src/a"}], "rawInput": {"abs_path": "/x"}}),
                "ask",
            ),
            (
                json!({"kind": "edit", "locations": [{"path": "/p/src/a"}], "rawInput": {"edits": [{"filePath": "/x"}]}}),
                "ask",
            ),
            (
                json!({"kind": "edit", "locations": [{"path": "/p/src/a"}], "rawInput": {"changes": {"/x": {}}}}),
                "ask",
            ),
            (
                json!({"kind": "edit", "locations": [{"path": "/p/src/a"}], "rawInput": {"destination": "/x"}}),
                "ask",
            ),
            (
                json!({"kind": "edit", "locations": [{"path": "/p/src/a"}], "rawInput": {"paths": ["/p/src/a", "/x"]}}),
                "ask",
            ),
            (
                json!({"kind": "edit", "locations": [{"path": "/p/src/a"}], "rawInput": "{\"path\": \"/x\"}"}),
                "ask",
            ),
            (
                json!({"kind": "edit", "locations": [{"path": "/p/src/a"}], "rawInput": {"patch": "*** Begin Patch\n"}}),
                "ask",
            ),
            (
                json!({"kind": "edit", "locations": [{"path": "/p/src/../../etc/passwd"}]}),
                "ask",
            ),
            (json!({"kind": "edit", "locations": [{"path": "src/a"}]}), "ask"),
        ],
    );
}

#[test]
fn a_file_is_denied_if_any_path_is() {
    check(
        json!({"decide": "deny", "path": "**/.env"}),
        &[
            (
                json!({"kind": "edit", "locations": [{"path": "/p/a"}, {"path": "/p/.env"}]}),
                "no",
            ),
            (json!({"kind": "read", "rawInput": {"file_path": ".env"}}), "no"),
            (json!({"content": [{"type": "diff", "path": "/p/x/../.ENV"}]}), "no"),
            (json!({"kind": "edit", "locations": [{"path": "/p/.envrc"}]}), "ask"),
            (json!({"kind": "edit"}), "ask"),
        ],
    );
}

#[test]
fn relative_patterns_are_below_the_directory() {
    let rules = json!([{"decide": "allow", "kind": "edit", "path": "src/**"}]);
    let mut host = Harness::start::<Permission>(json!({"rules": rules, "directory": "/home/me/p/"})).unwrap();
    for (path, expected) in [("/home/me/p/src/a", "yes"), ("/home/me/src/a", "ask"), ("src/a", "ask")] {
        let call = json!({"kind": "edit", "locations": [{"path": path}]});
        assert_eq!(decided(&mut host, &params(&call)), expected, "{path}");
    }
}

#[test]
fn a_command_is_allowed_if_it_says_all_that_is_run() {
    let execute = |input: Value| json!({"kind": "execute", "title": "cargo test", "rawInput": input});
    check(
        json!({"decide": "allow", "kind": "execute", "command": "cargo test*"}),
        &[
            (
                execute(json!({"command": "cargo test --all", "description": "x", "timeout": 5})),
                "yes",
            ),
            (execute(json!({"cmd": ["cargo", "test"]})), "yes"),
            (
                execute(json!({"command": ["bash", "-lc", "cargo test"], "parsed_cmd": [{"cmd": "cargo test"}]})),
                "yes",
            ),
            (execute(json!({"command": "cargo", "args": ["test"]})), "yes"),
            (
                execute(json!({"command": "cargo test", "env": {}, "sandbox": null})),
                "yes",
            ),
            (json!({"kind": "execute", "title": "cargo test"}), "ask"),
            (execute(json!({})), "ask"),
            (execute(json!(null)), "ask"),
            (execute(json!("cargo test")), "ask"),
            (execute(json!({"command": ""})), "ask"),
            (execute(json!({"command": []})), "ask"),
            (execute(json!({"command": 7})), "ask"),
            (execute(json!({"command": ["cargo", "test", 7]})), "ask"),
            (execute(json!({"command": "cargo test; x"})), "ask"),
            (execute(json!({"command": ["bash", "-lc", "cargo test; x"]})), "ask"),
            (execute(json!({"command": "cargo test", "args": ["; x"]})), "ask"),
            (execute(json!({"command": "cargo test", "args": "; x"})), "ask"),
            (execute(json!({"command": "cargo test", "args": {"x": 1}})), "ask"),
            (execute(json!({"command": "cargo test", "cmd": "x"})), "ask"),
            (
                execute(json!({"command": "cargo test", "more": [{"command": "x"}]})),
                "ask",
            ),
            (execute(json!({"command": "cargo test", "commands": ["x"]})), "ask"),
            (execute(json!({"command": "cargo test", "env": {"RUSTC": "/x"}})), "ask"),
            (
                execute(json!({"command": "cargo test", "dangerouslyDisableSandbox": true})),
                "ask",
            ),
        ],
    );
}

#[test]
fn a_command_is_denied_if_any_part_is() {
    check(
        json!({"decide": "deny", "command": ["rm *", "git push*"]}),
        &[
            (
                json!({"kind": "execute", "rawInput": {"command": "cd /x && sudo rm -rf y"}}),
                "no",
            ),
            (json!({"kind": "other", "rawInput": {"cmd": ["git", "push"]}}), "no"),
            (
                json!({"kind": "execute", "rawInput": {"command": "rm", "args": ["-rf"]}}),
                "no",
            ),
            (json!({"kind": "execute", "title": "`ls; rm x`"}), "no"),
            (json!({"kind": "execute", "rawInput": {"command": "ls"}}), "ask"),
            (json!({"kind": "read", "title": "rm x"}), "ask"),
        ],
    );
}

#[test]
fn a_title_that_is_a_command_is_read_as_one() {
    check(
        json!({"decide": "allow", "kind": ["execute", "fetch"], "title": "cargo test*"}),
        &[
            (json!({"kind": "execute", "title": "cargo test x"}), "yes"),
            (json!({"kind": "execute", "title": "`cargo test x`"}), "yes"),
            (json!({"kind": "execute", "title": "cargo test; x"}), "ask"),
            (json!({"kind": "execute"}), "ask"),
            (json!({"kind": "fetch", "title": "cargo test; x"}), "yes"),
        ],
    );
}

#[test]
fn what_a_question_leaves_out_is_not_taken_for_harmless() {
    check(
        json!([{"decide": "deny", "path": "**/.env"}, {"decide": "allow", "kind": ["edit", "execute", "other"]}]),
        &[
            (json!({"kind": "edit", "locations": [{"path": "/a"}]}), "yes"),
            (json!({"kind": "edit"}), "ask"),
            (json!({"kind": "edit", "rawInput": {"text": "x"}}), "ask"),
            (json!({"kind": "execute"}), "yes"),
            (json!({"kind": "other"}), "ask"),
            (json!({"kind": "other", "rawInput": {"text": "x"}}), "yes"),
        ],
    );
    check(
        json!([{"decide": "ask", "command": "rm *"}, {"decide": "allow", "kind": ["edit", "execute", "other"]}]),
        &[
            (json!({"kind": "execute", "rawInput": {"command": "ls"}}), "yes"),
            (json!({"kind": "execute", "title": "x"}), "ask"),
            (json!({"kind": "edit"}), "yes"),
            (json!({"kind": "other"}), "ask"),
        ],
    );
    check(
        json!([{"decide": "deny", "title": "x*"}, {"decide": "allow", "kind": "edit"}, {"decide": "deny", "kind": "move"}]),
        &[
            (json!({"kind": "edit", "title": "y"}), "yes"),
            (json!({"kind": "edit"}), "ask"),
            (json!({"kind": "edit", "title": "y".repeat(9000)}), "ask"),
            (json!({"kind": "move"}), "no"),
        ],
    );
}

#[test]
fn what_is_too_large_to_be_judged_is_asked() {
    let rules =
        json!([{"decide": "deny", "kind": "delete"}, {"decide": "allow", "kind": ["edit", "execute"], "path": "**"}]);
    let fits = "x".repeat(6 << 20);
    let many =
        |count: usize| -> Vec<Value> { (0..count).map(|number| json!({"path": format!("/{number}")})).collect() };
    let long = format!("/{}", "x".repeat(70 << 10));
    check(
        rules,
        &[
            (
                json!({"kind": "edit", "content": [{"type": "diff", "newText": fits, "path": "/a"}]}),
                "yes",
            ),
            (
                json!({"kind": "edit", "content": [{"newText": fits, "oldText": fits, "path": "/a"}]}),
                "ask",
            ),
            (json!({"kind": "delete", "rawInput": {"x": fits}}), "no"),
            (json!({"kind": "delete", "rawInput": {"x": fits, "y": fits}}), "ask"),
            (
                json!({"kind": "edit", "locations": [{"path": "/a"}], "rawInput": {"x": fits}}),
                "ask",
            ),
            (json!({"kind": "edit", "locations": many(256)}), "yes"),
            (json!({"kind": "edit", "locations": many(257)}), "ask"),
            (json!({"kind": "edit", "content": many(64)}), "yes"),
            (json!({"kind": "edit", "content": many(65)}), "ask"),
            (json!({"kind": "edit", "rawInput": {"path": long}}), "ask"),
        ],
    );
    let long = format!("ls {}", "x".repeat(9 << 10));
    check(
        json!({"decide": "allow", "command": "*"}),
        &[
            (json!({"kind": "execute", "rawInput": {"command": long[..5000]}}), "yes"),
            (json!({"kind": "execute", "rawInput": {"command": long}}), "ask"),
            (
                json!({"kind": "execute", "rawInput": {"command": "ls", "commands": vec!["ls"; 64]}}),
                "ask",
            ),
        ],
    );
}

#[test]
fn the_answer_is_an_option_that_was_offered() {
    let rules = json!([
        {"decide": "allow", "kind": "read"},
        {"decide": "allow", "kind": "edit", "remember": true},
        {"decide": "allow", "kind": "move", "option": "b"},
        {"decide": "deny", "kind": "delete"},
    ]);
    let mut host = start(rules);
    let offer = |kind: &str, options: &[(&str, &str)]| {
        let option = |(id, kind): &(&str, &str)| json!({"optionId": id, "name": "same", "kind": kind});
        let options: Vec<Value> = options.iter().map(option).collect();
        json!({"sessionId": "s1", "toolCall": {"toolCallId": "t", "kind": kind}, "options": options})
    };
    let four = ["z", "a", "b", ""].map(|id| (id, "allow_once"));
    for (kind, options, expected) in [
        ("read", &four[..], "z"),
        ("move", &four[..], "b"),
        ("move", &four[..2], "ask"),
        ("read", &four[3..], ""),
        ("read", &[("A", "allow_always"), ("r", "reject_once")], "ask"),
        ("edit", &[("a", "allow_once"), ("A", "allow_always")], "A"),
        ("delete", &[("a", "allow_once"), ("R", "reject_always")], "ask"),
        ("delete", &[("a", "allow_once"), ("r", "reject_once")], "r"),
        ("read", &[("\u{1f600}\"\\", "allow_once")], "\u{1f600}\"\\"),
        ("read", &[], "ask"),
    ] {
        assert_eq!(
            decided(&mut host, &offer(kind, options)),
            expected,
            "{kind} {options:?}"
        );
    }
    let half = r#"{"toolCall":{"kind":"read"},"options":[{"optionId":"\ud83d","name":"n","kind":"allow_once"}]}"#;
    host.request_text(Agent, ASK, half);
    assert_eq!(
        host.next().text(),
        half,
        "an id that cannot be repeated is not answered with another"
    );
}

#[test]
fn two_questions_about_one_tool_call_have_an_answer_each() {
    let mut host = start(json!([{"decide": "deny", "kind": "edit"}]));
    let (edit, read) = (
        params(&json!({"toolCallId": "same", "kind": "edit"})),
        params(&json!({"toolCallId": "same", "kind": "read"})),
    );
    let (asked, denied) = (host.request(Agent, ASK, read), host.request(Agent, ASK, edit));
    let (first, second) = (host.next(), host.next());
    assert_eq!((first.to(), first.ticket()), (Client, asked));
    assert_eq!((second.to(), second.ticket()), (Agent, denied));
    assert_eq!(second.result()["outcome"]["optionId"], "no");
    assert_eq!(host.waiting_handlers(), 0);
}
