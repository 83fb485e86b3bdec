//! RFC 6902 edits on JSON text: what is not edited stays byte for byte.

use super::scan::{self, Shape, Slot};
use super::text::Text;
use bytes::Bytes;
use std::ops::Range;

/// One edit.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Puts a new member or element in place.
    Add(String, Text),
    /// Replaces a value that is there.
    Replace(String, Text),
    /// Takes a value away.
    Remove(String),
}

/// Applies edits in order, all or none.
///
/// # Errors
///
/// Says which edit failed and why; the text given is unchanged then.
pub fn apply(text: &Text, edits: &[Edit]) -> Result<Text, String> {
    let mut edited = text.clone();
    for edit in edits {
        edited = one(&edited, edit)?;
    }
    Ok(edited)
}

/// Applies one edit.
///
/// # Errors
///
/// Says why it cannot be made.
pub fn one(text: &Text, edit: &Edit) -> Result<Text, String> {
    let (pointer, content) = match edit {
        Edit::Add(pointer, content) | Edit::Replace(pointer, content) => (pointer, Some(content)),
        Edit::Remove(pointer) => (pointer, None),
    };
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return Err(format!("the pointer `{pointer}` does not begin with `/`"));
    }
    let Some((parent, last)) = pointer.rsplit_once('/') else {
        return content
            .cloned()
            .ok_or_else(|| "the whole value cannot be removed".to_owned());
    };
    let Some(token) = scan::decode(last) else {
        return Err(format!(
            "the pointer `{pointer}` has a `~` that is neither `~0` nor `~1`"
        ));
    };
    let container = scan::find_start(text, parent)
        .ok_or_else(|| format!("nothing stands at `{parent}`, the parent of `{pointer}`"))?;
    let (shape, slot) = scan::slot(text, container, &token);
    let Some(slot) = slot else {
        return Err(format!("`{parent}` is neither an object nor an array"));
    };
    match (edit, slot) {
        (Edit::Replace(_, content), Slot::Found { value, .. }) => {
            Ok(text.splice(value, content.pieces(), content.kept()))
        }
        (Edit::Add(_, content), Slot::Found { value, .. }) if shape == Shape::Object => {
            Ok(text.splice(value, content.pieces(), content.kept()))
        }
        (Edit::Add(_, content), Slot::Found { start, .. }) => Ok(insert(text, start, &[], content, b",")),
        (
            Edit::Add(_, content),
            Slot::Missing {
                insert_at,
                empty,
                count,
            },
        ) => {
            let mut before = if empty { Vec::new() } else { vec![b','] };
            if shape == Shape::Object {
                before.extend(serde_json::to_vec(&token).map_err(|error| error.to_string())?);
                before.push(b':');
            } else if token != "-" && scan::index(&token) != Some(count) {
                return Err(format!("`{pointer}` lies outside of an array of {count}"));
            }
            Ok(insert(text, insert_at, &before, content, b""))
        }
        (
            Edit::Remove(_),
            Slot::Found {
                start,
                value,
                previous_end,
                next_start,
            },
        ) => Ok(text.splice(removal(start, value, previous_end, next_start), &[], 0)),
        (Edit::Replace(..) | Edit::Remove(_), Slot::Missing { .. }) => Err(format!("nothing stands at `{pointer}`")),
    }
}

fn insert(text: &Text, at: usize, before: &[u8], content: &Text, after: &'static [u8]) -> Text {
    let mut put = Vec::with_capacity(content.pieces().len() + 2);
    put.push(Bytes::copy_from_slice(before));
    put.extend_from_slice(content.pieces());
    put.push(Bytes::from_static(after));
    text.splice(at..at, &put, content.kept() + before.len())
}

/// What goes with a removed member: itself and one comma.
fn removal(start: usize, value: Range<usize>, previous_end: Option<usize>, next_start: Option<usize>) -> Range<usize> {
    match (previous_end, next_start) {
        (_, Some(next)) => start..next,
        (Some(previous), None) => previous..value.end,
        (None, None) => start..value.end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Text {
        Text::trusted(text.to_owned())
    }

    fn edited(from: &str, edits: &[Edit]) -> Result<String, String> {
        apply(&text(from), edits).map(|text| text.to_text())
    }

    #[test]
    fn adds_to_objects_and_arrays() {
        let add = |from: &str, pointer: &str| edited(from, &[Edit::Add(pointer.into(), text("7"))]);
        assert_eq!(add("{}", "/a").as_deref(), Ok(r#"{"a":7}"#));
        assert_eq!(add(r#"{ "b" : 1.10 }"#, "/a").as_deref(), Ok(r#"{ "b" : 1.10,"a":7 }"#));
        assert_eq!(add(r#"{"a":1}"#, "/a").as_deref(), Ok(r#"{"a":7}"#));
        assert_eq!(add("[]", "/0").as_deref(), Ok("[7]"));
        assert_eq!(add("[ 1, 2 ]", "/0").as_deref(), Ok("[ 7,1, 2 ]"));
        assert_eq!(add("[1,2]", "/1").as_deref(), Ok("[1,7,2]"));
        assert_eq!(add("[1,2]", "/2").as_deref(), Ok("[1,2,7]"));
        assert_eq!(add("[1,2]", "/-").as_deref(), Ok("[1,2,7]"));
        assert_eq!(add("[1]", "").as_deref(), Ok("7"));
        assert!(add("[1,2]", "/3").is_err());
        assert!(add("[1,2]", "/x").is_err());
        assert!(add("{}", "/a/b").is_err());
        assert!(add("1", "/a").is_err());
        assert_eq!(add("{}", "/a~1\"").as_deref(), Ok(r#"{"a/\"":7}"#));
    }

    #[test]
    fn replaces_and_removes() {
        let replace = |from: &str, pointer: &str| edited(from, &[Edit::Replace(pointer.into(), text("7"))]);
        assert_eq!(replace(r#"{"a":[1, 2]}"#, "/a/1").as_deref(), Ok(r#"{"a":[1, 7]}"#));
        assert!(replace("{}", "/a").is_err());
        let remove = |from: &str, pointer: &str| edited(from, &[Edit::Remove(pointer.into())]);
        assert_eq!(remove(r#"{"a":1,"b":2}"#, "/a").as_deref(), Ok(r#"{"b":2}"#));
        assert_eq!(remove(r#"{"a":1, "b":2}"#, "/b").as_deref(), Ok(r#"{"a":1}"#));
        assert_eq!(remove("[1]", "/0").as_deref(), Ok("[]"));
        assert!(remove("[1]", "").is_err());
        assert!(remove("[1]", "/-").is_err());
    }

    #[test]
    fn all_or_none() {
        let edits = [Edit::Add("/a".into(), text("1")), Edit::Remove("/b".into())];
        assert!(edited("{}", &edits).is_err());
    }

    #[test]
    fn agrees_with_decoded_values_on_large_text() {
        let big = "z".repeat(40_000);
        let from = format!(r#"{{"prompt":[{{"text":"{big}"}}],"sessionId":"s"}}"#);
        let mut edited = text(&from);
        for number in 0..8 {
            let block = text(&format!(r#"{{"type":"text","text":"{number}"}}"#));
            edited = one(&edited, &Edit::Add("/prompt/0".into(), block)).unwrap();
        }
        edited = one(&edited, &Edit::Add("/prompt/-".into(), text("null"))).unwrap();
        let value: serde_json::Value = edited.decode().unwrap();
        let prompt = value["prompt"].as_array().unwrap();
        assert_eq!(prompt.len(), 10);
        assert_eq!(prompt[0]["text"], "7");
        assert_eq!(prompt[8]["text"], big);
        assert!(prompt[9].is_null());
        assert_eq!(value["sessionId"], "s");
    }
}
