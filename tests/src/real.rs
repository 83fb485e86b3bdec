//! Agents, clients and a conductor that others wrote, from their package registries, and how to talk to an agent of which nothing else is
//! known.

use crate::Client;
use crate::session::request;
use crate::{Directory, root};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Installs packages into a folder of their own under `target/`, once, and returns that folder. Tests run in several
/// processes; whoever comes second waits.
pub fn npm(name: &str, packages: &[&str]) -> PathBuf {
    let folder = root().join("target/real").join(name);
    fs::create_dir_all(&folder).expect("a folder can be made");
    let lock = fs::File::create(folder.join("lock")).expect("a lock file can be made");
    lock.lock().expect("the lock can be taken");
    let done = folder.join("installed");
    let wanted = packages.join("\n");
    if fs::read_to_string(&done).is_ok_and(|installed| installed == wanted) {
        return folder;
    }
    fs::write(folder.join("package.json"), r#"{"private":true}"#).expect("a file can be written");
    let output = Command::new("npm")
        .args(["install", "--no-audit", "--no-fund", "--loglevel=error"])
        .args(packages)
        .current_dir(&folder)
        .output()
        .expect("these tests need Node.js: install `node` and `npm`");
    assert!(
        output.status.success(),
        "npm cannot install {packages:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    fs::write(done, wanted).expect("a file can be written");
    folder
}

/// The reference conductor. Compiling it takes some minutes.
pub fn reference_conductor() -> PathBuf {
    cargo("conductor", "agent-client-protocol-conductor", "5.0.0")
}

/// A program of a crate, installed into a folder of its own under `target/`, once.
pub fn cargo(folder: &str, name: &str, version: &str) -> PathBuf {
    let folder = root().join("target/real").join(folder);
    fs::create_dir_all(&folder).expect("a folder can be made");
    let lock = fs::File::create(folder.join("lock")).expect("a lock file can be made");
    lock.lock().expect("the lock can be taken");
    let program = folder.join("bin").join(name);
    if !program.is_file() {
        let output = Command::new("cargo")
            .args(["install", "--locked", "--version", version, "--root"])
            .arg(&folder)
            .arg(name)
            .output()
            .expect("cargo is there");
        assert!(
            output.status.success(),
            "{name} cannot be installed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    program
}

/// A home for an agent, so that it neither reads nor writes the user's own files.
pub fn home(files: &[(&str, &str)]) -> Directory {
    let home = Directory::new();
    for (name, content) in files {
        home.file(name, content);
    }
    home
}

/// Lets Codex live in a home, with a key for a model on loopback.
pub fn codex_at(home: &Directory, command: &mut Command) {
    command
        .env("HOME", home.path())
        .env("CODEX_HOME", home.path())
        .env("OPENAI_API_KEY", "sk-test")
        .env("CODEX_API_KEY", "sk-test")
        .env("NO_PROXY", "127.0.0.1");
}

/// A conversation with an agent. Permissions are allowed once.
pub struct Conversation<'c> {
    client: &'c mut Client,
    session: Value,
}

impl<'c> Conversation<'c> {
    /// Begins one in a directory.
    pub fn begin(client: &'c mut Client, directory: &Directory) -> Self {
        let capabilities = json!({"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false});
        client.send_json(&request(
            "initialize",
            "initialize",
            &json!({"protocolVersion": 1, "clientCapabilities": capabilities}),
        ));
        assert_eq!(client.expect()["result"]["protocolVersion"], 1);
        let mut conversation = Self {
            client,
            session: Value::Null,
        };
        let params = json!({"cwd": directory.path(), "mcpServers": []});
        let (new, _) = conversation.ask("session/new", &params);
        conversation.session = new["sessionId"].clone();
        assert!(conversation.session.is_string(), "{new}");
        conversation
    }

    /// Goes through a whole turn and gives what the agent said.
    pub fn turn(&mut self, text: &str) -> String {
        let prompt = json!({"sessionId": self.session, "prompt": [{"type": "text", "text": text}]});
        let (end, said) = self.ask("session/prompt", &prompt);
        assert_eq!(end["stopReason"], "end_turn", "{end}");
        said
    }

    /// The result of a request, and what was said on the way.
    fn ask(&mut self, method: &str, params: &Value) -> (Value, String) {
        self.client.send_json(&request(method, method, params));
        let mut said = String::new();
        loop {
            let line = self.client.expect();
            if line["method"] == "session/request_permission" {
                let options = line["params"]["options"].as_array().expect("options are an array");
                let allow = options
                    .iter()
                    .find(|option| option["kind"] == "allow_once")
                    .expect("it can be allowed");
                let outcome = json!({"outcome": {"outcome": "selected", "optionId": allow["optionId"]}});
                self.client
                    .send_json(&json!({"jsonrpc": "2.0", "id": line["id"], "result": outcome}));
            } else if line["params"]["update"]["sessionUpdate"] == "agent_message_chunk" {
                said.push_str(line["params"]["update"]["content"]["text"].as_str().unwrap_or_default());
            } else if line["id"] == method {
                assert_eq!(line.get("error"), None, "{line}");
                return (line["result"].clone(), said);
            }
        }
    }
}
