//! Credentials out of what is kept for people to look at. All other text stays byte for byte: numbers, spaces, unknown fields.
//! This knows where protocols put credentials; it cannot know what a person writes into a prompt.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// What stands in the place of a credential.
const MASKED: &str = "[REDACTED]";

/// The same as JSON.
const MASKED_JSON: &str = "\"[REDACTED]\"";

/// Levels that are looked into. What lies deeper is left out as a whole.
const MAX_DEPTH: usize = 64;

/// Members whose value is a credential, without case, hyphens and underscores.
const SECRET_KEYS: [&str; 18] = [
    "accesskey",
    "accesstoken",
    "apikey",
    "authorization",
    "authtoken",
    "bearer",
    "clientsecret",
    "cookie",
    "credential",
    "credentials",
    "idtoken",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "refreshtoken",
    "secret",
    "token",
];

/// Parts of an address's query that are credentials besides those: too common as members of other objects.
const SECRET_PARAMETERS: [&str; 6] = ["auth", "code", "key", "pwd", "sig", "signature"];

/// Words one of which stands in every text that has something to mask, in small letters.
const HINTS: [&str; 14] = [
    "env",
    "headers",
    "url",
    "uri",
    "key",
    "token",
    "authorization",
    "bearer",
    "secret",
    "cookie",
    "credential",
    "pass",
    "http",
    "\\u",
];

/// Masks what are credentials in JSON text.
pub(super) fn mask(text: &str) -> String {
    let small = text.to_ascii_lowercase();
    if !HINTS.iter().any(|hint| small.contains(hint)) {
        return text.to_owned();
    }
    let mut masked = String::with_capacity(text.len());
    value(text, Context::Plain, 0, &mut masked);
    masked
}

/// What a value is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    Plain,
    /// In `env` or `headers`: names stay, values go.
    Pairs,
    /// A credential, if it is a plain value.
    Secret,
    /// An address.
    Address,
}

fn value(text: &str, context: Context, depth: usize, out: &mut String) {
    let first = text.trim_start().as_bytes().first().copied();
    match first {
        Some(b'{' | b'[') if depth == MAX_DEPTH => out.push_str(MASKED_JSON),
        Some(b'{') => match serde_json::from_str::<Members<'_>>(text) {
            Ok(members) => object(&members, context, depth, out),
            Err(_) => out.push_str(MASKED_JSON),
        },
        Some(b'[') => match serde_json::from_str::<Vec<&RawValue>>(text) {
            Ok(items) => array(&items, context, depth, out),
            Err(_) => out.push_str(MASKED_JSON),
        },
        _ if context == Context::Secret => out.push_str(MASKED_JSON),
        Some(b'"') if context == Context::Address => match serde_json::from_str::<String>(text) {
            Ok(plain) => match address(&plain) {
                Some(masked) => out.push_str(&serde_json::Value::String(masked).to_string()),
                None => out.push_str(text),
            },
            Err(_) => out.push_str(MASKED_JSON),
        },
        _ => out.push_str(text),
    }
}

fn object(members: &Members<'_>, context: Context, depth: usize, out: &mut String) {
    out.push('{');
    for (position, (key, member)) in members.0.iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        out.push_str(&serde_json::Value::String(key.to_string()).to_string());
        out.push(':');
        let plain = plain(key);
        let inner = match plain.as_str() {
            // A list has pairs of `name` and `value`, a map has names and values.
            "name" if context == Context::Pairs => Context::Plain,
            _ if context == Context::Pairs => Context::Secret,
            "env" | "headers" => Context::Pairs,
            "url" | "uri" => Context::Address,
            key if SECRET_KEYS.contains(&key) => Context::Secret,
            _ => Context::Plain,
        };
        value(member.get(), inner, depth + 1, out);
    }
    out.push('}');
}

fn array(items: &[&RawValue], context: Context, depth: usize, out: &mut String) {
    out.push('[');
    for (position, item) in items.iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        value(item.get(), context, depth + 1, out);
    }
    out.push(']');
}

/// An address without its credentials; none if it has none.
fn address(text: &str) -> Option<String> {
    let scheme = ["http://", "https://", "ws://", "wss://"].into_iter().find(|scheme| {
        text.get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    })?;
    if text.contains(char::is_control) {
        // Others may read it in another way than this does.
        return Some(MASKED.to_owned());
    }
    let rest = &text[scheme.len()..];
    let end = rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let mut masked = text[..scheme.len()].to_owned();
    let mut changed = false;
    match authority.rfind('@') {
        Some(at) => {
            changed = true;
            masked.push_str(MASKED);
            masked.push_str(&authority[at..]);
        }
        None => masked.push_str(authority),
    }
    let (path, query) = tail.split_at(tail.find('?').unwrap_or(tail.len()));
    masked.push_str(path);
    let (query, fragment) = query.split_at(query.find('#').unwrap_or(query.len()));
    for (position, parameter) in query.split('&').enumerate() {
        if position > 0 {
            masked.push('&');
        }
        match parameter.split_once('=') {
            Some((name, _)) if is_secret_parameter(name.trim_start_matches('?')) => {
                changed = true;
                masked.push_str(name);
                masked.push('=');
                masked.push_str(MASKED);
            }
            _ => masked.push_str(parameter),
        }
    }
    masked.push_str(fragment);
    changed.then_some(masked)
}

fn is_secret_parameter(name: &str) -> bool {
    let name = plain(name);
    // What is escaped is no ordinary name.
    name.contains('%') || SECRET_KEYS.contains(&name.as_str()) || SECRET_PARAMETERS.contains(&name.as_str())
}

fn plain(key: &str) -> String {
    key.chars()
        .filter(|letter| !matches!(letter, '-' | '_'))
        .map(|letter| letter.to_ascii_lowercase())
        .collect()
}

/// An object's members in their order, also those that are there twice.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(Key(key)) = map.next_key()? {
                    members.push((key, map.next_value()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// A member's name, copied only if it has escapes.
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn credentials_are_masked_where_protocols_put_them() {
        for (text, masked) in [
            (
                r#"{"env":[{"name":"A","value":"s"},{"value":"s","name":"B"}]}"#,
                r#"{"env":[{"name":"A","value":"[REDACTED]"},{"value":"[REDACTED]","name":"B"}]}"#,
            ),
            (
                r#"{"env":{"A":"s","B":1}}"#,
                r#"{"env":{"A":"[REDACTED]","B":"[REDACTED]"}}"#,
            ),
            (
                r#"{"x":[{"headers":[{"name":"Authorization","value":"Bearer s"}]}]}"#,
                r#"{"x":[{"headers":[{"name":"Authorization","value":"[REDACTED]"}]}]}"#,
            ),
            (
                r#"{"api_key":"s","API-KEY":"s"}"#,
                r#"{"api_key":"[REDACTED]","API-KEY":"[REDACTED]"}"#,
            ),
            (r#"{"\u0074oken":"s"}"#, r#"{"token":"[REDACTED]"}"#),
            (
                r#"{"url":"https://me:s@host/p?a=1&access_token=s&b=2#f"}"#,
                r#"{"url":"https://[REDACTED]@host/p?a=1&access_token=[REDACTED]&b=2#f"}"#,
            ),
            (r#"{"url":"http://h?key=s"}"#, r#"{"url":"http://h?key=[REDACTED]"}"#),
        ] {
            assert_eq!(mask(text), masked);
        }
    }

    #[test]
    fn what_is_no_credential_stays_as_it_was() {
        for text in [
            r#"{"n":1.10,"big":12345678901234567890123,"a":1e400}"#,
            r#"{"uri":"file:///C:/My%20Docs/%E2%9C%93.rs","maxTokens":5,"tokens":7}"#,
            r#"{"env":[],"headers":{}}"#,
            r#"{"url":"https://host/a?b=c#d"}"#,
            r#"["secret",null,true]"#,
            "null",
        ] {
            assert_eq!(mask(text), text);
        }
    }

    #[test]
    fn nesting_without_end_is_cut() {
        let text = format!("{}{}{}", "[".repeat(5_000), r#"{"token":"s"}"#, "]".repeat(5_000));
        let masked = mask(&text);
        assert!(!masked.contains("\"s\"") && masked.contains(MASKED), "{masked}");
    }

    proptest! {
        #[test]
        fn masked_text_is_json_without_the_secret(keys in proptest::collection::vec("[a-z_-]{0,8}|env|headers|token|url|name|value", 1..6)) {
            let mut text = r#""s3cr3t""#.to_owned();
            for key in &keys {
                text = format!("{{\"{key}\":{text},\"token\":\"s3cr3t\"}}");
            }
            let masked = mask(&text);
            prop_assert!(serde_json::from_str::<serde_json::Value>(&masked).is_ok(), "{masked}");
            let token = masked.matches("\"token\":\"s3cr3t\"").count();
            prop_assert_eq!(token, 0, "{}", masked);
        }
    }
}
