//! Next to what others wrote. The example agent of the protocol's own TypeScript SDK and the headless client `acpx` run with
//! every `cargo test`; an agent with a model behind it is larger (some 220 MB), and runs with
//! `cargo test -p consort-tests --test real_agents -- --ignored`.

use consort_tests::guests::{guest, proxy};
use consort_tests::real::{MODEL_SAYS, Model, home, npm};
use consort_tests::session::request;
use consort_tests::transcript::Transcript;
use consort_tests::{Client, Directory, command, consort};
use serde_json::{Value, json};
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

/// Goes through a whole turn and returns what the agent said. Permissions are allowed once.
fn one_turn(client: &mut Client, directory: &Directory, text: &str) -> String {
    let capabilities = json!({"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false});
    client.send_json(&request(
        1,
        "initialize",
        &json!({"protocolVersion": 1, "clientCapabilities": capabilities}),
    ));
    assert_eq!(client.expect()["result"]["protocolVersion"], 1);
    client.send_json(&request(
        2,
        "session/new",
        &json!({"cwd": directory.path(), "mcpServers": []}),
    ));
    let mut session = Value::Null;
    let mut said = String::new();
    loop {
        let line = client.expect();
        if line["method"] == "session/request_permission" {
            let options = line["params"]["options"].as_array().expect("options are an array");
            let allow = options
                .iter()
                .find(|option| option["kind"] == "allow_once")
                .expect("it can be allowed");
            let outcome = json!({"outcome": {"outcome": "selected", "optionId": allow["optionId"]}});
            client.send_json(&json!({"jsonrpc": "2.0", "id": line["id"], "result": outcome}));
        } else if line["method"] == "session/update" {
            let update = &line["params"]["update"];
            if update["sessionUpdate"] == "agent_message_chunk" {
                said.push_str(update["content"]["text"].as_str().unwrap_or_default());
            }
        } else if line["id"] == 2 {
            session = line["result"]["sessionId"].clone();
            let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
            client.send_json(&request(3, "session/prompt", &prompt));
        } else if line["id"] == 3 {
            assert!(session.is_string());
            assert_eq!(line["result"]["stopReason"], "end_turn", "{line}");
            return said;
        }
    }
}

#[test]
fn the_sdks_example_agent_behind_two_proxies() {
    let directory = Directory::new();
    let proxies = options(&[guest("arrow"), proxy("redact")]);
    let mut client = Client::start(&proxies, &example_agent());
    let said = one_turn(&mut client, &directory, "Hello");
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
    let home = home(&[(
        "config.toml",
        &format!(
            "model = \"test\"\nmodel_provider = \"test\"\n[model_providers.test]\nname = \"test\"\nbase_url = \"{}\"\n\
             env_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\nrequires_openai_auth = false\nsupports_websockets = false\n",
            model.url()
        ),
    )]);
    let directory = Directory::new();
    directory.file("AGENTS.md", "Speak like a pirate.");
    let mut arguments: Vec<OsString> = vec!["run".into()];
    arguments.extend(options(&[proxy("context"), proxy("redact")]));
    arguments.extend(["--".into(), folder.join("node_modules/.bin/codex-acp").into()]);
    let mut command = command::command(&arguments);
    command
        .env("HOME", home.path())
        .env("CODEX_HOME", home.path())
        .env("OPENAI_API_KEY", "sk-test")
        .env("CODEX_API_KEY", "sk-test")
        .env("NO_PROXY", "127.0.0.1");
    let mut client = Client::spawn(command, Transcript::default());
    let said = one_turn(&mut client, &directory, &format!("My key is {SECRET}."));
    assert!(said.contains(MODEL_SAYS), "{said}");
    let asked = model.asked();
    assert!(asked.contains("Speak like a pirate."), "the context reached the model");
    assert!(asked.contains("My key is [redacted:"), "the key was masked");
    assert!(!asked.contains(SECRET), "the key did not reach the model");
}
