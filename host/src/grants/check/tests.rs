use super::*;
use crate::grants::Grant;

fn policy(grants: &[&str]) -> Policy {
    Policy::new(grants.iter().map(|grant| grant.parse::<Grant>().unwrap()))
}

/// A look at a message of a proxy that serves nothing.
fn passed(
    policy: &Policy,
    source: Peer,
    method: &str,
    original: Option<&Text>,
    changed: Option<&Text>,
    same_members: bool,
) -> Checked {
    passed_on(
        policy,
        &OwnServers::default(),
        source,
        method,
        original,
        changed,
        same_members,
    )
}

/// The same for one of its own making.
fn made(
    policy: &Policy,
    to: Peer,
    method: &str,
    params: Option<&Text>,
    knows: impl Fn(&str) -> bool,
) -> Result<(), String> {
    originated(policy, &OwnServers::default(), to, method, params, knows)
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
    outcome(passed(
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
fn who_filters_tools_leaves_servers_out_and_adds_none() {
    let server = |name: &str| json!({"name": name, "command": "x", "args": [], "env": []});
    let before = json!({"cwd": "/p", "mcpServers": [server("a"), server("b"), server("c")]});
    let after = json!({"cwd": "/q", "mcpServers": [server("c"), server("d"), server("a")]});
    let (sent, what) = set_up(&["filter-tools"], &before, &after);
    assert_eq!(
        sent.unwrap(),
        json!({"cwd": "/p", "mcpServers": [server("a"), server("c")]})
    );
    assert!(what.contains("add-mcp-servers"), "{what}");
    let fewer = json!({"cwd": "/p", "mcpServers": [server("b")]});
    let (sent, what) = set_up(&["filter-tools"], &before, &fewer);
    assert_eq!((sent.unwrap(), what.as_str()), (fewer.clone(), ""));
    let (sent, what) = set_up(&["offer-tools"], &before, &fewer);
    assert_eq!(sent.unwrap(), before);
    assert!(what.contains("put back"), "{what}");
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
        let checked = passed(
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
    let checked = made(
        &policy(&["own-sessions"]),
        Peer::Agent,
        "session/new",
        Some(&twice),
        |_| true,
    );
    assert!(checked.is_err());
}

#[test]
fn initialize_passes_as_it_came_without_the_right_to_change_it() {
    let before = text(&json!({"protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": true}}}));
    let after = text(&json!({"protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": false}}}));
    let change = |grants: &[&str]| {
        passed(
            &policy(grants),
            Peer::Client,
            "initialize",
            Some(&before),
            Some(&after),
            false,
        )
    };
    assert!(matches!(change(&["session-setup"]), Checked::Fine));
    assert!(
        outcome(change(&["change-prompts", "offer-tools"]))
            .1
            .contains("session-setup")
    );
}

#[test]
fn a_session_s_set_up_cannot_lose_its_params_on_the_way() {
    let params = text(&json!({"cwd": "/p", "mcpServers": []}));
    let change = |before: Option<&Text>, after: Option<&Text>| {
        let checked = passed(
            &policy(&["offer-tools"]),
            Peer::Client,
            "session/new",
            before,
            after,
            false,
        );
        matches!(checked, Checked::Denied(_))
    };
    assert!(change(None, Some(&params)) && change(Some(&params), None));
}

#[test]
fn an_mcp_server_of_somebody_else_s_is_out_of_reach() {
    let theirs = json!({"type": "acp", "name": "theirs", "serverId": "1"});
    let mine = json!({"type": "acp", "name": "mine", "serverId": "2"});
    let taken = json!({"type": "acp", "name": "taken", "id": "1"});
    let before = text(&json!({"cwd": "/p", "mcpServers": [theirs]}));
    let after = text(&json!({"cwd": "/p", "mcpServers": [theirs, mine, taken]}));
    let granted = policy(&["offer-tools"]);
    let own = OwnServers::default();
    let checked = passed_on(
        &granted,
        &own,
        Peer::Client,
        "session/new",
        Some(&before),
        Some(&after),
        false,
    );
    let (sent, what) = outcome(checked);
    assert_eq!(sent.unwrap()["mcpServers"], json!([theirs, mine]));
    assert!(!what.is_empty());
    own.connected(&text(&json!({"connectionId": "c"})));
    let say = |params: &str| {
        let params = Text::parse(params, 10).unwrap();
        originated(&granted, &own, Peer::Agent, "mcp/message", Some(&params), |_| true).is_ok()
    };
    assert!(say(r#"{"connectionId":"c","method":"x"}"#) && say(r#"{"serverId":"2"}"#));
    for params in [
        r#"{"connectionId":"d"}"#,
        r#"{"serverId":"1"}"#,
        r#"{"connectionId":"c","connectionId":"d"}"#,
        r#"{"connectionId":"c","connectionID":"d"}"#,
        r#"{}"#,
    ] {
        assert!(!say(params), "{params}");
    }
    let came = text(&json!({"connectionId": "c", "method": "x"}));
    let moved = text(&json!({"connectionId": "d", "method": "x"}));
    let checked = passed_on(
        &granted,
        &own,
        Peer::Agent,
        "mcp/message",
        Some(&came),
        Some(&moved),
        false,
    );
    assert!(matches!(checked, Checked::Denied(_)));
}

#[test]
fn a_message_stays_in_its_session() {
    let granted = policy(&["change-prompts", "change-answers"]);
    let before = text(&json!({"sessionId": "a", "prompt": []}));
    let prompt = |after: &str| {
        let after = Text::parse(after, 10).unwrap();
        outcome(passed(
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
        made(&granted, Peer::Client, "session/update", Some(&params), |known| {
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
        made(&policy(grants), Peer::Agent, method, Some(&params), |known| {
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
        passed(
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
