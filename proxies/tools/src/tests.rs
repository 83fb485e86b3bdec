//! What the agent gets of the tools, and what it is told when something does not work.

use std::time::Duration;

use consort_proxy::Peer::{Agent, Client, Host};
use consort_proxy::testing::{Harness, Sent};
use serde_json::{Value, json};

use super::Tools;

fn start(config: Value) -> Harness {
    let mut host = Harness::start::<Tools>(config).unwrap();
    begin(&mut host, "s1", "/project");
    host
}

/// Sets up a session in a directory.
fn begin(host: &mut Harness, session: &str, directory: &str) {
    host.request(Client, "session/new", json!({"cwd": directory, "mcpServers": []}));
    let new = host.next();
    assert_eq!(new.params()["mcpServers"][0]["name"], "tools");
    host.answer(&new, json!({"sessionId": session}));
    assert_eq!(host.next().result(), json!({"sessionId": session}));
}

/// Calls a tool in a session; what comes next is its answer, or what it wants of the host.
fn call(host: &mut Harness, session: &str, tool: &str, arguments: Value) {
    let params = json!({"name": tool, "arguments": arguments});
    host.request(
        Agent,
        "mcp/message",
        json!({"connectionId": "consort:tools#1", "method": "tools/call", "params": params, "_meta": {"consort/sessionId": session}}),
    );
}

/// The text of an answer, and whether it is one of success.
fn told(answer: &Sent) -> (String, bool) {
    let result = answer.result();
    let text = result["content"][0]["text"].as_str().unwrap().to_owned();
    (text, result["isError"] == false)
}

/// What a tool says that needs nothing but what the harness answers by itself.
fn ask(host: &mut Harness, tool: &str, arguments: Value) -> (String, bool) {
    call(host, "s1", tool, arguments);
    told(&host.next())
}

fn text(host: &mut Harness, tool: &str, arguments: Value) -> String {
    let (text, well) = ask(host, tool, arguments);
    assert!(well, "{text}");
    text
}

fn failure(host: &mut Harness, tool: &str, arguments: Value) -> String {
    let (text, well) = ask(host, tool, arguments);
    assert!(!well, "{text}");
    text
}

fn project() -> Harness {
    let mut host = start(json!({}));
    host.file("src/lib.rs", "fn one() {}\nfn two() {}\n");
    host.file("src/deep/a.md", "one and two");
    host.file("README.md", "ONE\n");
    host.file("target/out.rs", "fn one() {}");
    host
}

#[test]
fn lines_are_found_with_their_places() {
    let mut host = project();
    let found = text(&mut host, "search", json!({"query": "one"}));
    assert_eq!(found, "src/deep/a.md:1: one and two\nsrc/lib.rs:1: fn one() {}\n");
    let found = text(
        &mut host,
        "search",
        json!({"query": "ONE", "ignore_case": true, "files": "*.md"}),
    );
    assert_eq!(found, "README.md:1: ONE\nsrc/deep/a.md:1: one and two\n");
    let found = text(
        &mut host,
        "search",
        json!({"query": r"^fn \w+", "regex": true, "path": "src", "max": 1}),
    );
    assert_eq!(found.lines().next(), Some("src/lib.rs:1: fn one() {}"));
    assert!(found.contains("there are more matches"), "{found}");
    let found = text(&mut host, "search", json!({"query": "three"}));
    assert_eq!(found, "nothing matches\n");
}

#[test]
fn what_the_model_does_wrong_it_is_told() {
    let mut host = project();
    for (arguments, said) in [
        (json!({"query": "(", "regex": true}), "regular expression"),
        (json!({"query": ""}), "query"),
        (json!({"query": "x", "files": "src/*.rs"}), "`path` for a folder"),
        (json!({"query": "x", "path": "none"}), "there is none"),
        (json!({"query": "x", "regexp": true}), "regexp"),
    ] {
        let error = failure(&mut host, "search", arguments);
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_search_has_an_end() {
    let mut host = start(json!({"maxFiles": 3, "maxFileBytes": 1000}));
    for number in 0..5 {
        host.file(&format!("{number}"), &format!("x{}\n", "y".repeat(800)));
    }
    host.file("0-large", &"x".repeat(1001));
    let found = text(&mut host, "search", json!({"query": "x"}));
    assert_eq!(found.lines().count(), 4, "{found}");
    assert!(
        found.contains("first 3 files") && found.contains('…') && !found.contains("large"),
        "{found}"
    );
    let mut host = start(json!({}));
    host.file("a", &"x\n".repeat(100_000));
    let found = text(&mut host, "search", json!({"query": "x", "max": 1_000_000}));
    assert_eq!(found.lines().count(), 1_001);
}

#[test]
fn files_that_are_no_text_are_counted() {
    let mut host = start(json!({}));
    call(&mut host, "s1", "search", json!({"query": "x"}));
    let list = host.next();
    assert_eq!((list.to(), list.method()), (Host, "host/file/list"));
    assert_eq!(list.params()["sessionId"], "s1");
    let entry = |path: &str| json!({"path": path, "type": "file", "size": 1});
    host.answer(&list, json!({"entries": [entry("a"), entry("b")], "truncated": false}));
    let (one, two) = (host.next(), host.next());
    host.answer_error(&one, -32603, "the file is not UTF-8 text");
    host.answer(&two, json!({"text": "x", "truncated": false}));
    let progress = host.next();
    assert_eq!(progress.method(), "", "nobody wants to know of progress");
    assert_eq!(
        told(&progress).0,
        "b:1: x\n(1 files are no text or could not be read)\n"
    );
}

#[test]
fn a_file_that_the_host_has_no_room_for_is_read_later() {
    let mut host = start(json!({}));
    call(&mut host, "s1", "search", json!({"query": "x"}));
    let list = host.next();
    host.answer(
        &list,
        json!({"entries": [{"path": "a", "type": "file", "size": 1}], "truncated": false}),
    );
    let read = host.next();
    host.answer_error(&read, -32010, "too many answers are on their way");
    assert!(host.sent().is_empty() && host.sleeping().len() == 1);
    host.advance(Duration::from_millis(50));
    let read = host.next();
    host.answer(&read, json!({"text": "x", "truncated": false}));
    assert_eq!(told(&host.next()).0, "a:1: x\n");
}

#[test]
fn without_the_grant_the_model_hears_what_the_user_can_do() {
    let mut host = start(json!({}));
    host.deny(Host, "host/file/list");
    for tool in ["search", "list_files"] {
        let error = failure(
            &mut host,
            tool,
            match tool {
                "search" => json!({"query": "x"}),
                _ => json!({}),
            },
        );
        assert!(error.contains("--grant tools=file:**"), "{error}");
    }
}

#[test]
fn folders_are_listed() {
    let mut host = project();
    assert_eq!(
        text(&mut host, "list_files", json!({})),
        "README.md (4)\nsrc/\ntarget/\n"
    );
    let listed = text(&mut host, "list_files", json!({"depth": 9, "max": 3}));
    assert!(
        listed.starts_with("README.md (4)\nsrc/\nsrc/deep/\n(there is more"),
        "{listed}"
    );
    let rest = text(&mut host, "list_files", json!({"depth": 9, "after": "src/deep"}));
    assert_eq!(rest, "src/deep/a.md (11)\nsrc/lib.rs (24)\ntarget/\n");
    assert_eq!(
        text(&mut host, "list_files", json!({"after": "zzz"})),
        "there is nothing\n"
    );
}

#[test]
fn notes_stay_with_their_directory() {
    let mut host = start(json!({}));
    assert_eq!(text(&mut host, "list_notes", json!({})), "there are no notes");
    let kept = text(&mut host, "add_note", json!({"text": "The tests need a display."}));
    let id = kept.strip_prefix("kept as ").unwrap().to_owned();
    assert_eq!(
        text(&mut host, "list_notes", json!({})),
        format!("{id}: The tests need a display.\n")
    );
    begin(&mut host, "s2", "/other");
    call(&mut host, "s2", "list_notes", json!({}));
    assert_eq!(told(&host.next()).0, "there are no notes");
    call(&mut host, "s2", "remove_note", json!({"id": id}));
    assert!(!told(&host.next()).1);
    begin(&mut host, "s3", "/project");
    call(&mut host, "s3", "remove_note", json!({"id": id}));
    assert_eq!(told(&host.next()).0, "removed");
    assert_eq!(text(&mut host, "list_notes", json!({})), "there are no notes");
}

#[test]
fn notes_are_bounded() {
    let mut host = start(json!({}));
    for wrong in [String::new(), " ".into(), "x".repeat(4_001)] {
        assert!(failure(&mut host, "add_note", json!({"text": wrong})).contains("between 1"));
    }
    host.limit_saved(200);
    text(&mut host, "add_note", json!({"text": "one"}));
    let error = failure(&mut host, "add_note", json!({"text": "x".repeat(200)}));
    assert!(error.contains("no room"), "{error}");
    let mut host = start(json!({}));
    for number in 0..100 {
        text(&mut host, "add_note", json!({"text": number.to_string()}));
    }
    assert!(failure(&mut host, "add_note", json!({"text": "x"})).contains("which is the most"));
}

#[test]
fn a_session_that_is_loaded_has_its_notes_and_an_unknown_one_none() {
    let mut host = start(json!({}));
    text(&mut host, "add_note", json!({"text": "here"}));
    host.request(
        Client,
        "session/load",
        json!({"sessionId": "old", "cwd": "/project", "mcpServers": []}),
    );
    assert_eq!(host.next().method(), "session/load");
    call(&mut host, "old", "list_notes", json!({}));
    assert!(told(&host.next()).0.contains("here"));
    call(&mut host, "unheard of", "list_notes", json!({}));
    let (said, well) = told(&host.next());
    assert!(!well && said.contains("not known any more"), "{said}");
}

#[test]
fn notes_can_be_left_out() {
    let mut host = start(json!({"notes": false}));
    host.request(
        Agent,
        "mcp/message",
        json!({"connectionId": "consort:tools#1", "method": "tools/list"}),
    );
    let listed = host.next().result();
    let names: Vec<&str> = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(names, ["search", "list_files"]);
}

#[test]
fn wrong_configurations_are_named() {
    for (config, named) in [
        (json!({"skipped": []}), "skipped"),
        (json!({"skip": ["a/b"]}), "a/b"),
        (json!({"skip": vec!["x"; 257]}), "256"),
        (json!({"maxFiles": 0}), "maxFiles"),
        (json!({"maxFileBytes": 2_000_000}), "maxFileBytes"),
    ] {
        let error = Harness::start::<Tools>(config).err().unwrap();
        assert!(error.contains(named), "{error}");
    }
}
