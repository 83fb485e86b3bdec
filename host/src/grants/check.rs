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
        let method = crate::log::named(method);
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
        return Err(format!("sending `{}` needs {missing}", crate::log::named(method)));
    }
    let Some(params) = params else { return Ok(()) };
    if to == Peer::Host {
        return Ok(());
    }
    let free = policy.any_session && policy.any_servers;
    if !free && !scan::is_object(params) {
        // There are readers that take a list for the members of an object in their order.
        return Err(NO_OBJECT.into());
    }
    if scan::is_twice(params, "sessionId") {
        return Err(TWICE.into());
    }
    if !policy.any_session {
        session_is_known(params, knows)?;
    }
    match is_setup(method) {
        true => own_set_up(policy, params),
        false => Ok(()),
    }
}

/// The session that params name, if they name any, is one that the proxy was shown.
fn session_is_known(params: &Text, knows: impl Fn(&str) -> bool) -> Result<(), String> {
    if !scan::lookalikes(params, "sessionId").is_empty() {
        return Err(LOOKALIKE.into());
    }
    let Some(place) = scan::find(params, "/sessionId") else {
        return Ok(());
    };
    match params.slice(place).decode::<String>() {
        Some(session) if knows(&session) => Ok(()),
        Some(session) => Err(unknown_session(&session)),
        None => Err("`sessionId` must be a text".into()),
    }
}

/// Why a proxy must not name a session.
pub(crate) fn unknown_session(session: &str) -> String {
    let session = crate::log::named(session);
    format!("it was not shown the session `{session}`; naming others needs the grant `own-sessions`")
}

/// The set-up of a session of the proxy's own: agents take commands and more from what they find there.
fn own_set_up(policy: &Policy, params: &Text) -> Result<(), String> {
    const PLAIN: [&str; 4] = ["sessionId", "cwd", "additionalDirectories", "mcpServers"];
    let Some(fields) = params.decode::<Map<String, Value>>() else {
        return Err(NO_OBJECT.into());
    };
    if !policy.set_up
        && let Some(other) = fields.keys().find(|key| !PLAIN.contains(&key.as_str()))
    {
        let other = crate::log::named(other);
        return Err(format!(
            "`{other}` in the set-up of a session needs the grant `session-setup`"
        ));
    }
    if policy.any_servers {
        return Ok(());
    }
    if scan::is_twice(params, "mcpServers") || !scan::lookalikes(params, "mcpServers").is_empty() {
        return Err("`mcpServers` is there twice".into());
    }
    let own = match fields.get("mcpServers") {
        None | Some(Value::Null) => true,
        Some(Value::Array(_)) => servers(params)
            .into_iter()
            .all(|server| own_server(policy, &server).is_some()),
        Some(_) => false,
    };
    own.then_some(()).ok_or_else(|| SERVERS.into())
}

const TWICE: &str = "`sessionId` is there twice";

const LOOKALIKE: &str = "a key in it looks like `sessionId`";

const NO_OBJECT: &str = "the params must be an object";

const SERVERS: &str = "adding MCP servers that it does not serve itself needs the grant `add-mcp-servers`";

/// A message stays in its session.
fn same_session(method: &str, original: Option<&Text>, changed: Option<&Text>) -> Result<(), String> {
    let session = |text: &Text| scan::find(text, "/sessionId").map(|range| text.slice(range).to_vec());
    if original.and_then(session) != changed.and_then(session) {
        return Err(format!("`{}` must stay in its session", crate::log::named(method)));
    }
    let Some(changed) = changed else { return Ok(()) };
    if original.is_some_and(scan::is_object) && !scan::is_object(changed) {
        return Err(NO_OBJECT.into());
    }
    if scan::is_twice(changed, "sessionId") {
        return Err(TWICE.into());
    }
    match same_lookalikes(original, changed, "sessionId") {
        true => Ok(()),
        false => Err(LOOKALIKE.into()),
    }
}

/// Whether nothing that looks like a key was put in or changed.
fn same_lookalikes(original: Option<&Text>, changed: &Text, key: &str) -> bool {
    let before = original.map(|original| scan::lookalikes(original, key));
    scan::lookalikes(changed, key) == before.unwrap_or_default()
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
    let plain = || !scan::is_twice(changed, "mcpServers") && same_lookalikes(Some(original), changed, "mcpServers");
    let base = match policy.set_up && plain() {
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
mod tests;
