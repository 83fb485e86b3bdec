//! Chains with the guest `intruder` in them, which does what its script says: with the grants and the manifest that a test gives it, and
//! an audit file of its own.

use crate::command::{finish, ungranted};
use crate::guests::guest;
use crate::session::begin;
use crate::{Agent, AgentListener, Client, Directory};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

/// A chain that is put together. Its proxies may do nothing that is not granted here.
pub struct Stage {
    home: Directory,
    options: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

/// A chain that runs, with a session.
pub struct Run {
    /// In front of it.
    pub client: Client,
    /// Behind it.
    pub agent: Agent,
    /// Where its audit file and its state are.
    pub home: Directory,
}

impl Stage {
    /// An empty one.
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        Self {
            home: Directory::new(),
            // What a guest has asked for and nobody answers keeps nothing from ending.
            options: ["--grace", "0"].map(OsString::from).into(),
            environment: Vec::new(),
        }
    }

    /// One of a single intruder with the name `intruder`, no manifest, and these grants; the empty text is none.
    pub fn of(script: &Value, grants: &str) -> Self {
        let stage = Self::new().proxy("intruder", script);
        match grants {
            "" => stage,
            grants => stage.option(["--grant", &format!("intruder={grants}")]),
        }
    }

    /// Its folder.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Adds an intruder with this name and no manifest.
    pub fn proxy(self, name: &str, script: &Value) -> Self {
        let file = self.component(name, None);
        self.named(name, &file, script)
    }

    /// Adds an intruder with this name and a manifest, as TOML.
    pub fn with_manifest(self, name: &str, manifest: &str, script: &Value) -> Self {
        let file = self.component(name, Some(manifest));
        self.named(name, &file, script)
    }

    fn named(self, name: &str, file: &Path, script: &Value) -> Self {
        self.option([OsString::from("--proxy"), file.into()])
            .option(["--proxy-config", &format!("{name}={script}")])
    }

    /// Makes an intruder's component, with a manifest or without.
    pub fn component(&self, name: &str, manifest: Option<&str>) -> PathBuf {
        let file = self.home.path().join(format!("{name}.wasm"));
        fs::copy(guest("intruder"), &file).expect("a component can be copied");
        if let Some(manifest) = manifest {
            let manifest = self.home.file(&format!("{name}.toml"), manifest);
            attach(&manifest, &file);
        }
        file
    }

    /// Adds options.
    pub fn option(mut self, option: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.options
            .extend(option.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Adds a configuration file with this content.
    pub fn configured(self, content: &str) -> Self {
        let file = self.home.file("consort.toml", content);
        self.option([OsString::from("--config"), file.into()])
    }

    /// Sets a variable of the environment.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Starts it with a client in front, before anything was said.
    pub fn fresh(self) -> (Client, AgentListener, Directory) {
        let listener = AgentListener::new();
        let mut arguments: Vec<OsString> = vec!["run".into()];
        arguments.extend(self.options);
        arguments.push("--".into());
        arguments.extend(listener.command());
        let mut command = ungranted(&arguments);
        command.env("XDG_STATE_HOME", self.home.path());
        command.envs(self.environment);
        let client = Client::spawn(command, listener.transcript().clone());
        (client, listener, self.home)
    }

    /// Starts it, with a session.
    pub fn start(self) -> Run {
        let (mut client, listener, home) = self.fresh();
        let agent = begin(&mut client, &listener);
        Run { client, agent, home }
    }
}

impl Run {
    /// Ends it, and returns what the audit file says of one proxy.
    pub fn audit(&mut self, proxy: &str) -> Vec<Value> {
        self.client.end();
        let lines = audit(self.home.path());
        lines.into_iter().filter(|line| line["proxy"] == proxy).collect()
    }

    /// Ends it, and returns what the guests have told of what was denied to them: the method, and why.
    pub fn refusals(&mut self) -> Vec<String> {
        let log = self.client.end();
        let told = log
            .lines()
            .filter_map(|line| Some(line.split_once(": denied ")?.1.to_owned()));
        told.collect()
    }

    /// Ends it, and returns what the audit file says that a proxy was denied: the peer, the method, and why the first time.
    pub fn denied(&mut self, proxy: &str) -> Vec<String> {
        let denied = self.audit(proxy).into_iter().filter(|line| line["event"] == "denied");
        denied
            .map(|line| format!("{}: {}", text(&line["what"]), text(&line["detail"])))
            .collect()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What stands in the audit file of a chain that has ended.
pub fn audit(home: &Path) -> Vec<Value> {
    let text = fs::read_to_string(home.join("consort/audit.jsonl")).expect("there is an audit file");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// Attaches a manifest to a component, and returns what was said about it.
pub fn attach(manifest: &Path, component: &Path) -> String {
    let arguments = [
        OsStr::new("build"),
        OsStr::new("--manifest"),
        manifest.as_os_str(),
        component.as_os_str(),
    ];
    let outcome = finish(ungranted(&arguments), b"");
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    outcome.error
}

/// A rule of a script: what is done about a method.
pub fn on(method: &str, actions: Value) -> Value {
    json!({"on": method, "do": actions})
}

/// A script with these interests and rules.
pub fn script(interests: &[&str], rules: &[Value]) -> Value {
    json!({"interests": interests, "rules": rules})
}

/// An action: a message of the guest's own; what is not said of it is as the script has it by default.
pub fn send(to: &str, method: &str, params: &str) -> Value {
    json!({"send": {"to": to, "method": method, "params": params}})
}

/// An action: a request of the guest's own.
pub fn ask(to: &str, id: u64, method: &str, params: &str) -> Value {
    json!({"send": {"to": to, "method": method, "params": params, "id": id}})
}

/// An action: the message at hand is answered with a result.
pub fn answer(to: &str, result: &str) -> Value {
    json!({"send": {"to": to, "result": result}})
}

/// An action: the message at hand goes on as it came.
pub fn pass() -> Value {
    json!({"pass": {}})
}

/// An action: it goes on with an edit.
pub fn edited(pointer: &str, value: &Value) -> Value {
    json!({"pass": {"edits": [[pointer, value]]}})
}
