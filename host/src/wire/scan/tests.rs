//! What the scanner finds in text of one piece and of many.

use super::*;
use bytes::Bytes;

fn at(text: &str, pointer: &str) -> Option<String> {
    let whole = Text::trusted(text.to_owned());
    let one = find(&whole, pointer).map(|range| text[range].to_owned());
    // The same in pieces of three bytes must give the same.
    let pieces: Vec<Bytes> = text.as_bytes().chunks(3).map(Bytes::copy_from_slice).collect();
    let mut cursor = Cursor::new(&pieces);
    cursor.skip_space();
    if let Some(tokens) = tokens(pointer)
        && let [token] = tokens.collect::<Vec<_>>().as_slice()
        && let Some(token) = decode(token)
        && let Some(Slot::Found { value, .. }) = cursor.child(&token)
    {
        assert_eq!(one.as_deref(), Some(&text[value]));
    }
    one
}

#[test]
fn finds_members_and_elements() {
    let text = r#" {"a":[1,{"b":"x\"]}"},[]],"c/d":{"~":null},"e\u0066":true , "":0}"#;
    assert_eq!(at(text, "/a/0").as_deref(), Some("1"));
    assert_eq!(at(text, "/a/1/b").as_deref(), Some(r#""x\"]}""#));
    assert_eq!(at(text, "/a/2").as_deref(), Some("[]"));
    assert_eq!(at(text, "/a/3"), None);
    assert_eq!(at(text, "/a/-"), None);
    assert_eq!(at(text, "/a/00"), None);
    assert_eq!(at(text, "/c~1d/~0").as_deref(), Some("null"));
    assert_eq!(at(text, "/ef").as_deref(), Some("true"));
    assert_eq!(at(text, "/").as_deref(), Some("0"));
    assert_eq!(at(text, "").as_deref(), Some(text));
    assert_eq!(at(text, "/a/0/x"), None);
    assert_eq!(at(text, "a"), None);
    assert_eq!(at(text, "/c~2"), None);
    assert_eq!(at(r#"{"~/0":1}"#, "/~~10"), None);
    assert_eq!(at(r#"{"~1":1}"#, "/~01").as_deref(), Some("1"));
}

#[test]
fn the_first_of_two_equal_keys_counts() {
    assert_eq!(at(r#"{"a":1,"a":2}"#, "/a").as_deref(), Some("1"));
}

#[test]
fn tells_a_key_that_is_there_twice() {
    let twice = |text: &str| is_twice(&Text::trusted(text.to_owned()), "a");
    assert!(twice(r#"{"a":1,"b":{"a":[]},"a":2}"#));
    assert!(twice(r#"{ "x" : 1 , "a" : "}" , "\u0061" : 2 }"#));
    assert!(!twice(r#"{"a":{"a":1},"b":[{"a":1}]}"#));
    assert!(!twice(r#"{"b":1}"#));
    assert!(!twice(r#"{"a":1}"#));
    assert!(!twice(r#"["a","a"]"#));
}

#[test]
fn depth_ignores_brackets_in_strings() {
    assert_eq!(depth(br#"{"[[[":["\"["]}"#), 2);
    assert_eq!(depth(b"1"), 0);
    assert_eq!(depth(b"\"\\"), 0);
}

#[test]
fn what_looks_like_a_key_is_found() {
    let found = |text: &str| {
        let found = lookalikes(&Text::trusted(text.to_owned()), "sessionId");
        found
            .into_iter()
            .map(|member| String::from_utf8(member).unwrap())
            .collect::<Vec<_>>()
    };
    assert!(found(r#"{"sessionId":1,"session\u0049d":2,"a":{"SESSIONID":3},"Id":4}"#).is_empty());
    assert!(found("[]").is_empty() && found("{}").is_empty());
    assert_eq!(
        found(r#"{ "SessionID" : [1] , "ſeſſıonId":2,"session_id":3,"x":4,"\u0053essionId":5}"#),
        [
            r#""SessionID" : [1]"#,
            r#""ſeſſıonId":2"#,
            r#""session_id":3"#,
            r#""\u0053essionId":5"#
        ]
    );
}
