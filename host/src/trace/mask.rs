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

/// Parameters of an address that are credentials besides those: too common as members of other objects.
const SECRET_PARAMETERS: [&str; 6] = ["auth", "code", "key", "pwd", "sig", "signature"];

/// Words one of which stands in every text that has something to mask, after [`plain`]. Most messages are short and have none; then
/// to look for them takes a third of the time.
const HINTS: [&str; 13] = [
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
    "\\u",
];

/// Masks what are credentials in JSON text.
pub(super) fn mask(text: &str) -> String {
    let small = plain(text);
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
    /// What `env` or `headers` are: as a map, names stay and values go.
    Pairs,
    /// In a list of them.
    Pair,
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
            Ok(items) if context == Context::Pairs => array(&items, Context::Pair, depth, out),
            Ok(items) => array(&items, context, depth, out),
            Err(_) => out.push_str(MASKED_JSON),
        },
        _ if context == Context::Secret => out.push_str(MASKED_JSON),
        // Such as `KEY=value`.
        Some(b'"') if matches!(context, Context::Pairs | Context::Pair) => out.push_str(MASKED_JSON),
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
    // A map may have a variable of any name.
    let named = context == Context::Pair && members.0.iter().any(|(key, _)| key == "value");
    out.push('{');
    for (position, (key, member)) in members.0.iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        out.push_str(&serde_json::Value::String(key.to_string()).to_string());
        out.push(':');
        let plain = plain(key);
        let inner = match plain.as_str() {
            _ if named && key == "name" => Context::Plain,
            _ if matches!(context, Context::Pairs | Context::Pair) => Context::Secret,
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
    // Whoever reads an address leaves out what stands before it.
    let trimmed = text.trim_start_matches(|letter: char| letter.is_whitespace() || letter.is_control());
    if trimmed.contains(char::is_control) {
        // Others may read it in another way than this does.
        let without = trimmed.replace(char::is_control, "");
        return without.contains("://").then(|| MASKED.to_owned());
    }
    // Whatever the scheme: `jdbc:postgresql` has two of them.
    let (scheme, rest) = trimmed.split_once("://")?;
    let (authority, tail) = rest.split_at(rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len()));
    let mut masked = format!("{}{scheme}://", &text[..text.len() - trimmed.len()]);
    let mut changed = false;
    match authority.rfind('@') {
        Some(at) => {
            changed = true;
            masked.push_str(MASKED);
            masked.push_str(&authority[at..]);
        }
        None => masked.push_str(authority),
    }
    let (path, query) = tail.split_at(tail.find(['?', '#']).unwrap_or(tail.len()));
    changed |= segments(path, &mut masked);
    let (query, fragment) = query.split_at(query.find('#').unwrap_or(query.len()));
    changed |= parameters(query, &mut masked);
    changed |= parameters(fragment, &mut masked);
    changed.then_some(masked)
}

/// Puts out a path without the secret of a bridged MCP server, and says whether it had one.
fn segments(path: &str, out: &mut String) -> bool {
    let mut changed = false;
    let mut before = "";
    for (position, segment) in path.split('/').enumerate() {
        if position > 0 {
            out.push('/');
        }
        let is_secret = before == "mcp" && segment.len() == 32 && segment.bytes().all(|byte| byte.is_ascii_hexdigit());
        out.push_str(if is_secret { MASKED } else { segment });
        changed |= is_secret;
        before = segment;
    }
    changed
}

/// Puts out a query or a fragment without its credentials, and says whether it had any.
fn parameters(text: &str, out: &mut String) -> bool {
    let mut changed = false;
    for (position, parameter) in text.split('&').enumerate() {
        if position > 0 {
            out.push('&');
        }
        // A fragment may have a query in it (`#/path?token=`), and `;` once parted parameters.
        let secret = parameter.match_indices('=').find(|(at, _)| {
            let name = parameter[..*at].rsplit(['#', '?', ';', '=']).next();
            name.is_some_and(is_secret_parameter)
        });
        match secret {
            Some((at, _)) => {
                changed = true;
                out.push_str(&parameter[..=at]);
                out.push_str(MASKED);
            }
            None => out.push_str(parameter),
        }
    }
    changed
}

fn is_secret_parameter(name: &str) -> bool {
    let name = plain(name);
    // What is escaped is no ordinary name.
    name.contains('%') || SECRET_KEYS.contains(&name.as_str()) || SECRET_PARAMETERS.contains(&name.as_str())
}

/// Text without case, hyphens and underscores.
fn plain(text: &str) -> String {
    let mut plain = text.to_ascii_lowercase();
    plain.retain(|letter| !matches!(letter, '-' | '_'));
    plain
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
            (
                r#"{"env":{"NAME":"s","name":"s","value":"s"}}"#,
                r#"{"env":{"NAME":"[REDACTED]","name":"[REDACTED]","value":"[REDACTED]"}}"#,
            ),
            (
                r#"{"env":[{"name":"s"},{"NAME":"s","value":"s"}]}"#,
                r#"{"env":[{"name":"[REDACTED]"},{"NAME":"[REDACTED]","value":"[REDACTED]"}]}"#,
            ),
            (
                r#"{"env":["KEY=s",["KEY","s"]],"headers":"Key: s"}"#,
                r#"{"env":["[REDACTED]",["[REDACTED]","[REDACTED]"]],"headers":"[REDACTED]"}"#,
            ),
            (r#"{"to_ken":"s"}"#, r#"{"to_ken":"[REDACTED]"}"#),
            (r#"{"Pass-Word":"s"}"#, r#"{"Pass-Word":"[REDACTED]"}"#),
            (r#"{"en_v":{"A":"s"}}"#, r#"{"en_v":{"A":"[REDACTED]"}}"#),
        ] {
            assert_eq!(mask(text), masked);
        }
    }

    #[test]
    fn addresses_are_shown_without_credentials() {
        for (text, masked) in [
            (
                "https://h/cb#access_token=s&a=1",
                "https://h/cb#access_token=[REDACTED]&a=1",
            ),
            (
                "https://h/?a=1#/cb?id_token=s?s",
                "https://h/?a=1#/cb?id_token=[REDACTED]",
            ),
            ("https://h/?a=1;token=s;b=2&c=3", "https://h/?a=1;token=[REDACTED]&c=3"),
            ("postgres://u:s@h/d", "postgres://[REDACTED]@h/d"),
            ("jdbc:git+ssh://u:s@h", "jdbc:git+ssh://[REDACTED]@h"),
            (" \u{1}\n https://u:s@h", " \u{1}\n https://[REDACTED]@h"),
            ("ht\ntps://u:s@h", MASKED),
            (
                "http://127.0.0.1:1/mcp/0123456789abcdef0123456789abcdef",
                "http://127.0.0.1:1/mcp/[REDACTED]",
            ),
        ] {
            assert_eq!(address(text).as_deref(), Some(masked), "{text}");
        }
        for text in [
            "https://h/@scope/p?a=b#token",
            " https://h",
            "urn:a\nb",
            "u@h",
            "http://h/mcp/0123456789abcdef",
            "http://h/commits/0123456789abcdef0123456789abcdef",
        ] {
            assert_eq!(address(text), None, "{text}");
        }
    }

    #[test]
    fn nothing_that_is_masked_is_without_a_hint() {
        for key in SECRET_KEYS.iter().chain(&["env", "headers", "url", "uri"]) {
            assert!(HINTS.iter().any(|hint| key.contains(hint)), "{key}");
        }
    }

    #[test]
    fn what_is_no_credential_stays_as_it_was() {
        for text in [
            r#"{"n":1.10,"big":12345678901234567890123,"a":1e400}"#,
            r#"{"uri":"file:///C:/My%20Docs/%E2%9C%93.rs","maxTokens":5,"tokens":7}"#,
            r#"{"env":[],"headers":{}}"#,
            r#"{"env":null,"headers":[true,1]}"#,
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
