//! Reading JSON that others read as well: what two readers could understand in two ways is not understood at all. Knows nothing of MCP.

use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::value::RawValue;

/// Why something is not understood: the rest of a sentence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unclear(pub(crate) String);

/// The members of an object as they stand there, also those that stand there twice.
pub(crate) struct Members<'t>(Vec<(String, &'t RawValue)>);

impl<'t> Members<'t> {
    pub(crate) fn read(text: &'t str) -> Result<Self, Unclear> {
        serde_json::from_str(text).map_err(|_| Unclear("it has no object where one has to be".into()))
    }

    /// The member with this key, if there is one. There may be no second one, and none that a reader without regard to case would take
    /// for it.
    pub(crate) fn get(&self, key: &str) -> Result<Option<&'t RawValue>, Unclear> {
        let wanted = folded(key);
        let mut alike = self.0.iter().filter(|(other, _)| folded(other) == wanted);
        match (alike.next(), alike.next()) {
            (None, _) => Ok(None),
            (Some((found, value)), None) if found == key => Ok(Some(value)),
            (Some(_), None) => Err(Unclear(format!("a key in it looks like `{key}`"))),
            (Some(_), Some(_)) => Err(Unclear(format!("`{key}` is there twice"))),
        }
    }

    /// The same, where it has to be a text.
    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, Unclear> {
        let Some(value) = self.get(key)? else { return Ok(None) };
        match serde_json::from_str(value.get()) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(Unclear(format!("`{key}` is no text"))),
        }
    }
}

impl<'t> Deserialize<'t> for Members<'t> {
    fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;

        impl<'t> Visitor<'t> for All {
            type Value = Vec<(String, &'t RawValue)>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    if members.len() == MAX_MEMBERS {
                        return Err(de::Error::custom("too many members"));
                    }
                    members.push(member);
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(All).map(Members)
    }
}

/// Members of an object that is looked at. No message has a tenth of that.
const MAX_MEMBERS: usize = 1_000;

/// The elements of an array.
pub(crate) fn elements(text: &str) -> Result<Vec<&RawValue>, Unclear> {
    serde_json::from_str(text).map_err(|_| Unclear("it has no array where one has to be".into()))
}

/// What is the same for readers that do not regard case, those included that take `ſ` for an `s`.
pub(crate) fn folded(text: &str) -> String {
    text.chars()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_everybody_reads_alike_is_read() {
        let text = |json: &str| Members::read(json).and_then(|members| members.text("params"));
        assert_eq!(text(r#"{"params":"a","other":1,"other":2}"#), Ok(Some("a".into())));
        assert_eq!(text(r#"{"pa\u0072ams":"\u0061"}"#), Ok(Some("a".into())));
        assert_eq!(text("{}"), Ok(None));
        for unclear in [
            r#"{"params":"a","params":"a"}"#,
            r#"{"params":"a","Params":"b"}"#,
            r#"{"PARAMS":"b"}"#,
            r#"{"paramſ":"b"}"#,
            r#"{"params":"a","p\u0061rams":"b"}"#,
            r#"{"params":["a"]}"#,
            r#"{"params":"\ud800"}"#,
            r#"["params"]"#,
            "null",
            r#""params""#,
        ] {
            assert!(text(unclear).is_err(), "{unclear}");
        }
        let many: Vec<String> = (0..=MAX_MEMBERS).map(|number| format!("\"{number}\":0")).collect();
        assert!(Members::read(&format!("{{{}}}", many.join(","))).is_err());
    }
}
