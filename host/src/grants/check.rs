//! What is looked at inside of parameters, where the method alone does not tell the risk: whose session it is, which servers a
//! session gets, and what `initialize` says that client and agent can do. What must not be so is put back as it was.

use super::policy::Policy;
use super::profile::Right;
use crate::message::Peer;
use crate::wire::edit::{self, Edit};
use crate::wire::scan;
use crate::wire::text::Text;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// What came of a look at a message that a proxy sends on.
#[derive(Clone, Debug)]
pub(crate) enum Checked {
    /// It may go as it is.
    Fine,
    /// It goes with this text; if that is not what the proxy meant, what was left out or put back.
    As(Text, Option<&'static str>),
    /// It does not go; why not.
    Denied(String),
}

/// Methods that set up a session, and so say which servers run for it and where.
fn is_setup(method: &str) -> bool {
    matches!(
        method,
        "session/new" | "session/load" | "session/resume" | "session/fork"
    )
}

/// Looks at a message that is sent on with other params than it came with. `same_members` tells that those of their outermost level
/// are the same as before, each of them once, with something changed only inside of them.
pub(crate) fn passed_on(
    policy: &Policy,
    source: Peer,
    method: &str,
    original: Option<&Text>,
    changed: Option<&Text>,
    same_members: bool,
) -> Checked {
    if method == "initialize" {
        return match (original, changed) {
            _ if policy.set_up => Checked::Fine,
            (Some(original), Some(changed)) => lowered(original, changed, "clientCapabilities"),
            _ => Checked::Denied("`initialize` must keep its params".into()),
        };
    }
    if !policy.may(Right::Intercept, source, method) {
        let missing = Policy::missing(Right::Intercept, source, method);
        return Checked::Denied(format!("changing `{method}` needs {missing}"));
    }
    if !same_members && let Err(reason) = same_session(method, original, changed) {
        return Checked::Denied(reason);
    }
    match (original, changed) {
        (Some(original), Some(changed)) if is_setup(method) => setup(policy, original, changed),
        _ => Checked::Fine,
    }
}

/// Looks at an answer to `initialize` that is another one than came from the agent's side.
pub(crate) fn initialize_answer(policy: &Policy, original: &Text, changed: &Text) -> Checked {
    match policy.set_up {
        true => Checked::Fine,
        false => lowered(original, changed, "agentCapabilities"),
    }
}

/// Looks at a message of a proxy's own making. `knows` says whether it was shown a session.
pub(crate) fn originated(
    policy: &Policy,
    to: Peer,
    method: &str,
    params: Option<&Text>,
    knows: impl Fn(&str) -> bool,
) -> Result<(), String> {
    if !policy.may(Right::Originate, to, method) {
        let missing = Policy::missing(Right::Originate, to, method);
        return Err(format!("sending `{}` needs {missing}", crate::log::printable(method)));
    }
    let Some(params) = params else { return Ok(()) };
    if to == Peer::Host {
        return Ok(());
    }
    if scan::is_twice(params, "sessionId") {
        return Err(TWICE.into());
    }
    if let Some(session) = scan::string_member(params, "sessionId")
        && !policy.any_session
        && !knows(&session)
    {
        let session = crate::log::printable(&session);
        return Err(format!(
            "it was not shown the session `{session}`; naming others needs the grant `own-sessions`"
        ));
    }
    if is_setup(method) && !policy.any_servers {
        if scan::is_twice(params, "mcpServers") {
            return Err("`mcpServers` is there twice".into());
        }
        let others = servers(params)
            .into_iter()
            .any(|server| own_server(policy, &server).is_none());
        if others {
            return Err(SERVERS.into());
        }
    }
    Ok(())
}

const TWICE: &str = "`sessionId` is there twice";

const SERVERS: &str = "adding MCP servers that it does not serve itself needs the grant `add-mcp-servers`";

/// A message stays in its session.
fn same_session(method: &str, original: Option<&Text>, changed: Option<&Text>) -> Result<(), String> {
    let session = |text: &Text| scan::find(text, "/sessionId").map(|range| text.slice(range).to_vec());
    if original.and_then(session) != changed.and_then(session) {
        return Err(format!("`{method}` must stay in its session"));
    }
    match changed {
        Some(changed) if scan::is_twice(changed, "sessionId") => Err(TWICE.into()),
        _ => Ok(()),
    }
}

/// The entries of `mcpServers` as they are written.
fn servers(params: &Text) -> Vec<Box<RawValue>> {
    scan::find(params, "/mcpServers")
        .and_then(|range| params.slice(range).decode())
        .unwrap_or_default()
}

/// A server that the proxy serves itself, with nothing in its entry that somebody else could take for a command or an address.
fn own_server(policy: &Policy, server: &RawValue) -> Option<Box<RawValue>> {
    let entry: Map<String, Value> = serde_json::from_str(server.get()).ok()?;
    if !policy.own_servers || entry.get("type") != Some(&json!("acp")) {
        return None;
    }
    let plain: Map<String, Value> = entry
        .into_iter()
        .filter(|(key, value)| matches!(key.as_str(), "type" | "name" | "id" | "serverId") && value.is_string())
        .collect();
    serde_json::value::to_raw_value(&plain).ok()
}

/// The set-up of a session: servers can be added as far as the policy goes, and nothing else can be changed without the right to
/// all of it.
fn setup(policy: &Policy, original: &Text, changed: &Text) -> Checked {
    if policy.set_up && policy.any_servers {
        return Checked::Fine;
    }
    let base = match policy.set_up && !scan::is_twice(changed, "mcpServers") {
        true => changed,
        false => original,
    };
    let before = servers(original);
    let mut left_out = false;
    let mut kept = Vec::new();
    for server in servers(changed) {
        let known = before.iter().any(|known| known.get() == server.get());
        match known || policy.any_servers {
            true => kept.push(server),
            false => match own_server(policy, &server) {
                Some(own) => kept.push(own),
                None => left_out = true,
            },
        }
    }
    let same = kept.len() == before.len() && kept.iter().zip(&before).all(|(one, two)| one.get() == two.get());
    let text = match same && std::ptr::eq(base, original) {
        true => original.clone(),
        false => {
            let put = Edit::Add("/mcpServers".into(), Text::of(&kept));
            edit::apply(base, &[put]).unwrap_or_else(|_| original.clone())
        }
    };
    let meant = |text: &Text| text.decode::<Value>();
    let cut = if left_out {
        Some("MCP servers were left out of the session: `add-mcp-servers` is not granted")
    } else if meant(&text) != meant(changed) {
        Some("the session's set-up was put back: `session-setup` is not granted")
    } else {
        None
    };
    Checked::As(text, cut)
}

/// `initialize` with nothing raised in it: what one side says it can do may only become less on the way.
fn lowered(original: &Text, changed: &Text, capabilities: &str) -> Checked {
    let (Some(before), Some(after)) = (original.decode::<Value>(), changed.decode::<Value>()) else {
        return Checked::Denied("`initialize` must be an object".into());
    };
    let mut edits = Vec::new();
    let versions = [&before, &after].map(|value| value.get("protocolVersion").and_then(Value::as_u64));
    if let [Some(offered), Some(wanted)] = versions
        && wanted < offered
    {
        edits.push(Edit::Replace("/protocolVersion".into(), Text::of(&wanted)));
    }
    if let Some(old) = before.get(capabilities) {
        let new = meet(old, after.get(capabilities).unwrap_or(&Value::Null));
        if new != *old {
            edits.push(Edit::Replace(format!("/{capabilities}"), Text::of(&new)));
        }
    }
    let text = edit::apply(original, &edits).unwrap_or_else(|_| original.clone());
    let same = text.decode::<Value>() == Some(after);
    let cut = (!same).then_some("`initialize` was put back: `session-setup` is not granted");
    Checked::As(text, cut)
}

/// The smaller of two capabilities; what cannot be compared stays as it was.
fn meet(old: &Value, new: &Value) -> Value {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => Value::Object(
            old.iter()
                .filter_map(|(key, old)| Some((key.clone(), meet(old, new.get(key)?))))
                .collect(),
        ),
        (_, Value::Null | Value::Bool(false)) => new.clone(),
        _ => old.clone(),
    }
}

#[cfg(test)]
mod tests {
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
            &text(
                &json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": true}, "authMethods": [{"id": "x"}]}),
            ),
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
}
