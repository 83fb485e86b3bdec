//! Decoding of strings.

use consort_proxy::{Json, Raw, json};

fn string(text: &str) -> Option<String> {
    Json::parse(text).ok()?.string("")
}

#[test]
fn strings_are_decoded_as_serde_decodes_them() {
    for text in [
        r#""""#,
        r#""plain é 😀""#,
        r#""\"\\\/\b\f\n\r\t""#,
        r#""\\u0041 \\\\n""#,
        r#""\u0041\u00E9\u2192\ud83d\ude00!\uD83D\uDE00""#,
        r#""\u0000\uffff""#,
    ] {
        assert_eq!(string(text), serde_json::from_str(text).ok(), "{text}");
    }
    for other in ["7", "null", "[\"a\"]", "{}"] {
        assert_eq!(string(other), None, "{other}");
    }
}

#[test]
fn half_a_pair_is_decoded_as_a_replacement_and_stays_what_it_is() {
    for (text, decoded) in [
        (r#""a\ud83d""#, "a\u{fffd}"),
        (r#""\ude00 b""#, "\u{fffd} b"),
        (r#""\ud83dx""#, "\u{fffd}x"),
        (r#""\ud83d\n""#, "\u{fffd}\n"),
        (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
        (r#""\ud83d\u0041""#, "\u{fffd}A"),
        (r#""\ude00\ud83d""#, "\u{fffd}\u{fffd}"),
    ] {
        assert_eq!(string(text).as_deref(), Some(decoded), "{text}");
        let value = json!({"a": null, "b": 1});
        assert!(value.replace("/a", Raw(text)).is_ok());
        assert!(value.replace("/b", 2).is_ok());
        assert_eq!(value.text(), format!(r#"{{"a":{text},"b":2}}"#));
    }
}
