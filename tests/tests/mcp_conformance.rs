//! The official conformance suite of MCP, and the command line of its inspector, against servers of proxies behind the bridge. They are
//! installed first, so they run with `cargo test -p consort-tests --test mcp_conformance -- --ignored`.

use consort_tests::Directory;
use consort_tests::chains::Chain;
use consort_tests::mcp::{Server, answer, set_up};
use consort_tests::real::npm;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

/// Scenarios that fail: this one wants a tool that has its own stream cut, which warns if streams last until the answer.
const FAIL: [&str; 1] = ["server-sse-polling"];

/// A version of Node.js that both need, as the registry has it.
const NODE: &str = "node@22.23.3";

/// A program of a package, run by that version.
fn program(folder: &Path, name: &str) -> Command {
    let mut command = Command::new(folder.join("node_modules/node/bin/node"));
    command.arg(folder.join("node_modules/.bin").join(name));
    command
}

fn said(output: &Output) -> String {
    let [out, error] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}\n{error}")
}

#[test]
#[ignore = "installs some 150 MB"]
fn the_conformance_suite() {
    let folder = npm("conformance", &["@modelcontextprotocol/conformance@0.1.16", NODE]);
    let chain = Chain::new("a proxy for the suite", &[("conformance", json!({}))]);
    let (mut client, mut agent, new) = set_up(&chain, &json!({"http": true}), &json!([]));
    let server = Server::of(&answer(&mut client, &mut agent, &new, "s1"));
    let directory = Directory::new();
    let names: String = FAIL.map(|name| format!("  - {name}\n")).concat();
    directory.file("expected.yml", format!("server:\n{names}"));
    // The secret in the address is enough; the suite cannot send headers.
    let output = program(&folder, "conformance")
        .args(["server", "--suite", "all", "--url", &server.url, "--expected-failures"])
        .arg(directory.path().join("expected.yml"))
        .current_dir(directory.path())
        .output()
        .expect("it can be started");
    println!("{}", said(&output));
    assert!(output.status.success());
}

/// What the inspector gets.
fn inspected(folder: &Path, target: &[&str], options: &[&str]) -> Value {
    let home = Directory::new();
    let output = program(folder, "mcp-inspector")
        .arg("--cli")
        .args(target)
        .args(options)
        .env("HOME", home.path())
        .output()
        .expect("it can be started");
    assert!(output.status.success(), "{options:?}: {}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(&output)))
}

#[test]
#[ignore = "installs some 200 MB"]
fn the_inspector_over_both_transports() {
    let folder = npm("inspector", &["@modelcontextprotocol/inspector@2.12.0", NODE]);
    let text = |value: &Value| value.as_str().expect("it is text").to_owned();
    for reached in [json!({"http": true}), json!({})] {
        let (_client, _agent, entry) = consort_tests::mcp::start(&reached);
        let target = match entry["url"].as_str() {
            Some(url) => {
                let bearer = format!("Authorization: {}", text(&entry["headers"][0]["value"]));
                vec![
                    url.to_owned(),
                    "--transport".into(),
                    "http".into(),
                    "--header".into(),
                    bearer,
                ]
            }
            None => {
                let variable = &entry["env"][0];
                let variable = format!("{}={}", text(&variable["name"]), text(&variable["value"]));
                let arguments = entry["args"].as_array().expect("it is an array").iter().map(text);
                let command = [text(&entry["command"])].into_iter().chain(arguments);
                command.chain(["-e".to_owned(), variable]).collect()
            }
        };
        let target: Vec<&str> = target.iter().map(String::as_str).collect();
        let inspected = |options: &[&str]| inspected(&folder, &target, options);
        assert_eq!(inspected(&["--method", "tools/list"])["tools"][0]["name"], "echo");
        let echo = ["--method", "tools/call", "--tool-name", "echo", "--tool-arg", "text=é"];
        assert_eq!(inspected(&echo)["content"][0]["text"], "é");
        let session = ["--method", "tools/call", "--tool-name", "session"];
        assert_eq!(inspected(&session)["structuredContent"], json!({"session": "s1"}));
        let read = ["--method", "resources/read", "--uri", "offers://text"];
        assert_eq!(inspected(&read)["contents"][0]["text"], "a text");
        let greet = [
            "--method",
            "prompts/get",
            "--prompt-name",
            "greet",
            "--prompt-args",
            "text=you",
        ];
        assert_eq!(inspected(&greet)["messages"][0]["content"]["text"], "Hello, you");
    }
}
