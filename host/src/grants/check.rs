//! What is looked at inside of parameters, where the method alone does not tell the risk: whose session it is, which servers a
//! session gets, and what `initialize` says that client and agent can do. What must not be so is put back as it was.

use super::policy::Policy;
use super::profile::Right;
use super::servers::{IDS, KEYS, MAX_SET_UP, OwnServers, ids, is_mcp};
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
pub(crate) fn is_setup(method: &str) -> bool {
    matches!(
        method,
        "session/new" | "session/load" | "session/resume" | "session/fork"
    )
}

/// Looks at a message that is sent on with other params than it came with. `same_members` tells that those of their outermost level
/// are the same as before, each of them once, with something changed only inside of them.
pub(crate) fn passed_on(
    policy: &Policy,
    servers: &OwnServers,
    source: Peer,
    method: &str,
    original: Option<&Text>,
    changed: Option<&Text>,
    same_members: bool,
) -> Checked {
    let may = match method {
        "initialize" => policy.set_up,
        _ => policy.may(Right::Intercept, source, method),
    };
    if !may {
        let missing = policy.missing(Right::Intercept, source, method);
        let method = crate::log::named(method);
        return Checked::Denied(format!("changing `{method}` needs {missing}"));
    }
    if method == "initialize" {
        return Checked::Fine;
    }
    if !same_members && let Err(reason) = same_session(method, original, changed) {
        return Checked::Denied(reason);
    }
    if !is_setup(method) || (policy.set_up && policy.any_servers) {
        return Checked::Fine;
    }
    match (original, changed) {
        (Some(original), Some(changed)) if original.len().max(changed.len()) > MAX_SET_UP => {
            Checked::Denied(format!("`{method}` is too large to be looked at"))
        }
        (Some(original), Some(changed)) => setup(policy, servers, original, changed),
        _ => Checked::Denied(format!("`{method}` must keep its params")),
    }
}

/// Looks at a message of a proxy's own making. `knows` says whether it was shown a session.
pub(crate) fn originated(
    policy: &Policy,
    servers: &OwnServers,
    to: Peer,
    method: &str,
    params: Option<&Text>,
    knows: impl Fn(&str) -> bool,
) -> Result<(), String> {
    if !policy.may(Right::Originate, to, method) {
        let missing = policy.missing(Right::Originate, to, method);
        return Err(format!("sending `{}` needs {missing}", crate::log::named(method)));
    }
    let Some(params) = params else {
        return match is_mcp(method) && !policy.any_connection {
            true => Err(NO_OBJECT.into()),
            false => Ok(()),
        };
    };
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
    if is_mcp(method) && !policy.any_connection && KEYS.iter().any(|key| is_unclear(params, key)) {
        return Err("it names its MCP server or connection in more than one way".into());
    }
    if !policy.any_session {
        session_is_known(params, knows)?;
    }
    if is_mcp(method) && !policy.any_connection && !servers.concern(Some(params)) {
        return Err("it serves no such MCP server, or has no such connection".into());
    }
    match is_setup(method) {
        true => own_set_up(policy, servers, params),
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
fn own_set_up(policy: &Policy, own: &OwnServers, params: &Text) -> Result<(), String> {
    if params.len() > MAX_SET_UP {
        return Err("the set-up of the session is too large to be looked at".into());
    }
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
    if is_unclear(params, "mcpServers") {
        return Err("`mcpServers` is there twice".into());
    }
    let all_own = match fields.get("mcpServers") {
        None | Some(Value::Null) => true,
        Some(Value::Array(_)) => servers(params)
            .into_iter()
            .all(|server| own_server(policy, own, &[], &server).is_some()),
        Some(_) => false,
    };
    all_own.then_some(()).ok_or_else(|| SERVERS.into())
}

const TWICE: &str = "`sessionId` is there twice";

const LOOKALIKE: &str = "a key in it looks like `sessionId`";

const NO_OBJECT: &str = "the params must be an object";

const SERVERS: &str = "adding MCP servers that it does not serve itself needs the grant `add-mcp-servers`";

/// A message stays in its session.
fn same_session(method: &str, original: Option<&Text>, changed: Option<&Text>) -> Result<(), String> {
    let member = |text: &Text, key: &str| {
        let range = scan::find(text, &format!("/{key}"))?;
        Some(text.slice(range).to_vec())
    };
    let servers: &[&str] = if is_mcp(method) { &KEYS } else { &[] };
    for key in ["sessionId"].iter().chain(servers) {
        if original.and_then(|text| member(text, key)) != changed.and_then(|text| member(text, key)) {
            let method = crate::log::named(method);
            return Err(match *key {
                "sessionId" => format!("`{method}` must stay in its session"),
                key => format!("`{method}` must keep its `{key}`"),
            });
        }
        let Some(changed) = changed else { continue };
        if scan::is_twice(changed, key) {
            return Err(format!("`{key}` is there twice"));
        }
        if !same_lookalikes(original, changed, key) {
            return Err(format!("a key in it looks like `{key}`"));
        }
    }
    match original.is_some_and(scan::is_object) && changed.is_some_and(|changed| !scan::is_object(changed)) {
        true => Err(NO_OBJECT.into()),
        false => Ok(()),
    }
}

/// Whether a member is there twice, or something looks like it.
fn is_unclear(params: &Text, key: &str) -> bool {
    scan::is_twice(params, key) || !scan::lookalikes(params, key).is_empty()
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

/// The names by which an entry's server can be told from others.
fn names(entry: &Map<String, Value>) -> impl Iterator<Item = &str> {
    ids(entry).chain(entry.get("name").and_then(Value::as_str))
}

/// A server that the proxy serves itself, with nothing in its entry that somebody else could take for a command or an address, and
/// with no name that one of the others has.
fn own_server(policy: &Policy, own: &OwnServers, others: &[Box<RawValue>], server: &RawValue) -> Option<Box<RawValue>> {
    let entry: Map<String, Value> = serde_json::from_str(server.get()).ok()?;
    if !policy.own_servers || entry.get("type") != Some(&json!("acp")) {
        return None;
    }
    let plain: Map<String, Value> = entry
        .into_iter()
        .filter(|(key, value)| {
            let kept = IDS.contains(&key.as_str()) || matches!(key.as_str(), "type" | "name");
            kept && value.is_string()
        })
        .collect();
    for other in others {
        let other: Map<String, Value> = serde_json::from_str(other.get()).unwrap_or_default();
        if names(&other).any(|taken| names(&plain).any(|name| name == taken)) {
            return None;
        }
    }
    let remembered = ids(&plain).next().is_some_and(|id| !id.is_empty()) && ids(&plain).all(|id| own.add(id));
    remembered.then(|| serde_json::value::to_raw_value(&plain).ok())?
}

/// The set-up of a session: servers can be added and left out as far as the policy goes, and nothing else can be changed without the right to
/// all of it.
fn setup(policy: &Policy, own: &OwnServers, original: &Text, changed: &Text) -> Checked {
    let plain = || !scan::is_twice(changed, "mcpServers") && same_lookalikes(Some(original), changed, "mcpServers");
    let base = match policy.set_up && plain() {
        true => changed,
        false => original,
    };
    let before = servers(original);
    let mut left_out = false;
    let after = servers(changed);
    // Those of others stay, each once and in their order; new ones come behind them.
    let mut kept = before.clone();
    if policy.fewer_servers && plain() {
        kept.retain(|known| after.iter().any(|server| server.get() == known.get()));
    }
    for server in after {
        if before.iter().any(|known| known.get() == server.get()) {
            continue;
        }
        match policy.any_servers {
            true => kept.push(server),
            false => match own_server(policy, own, &before, &server) {
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

#[cfg(test)]
mod tests;
