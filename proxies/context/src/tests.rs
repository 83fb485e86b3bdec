//! What the proxy does to prompts, and what it does with wrong configurations.

use consort_proxy::Peer::{Agent, Client, Host};
use consort_proxy::log::Level;
use consort_proxy::testing::{Harness, live_handles};
use serde_json::{Value, json};

use super::Context;

const PROMPT: &str = r#"{"sessionId":"s1", "prompt":[ {"type":"text","text":"hi \u00e9"}],"n":1.10}"#;

fn start(config: Value) -> Harness {
    Harness::start::<Context>(config).unwrap()
}

/// The prompt as it should leave, with a block in front.
fn with_block(text: &str) -> String {
    PROMPT.replacen("[ {", &format!("[ {},{{", json!({"type": "text", "text": text})), 1)
}

#[test]
fn the_first_prompt_of_each_session_gets_files_in_order() {
    let mut host = start(json!({"files": ["AGENTS.md", "docs/b.md"], "date": false, "maxBytes": 9}));
    let ticket = host.request_text(Client, "session/prompt", PROMPT);
    let (first, second) = (host.next(), host.next());
    assert_eq!((first.to(), first.method()), (Host, "host/file/read"));
    assert_eq!(
        first.params(),
        json!({"sessionId": "s1", "path": "AGENTS.md", "maxBytes": 9})
    );
    assert_eq!(second.params()["path"], "docs/b.md", "both reads are under way at once");
    host.answer(&second, json!({"text": "b", "truncated": true}));
    assert!(host.holds(ticket) && host.sent().is_empty());
    host.answer(&first, json!({"text": "a\n", "truncated": false}));
    let prompt = host.next();
    let context = "The file AGENTS.md of this project says:\n\na\n\n\
                   The file docs/b.md of this project says:\n\nb\n[The rest of the file is left out.]";
    assert_eq!(
        (prompt.to(), prompt.ticket(), prompt.text()),
        (Agent, ticket, with_block(context).as_str())
    );

    host.request_text(Client, "session/prompt", PROMPT);
    assert_eq!(host.next().text(), PROMPT, "the second prompt passes untouched");
    host.request_text(Client, "session/prompt", &PROMPT.replace("s1", "s2"));
    assert_eq!(host.next().method(), "host/file/read", "another session is new");
}

#[test]
fn every_prompt_can_get_the_date() {
    let mut host = start(json!({"files": [], "every": "prompt"}));
    for _ in 0..2 {
        host.request_text(Client, "session/prompt", PROMPT);
        let text = host.next().params()["prompt"][0]["text"].as_str().unwrap().to_owned();
        assert!(
            text.starts_with("Today's date is 20") && text.ends_with(" (UTC)."),
            "{text}"
        );
    }
}

#[test]
fn a_failed_read_never_loses_the_prompt() {
    for (code, level) in [(-32002, Level::Debug), (-32601, Level::Warn), (-32603, Level::Warn)] {
        let mut host = start(json!({"date": false}));
        host.request_text(Client, "session/prompt", PROMPT);
        let read = host.next();
        host.answer_error(&read, code, "no");
        assert_eq!(host.next().text(), PROMPT);
        assert_eq!(host.logs()[0].0, level);
    }
    let mut host = start(json!({"date": false}));
    host.deny(Host, "host/file/read");
    host.request_text(Client, "session/prompt", PROMPT);
    assert_eq!(host.next().text(), PROMPT, "not even without the right to read");
}

#[test]
fn odd_prompts_pass() {
    let mut host = start(json!({"files": []}));
    for odd in [
        r#"{"sessionId":"s"}"#,
        r#"{"sessionId":"s","prompt":"text"}"#,
        r#"{"prompt":[]}"#,
        "[1]",
    ] {
        host.request_text(Client, "session/prompt", odd);
        assert_eq!(host.next().text(), odd);
    }
}

#[test]
fn a_cancelled_prompt_is_not_counted_and_leaves_nothing() {
    let mut host = start(json!({"date": false}));
    let before = live_handles();
    let ticket = host.request_text(Client, "session/prompt", PROMPT);
    let read = host.next();
    host.cancel(ticket);
    let cancel = host.next();
    assert_eq!((cancel.to(), cancel.method()), (Host, "$/cancel_request"));
    assert_eq!(host.next().error()["code"], -32800);
    host.answer_error(&read, -32800, "cancelled");
    assert_eq!((host.waiting_handlers(), live_handles()), (0, before));
    host.request_text(Client, "session/prompt", PROMPT);
    assert_eq!(host.next().method(), "host/file/read", "the next one is the first");
}

#[test]
fn a_session_that_ends_is_forgotten() {
    let mut host = start(json!({"files": []}));
    host.request_text(Client, "session/prompt", PROMPT);
    assert_ne!(host.next().text(), PROMPT);
    host.request(Client, "session/close", json!({"sessionId": "s1"}));
    host.request_text(Client, "session/prompt", PROMPT);
    assert_ne!(host.next().text(), PROMPT);
}

#[test]
fn wrong_configurations_are_named() {
    for (config, named) in [
        (json!({"file": []}), "file"),
        (json!({"files": "AGENTS.md"}), "AGENTS.md"),
        (json!({"every": "day"}), "day"),
        (json!({"maxBytes": 0}), "maxBytes"),
        (json!({"maxBytes": 1_048_577}), "maxBytes"),
        (json!({"date": "yes"}), "yes"),
        (json!({"files": ["../x"]}), "../x"),
        (json!({"files": ["/etc/x"]}), "/etc/x"),
        (json!({"files": [""]}), "working directory"),
    ] {
        let error = Harness::start::<Context>(config).err().unwrap();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn a_slash_command_goes_as_it_is_and_the_next_prompt_gets_the_context() {
    let mut host = start(json!({"files": []}));
    let command = r#"{"sessionId":"s1","prompt":[{"type":"text","text":" /compact now"}]}"#;
    host.request_text(Client, "session/prompt", command);
    assert_eq!(host.next().text(), command);
    host.request_text(Client, "session/prompt", PROMPT);
    assert_ne!(host.next().text(), PROMPT);
}
