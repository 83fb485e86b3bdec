//! Whether lines say what they have to, without parsing each of them. A conductor may write the members of a message in any order, so a
//! line is parsed and compared as a value once; the next ones of its kind are compared byte by byte with the form that it has.

use memchr::memmem;
use serde_json::Value;

/// How the messages of a kind are written: bytes that are in all of them, between parts that are not.
struct Form {
    /// Bytes, and the number of the part behind them.
    pieces: Vec<(Vec<u8>, usize)>,
    end: Vec<u8>,
}

impl Form {
    /// That of a line. None if a part is not there just once.
    fn of(line: &[u8], parts: &[&[u8]]) -> Option<Self> {
        let mut places = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            let mut found = memmem::find_iter(line, part);
            places.push((found.next()?, number));
            if found.next().is_some() {
                return None;
            }
        }
        places.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for (place, number) in places {
            pieces.push((line.get(from..place)?.to_vec(), number));
            from = place + parts[number].len();
        }
        let end = line[from..].to_vec();
        Some(Self { pieces, end })
    }

    /// Whether a line has this form with these parts, and nothing else.
    fn fits(&self, line: &[u8], parts: &[&[u8]]) -> bool {
        let mut rest = line;
        for (bytes, number) in &self.pieces {
            let behind = rest.strip_prefix(bytes.as_slice());
            let Some(behind) = behind.and_then(|behind| behind.strip_prefix(parts[*number])) else {
                return false;
            };
            rest = behind;
        }
        rest == self.end
    }
}

/// Messages that differ in nothing but some parts.
#[derive(Default)]
pub(crate) struct Kind {
    form: Option<Form>,
}

impl Kind {
    /// Whether a line says all that the expected one says and nothing else. The parts are what may differ within the kind, as the
    /// expected line has it: whole strings with their quotes, or numbers with their keys.
    pub(crate) fn says(&mut self, line: &[u8], parts: &[&[u8]], expected: impl FnOnce(&mut Vec<u8>)) -> bool {
        if self.form.as_ref().is_some_and(|form| form.fits(line, parts)) {
            return true;
        }
        let mut wanted = Vec::new();
        expected(&mut wanted);
        let parsed = |line| serde_json::from_slice::<Value>(line).ok();
        let same = parsed(line).is_some_and(|came| parsed(&wanted) == Some(came));
        if same {
            self.form = Form::of(line, parts);
        }
        same
    }
}

/// Whether a value has all that another one has: objects may have more members.
pub(crate) fn contains(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(value), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| value.get(key).is_some_and(|value| contains(value, wanted))),
        _ => value == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::Write;

    fn says(kind: &mut Kind, line: &str, id: u64, text: &str) -> bool {
        let parts = [format!("\"id\":{id}"), format!("\"{text}\"")];
        kind.says(line.as_bytes(), &[parts[0].as_bytes(), parts[1].as_bytes()], |wanted| {
            let _ = writeln!(wanted, r#"{{"id":{id},"result":{{"a":1,"said":"{text}"}}}}"#);
        })
    }

    #[test]
    fn lines_are_compared_in_whatever_form_they_come() {
        let mut kind = Kind::default();
        for line in [
            r#"{"id":7,"result":{"a":1,"said":"x"}}"#,
            r#"{"result":{"said":"x","a":1},"id":7}"#,
            r#"{"result": {"said": "x", "a": 1}, "id": 7}"#,
        ] {
            // Once parsed and once, if it can be, by its form.
            assert!(says(&mut kind, line, 7, "x") && says(&mut kind, line, 7, "x"));
            let other = line.replace('7', "71").replace('x', "yy");
            assert!(says(&mut kind, &other, 71, "yy"));
            for (good, bad) in [("7", "8"), ("x", "xx"), ("1", "2"), ("a", "b"), ("}", ",\"more\":1}")] {
                assert!(!says(&mut kind, &line.replacen(good, bad, 1), 7, "x"), "{bad}");
            }
            assert!(!says(&mut kind, &format!("{line}}}"), 7, "x"));
            assert!(!says(&mut kind, &line[..line.len() - 1], 7, "x"));
        }
    }

    #[test]
    fn a_form_has_each_part_once() {
        let line = br#"{"id":1,"text":"x","more":"x"}"#;
        assert!(Form::of(line, &[b"\"id\":1"]).is_some());
        assert!(Form::of(line, &[b"\"id\":1", b"\"x\""]).is_none());
        assert!(Form::of(line, &[b"\"y\""]).is_none());
        assert!(Form::of(line, &[b"\"id\":1", b":1"]).is_none());
    }

    #[test]
    fn more_members_are_no_difference_where_less_is_wanted() {
        let value = json!({"a": {"b": 1, "c": []}, "d": null});
        for (wanted, is_in) in [
            (json!({}), true),
            (json!({"a": {"b": 1}}), true),
            (json!({"a": {"b": 2}}), false),
            (json!({"a": {"c": [1]}}), false),
            (json!({"e": null}), false),
        ] {
            assert_eq!(contains(&value, &wanted), is_in, "{wanted}");
        }
    }
}
