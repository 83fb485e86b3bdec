//! Whatever the pieces are, the text that comes out is the same.

use std::collections::BTreeMap;

use super::*;

fn rules() -> Rules {
    let own = [("ticket", "TICKET-[0-9]{6}"), ("phrase", "open .{0,20}sesame")];
    let own = own.map(|(name, pattern)| (name.to_owned(), pattern.to_owned()));
    Rules::new(&[], &BTreeMap::from(own)).unwrap()
}

fn alphanumeric(length: usize) -> String {
    "a1B2c3D4e5F6g7H8i9J0".chars().cycle().take(length).collect()
}

/// Secrets, as they stand in a text, and what becomes of them.
fn secrets() -> Vec<(String, &'static str)> {
    let body = alphanumeric(64);
    let short = alphanumeric(36);
    vec![
        (format!("ghp_{short}"), "[redacted:github-token]"),
        (
            format!("github_pat_{}_{body}", alphanumeric(22)),
            "[redacted:github-token]",
        ),
        (format!("sk-ant-api03-{body}-AA"), "[redacted:api-key]"),
        (format!("sk_live_{}", alphanumeric(24)), "[redacted:stripe-key]"),
        ("AKIAIOSFODNN7EXAMPLE".to_owned(), "[redacted:aws-key]"),
        ("xoxb-1234567890-abcdefghij".to_owned(), "[redacted:slack-token]"),
        (format!("AIza{}", &body[..35]), "[redacted:google-key]"),
        (format!("npm_{short}"), "[redacted:npm-token]"),
        ("glpat-abcdefghij0123456789".to_owned(), "[redacted:gitlab-token]"),
        (format!("eyJhbGciOi.eyJzdWIiOi.{}", &body[..30]), "[redacted:jwt]"),
        (
            format!("Authorization: Bearer {}", &body[..20]),
            "Authorization: Bearer [redacted:token]",
        ),
        (
            "postgres://user:hunter2@db/x".to_owned(),
            "postgres://user:[redacted:url-password]@db/x",
        ),
        ("DB_PASSWORD=hunter2".to_owned(), "DB_PASSWORD=[redacted:secret]"),
        (
            r#"{"apiKey": "correct-horse"}"#.to_owned(),
            r#"{"apiKey": "[redacted:secret]"}"#,
        ),
        (
            r#"{\"api_key\":\"correct-horse\"}"#.to_owned(),
            r#"{\"api_key\":\"[redacted:secret]\"}"#,
        ),
        (format!("token: ghp_{short}"), "token: [redacted:github-token]"),
        (
            format!("-----BEGIN RSA PRIVATE KEY-----\n{body}\n{body}==\n-----END RSA PRIVATE KEY-----"),
            "[redacted:private-key]",
        ),
        (
            format!("-----BEGIN PRIVATE KEY-----\\n{body}\\n-----END PRIVATE KEY-----"),
            "[redacted:private-key]",
        ),
        (
            format!(
                r#"{{"private_key": "-----BEGIN PRIVATE KEY-----\n{body}\n{short}\n-----END PRIVATE KEY-----\n"}}"#
            ),
            r#"{"private_key": "[redacted:private-key]\n"}"#,
        ),
        ("TICKET-123456".to_owned(), "[redacted:ticket]"),
        ("open über die sesame".to_owned(), "[redacted:phrase]"),
    ]
}

/// Texts that look a little like secrets.
const HARMLESS: &[&str] = &[
    "",
    "Ask the task-force about risk-averse disk-encryption-at-rest-everywhere-now, s",
    "let token: String = tokens[0]; password = get_password(); api_key=$API_KEY2 password=",
    "http://localhost:8080/x and https://example.org:443, mailto:a@b",
    "The bearer of this message; a basic understanding of ghp_ and sk-",
    "A key begins with `-----BEGIN PUBLIC KEY-----` and ends ----",
    "ünïcödé ✓ 日本語 open the door, TICKET-12345 \u{1F600}p",
    "[redacted:secret] password=[redacted:secret]",
];

fn pieces(rules: &Rules, pieces: &[&str]) -> String {
    let mut stream = Stream::default();
    let mut out = String::new();
    for piece in pieces {
        out.push_str(&stream.push(rules, piece, false));
        assert!(stream.held.len() <= MAX_HELD);
    }
    out + &stream.pause(rules)
}

#[test]
fn secrets_are_masked_wherever_they_are_split() {
    let rules = rules();
    for (secret, masked) in secrets() {
        for (before, behind) in [("", ""), ("so: ", "\n"), ("✓ \"", "\" is it. p"), ("(", ")")] {
            let (text, expected) = (format!("{before}{secret}{behind}"), format!("{before}{masked}{behind}"));
            assert_eq!(mask(&rules, &text).as_deref(), Some(expected.as_str()));
            let ends: Vec<_> = text.char_indices().map(|(at, _)| at).collect();
            for first in &ends {
                assert_eq!(
                    pieces(&rules, &[&text[..*first], &text[*first..]]),
                    expected,
                    "split at {first}: {text}"
                );
            }
            for first in ends.iter().step_by(3) {
                for second in ends.iter().filter(|second| *second > first).step_by(5) {
                    let split = [&text[..*first], &text[*first..*second], &text[*second..]];
                    assert_eq!(
                        pieces(&rules, &split),
                        expected,
                        "split at {first} and {second}: {text}"
                    );
                }
            }
            let single: Vec<_> = text.split_inclusive(|_| true).collect();
            assert_eq!(pieces(&rules, &single), expected, "by character: {text}");
        }
    }
}

#[test]
fn harmless_text_stays_and_comes_out_whole() {
    let rules = rules();
    for text in HARMLESS {
        assert_eq!(mask(&rules, text), None, "{text}");
        for (split, _) in text.char_indices() {
            assert_eq!(
                pieces(&rules, &[&text[..split], &text[split..]]),
                *text,
                "split at {split}"
            );
        }
    }
}

#[test]
fn only_what_may_be_a_secret_is_held_back() {
    let rules = rules();
    for (text, held) in [
        ("Hello, world.", ""),
        ("the word gh", "gh"),
        ("a ghp_abc", "ghp_abc"),
        ("weigh", ""),
        ("x ghp_abc d.", ""),
    ] {
        let mut stream = Stream::default();
        stream.push(&rules, text, false);
        assert_eq!(stream.held, held, "{text}");
    }
}

#[test]
fn long_secrets_are_masked_as_they_come() {
    let rules = rules();
    let long = alphanumeric(20_000);
    for (text, expected) in [
        (format!("a sk-{long} z"), "a [redacted:api-key] z"),
        (format!("a password={long} z"), "a password=[redacted:secret] z"),
        (
            format!("a -----BEGIN PRIVATE KEY-----\n{long}\n-----END PRIVATE KEY-----. z"),
            "a [redacted:private-key]. z",
        ),
    ] {
        for size in [1, 100, 4095, 4097, 30_000] {
            let split: Vec<_> = text
                .as_bytes()
                .chunks(size)
                .map(|piece| std::str::from_utf8(piece).unwrap())
                .collect();
            assert_eq!(pieces(&rules, &split), expected, "in pieces of {size}");
        }
    }
}

#[test]
fn a_block_without_an_end_is_masked_to_where_it_cannot_be_one() {
    let rules = rules();
    let text = format!("-----BEGIN PRIVATE KEY-----\n{}", alphanumeric(500));
    assert_eq!(mask(&rules, &text).as_deref(), Some("[redacted:private-key]"));
    assert_eq!(
        pieces(&rules, &[&text[..40], &text[40..], "-----END"]),
        "[redacted:private-key]"
    );
    let text = "it begins with `-----BEGIN PRIVATE KEY-----` and goes on";
    assert_eq!(
        mask(&rules, text).as_deref(),
        Some("it begins with `[redacted:private-key]` and goes on")
    );
}

/// A key as OpenSSL writes it: the last line is short.
fn key_lines() -> Vec<String> {
    let mut lines = vec!["-----BEGIN RSA PRIVATE KEY-----".to_owned()];
    lines.extend((0..4).map(|line| format!("{}/{}", &alphanumeric(63)[line..], &alphanumeric(line))));
    lines.extend([alphanumeric(20) + "==", "Qw==".to_owned()]);
    lines.push("-----END RSA PRIVATE KEY-----".to_owned());
    lines
}

/// Whether all of the key but its header is gone, however the text is split.
fn assert_key_is_masked(text: &str, expected: &str) {
    let rules = rules();
    assert_eq!(mask(&rules, text).as_deref(), Some(expected), "{text}");
    for (split, _) in text.char_indices() {
        let pieces = pieces(&rules, &[&text[..split], &text[split..]]);
        assert_eq!(pieces, expected, "split at {split}: {text}");
    }
    let single: Vec<_> = text.split_inclusive(|_| true).collect();
    assert_eq!(pieces(&rules, &single), expected, "by character: {text}");
}

#[test]
fn a_key_is_masked_whatever_its_lines_stand_in() {
    let numbered = |separator: &'static str| move |number: usize, line: &str| format!("{number:>4}{separator}{line}\n");
    type Decorate = Box<dyn Fn(usize, &str) -> String>;
    let decorations: [(&str, Decorate); 16] = [
        ("", Box::new(|_, line| format!("{line}\n"))),
        ("", Box::new(|_, line| format!("{line}\r\n\r\n"))),
        ("> ", Box::new(|_, line| format!("> {line}\n"))),
        ("> > ", Box::new(|_, line| format!("> > {line}\n"))),
        ("# ", Box::new(|_, line| format!("# {line}\n"))),
        ("  // ", Box::new(|_, line| format!("  // {line}\n"))),
        ("+", Box::new(|_, line| format!("+{line}\n"))),
        ("| ", Box::new(|_, line| format!("| {line} |\n"))),
        ("'", Box::new(|_, line| format!("'{line}\\n' +\n"))),
        ("  '", Box::new(|_, line| format!("  '{line}',\n"))),
        ("\"", Box::new(|_, line| format!("\"{line}\\n\"\n"))),
        ("key += `", Box::new(|_, line| format!("key += `{line}`;\n"))),
        ("   0→", Box::new(numbered("→"))),
        ("   0|", Box::new(numbered("|"))),
        ("   0\t", Box::new(numbered("\t"))),
        ("   0: ", Box::new(numbered(": "))),
    ];
    for (prefix, decorate) in decorations {
        let key: String = key_lines()
            .iter()
            .enumerate()
            .map(|(number, line)| decorate(number, line))
            .collect();
        let (_, behind) = key.rsplit_once("-----").unwrap();
        assert_key_is_masked(
            &format!("See:\n{key}and so on, it is said.\n"),
            &format!("See:\n{prefix}[redacted:private-key]{behind}and so on, it is said.\n"),
        );
    }
}

#[test]
fn headers_and_notes_do_not_end_a_key() {
    let key = key_lines();
    for (at, line) in [
        (
            1,
            "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123456789ABCDEF0123456789ABCDEF\n",
        ),
        (1, "Version: GnuPG v2\nComment: see https://gnupg.org for more\n"),
        (3, "... [12 lines left out] ..."),
        (3, "[…]"),
    ] {
        let mut lines = key.clone();
        lines.insert(at, line.to_owned());
        assert_key_is_masked(&format!("{}!", lines.join("\n")), "[redacted:private-key]!");
    }
}

#[test]
fn a_key_that_is_cut_off_ends_with_what_is_no_key() {
    let cut = key_lines()[..4].join("\n");
    for behind in [
        "That is the first half of it.\n",
        "fn main() { println!(); }\n",
        "日本語 é is no key\n",
    ] {
        assert_key_is_masked(
            &format!("{cut}\n\n{behind}Qw== stays"),
            &format!("[redacted:private-key]{behind}Qw== stays"),
        );
    }
    // One short line may be the end of the key, a second one is not.
    assert_key_is_masked(&format!("{cut}\nQw==\nend\nfi\n"), "[redacted:private-key]end\nfi\n");
    // A secret right behind it is one for itself.
    assert_key_is_masked(
        &format!("{cut}\nand password=hunter2 too"),
        "[redacted:private-key]and password=[redacted:secret] too",
    );
    assert_key_is_masked(
        &format!("{cut}\n-----END RSA PRIV\nand more to say"),
        "[redacted:private-key]\nand more to say",
    );
    // Two that are only spoken of.
    assert_key_is_masked(
        "`-----BEGIN PRIVATE KEY-----` or `-----BEGIN EC PRIVATE KEY-----` it is",
        "`[redacted:private-key]` or `[redacted:private-key]` it is",
    );
}

#[test]
fn a_line_that_is_long_is_not_held_for_ever() {
    let rules = rules();
    let words = "not a key ".repeat(1000);
    let text = format!("-----BEGIN PRIVATE KEY-----{words}");
    for size in [1, 100, 4095, 30_000] {
        let split: Vec<_> = text
            .as_bytes()
            .chunks(size)
            .map(|piece| std::str::from_utf8(piece).unwrap())
            .collect();
        assert_eq!(
            pieces(&rules, &split),
            format!("[redacted:private-key]{words}"),
            "in pieces of {size}"
        );
    }
}

#[test]
fn a_secret_that_was_begun_stays_masked_over_a_pause() {
    let rules = rules();
    let mut stream = Stream::default();
    assert_eq!(
        stream.push(&rules, "-----BEGIN PRIVATE KEY-----\nabc", false),
        "[redacted:private-key]"
    );
    assert_eq!(stream.pause(&rules), "");
    assert!(stream.is_inside());
    assert_eq!(stream.push(&rules, "def\n-----END PRIVATE KEY-----!", false), "!");
    assert!(!stream.is_inside());
}

#[test]
fn wrong_rules_are_named() {
    let rule = |name: &str, pattern: &str| BTreeMap::from([(name.to_owned(), pattern.to_owned())]);
    for (off, own, named) in [
        (vec![], rule("mine", "(a"), "mine"),
        (vec![], rule("mine", "(a"), "unclosed group"),
        (vec![], rule("mine", "a*"), "no text"),
        (vec![], rule("mine", "a{1000}{1000}"), "mine"),
        (vec!["jwts".to_owned()], BTreeMap::new(), "jwts"),
    ] {
        let error = Rules::new(&off, &own).err().unwrap();
        assert!(error.contains(named), "{error}");
    }
    let rules = Rules::new(&["aws-key".to_owned()], &BTreeMap::new()).unwrap();
    assert_eq!(mask(&rules, "AKIAIOSFODNN7EXAMPLE"), None);
}
