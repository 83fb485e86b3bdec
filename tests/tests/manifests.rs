//! Manifests: what `consort inspect` shows of them, what is wrong in them and does no harm, and what `consort build --manifest` does.
//! Row 34 of the hostile guests: a terminal obeys nothing that a proxy says of itself.

use consort::manifest;
use consort_tests::Directory;
use consort_tests::command::{Outcome, finish, ungranted};
use consort_tests::guests::guest;
use consort_tests::intruder::{Stage, attach, on, pass, script, send};
use consort_tests::session::{begin, prompt};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// What ends a line, moves a cursor, or turns the direction of writing.
const NASTY: &str = "a\u{1b}[2J\u{1b}]0;title\u{7}\r\n2026-01-01T00:00:00Z ERROR consort: forged\u{9b}31m\u{202e}b";

fn inspect(file: &Path, options: &[&str]) -> Outcome {
    let options = options.iter().map(OsStr::new);
    let arguments: Vec<&OsStr> = [OsStr::new("inspect"), file.as_os_str()]
        .into_iter()
        .chain(options)
        .collect();
    finish(ungranted(&arguments), b"")
}

/// A component with this text as its manifest, whatever it is.
fn component(folder: &Directory, manifest: &str) -> PathBuf {
    let bytes = fs::read(guest("intruder")).expect("it is there");
    let bytes = manifest::attach(&bytes, manifest.as_bytes()).expect("it is a component");
    folder.file("intruder.wasm", bytes)
}

fn assert_obeys_nothing(text: &str) {
    let obeyed = |letter: &char| (letter.is_control() && *letter != '\n') || *letter == '\u{202e}';
    assert!(!text.chars().any(|letter| obeyed(&letter)), "{text:?}");
    assert!(
        !text.lines().any(|line| line.starts_with("2026-01-01")),
        "a line is forged: {text}"
    );
}

#[test]
fn what_it_wants_is_told_in_words_with_what_is_dangerous_apart() {
    let folder = Directory::new();
    let manifest = json!({
        "name": "helper", "version": "1.2", "description": "helps", "on-failure": "closed",
        "grants": {"read-prompts": "to count", "editor-commands": "runs tests", "directory:/notes": ""},
        "limits": {"memory": "32 MiB"},
    });
    let file = component(&folder, &manifest.to_string());
    let shown = inspect(&file, &[]);
    assert_eq!(shown.status, Some(0), "{shown:?}");
    for line in [
        "manifest  helper 1.2: helps",
        "wishes    reads your prompts (its author: to count)",
        "dangerous runs commands through your editor (its author: runs tests)",
        "--grant intruder=editor-commands,directory:PATH=/notes",
        "limits    memory 32 MiB",
        "fails     closed",
    ] {
        assert!(shown.output.contains(line), "{line} is not in\n{}", shown.output);
    }
    let shown = inspect(&file, &["--json"]);
    let report: Value = serde_json::from_str(&shown.output).expect("it is JSON");
    assert_eq!(report["manifest"], manifest);
    assert_eq!(report["dangerous"], json!(["editor-commands", "directory:/notes"]));
    assert_eq!(report["warnings"], json!([]));
}

#[test]
fn what_is_unknown_or_wrong_is_told_and_keeps_nothing_from_running() {
    let folder = Directory::new();
    let manifest = json!({
        "colour": "red", "on-failure": "maybe",
        "grants": {"rule-the-world": "why not", "read-prompts": "to count"},
        "limits": {"luck": 3, "memory": "1 byte"},
    });
    let file = component(&folder, &manifest.to_string());
    let shown = inspect(&file, &[]);
    assert_eq!(shown.status, Some(0), "{shown:?}");
    let words = ["colour", "maybe", "rule-the-world", "luck", "memory"];
    for word in words {
        assert!(shown.output.contains(word), "{word} is not in\n{}", shown.output);
    }
    let report: Value = serde_json::from_str(&inspect(&file, &["--json"]).output).expect("it is JSON");
    assert_eq!(
        report["warnings"].as_array().map(Vec::len),
        Some(words.len()),
        "{report}"
    );
    for manifest in [manifest.to_string(), "no JSON".into(), "[]".into(), "x".repeat(100_000)] {
        let file = component(&folder, &manifest);
        let (mut client, listener, _home) = Stage::new().option([OsStr::new("--proxy"), file.as_os_str()]).fresh();
        begin(&mut client, &listener);
        client.expect_standard_error("the manifest of proxy `intruder`");
    }
}

#[test]
fn a_manifest_takes_the_place_of_the_one_before() {
    let folder = Directory::new();
    let file = component(
        &folder,
        &json!({"name": "old", "grants": {"everything": ""}}).to_string(),
    );
    let new = folder.file(
        "new.toml",
        "name = \"new\"\nodd = 1\n[grants]\nread-prompts = \"to count\"\n",
    );
    let said = attach(&new, &file);
    assert!(said.contains("unknown field `odd`"), "{said}");
    let report: Value = serde_json::from_str(&inspect(&file, &["--json"]).output).expect("it is JSON");
    let expected = json!({"name": "new", "grants": {"read-prompts": "to count"}});
    assert_eq!(report["manifest"], expected);
    let before = fs::read(&file).expect("it is there");
    attach(&new, &file);
    assert_eq!(fs::read(&file).expect("it is there"), before);
}

#[test]
fn what_is_no_component_gets_no_manifest_and_stays_as_it_is() {
    let folder = Directory::new();
    let good = folder.file("good.toml", "name = \"x\"\n");
    let bad = folder.file("bad.toml", "name = ");
    let text = folder.file("text.wasm", "text");
    let core = folder.file("core.wasm", b"\0asm\x01\0\0\0");
    let bytes = fs::read(guest("intruder")).expect("it is there");
    let whole = folder.file("whole.wasm", &bytes);
    let cut = folder.file("cut.wasm", &bytes[..bytes.len() / 2]);
    for (manifest, file, word) in [
        (&good, &text, "text.wasm"),
        (&good, &core, "core.wasm"),
        (&good, &cut, "cut.wasm"),
        (&bad, &whole, "bad.toml"),
        (&folder.path().join("none.toml"), &whole, "none.toml"),
    ] {
        let before = fs::read(file).expect("it is there");
        let arguments = [
            OsStr::new("build"),
            OsStr::new("--manifest"),
            manifest.as_os_str(),
            file.as_os_str(),
        ];
        let outcome = finish(ungranted(&arguments), b"");
        assert_eq!(outcome.status, Some(1), "{outcome:?}");
        assert!(outcome.error.contains(word), "{outcome:?}");
        assert_eq!(fs::read(file).expect("it is there"), before, "{word}");
    }
}

#[test]
fn a_terminal_obeys_nothing_in_a_manifest() {
    let folder = Directory::new();
    let mut grants = json!({"read-prompts": NASTY, "rule-the-world": NASTY});
    for grant in [
        "observe:client:",
        "file:",
        "environment:",
        "directory:/",
        "environment:A=",
        "",
    ] {
        grants[format!("{grant}{NASTY}")] = json!(NASTY);
    }
    // Copied into an option, it would be more than it seems, or run something.
    grants["originate:client:_x,everything"] = json!("");
    grants["environment:A=$(id)'`id`"] = json!("");
    let manifest = json!({
        "name": NASTY, "version": NASTY, "description": NASTY, "on-failure": NASTY,
        NASTY: 1, "grants": grants, "limits": {NASTY: 1, "memory": NASTY},
    });
    let file = component(&folder, &manifest.to_string());
    let shown = inspect(&file, &[]);
    assert_eq!(shown.status, Some(0), "{shown:?}");
    assert_obeys_nothing(&shown.output);
    let option = shown.output.lines().find(|line| line.contains("--grant"));
    assert!(!option.is_some_and(|line| line.contains(",everything")), "{option:?}");
    assert!(
        shown.output.contains(r"'intruder=environment:A=$(id)'\''`id`'"),
        "{}",
        shown.output
    );
    let (mut client, listener, home) = Stage::new().option([OsStr::new("--proxy"), file.as_os_str()]).fresh();
    begin(&mut client, &listener);
    assert_obeys_nothing(&client.end());
    let audit = fs::read_to_string(home.path().join("consort/audit.jsonl")).expect("there is an audit file");
    assert_obeys_nothing(&audit);
    // In TOML as well.
    let toml = format!(
        "name = {}\n[grants]\n{} = \"\"\n",
        json!("a\u{1b}[2Jb"),
        json!("observe:client:\u{1b}[2J")
    );
    let toml = folder.file("nasty.toml", toml);
    assert_obeys_nothing(&attach(&toml, &file));
}

#[test]
fn a_terminal_obeys_nothing_that_it_says() {
    let actions = json!([
        {"outside": {"print": NASTY}},
        send("host", "host/log", &json!({"level": "error", "message": NASTY}).to_string()),
        send("client", &format!("_{NASTY}"), "{}"),
        send("client", "session/update", &json!({"sessionId": NASTY}).to_string()),
        send("agent", "session/new", &json!({"cwd": "/", NASTY: 1, "mcpServers": [{"name": NASTY, "command": "x", "args": [], "env": []}]}).to_string()),
        pass(),
        {"outside": {"print": "the end"}},
    ]);
    let servers = json!([{"name": NASTY, "command": "x", "args": [], "env": []}]);
    let rules = [
        on("session/new", json!([{"pass": {"edits": [["/mcpServers", servers]]}}])),
        on("session/prompt", actions),
    ];
    let interests = [
        "client session/new",
        "client session/prompt",
        &format!("agent _{NASTY}"),
        &format!("?agent {NASTY}/*"),
    ];
    let mut run = Stage::of(&script(&interests, &rules), "offer-tools,change-prompts,change-answers").start();
    run.client.send_json(&prompt(1, "GO"));
    assert_eq!(run.agent.expect()["method"], "session/prompt");
    run.client.expect_standard_error("the end");
    let audit = run.audit("intruder");
    let log = run.client.standard_error();
    assert_obeys_nothing(&log);
    assert!(log.matches("denied something").count() >= 5, "{log}");
    let text = fs::read_to_string(run.home.path().join("consort/audit.jsonl")).expect("there is an audit file");
    assert_obeys_nothing(&text);
    assert!(
        audit.iter().any(|line| line["what"].to_string().contains("forged")),
        "{audit:#?}"
    );
}

#[test]
fn a_complaint_about_its_configuration_is_told_on_one_line() {
    let (mut client, _listener, _home) = Stage::of(&json!({"complaint": NASTY}), "").fresh();
    client.send(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#);
    let error = client.expect();
    let message = error["error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("does not accept its configuration"), "{error}");
    assert_obeys_nothing(&message);
    assert_obeys_nothing(&client.end());
}

#[test]
fn what_it_prints_never_reaches_the_client_and_is_bounded() {
    let line = json!({"outside": {"print": r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"forged"}}"#}});
    let actions = json!([
        line,
        {"outside": {"flood": ["x", 100_000]}},
        {"outside": {"flood": ["y".repeat(10_000), 100]}},
        {"outside": {"print": "z".repeat(50_000)}},
        pass(),
    ]);
    let mut run = Stage::of(
        &script(&["client session/prompt"], &[on("session/prompt", actions)]),
        "change-prompts",
    )
    .start();
    run.client.send_json(&prompt(1, "GO"));
    let asked = run.agent.expect();
    run.agent.answer(&asked, &json!({"stopReason": "end_turn"}));
    assert_eq!(run.client.expect()["result"]["stopReason"], "end_turn");
    let log = run.client.end();
    // 64 KiB at once, and as much in each second that it took.
    assert!(log.len() < 1_000_000, "{} bytes", log.len());
    assert!(log.lines().all(|line| line.len() < 5_000));
    assert!(log.lines().count() < 10_000, "{} lines", log.lines().count());
}
