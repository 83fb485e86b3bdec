//! One message on one hop as a line of the reference conductor's trace format.

use super::mask::mask;
use crate::tap::{Hop, Kind, Place};
use crate::wire::envelope;
use crate::wire::scan;
use crate::wire::text::Text;
use serde_json::{Map, json};
use std::fmt::Write;
use std::time::Duration;

/// Bytes of a text that is shown whole; of a longer one only the size is told.
const MAX_TEXT: usize = 1024 * 1024;

/// Characters that are shown of a method, a session's id or a request's id.
const MAX_NAME: usize = 256;

/// Bytes that an event takes besides its texts, roughly.
const RECORD: usize = 256;

/// The member that tells the size of a text that is not shown.
const OMITTED: &str = "consort/omitted-bytes";

/// The method that carries an MCP message, in both generations.
const MCP_MESSAGE: &str = "mcp/message";

/// A message that went over a hop.
pub(super) struct Event {
    at: Duration,
    from: Place,
    to: Place,
    kind: Kind,
    method: String,
    id: Option<String>,
    text: Option<Text>,
}

impl Event {
    /// Keeps of a hop what its line needs, which is bounded whatever was sent.
    pub(super) fn of(hop: &Hop<'_>, at: Duration) -> Self {
        Self {
            at,
            from: hop.from,
            to: hop.to,
            kind: hop.kind,
            method: cut(hop.method),
            id: hop.id.map(cut_id),
            text: hop.text.map(|text| match text.len() {
                0..=MAX_TEXT => text.clone(),
                _ => stand_in(hop.kind, hop.method == MCP_MESSAGE, text),
            }),
        }
    }

    /// The bytes that it takes while it waits.
    pub(super) fn size(&self) -> usize {
        let id = self.id.as_ref().map_or(0, String::len);
        RECORD + self.method.len() + id + self.text.as_ref().map_or(0, Text::len)
    }

    /// The line, without its end.
    pub(super) fn line(self) -> String {
        let mcp = self.method == MCP_MESSAGE;
        match self.kind {
            Kind::Request | Kind::Notification => {
                // The viewer shows what is carried, not the carrier.
                let (mcp, method, params) = match self.text.as_ref().map(envelope::unwrap) {
                    Some(Ok((method, params))) if mcp => (true, method.to_string(), params),
                    _ => (false, self.method.clone(), self.text.clone()),
                };
                let session = self
                    .text
                    .as_ref()
                    .and_then(|params| scan::string_member(params, "sessionId"));
                let mut line = self.begin(mcp);
                let _ = write!(line, ",\"method\":{}", json!(cut(&method)));
                if let Some(session) = session {
                    let _ = write!(line, ",\"session\":{}", json!(cut(&session)));
                }
                let _ = write!(line, ",\"params\":{}}}", payload(params.as_ref()));
                line
            }
            Kind::Result | Kind::Error => {
                let failed = self.kind == Kind::Error;
                let (domain, text) = match &self.text {
                    _ if failed => (Some("acp"), self.text.clone()),
                    Some(text) if mcp => carried(text),
                    text => (None, text.clone()),
                };
                let mut line = self.begin(false);
                let _ = write!(line, ",\"is_error\":{}", domain.is_some());
                if let Some(domain) = domain {
                    let _ = write!(line, ",\"error_domain\":\"{domain}\"");
                }
                let _ = write!(line, ",\"payload\":{}}}", payload(text.as_ref()));
                line
            }
        }
    }

    fn begin(&self, mcp: bool) -> String {
        let mut line = String::with_capacity(256 + self.text.as_ref().map_or(0, Text::len));
        let kind = match self.kind {
            Kind::Request => "request",
            Kind::Notification => "notification",
            Kind::Result | Kind::Error => "response",
        };
        let _ = write!(line, "{{\"type\":\"{kind}\",\"ts\":{}", self.at.as_secs_f64());
        if kind != "response" {
            line.push_str(if mcp {
                ",\"protocol\":\"mcp\""
            } else {
                ",\"protocol\":\"acp\""
            });
        }
        let _ = write!(line, ",\"from\":\"{}\",\"to\":\"{}\"", name(self.from), name(self.to));
        if let Some(id) = &self.id {
            let _ = write!(line, ",\"id\":{id}");
        }
        line
    }
}

/// The line that tells of events which were dropped.
pub(super) fn dropped(at: Duration, count: u64) -> String {
    json!({
        "type": "notification",
        "ts": at.as_secs_f64(),
        "protocol": "acp",
        "from": name(Place::Host),
        "to": name(Place::Host),
        "method": "consort/dropped",
        "params": {"events": count, "reason": "the disk was slower than the traffic"},
    })
    .to_string()
}

/// What is kept of a text that is too long to be shown: its size, and what a line tells besides.
fn stand_in(kind: Kind, mcp: bool, text: &Text) -> Text {
    let mut kept = Map::new();
    let omitted = json!(text.len());
    match kind {
        Kind::Request | Kind::Notification => {
            if let Some(session) = scan::string_member(text, "sessionId") {
                kept.insert("sessionId".into(), cut(&session).into());
            }
            match scan::string_member(text, "method").filter(|_| mcp) {
                Some(method) => {
                    kept.insert("method".into(), cut(&method).into());
                    kept.insert("params".into(), json!({ OMITTED: omitted }));
                }
                None => {
                    kept.insert(OMITTED.into(), omitted);
                }
            }
        }
        Kind::Result if mcp && carried(text).0.is_some() => {
            kept.insert("error".into(), json!({ OMITTED: omitted }));
        }
        Kind::Result | Kind::Error => {
            kept.insert(OMITTED.into(), omitted);
        }
    }
    Text::of(&kept)
}

/// The beginning of a name that is longer than anybody reads.
fn cut(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// An id as JSON text. One that is too long is shown as a string, whatever it was.
fn cut_id(id: &str) -> String {
    match id.char_indices().nth(MAX_NAME) {
        Some(_) => json!(cut(id.trim_start_matches('"'))).to_string(),
        None => id.to_owned(),
    }
}

/// The outcome of an MCP request in the result that carries it.
fn carried(result: &Text) -> (Option<&'static str>, Option<Text>) {
    let part = |pointer: &str| scan::find(result, pointer).map(|range| result.slice(range));
    match (part("/result"), part("/error")) {
        (Some(inner), None) => (None, Some(inner)),
        (None, Some(error)) => (Some("mcp"), Some(error)),
        _ => (None, Some(result.clone())),
    }
}

fn payload(text: Option<&Text>) -> String {
    match text {
        None => "null".to_owned(),
        // Between members JSON allows line ends, a line does not.
        Some(text) => mask(&text.to_text()).replace(['\n', '\r'], " "),
    }
}

fn name(place: Place) -> String {
    match place {
        Place::Client => "Client".into(),
        Place::Proxy(index) => format!("Proxy({index})"),
        Place::Agent => "Agent".into(),
        Place::Host => "Conductor".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn line(kind: Kind, method: &str, id: Option<&str>, text: &str) -> Value {
        let text = Text::trusted(text.to_owned());
        let hop = Hop {
            from: Place::Client,
            to: Place::Proxy(0),
            kind,
            method,
            id,
            text: Some(&text),
        };
        let line = Event::of(&hop, Duration::from_millis(1500)).line();
        assert!(!line.contains('\n'));
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn requests_and_notifications_are_in_the_viewers_format() {
        assert_eq!(
            line(
                Kind::Request,
                "session/prompt",
                Some("7"),
                r#"{"sessionId":"s","prompt":[]}"#
            ),
            json!({
                "type": "request", "ts": 1.5, "protocol": "acp", "from": "Client", "to": "Proxy(0)", "id": 7,
                "method": "session/prompt", "session": "s", "params": {"sessionId": "s", "prompt": []},
            })
        );
        assert_eq!(
            line(
                Kind::Notification,
                "mcp/message",
                None,
                r#"{"connectionId":"c","method":"m\n","params":{"a":1}}"#
            ),
            json!({
                "type": "notification", "ts": 1.5, "protocol": "mcp", "from": "Client", "to": "Proxy(0)",
                "method": "m\n", "params": {"a": 1},
            })
        );
    }

    #[test]
    fn responses_tell_whose_error_it_is() {
        let response = |kind, method, text| {
            let line = line(kind, method, Some("\"x\""), text);
            assert_eq!((&line["type"], &line["id"]), (&json!("response"), &json!("x")));
            (
                line["is_error"].clone(),
                line["error_domain"].clone(),
                line["payload"].clone(),
            )
        };
        assert_eq!(
            response(Kind::Result, "session/new", r#"{"a":1}"#),
            (json!(false), json!(null), json!({"a": 1}))
        );
        assert_eq!(
            response(Kind::Error, "mcp/message", r#"{"code":1}"#),
            (json!(true), json!("acp"), json!({"code": 1}))
        );
        assert_eq!(
            response(Kind::Result, "mcp/message", r#"{"error":{"code":2}}"#),
            (json!(true), json!("mcp"), json!({"code": 2}))
        );
        assert_eq!(
            response(Kind::Result, "mcp/message", r#"{"result":{"tools":[]}}"#),
            (json!(false), json!(null), json!({"tools": []}))
        );
    }

    #[test]
    fn a_text_that_is_too_long_is_told_by_its_size_and_the_rest_as_ever() {
        let long = "x".repeat(MAX_TEXT);
        let text = format!("[\"{long}\"]");
        let notification = line(Kind::Notification, "m", None, &text);
        assert_eq!(notification["params"], json!({OMITTED: text.len()}));
        let text = format!(r#"{{"content":"{long}","sessionId":"s"}}"#);
        let request = line(Kind::Request, "m", Some("1"), &text);
        assert_eq!(
            (&request["session"], &request["params"][OMITTED]),
            (&json!("s"), &json!(text.len()))
        );
        let text = format!(r#"{{"params":{{"a":"{long}"}},"method":"tools/call"}}"#);
        let request = line(Kind::Request, MCP_MESSAGE, Some("1"), &text);
        assert_eq!(
            (&request["protocol"], &request["method"], &request["params"]),
            (&json!("mcp"), &json!("tools/call"), &json!({OMITTED: text.len()}))
        );
        for (member, failed) in [("result", false), ("error", true)] {
            let text = format!(r#"{{"{member}":"{long}"}}"#);
            let response = line(Kind::Result, MCP_MESSAGE, Some("1"), &text);
            assert_eq!(
                (&response["is_error"], &response["payload"]),
                (&json!(failed), &json!({OMITTED: text.len()}))
            );
        }
    }

    #[test]
    fn names_without_end_are_cut_and_counted() {
        let long = "ä".repeat(100_000);
        let shown = format!("{}…", "ä".repeat(MAX_NAME));
        let id = json!(long).to_string();
        let text = format!(r#"{{"sessionId":"{long}"}}"#);
        let request = line(Kind::Request, &long, Some(&id), &text);
        for name in ["method", "session", "id"] {
            assert_eq!(request[name], json!(shown), "{name}");
        }
        let carrying = format!(r#"{{"method":"{long}"}}"#);
        assert_eq!(
            line(Kind::Request, MCP_MESSAGE, None, &carrying)["method"],
            json!(shown)
        );
        let hop = Hop {
            from: Place::Client,
            to: Place::Agent,
            kind: Kind::Request,
            method: "four",
            id: Some("123"),
            text: Some(&Text::trusted("[]")),
        };
        assert_eq!(Event::of(&hop, Duration::ZERO).size(), RECORD + 4 + 3 + 2);
    }
}
