use super::*;
use crate::grants::Grant;
use proptest::prelude::*;

fn policy(grants: &[&str]) -> Policy {
    Policy::new(grants.iter().map(|grant| grant.parse::<Grant>().unwrap()))
}

fn text(value: &Value) -> Text {
    Text::of(value)
}

fn outcome(checked: Checked) -> (Option<Value>, String) {
    match checked {
        Checked::Fine => (None, String::new()),
        Checked::As(text, cut) => (text.decode(), cut.unwrap_or_default().to_owned()),
        Checked::Denied(reason) => (None, reason),
    }
}

fn set_up(grants: &[&str], before: &Value, after: &Value) -> (Option<Value>, String) {
    let (before, after) = (text(before), text(after));
    outcome(passed_on(
        &policy(grants),
        Peer::Client,
        "session/new",
        Some(&before),
        Some(&after),
        false,
    ))
}

const STDIO: &str = r#"{"name":"evil","command":"/bin/sh","args":["-c","id"],"env":[]}"#;

#[test]
fn commands_are_left_out_of_a_session_and_own_tools_stay() {
    let mine: Value = serde_json::from_str(STDIO).unwrap();
    let users = json!({"name": "users", "command": "x", "args": [], "env": []});
    let own = json!({"type": "acp", "name": "own", "serverId": "1"});
    let before = json!({"cwd": "/p", "mcpServers": [users]});
    let after = json!({"cwd": "/p", "mcpServers": [users, own, mine]});
    let (sent, what) = set_up(&["offer-tools"], &before, &after);
    assert_eq!(sent.unwrap(), json!({"cwd": "/p", "mcpServers": [users, own]}));
    assert!(what.contains("add-mcp-servers"), "{what}");
    let (sent, what) = set_up(&["add-mcp-servers"], &before, &after);
    assert_eq!((sent.unwrap(), what.as_str()), (after.clone(), ""));
    assert_eq!(set_up(&["everything"], &before, &after).0, None);
    let (_, what) = set_up(&["change-prompts"], &before, &after);
    assert!(what.contains("changing `session/new` needs"), "{what}");
}

#[test]
fn an_own_server_carries_no_command_along() {
    let before = json!({"cwd": "/p", "mcpServers": []});
    let disguised = json!({"type": "acp", "name": "own", "id": "1", "command": "/bin/sh", "args": []});
    let after = json!({"cwd": "/p", "mcpServers": [disguised]});
    let (sent, _) = set_up(&["offer-tools"], &before, &after);
    assert_eq!(
        sent.unwrap()["mcpServers"],
        json!([{"type": "acp", "name": "own", "id": "1"}])
    );
}

#[test]
fn where_a_session_works_and_what_it_carries_is_put_back() {
    let before = json!({"cwd": "/p", "mcpServers": []});
    let after = json!({"cwd": "/", "mcpServers": [], "_meta": {"claudeCode": {"options": {}}}});
    let (sent, what) = set_up(&["offer-tools"], &before, &after);
    assert_eq!(sent.unwrap(), before);
    assert!(what.contains("session-setup"), "{what}");
    let (sent, what) = set_up(&["session-setup"], &before, &after);
    assert_eq!((sent.unwrap(), what.as_str()), (after, ""));
}

#[test]
fn a_second_list_of_servers_smuggles_nothing_in() {
    let before = text(&json!({"cwd": "/p", "mcpServers": []}));
    let twice = Text::parse(&format!(r#"{{"cwd":"/q","mcpServers":[],"mcpServers":[{STDIO}]}}"#), 10).unwrap();
    for grants in [&["offer-tools"][..], &["session-setup"]] {
        let checked = passed_on(
            &policy(grants),
            Peer::Client,
            "session/new",
            Some(&before),
            Some(&twice),
            false,
        );
        let Checked::As(sent, _) = checked else {
            panic!("it is not put back with {grants:?}: {checked:?}");
        };
        assert!(!sent.to_text().contains("/bin/sh"), "{}", sent.to_text());
    }
    let checked = originated(
        &policy(&["own-sessions"]),
        Peer::Agent,
        "session/new",
        Some(&twice),
        |_| true,
    );
    assert!(checked.is_err());
}

#[test]
fn capabilities_are_only_ever_lowered() {
    let before = json!({"protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": true, "writeTextFile": false}, "terminal": true}});
    let after = json!({"protocolVersion": 7, "clientCapabilities": {"fs": {"readTextFile": false, "writeTextFile": true}, "terminal": true, "auth": {}}, "x": 1});
    let (sent, what) = outcome(passed_on(
        &policy(&["change-prompts"]),
        Peer::Client,
        "initialize",
        Some(&text(&before)),
        Some(&text(&after)),
        false,
    ));
    assert_eq!(
        sent.unwrap(),
        json!({"protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": true}})
    );
    assert!(what.contains("put back"), "{what}");
    let (sent, what) = outcome(initialize_answer(
        &policy(&[]),
        &text(&json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": false}, "authMethods": []})),
        &text(&json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": true}, "authMethods": [{"id": "x"}]})),
    ));
    assert_eq!(
        sent.unwrap(),
        json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": false}, "authMethods": []})
    );
    assert!(!what.is_empty());
}

#[test]
fn a_message_stays_in_its_session() {
    let granted = policy(&["change-prompts", "change-answers"]);
    let before = text(&json!({"sessionId": "a", "prompt": []}));
    let prompt = |after: &str| {
        let after = Text::parse(after, 10).unwrap();
        outcome(passed_on(
            &granted,
            Peer::Client,
            "session/prompt",
            Some(&before),
            Some(&after),
            false,
        ))
        .1
    };
    assert_eq!(prompt(r#"{"sessionId":"a","prompt":[1]}"#), "");
    assert!(prompt(r#"{"sessionId":"b","prompt":[]}"#).contains("stay in its session"));
    assert!(prompt(r#"{"prompt":[]}"#).contains("stay in its session"));
    assert!(prompt(r#"{"sessionId":"a","sessionId":"b"}"#).contains("twice"));
    let update = |session: &str| {
        let params = text(&json!({"sessionId": session, "update": {}}));
        originated(&granted, Peer::Client, "session/update", Some(&params), |known| {
            known == "a"
        })
    };
    assert!(update("a").is_ok());
    assert!(update("b").unwrap_err().contains("own-sessions"));
}

#[test]
fn other_spellings_of_a_key_are_denied() {
    let sent = |grants: &[&str], method: &str, params: &str| {
        let params = Text::parse(params, 10).unwrap();
        originated(&policy(grants), Peer::Agent, method, Some(&params), |known| {
            known == "a"
        })
    };
    let cancel = |params: &str| sent(&["change-prompts"], "session/cancel", params);
    assert!(cancel(r#"{"sessionId":"a"}"#).is_ok() && cancel(r#"{"session\u0049d":"a"}"#).is_ok());
    for params in [
        r#"["b"]"#,
        r#"{"sessionId":["b"]}"#,
        r#"{"sessionID":"b"}"#,
        r#"{"sessionId":"a","session_id":"b"}"#,
    ] {
        assert!(cancel(params).is_err(), "{params}");
    }
    let new = |params: &str| sent(&["own-sessions"], "session/new", params);
    assert!(new(r#"{"cwd":"/","mcpServers":[]}"#).is_ok());
    for params in [
        r#"["/",[]]"#,
        r#"{"cwd":"/","_meta":{}}"#,
        r#"{"cwd":"/","mcpServers":{}}"#,
    ] {
        assert!(new(params).is_err(), "{params}");
    }
    // What a client wrote stays, and hinders nobody.
    let before = text(&json!({"sessionId": "a", "session_id": "b", "prompt": []}));
    let edited = |after: &Value| {
        let after = text(after);
        passed_on(
            &policy(&["change-prompts"]),
            Peer::Client,
            "session/prompt",
            Some(&before),
            Some(&after),
            false,
        )
    };
    let ours = json!({"sessionId": "a", "session_id": "b", "prompt": [1]});
    assert!(matches!(edited(&ours), Checked::Fine));
    let moved = json!({"sessionId": "a", "session_id": "c", "prompt": []});
    assert!(matches!(edited(&moved), Checked::Denied(_)));
}

fn capabilities() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (0..3).prop_map(|number| json!(number)),
        "[ab]".prop_map(Value::String),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop::collection::btree_map("[abc]", inner, 0..3).prop_map(|map| json!(map))
    })
}

/// Whether nothing in it is more than in the other one.
fn is_within(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => new
            .iter()
            .all(|(key, value)| old.get(key).is_some_and(|old| is_within(value, old))),
        (Value::Null | Value::Bool(false), _) => true,
        (new, old) => new == old,
    }
}

proptest! {
    #[test]
    fn nothing_is_ever_more_than_it_was(old in capabilities(), new in capabilities()) {
        let lower = meet(&old, &new);
        prop_assert!(is_within(&lower, &old), "{old} and {new} make {lower}");
        prop_assert_eq!(meet(&old, &old), old);
    }
}
