//! Agents that others wrote call a tool of a WebAssembly proxy and use what it gives, each over the transport that it knows. They are large
//! and have to be installed first, so they run with `cargo test -p consort-tests --test real_mcp -- --ignored`.

use consort_tests::guests::guest;
use consort_tests::model::{Model, TOOL_SAYS, Wish};
use consort_tests::real::{Conversation, cargo, codex_at, home, npm};
use consort_tests::transcript::Transcript;
use consort_tests::{Client, Directory, PATIENCE, command};
use serde_json::json;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// What goes through the tool.
const TEXT: &str = "héllo from the sandbox";

/// `consort run` with a proxy that offers tools, in front of an agent; and the trace of what it says. Each test ends it: killed, it could not
/// end the agent.
fn offering(agent: &[OsString]) -> (Command, Directory, PathBuf) {
    let directory = Directory::new();
    let trace = directory.path().join("trace");
    let mut arguments: Vec<OsString> = ["run", "--proxy"].map(OsString::from).to_vec();
    arguments.extend([
        guest("offers").into(),
        "--trace".into(),
        trace.clone().into(),
        "--".into(),
    ]);
    arguments.extend_from_slice(agent);
    (command::command(&arguments), directory, trace)
}

fn model() -> Model {
    Model::wishing(Some(Wish {
        tool: "echo",
        arguments: json!({ "text": TEXT }),
    }))
}

/// Asks until the tool was used: agents may connect to their servers behind the answer to `session/new`.
fn uses_the_tool(client: &mut Client, directory: &Directory) -> String {
    let mut conversation = Conversation::begin(client, directory);
    let begun = Instant::now();
    loop {
        let said = conversation.turn("Use the tool, please.");
        if said.contains(TOOL_SAYS) {
            return said;
        }
        assert!(begun.elapsed() < PATIENCE, "the tool was never offered: {said}");
        thread::sleep(Duration::from_millis(500));
    }
}

/// The agent uses the tool, over HTTP, and says what it gave.
fn gets_what_the_tool_gives_over_http(command: Command, directory: &Directory, trace: &Path) {
    let mut client = Client::spawn(command, Transcript::default());
    let said = uses_the_tool(&mut client, directory);
    assert!(said.contains(TEXT), "{said}");
    assert!(
        fs::read_to_string(trace)
            .unwrap()
            .contains(r#""url":"http://127.0.0.1:"#)
    );
    client.end();
}

#[test]
#[ignore = "installs some 220 MB"]
fn codex_over_http() {
    let program = npm("codex", &["@zed-industries/codex-acp@0.16.0"]).join("node_modules/.bin/codex-acp");
    let model = model();
    let home = home(&[("config.toml", &model.codex())]);
    let (mut command, directory, trace) = offering(&[program.into()]);
    codex_at(&home, &mut command);
    gets_what_the_tool_gives_over_http(command, &directory, &trace);
}

#[test]
#[ignore = "installs some 190 MB"]
fn copilot_over_http() {
    let program = npm("copilot", &["@github/copilot@1.0.102"]).join("node_modules/.bin/copilot");
    let model = model();
    let home = home(&[]);
    let variables = [
        ("HOME", home.path().to_str().unwrap()),
        ("COPILOT_PROVIDER_TYPE", "openai"),
        ("COPILOT_PROVIDER_BASE_URL", &model.url()),
        ("COPILOT_PROVIDER_API_KEY", "sk-test"),
        ("COPILOT_MODEL", "test"),
        ("COPILOT_OFFLINE", "true"),
        ("COPILOT_AUTO_UPDATE", "false"),
        ("NO_PROXY", "127.0.0.1"),
    ];
    // The agent's own variables are not inherited under another name of the program.
    let mut agent: Vec<OsString> = vec!["env".into()];
    agent.extend(variables.map(|(name, value)| format!("{name}={value}").into()));
    agent.extend([program.into(), "--acp".into()]);
    let (command, directory, trace) = offering(&agent);
    gets_what_the_tool_gives_over_http(command, &directory, &trace);
}

#[test]
#[ignore = "compiles an agent, which takes some minutes"]
fn elizacp_over_a_server_that_it_starts() {
    let program = cargo("elizacp", "elizacp", "12.0.0");
    let (command, directory, trace) = offering(&[program.into(), "acp".into()]);
    let mut client = Client::spawn(command, Transcript::default());
    let mut conversation = Conversation::begin(&mut client, &directory);
    let said = conversation.turn(&format!("Use tool offers::echo with {}", json!({ "text": TEXT })));
    assert!(said.contains(TEXT), "{said}");
    let said = conversation.turn("Use tool offers::session with {}");
    assert!(said.contains("session"), "{said}");
    assert!(fs::read_to_string(trace).unwrap().contains("mcp-shim"));
    client.end();
}
