//! RFC 6901 pointers and RFC 6902 edits on JSON text. Text outside of an edit stays as it was. Knows nothing of messages.
//!
//! Every function but [`check`] expects checked text; on anything else it may find nothing, but does not panic.

use std::ops::Range;

use serde::de::IgnoredAny;

/// How deep JSON text may nest, as the world says.
const MAX_DEPTH: usize = 128;

/// Checks that text is exactly one JSON value, and trims white space around it.
pub(super) fn check(text: &str) -> Result<&str, String> {
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| format!("this is no JSON: {error}"))?;
    let text = text.trim_matches([' ', '\t', '\r', '\n']);
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b'"' => at = string_end(text, at),
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(format!("this JSON nests deeper than {MAX_DEPTH} levels"));
                }
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            _ => at += 1,
        }
    }
    Ok(text)
}

/// Where the value at the pointer stands.
pub(super) fn find(text: &str, pointer: &str) -> Option<Range<usize>> {
    let mut range = 0..text.len();
    for name in names(pointer)? {
        range = Container::open(text, range)?.find(text, &name)?.value.clone();
    }
    Some(range)
}

pub(super) fn replace(text: &str, pointer: &str, content: &str) -> Result<String, String> {
    let range = find(text, pointer).ok_or_else(|| missing(pointer))?;
    Ok(splice(text, range, content))
}

pub(super) fn add(text: &str, pointer: &str, content: &str) -> Result<String, String> {
    if pointer.is_empty() {
        return Ok(content.to_owned());
    }
    let (container, name) = parent(text, pointer)?;
    let last = container.items.last().map(|item| item.value.end);
    if container.is_array {
        let index = if name == "-" {
            Some(container.items.len())
        } else {
            index(&name)
        };
        return match index {
            Some(index) if index < container.items.len() => {
                let at = container.items[index].value.start;
                Ok(splice(text, at..at, &format!("{content},")))
            }
            Some(index) if index == container.items.len() => Ok(match last {
                Some(end) => splice(text, end..end, &format!(",{content}")),
                None => splice(text, container.inside..container.inside, content),
            }),
            _ => Err(missing(pointer)),
        };
    }
    if let Some(item) = container.find(text, &name) {
        return Ok(splice(text, item.value.clone(), content));
    }
    let key = serde_json::Value::from(name);
    Ok(match last {
        Some(end) => splice(text, end..end, &format!(",{key}:{content}")),
        None => splice(text, container.inside..container.inside, &format!("{key}:{content}")),
    })
}

pub(super) fn remove(text: &str, pointer: &str) -> Result<String, String> {
    if pointer.is_empty() {
        return Err("the whole value cannot be removed".to_owned());
    }
    let (container, name) = parent(text, pointer)?;
    let index = container.position(text, &name).ok_or_else(|| missing(pointer))?;
    let item = &container.items[index];
    // One comma goes too: the one behind the item, or before it if the item is the last.
    let range = match (container.items.get(index + 1), index.checked_sub(1)) {
        (Some(next), _) => item.start..next.start,
        (None, Some(before)) => container.items[before].value.end..item.value.end,
        (None, None) => item.start..item.value.end,
    };
    Ok(splice(text, range, ""))
}

fn missing(pointer: &str) -> String {
    format!("nothing stands at the pointer {pointer:?}")
}

fn splice(text: &str, range: Range<usize>, content: &str) -> String {
    [&text[..range.start], content, &text[range.end..]].concat()
}

/// The names in a pointer, unescaped. None if it is no pointer.
fn names(pointer: &str) -> Option<Vec<String>> {
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    let names = pointer.strip_prefix('/')?.split('/');
    Some(names.map(|name| name.replace("~1", "/").replace("~0", "~")).collect())
}

fn parent(text: &str, pointer: &str) -> Result<(Container, String), String> {
    let (above, name) = pointer
        .rsplit_once('/')
        .ok_or_else(|| format!("{pointer:?} is no JSON pointer"))?;
    let range = find(text, above).ok_or_else(|| missing(above))?;
    let container = Container::open(text, range).ok_or_else(|| missing(pointer))?;
    Ok((container, name.replace("~1", "/").replace("~0", "~")))
}

/// An array index as RFC 6901 has it: no sign, no leading zero.
fn index(name: &str) -> Option<usize> {
    let canonical = name == "0" || !name.starts_with('0');
    (canonical && name.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| name.parse().ok())
        .flatten()
}

struct Item {
    /// Where the key begins in an object, the value in an array.
    start: usize,
    /// The key with its quotes; empty in an array.
    key: Range<usize>,
    value: Range<usize>,
}

/// An object or an array, one level deep.
struct Container {
    is_array: bool,
    /// The position behind the opening bracket.
    inside: usize,
    items: Vec<Item>,
}

impl Container {
    fn open(text: &str, range: Range<usize>) -> Option<Self> {
        let bytes = text.as_bytes();
        let is_array = match bytes.get(range.start)? {
            b'[' => true,
            b'{' => false,
            _ => return None,
        };
        let inside = range.start + 1;
        let mut items = Vec::new();
        let mut at = skip_space(text, inside);
        while at < range.end && !matches!(bytes.get(at)?, b']' | b'}') {
            let start = at;
            let mut key = at..at;
            if !is_array {
                key = at..string_end(text, at);
                // Behind the key and its colon.
                at = skip_space(text, skip_space(text, key.end) + 1);
            }
            let value = at..value_end(text, at);
            at = skip_space(text, value.end);
            if bytes.get(at) == Some(&b',') {
                at = skip_space(text, at + 1);
            }
            items.push(Item { start, key, value });
        }
        Some(Self {
            is_array,
            inside,
            items,
        })
    }

    fn position(&self, text: &str, name: &str) -> Option<usize> {
        if self.is_array {
            return index(name).filter(|index| *index < self.items.len());
        }
        self.items.iter().position(|item| {
            let key = &text[item.key.clone()];
            match key.contains('\\') {
                true => serde_json::from_str::<String>(key).is_ok_and(|key| key == name),
                false => key.get(1..key.len().saturating_sub(1)) == Some(name),
            }
        })
    }

    fn find(&self, text: &str, name: &str) -> Option<&Item> {
        self.position(text, name).and_then(|index| self.items.get(index))
    }
}

fn skip_space(text: &str, mut at: usize) -> usize {
    while matches!(text.as_bytes().get(at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
        at += 1;
    }
    at
}

/// The position behind the string that begins at `at`.
fn string_end(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = at + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

/// The position behind the value that begins at `at`.
fn value_end(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0_usize, at);
    loop {
        match bytes.get(at) {
            None => return text.len(),
            Some(b'"') => at = string_end(text, at),
            Some(b'{' | b'[') => {
                depth += 1;
                at += 1;
                continue;
            }
            Some(b'}' | b']') => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            Some(b',' | b':' | b' ' | b'\t' | b'\r' | b'\n') => {
                at += 1;
                continue;
            }
            Some(_) => {
                while bytes.get(at).is_some_and(|byte| !b",]} \t\r\n".contains(byte)) {
                    at += 1;
                }
            }
        }
        if depth == 0 {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{ "a" : [1.10, {"b":"x\"]"} ,true ], "a":2, "~/":"\u00e9","n":null}"#;

    fn at<'a>(text: &'a str, pointer: &str) -> Option<&'a str> {
        find(text, pointer).map(|range| &text[range])
    }

    #[test]
    fn pointers_find_values() {
        assert_eq!(at(TEXT, ""), Some(TEXT));
        assert_eq!(
            at(TEXT, "/a"),
            Some(r#"[1.10, {"b":"x\"]"} ,true ]"#),
            "the first of two equal keys"
        );
        assert_eq!(at(TEXT, "/a/0"), Some("1.10"));
        assert_eq!(at(TEXT, "/a/1/b"), Some(r#""x\"]""#));
        assert_eq!(at(TEXT, "/a/2"), Some("true"));
        assert_eq!(at(TEXT, "/~0~1"), Some(r#""\u00e9""#));
        assert_eq!(at(TEXT, "/n"), Some("null"));
        for nothing in ["/a/3", "/a/00", "/a/-", "/b", "a", "/n/x", "/a/0/0"] {
            assert_eq!(at(TEXT, nothing), None, "{nothing}");
        }
        assert_eq!(at(r#"{"\u0061b":1}"#, "/ab"), Some("1"), "escapes in keys are read");
    }

    #[test]
    fn edits_leave_the_rest_alone() {
        let edited = [
            (replace(TEXT, "/a/0", "7"), TEXT.replacen("1.10", "7", 1)),
            (add(TEXT, "/a/0", "7"), TEXT.replacen("[1.10", "[7,1.10", 1)),
            (add(TEXT, "/a/3", "7"), TEXT.replacen(",true", ",true,7", 1)),
            (add(TEXT, "/a/-", "7"), TEXT.replacen(",true", ",true,7", 1)),
            (add(TEXT, "/n", "7"), TEXT.replacen("null", "7", 1)),
            (add(TEXT, "/m\"", "7"), TEXT.replacen("null", r#"null,"m\"":7"#, 1)),
            (remove(TEXT, "/a/0"), TEXT.replacen("1.10, ", "", 1)),
            (remove(TEXT, "/a/2"), TEXT.replacen(" ,true", "", 1)),
            (remove(TEXT, "/n"), TEXT.replacen(r#","n":null"#, "", 1)),
            (replace(TEXT, "", "7"), "7".to_owned()),
            (add("[ ]", "/0", "7"), "[7 ]".to_owned()),
            (add("{}", "/a", "7"), r#"{"a":7}"#.to_owned()),
            (remove(r#"{"a":7}"#, "/a"), "{}".to_owned()),
        ];
        for (result, expected) in edited {
            assert_eq!(result.as_deref(), Ok(expected.as_str()));
        }
        for failure in [
            replace(TEXT, "/x", "7"),
            add(TEXT, "/a/4", "7"),
            add(TEXT, "/x/y", "7"),
            remove(TEXT, "/x"),
            remove(TEXT, ""),
        ] {
            assert!(failure.is_err());
        }
    }

    #[test]
    fn only_one_value_of_limited_depth_is_taken() {
        assert_eq!(check(" [1] \n"), Ok("[1]"));
        assert!(check("1 2").is_err());
        assert!(check("{").is_err());
        assert!(check("").is_err());
        assert!(check(&format!("{}{}", "[".repeat(128), "]".repeat(128))).is_ok());
        assert!(check(&format!("{}{}", "[".repeat(129), "]".repeat(129))).is_err());
    }
}
