//! A proxy's manifest: who it is, what it would like to be allowed and why, and how it wants to be treated. It sits in a custom
//! section of the component as JSON. What is unknown or wrong in it is told and left out; it never keeps a proxy from running, since
//! less is granted then, not more.

mod section;

pub use section::attach;

use crate::grants::Grant;
use crate::limits::{Limit, Settings, Unit};
use crate::message::OnFailure;
use serde_json::{Map, Value, json};

/// The custom section that holds a manifest.
pub const SECTION: &str = "consort:manifest";

/// The largest manifest in bytes.
pub const MAX_SIZE: usize = 64 * 1024;

/// Characters of a name, a version, a description or a reason; the rest is cut.
const MAX_WORDS: usize = 500;

/// The most grants that a manifest can wish for.
const MAX_WISHES: usize = 100;

/// What stands in a manifest.
const KEYS: [&str; 6] = ["name", "version", "description", "on-failure", "grants", "limits"];

/// What a proxy says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Its name.
    pub name: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// What it does, in a sentence.
    pub description: Option<String>,
    /// What should become of its messages when it fails.
    pub on_failure: Option<OnFailure>,
    /// What it would like to be allowed, each with the reason that its author gives; none if it says nothing about that.
    pub wishes: Option<Vec<(Grant, String)>>,
    /// The limits that it would like to have.
    pub limits: Settings,
}

impl Manifest {
    /// Reads a section's content, and tells what is wrong with it.
    pub fn read(section: &[u8]) -> (Self, Vec<String>) {
        if section.len() > MAX_SIZE {
            let warning = format!("the manifest is larger than {} KiB and was not read", MAX_SIZE >> 10);
            return (Self::default(), vec![warning]);
        }
        match serde_json::from_slice(section) {
            Ok(Value::Object(fields)) => Self::of(&fields),
            Ok(_) => (Self::default(), vec!["the manifest is not a JSON object".into()]),
            Err(error) => (Self::default(), vec![format!("the manifest is not JSON: {error}")]),
        }
    }

    /// What these fields say, and what is wrong with them.
    pub fn of(fields: &Map<String, Value>) -> (Self, Vec<String>) {
        let mut warnings = Vec::new();
        for key in fields.keys().filter(|key| !KEYS.contains(&key.as_str())) {
            warnings.push(format!("unknown field `{}`", crate::log::printable(&cut(key))));
        }
        let mut text = |key: &str| match fields.get(key) {
            None => None,
            Some(Value::String(text)) => Some(words(text)),
            Some(_) => {
                warnings.push(format!("`{key}` must be a text"));
                None
            }
        };
        let (name, version, description) = (text("name"), text("version"), text("description"));
        let on_failure = text("on-failure").map(|value| {
            OnFailure::named(&value).unwrap_or_else(|| {
                warnings.push(format!(
                    "`on-failure` must be \"bypass\" or \"closed\", not \"{value}\"; it is taken for \"closed\""
                ));
                // Who says anything about it may be there to protect.
                OnFailure::Closed
            })
        });
        let wishes = fields.get("grants").map(|field| wishes(field, &mut warnings));
        let limits = limits(fields.get("limits"), &mut warnings);
        let manifest = Self {
            name,
            version,
            description,
            on_failure,
            wishes,
            limits,
        };
        (manifest, warnings)
    }

    /// The content of the section.
    pub fn to_section(&self) -> Vec<u8> {
        self.to_json().to_string().into_bytes()
    }

    /// The fields as JSON.
    pub fn to_json(&self) -> Value {
        let mut fields = Map::new();
        let texts = [
            ("name", &self.name),
            ("version", &self.version),
            ("description", &self.description),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                fields.insert(key.into(), json!(text));
            }
        }
        if let Some(on_failure) = self.on_failure {
            fields.insert("on-failure".into(), json!(on_failure.name()));
        }
        if let Some(wishes) = &self.wishes {
            let wishes = wishes.iter().map(|(grant, reason)| (grant.to_string(), json!(reason)));
            fields.insert("grants".into(), Value::Object(wishes.collect()));
        }
        let limits: Map<String, Value> = self
            .limits
            .iter()
            .map(|(limit, value)| {
                let value = match limit.unit() {
                    Unit::Count => json!(value),
                    Unit::Bytes | Unit::Time => json!(limit.shown(*value)),
                };
                (limit.name().to_owned(), value)
            })
            .collect();
        if !limits.is_empty() {
            fields.insert("limits".into(), limits.into());
        }
        fields.into()
    }
}

fn wishes(field: &Value, warnings: &mut Vec<String>) -> Vec<(Grant, String)> {
    let mut wishes: Vec<(Grant, String)> = Vec::new();
    let Value::Object(field) = field else {
        warnings.push("`grants` must be a table: a grant and the reason for it in each line".into());
        return wishes;
    };
    for (name, reason) in field {
        // A user who copies it into an option must not grant more than what is told as one thing.
        if name.contains(|letter: char| letter == ',' || crate::log::is_unseen(letter)) {
            let name = crate::log::named(name);
            warnings.push(format!("`{name}` has a character in it that no grant has"));
            continue;
        }
        let grant: Grant = match name.parse() {
            Ok(grant) => grant,
            Err(reason) => {
                warnings.push(reason);
                continue;
            }
        };
        let reason = match reason {
            Value::String(reason) => words(reason),
            _ => {
                warnings.push(format!("the reason for `{grant}` must be a text"));
                String::new()
            }
        };
        if wishes.len() == MAX_WISHES {
            warnings.push(format!("more than {MAX_WISHES} grants; the rest was left out"));
            break;
        }
        wishes.push((grant, reason));
    }
    wishes
}

fn limits(field: Option<&Value>, warnings: &mut Vec<String>) -> Settings {
    let mut limits = Settings::new();
    let Some(field) = field else { return limits };
    let Value::Object(field) = field else {
        warnings.push("`limits` must be a table".into());
        return limits;
    };
    for (name, value) in field {
        let Some(limit) = Limit::named(name) else {
            warnings.push(format!("unknown limit `{}`", crate::log::printable(&cut(name))));
            continue;
        };
        let read = match value {
            Value::String(text) => limit.parse(text),
            value => limit.check(value.as_u64().filter(|_| limit.unit() != Unit::Time)),
        };
        match read {
            Ok(value) => limits.push((limit, value)),
            Err(reason) => warnings.push(reason),
        }
    }
    limits
}

/// Text of a stranger on one line.
fn words(text: &str) -> String {
    crate::log::printable(cut(text).trim())
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_WORDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_known_is_read_and_written_again() {
        let text = br#"{"name":"redact","version":"1.2","description":"masks","on-failure":"closed",
            "grants":{"change-prompts":"masks secrets","file:AGENTS.md":"reads it"},"limits":{"memory":"32 MiB","cpu":"2 s","requests":7}}"#;
        let (manifest, warnings) = Manifest::read(text);
        assert!(warnings.is_empty(), "{warnings:?}");
        assert_eq!(manifest.on_failure, Some(OnFailure::Closed));
        assert_eq!(manifest.wishes.as_ref().unwrap()[0].1, "masks secrets");
        assert_eq!(
            manifest.limits,
            [(Limit::Memory, 32 << 20), (Limit::Cpu, 2_000), (Limit::Requests, 7)]
        );
        assert_eq!(Manifest::read(&manifest.to_section()), (manifest, Vec::new()));
    }

    #[test]
    fn what_is_unknown_or_wrong_warns_and_grants_nothing() {
        let (manifest, warnings) = Manifest::read(
            br#"{"name":7,"colour":"red","on-failure":"maybe","grants":{"rule-the-world":"why not","read-prompts":1},"limits":{"memory":-1,"luck":3,"cpu":5}}"#,
        );
        assert_eq!(manifest.wishes.unwrap().len(), 1);
        assert_eq!(
            (manifest.name, manifest.on_failure, manifest.limits.len()),
            (None, Some(OnFailure::Closed), 0)
        );
        for word in [
            "`name`",
            "colour",
            "maybe",
            "rule-the-world",
            "reason",
            "`memory`",
            "luck",
            "`cpu`",
        ] {
            assert!(
                warnings.iter().any(|warning| warning.contains(word)),
                "{word}: {warnings:?}"
            );
        }
        for text in [&b"[]"[..], b"{", b"", b"\xff"] {
            let (manifest, warnings) = Manifest::read(text);
            assert_eq!((manifest, warnings.len()), (Manifest::default(), 1));
        }
    }

    #[test]
    fn a_wish_is_one_wish_and_plain_to_see() {
        let (manifest, warnings) = Manifest::read(
            br#"{"grants":{"originate:client:_x,everything":"","observe:client:_\u001b[2K":"","environment:A=\u202e":"","read-prompts":""}}"#,
        );
        assert_eq!((manifest.wishes.unwrap().len(), warnings.len()), (1, 3), "{warnings:?}");
        assert!(warnings.iter().all(|warning| !warning.contains(['\u{1b}', '\u{202e}'])));
    }

    #[test]
    fn a_stranger_s_words_stay_on_their_line() {
        let text = json!({"name": "a\n\u{1b}[31mb", "description": "x".repeat(10_000)}).to_string();
        let (manifest, _) = Manifest::read(text.as_bytes());
        assert!(!manifest.name.unwrap().contains(['\n', '\u{1b}']));
        assert_eq!(manifest.description.unwrap().len(), MAX_WORDS);
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (manifest, _) = Manifest::read(&bytes);
            prop_assert!(manifest.wishes.unwrap_or_default().len() <= MAX_WISHES);
        }
    }
}
