//! `tools`, the proxy that offers a few tools over the session's directory, in a real chain.

use consort_tests::chains::Chain;
use consort_tests::command::ungranted;
use consort_tests::guests::proxy;
use consort_tests::reached::{Http, Shim, begin_in, over_http, text};
use consort_tests::{AgentListener, Client, Directory};
use serde_json::json;
use std::ffi::OsString;
use std::fs;

fn project() -> Directory {
    let project = Directory::new();
    for folder in ["src", ".git", "target"] {
        fs::create_dir(project.path().join(folder)).expect("a folder can be made");
    }
    project.file("src/main.rs", "fn main() {\n    println!(\"hello\");\n}\n");
    project.file("src/image", [0xff, 0xfe, 0]);
    project.file(".git/config", "hello");
    project.file("target/out", "hello");
    project.file("README.md", "hello\n");
    project
}

#[test]
fn an_agent_searches_lists_and_notes_over_http() {
    let project = project();
    let (mut client, listener) = Chain::new("tools", &[("tools", json!({}))]).fresh();
    let (_agent, servers) = begin_in(&mut client, &listener, &over_http(), project.path(), &json!([]));
    assert_eq!(servers[0]["name"], "tools");
    let server = Http::connect(&servers[0]);
    let found = server.tool("search", &json!({"query": "hello"}));
    let places =
        "README.md:1: hello\nsrc/main.rs:2:     println!(\"hello\");\n(1 files are no text or could not be read)\n";
    assert_eq!(text(&found), places);
    let found = server.tool(
        "search",
        &json!({"query": "^fn (main|other)", "regex": true, "files": "*.rs"}),
    );
    assert_eq!(text(&found), "src/main.rs:1: fn main() {\n");
    let listed = server.tool("list_files", &json!({"depth": 2}));
    assert_eq!(
        text(&listed),
        "README.md (6)\nsrc/\nsrc/image (3)\nsrc/main.rs (37)\ntarget/\n"
    );
    let outside = server.tool("list_files", &json!({"path": "../"}));
    assert_eq!(outside["isError"], true, "{outside}");

    let kept = server.tool("add_note", &json!({"text": "It says hello."}));
    assert!(text(&kept).starts_with("kept as "), "{kept}");
    // Another run of Consort, in the same directory.
    drop(server);
    client.end();
    let (mut client, listener) = Chain::new("tools", &[("tools", json!({}))]).fresh();
    let (_agent, servers) = begin_in(&mut client, &listener, &over_http(), project.path(), &json!([]));
    let notes = Http::connect(&servers[0]).tool("list_notes", &json!({}));
    assert!(text(&notes).ends_with(": It says hello.\n"), "{notes}");
}

#[test]
fn an_agent_that_starts_its_servers_gets_the_same() {
    let project = project();
    let (mut client, listener) = Chain::new("tools", &[("tools", json!({}))]).fresh();
    let (_agent, servers) = begin_in(&mut client, &listener, &json!({}), project.path(), &json!([]));
    let mut server = Shim::connect(&servers[0]);
    let search = json!({"name": "search", "arguments": {"query": "hello", "path": "src"}});
    let found = server.ask(1, "tools/call", &search);
    assert!(text(&found["result"]).starts_with("src/main.rs:2:"), "{found}");
}

#[test]
fn without_the_grant_for_files_it_says_what_is_missing() {
    let project = project();
    let listener = AgentListener::new();
    let mut arguments: Vec<OsString> = vec![
        "run".into(),
        "--no-config".into(),
        "--proxy".into(),
        proxy("tools").into(),
    ];
    arguments.push("--".into());
    arguments.extend(listener.command());
    let mut client = Client::spawn(ungranted(&arguments), listener.transcript().clone());
    let (_agent, servers) = begin_in(&mut client, &listener, &over_http(), project.path(), &json!([]));
    let server = Http::connect(&servers[0]);
    let refused = server.tool("search", &json!({"query": "hello"}));
    let said = refused["content"][0]["text"].as_str().unwrap_or_default();
    assert!(
        refused["isError"] == true && said.contains("--grant tools=file:**"),
        "{refused}"
    );
    // What needs no more than ordinary grants works.
    assert_eq!(text(&server.tool("list_notes", &json!({}))), "there are no notes");
}
