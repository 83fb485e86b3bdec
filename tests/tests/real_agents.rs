//! Next to what others wrote. The example agent of the protocol's own TypeScript SDK and the headless client `acpx` run with
//! every `cargo test`; an agent with a model behind it is larger (some 220 MB), and runs with
//! `cargo test -p consort-tests --test real_agents -- --ignored`.

use consort_tests::guests::{guest, proxy};
use consort_tests::model::{MODEL_SAYS, Model};
use consort_tests::real::{Conversation, codex_at, home, npm};
use consort_tests::transcript::Transcript;
use consort_tests::{Client, Directory, command, consort};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Something that looks like a key and is none.
const SECRET: &str = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD";

/// The example agent.
fn example_agent() -> Vec<OsString> {
    let folder = npm("sdk", &["@agentclientprotocol/sdk@1.9.0", "zod@4"]);
    let script = folder.join("node_modules/@agentclientprotocol/sdk/dist/examples/agent.js");
    assert!(script.is_file(), "{} is missing", script.display());
    vec!["node".into(), script.into()]
}

fn options(proxies: &[PathBuf]) -> Vec<OsString> {
    proxies
        .iter()
        .flat_map(|file| ["--proxy".into(), file.clone().into()])
        .collect()
}

#[test]
fn the_sdks_example_agent_behind_two_proxies() {
    let directory = Directory::new();
    let proxies = options(&[guest("arrow"), proxy("redact")]);
    let mut client = Client::start(&proxies, &example_agent());
    let said = Conversation::begin(&mut client, &directory).turn("Hello");
    assert!(said.starts_with('>') && said.contains("project"), "{said}");
    client.close_input();
    assert!(client.wait().success());
}

#[test]
fn acpx_in_front_of_two_proxies_and_the_example_agent() {
    let acpx = npm("acpx", &["acpx@0.19.1"]).join("node_modules/.bin/acpx");
    let home = home(&[]);
    let directory = Directory::new();
    let mut agent: Vec<OsString> = vec![consort().into(), "run".into()];
    agent.extend(options(&[guest("arrow"), proxy("passthrough")]));
    agent.push("--".into());
    agent.extend(example_agent());
    let words: Vec<String> = agent
        .iter()
        .map(|word| word.to_str().expect("paths are UTF-8").to_owned())
        .collect();
    let output = Command::new(acpx)
        .arg("--cwd")
        .arg(directory.path())
        .args([
            "--approve-all",
            "--format",
            "text",
            "--agent",
            &words.join(" "),
            "exec",
            "Hello",
        ])
        .env("HOME", home.path())
        .env("XDG_CACHE_HOME", command::cache())
        .env("XDG_STATE_HOME", command::state())
        .stdin(Stdio::null())
        .output()
        .expect("acpx can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{error}");
    assert!(
        text.contains(">Perfect!") || text.contains("> Perfect!"),
        "{text}\n{error}"
    );
    assert!(text.contains("end_turn"), "{text}\n{error}");
}

#[test]
#[ignore = "installs some 220 MB"]
fn codex_with_a_model_behind_two_proxies() {
    let folder = npm("codex", &["@zed-industries/codex-acp@0.16.0"]);
    let model = Model::start();
    let home = home(&[("config.toml", &model.codex())]);
    let directory = Directory::new();
    directory.file("AGENTS.md", "Speak like a pirate.");
    let mut arguments: Vec<OsString> = vec!["run".into()];
    arguments.extend(options(&[proxy("context"), proxy("redact")]));
    arguments.extend(["--".into(), folder.join("node_modules/.bin/codex-acp").into()]);
    let mut command = command::command(&arguments);
    codex_at(&home, &mut command);
    let mut client = Client::spawn(command, Transcript::default());
    let said = Conversation::begin(&mut client, &directory).turn(&format!("My key is {SECRET}."));
    assert!(said.contains(MODEL_SAYS), "{said}");
    let asked = model.asked();
    assert!(asked.contains("Speak like a pirate."), "the context reached the model");
    assert!(asked.contains("My key is [redacted:"), "the key was masked");
    assert!(!asked.contains(SECRET), "the key did not reach the model");
    // Killed with the test, Consort could not end it.
    client.end();
}
