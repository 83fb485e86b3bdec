//! One message on one hop as a line of the reference conductor's trace format.

use super::mask::mask;
use crate::tap::{Hop, Kind, Place};
use crate::wire::envelope;
use crate::wire::scan;
use crate::wire::text::Text;
use serde_json::json;
use std::fmt::Write;
use std::time::Duration;

/// Bytes of a payload that are shown whole; of a longer one only the size is told.
const MAX_PAYLOAD: usize = 1024 * 1024;

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
    /// What it was counted with while it waited.
    pub(super) size: usize,
}

impl Event {
    pub(super) fn of(hop: &Hop<'_>, at: Duration, size: usize) -> Self {
        Self {
            at,
            from: hop.from,
            to: hop.to,
            kind: hop.kind,
            method: hop.method.to_owned(),
            id: hop.id.map(str::to_owned),
            text: hop.text.cloned(),
            size,
        }
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
                let _ = write!(line, ",\"method\":{}", json!(method));
                if let Some(session) = session {
                    let _ = write!(line, ",\"session\":{}", json!(session));
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
        Some(text) if text.len() > MAX_PAYLOAD => json!({ "consort/omitted-bytes": text.len() }).to_string(),
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
        let line = Event::of(&hop, Duration::from_millis(1500), 0).line();
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
    fn a_payload_that_is_too_long_is_told_by_its_size() {
        let long = format!("[\"{}\"]", "x".repeat(MAX_PAYLOAD));
        let line = line(Kind::Notification, "m", None, &long);
        assert_eq!(line["params"], json!({"consort/omitted-bytes": long.len()}));
    }
}
