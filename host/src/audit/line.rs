//! One line of the audit file: its time, whom it is about, and fields that are cut and escaped, since proxies have a say in them.

use crate::units;
use serde_json::{Map, Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of one text. The longest that matters is the cause of a fault, with the message of a panic in it.
const MAX_TEXT: usize = 1000;

/// Members of a list or an object in a field.
const MAX_MEMBERS: usize = 100;

/// Bytes of a line; the fields of a longer one are left out.
const MAX_LINE: usize = 32 * 1024;

/// A line that is being put together.
pub(super) struct Line(Map<String, Value>);

impl Line {
    /// A line about something that happens now.
    pub(super) fn new(event: &str, connection: Option<&str>) -> Self {
        let mut fields = Map::new();
        fields.insert("time".into(), rfc3339(SystemTime::now()).into());
        fields.insert("pid".into(), std::process::id().into());
        if let Some(connection) = connection {
            fields.insert("connection".into(), connection.into());
        }
        fields.insert("event".into(), event.into());
        Self(fields)
    }

    pub(super) fn text(mut self, name: &str, text: &str) -> Self {
        self.0.insert(name.into(), short(text).into());
        self
    }

    pub(super) fn number(mut self, name: &str, number: u64) -> Self {
        self.0.insert(name.into(), number.into());
        self
    }

    /// Adds an object's members, but for those that every line has.
    pub(super) fn fields(mut self, fields: Value) -> Self {
        if let Value::Object(fields) = bounded(fields) {
            for (name, value) in fields {
                self.0.entry(name).or_insert(value);
            }
        }
        self
    }

    /// The line, without its end.
    pub(super) fn finish(self) -> String {
        let Self(mut fields) = self;
        let text = escaped(&Value::Object(fields.clone()).to_string());
        if text.len() <= MAX_LINE {
            return text;
        }
        fields.retain(|name, _| ["time", "pid", "connection", "event", "proxy"].contains(&name.as_str()));
        fields.insert("omitted-bytes".into(), json!(text.len()));
        escaped(&Value::Object(fields).to_string())
    }
}

/// The beginning of a text, marked if that is not all.
fn short(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(MAX_TEXT)])
}

fn bounded(value: Value) -> Value {
    match value {
        Value::String(text) => short(&text).into(),
        Value::Array(items) => items.into_iter().take(MAX_MEMBERS).map(bounded).collect(),
        Value::Object(members) => {
            let members = members.into_iter().take(MAX_MEMBERS);
            members.map(|(name, value)| (short(&name), bounded(value))).collect()
        }
        other => other,
    }
}

/// Escapes what a terminal would obey and what turns the order of letters around, as far as JSON does not ask for it. Outside of strings
/// JSON has only ASCII.
fn escaped(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for letter in json.chars() {
        let obeyed = letter.is_control()
            || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        if obeyed {
            safe.push_str(&format!("\\u{:04x}", u32::from(letter)));
        } else {
            safe.push(letter);
        }
    }
    safe
}

/// A time in UTC with milliseconds.
pub(super) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, milliseconds) = (since.as_secs(), since.subsec_millis());
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, date) = units::date(day);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (milliseconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_735_689_599_001, "2024-12-31T23:59:59.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_millis(milliseconds)), text);
        }
    }

    #[test]
    fn what_a_proxy_says_is_cut_and_moves_no_cursor() {
        let nasty = "\u{1b}[2J\n\u{9b}31m\u{202e}\u{7f}\"";
        let line = Line::new("denied", Some("c"))
            .text("what", nasty)
            .text("detail", &"ü".repeat(MAX_TEXT))
            .fields(json!({ "event": "another", nasty: [nasty] }))
            .finish();
        assert!(
            !line.chars().any(|letter| letter.is_control() || letter == '\u{202e}'),
            "{line:?}"
        );
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&read["what"], &read[nasty][0]), (&json!(nasty), &json!(nasty)));
        assert_eq!(read["event"], "denied");
        assert!(read["detail"].as_str().unwrap().len() <= MAX_TEXT + '…'.len_utf8());
    }

    #[test]
    fn a_line_has_an_end() {
        let wide: Vec<Vec<String>> = vec![vec!["x".repeat(2 * MAX_TEXT); 2 * MAX_MEMBERS]; 2 * MAX_MEMBERS];
        let line = Line::new("started", None)
            .text("proxy", "p")
            .fields(json!({ "wide": wide }))
            .finish();
        assert!(
            line.len() < MAX_LINE && line.contains("omitted-bytes") && line.contains("\"p\""),
            "{line:.200}"
        );
    }
}
