//! What a proxy keeps on this computer: there after every kind of end, bounded, and never lost in silence.

use consort_tests::command::{command, wait_until_gone};
use consort_tests::guests::guest;
use consort_tests::raw::last;
use consort_tests::session::{begin, request};
use consort_tests::{Agent, AgentListener, Client, Directory};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// A chain of the guest that keeps what it is told, with its state in this folder.
fn start(home: &Path) -> (Client, Agent) {
    let listener = AgentListener::new();
    let mut arguments: Vec<OsString> = vec!["run".into(), "--proxy".into(), guest("keeper").into(), "--".into()];
    arguments.extend(listener.command());
    let mut command = command(&arguments);
    command.env("XDG_STATE_HOME", home);
    let mut client = Client::spawn(command, listener.transcript().clone());
    let agent = begin(&mut client, &listener);
    (client, agent)
}

/// What the guest answers: the result or the error.
fn ask(client: &mut Client, method: &str, params: &Value) -> Value {
    client.send_json(&request(1, method, params));
    let mut answer = client.expect();
    assert_eq!(answer["id"], 1, "{answer}");
    match answer.get_mut("result") {
        Some(result) => result.take(),
        None => answer["error"].take(),
    }
}

fn set(client: &mut Client, key: &str, value: &Value) -> Value {
    ask(client, "_state/set", &json!({"key": key, "value": value}))
}

fn get(client: &mut Client, key: &str) -> Value {
    ask(client, "_state/get", &json!({"key": key}))
}

/// The file of the guest.
fn file(home: &Path) -> PathBuf {
    let entries = fs::read_dir(home.join("consort/state")).expect("there is state");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

#[test]
fn values_come_back_byte_for_byte() {
    let home = Directory::new();
    let (mut client, _agent) = start(home.path());
    let value = r#"{ "n":1.10, "big":12345678901234567890123, "half":"\ud83d", "e":1E400, "twice":1, "twice":2 }"#;
    let line =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"_state/set","params":{{"value":{value},"key":"ü \u0000/"}}}}"#);
    client.send(&line);
    assert_eq!(last(&client.expect_line(), "result"), "{}");
    client.send(r#"{"jsonrpc":"2.0","id":2,"method":"_state/get","params":{"key":"ü \u0000/"}}"#);
    assert_eq!(last(&client.expect_line(), "result"), format!("{{\"value\":{value}}}"));
    assert_eq!(get(&mut client, "other"), json!({}));
    assert_eq!(ask(&mut client, "_state/keys", &json!({})), json!({"keys": ["ü \0/"]}));
}

#[test]
fn it_survives_the_end_of_the_proxy_and_of_the_host() {
    let home = Directory::new();
    let (mut client, _agent) = start(home.path());
    assert_eq!(set(&mut client, "a", &json!(null)), json!({}));
    assert_eq!(ask(&mut client, "_state/count", &json!({})), 1);
    // A trap: the message goes past the proxy to the agent, and a new instance answers the next one.
    client.send_json(&request("trap", "_state/trap", &json!({})));
    assert_eq!(ask(&mut client, "_state/count", &json!({})), 2);
    let pid = Pid::from_raw(i32::try_from(client.pid()).expect("process ids are small")).expect("it is not zero");
    kill_process(pid, Signal::KILL).expect("it can be killed");
    client.wait();
    wait_until_gone(client.pid());
    let (mut client, _agent) = start(home.path());
    assert_eq!(ask(&mut client, "_state/count", &json!({})), 3);
    assert_eq!(get(&mut client, "a"), json!({"value": null}));
}

#[test]
fn requests_are_carried_out_in_the_order_in_which_they_were_sent() {
    let home = Directory::new();
    let (mut client, _agent) = start(home.path());
    for round in 0..20 {
        let both = ask(&mut client, "_state/both", &json!({"key": "a", "value": round}));
        assert_eq!(both, round.to_string());
    }
}

#[test]
fn more_than_it_may_keep_is_refused_and_what_was_there_stays() {
    let home = Directory::new();
    let (mut client, _agent) = start(home.path());
    let half = json!("x".repeat(600 * 1024));
    assert_eq!(set(&mut client, "a", &half), json!({}));
    let error = set(&mut client, "b", &half);
    assert_eq!(error["code"], -32010, "{error}");
    let message = error["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("`keeper`") && message.contains("1048576") && message.contains("delete keys"),
        "{message}"
    );
    assert_eq!(get(&mut client, "b"), json!({}));
    assert_eq!(get(&mut client, "a"), json!({"value": half}));
    // More than may wait, and more than it may keep, comes to the same.
    let error = set(&mut client, "b", &json!("x".repeat(5 * 1024 * 1024)));
    assert_eq!(error["code"], -32010, "{error}");
    let error = set(&mut client, &"k".repeat(257), &json!(1));
    assert_eq!(error["code"], -32602, "{error}");
    assert_eq!(ask(&mut client, "_state/delete", &json!({"key": "a"})), json!({}));
    assert_eq!(set(&mut client, "b", &half), json!({}));
}

#[test]
fn two_hosts_at_once_lose_nothing_of_each_other() {
    const ROUNDS: usize = 25;
    let home = Directory::new();
    let mut hosts = [start(home.path()), start(home.path())];
    for round in 0..ROUNDS {
        // Both at the same time.
        for (number, (client, _)) in hosts.iter_mut().enumerate() {
            let params = json!({"key": format!("{number}-{round}"), "value": number});
            client.send_json(&request(1, "_state/set", &params));
        }
        for (client, _) in &mut hosts {
            assert_eq!(client.expect()["result"], json!({}));
        }
    }
    for (client, _) in &mut hosts {
        let keys = ask(client, "_state/keys", &json!({}));
        assert_eq!(keys["keys"].as_array().map(Vec::len), Some(2 * ROUNDS), "{keys}");
    }
}

#[test]
fn a_damaged_file_is_put_aside_and_named() {
    let home = Directory::new();
    let (mut client, _agent) = start(home.path());
    set(&mut client, "a", &json!(1));
    let file = file(home.path());
    fs::write(&file, "{\"proxy\":\"keeper\",\"sta").expect("it can be written");
    assert_eq!(get(&mut client, "a"), json!({}));
    assert_eq!(set(&mut client, "a", &json!(2)), json!({}));
    let aside = file.with_extension("damaged-1");
    let kept = fs::read_to_string(&aside).expect("it is put aside");
    assert_eq!(kept, "{\"proxy\":\"keeper\",\"sta");
    client.expect_standard_error(&aside.display().to_string());
    assert_eq!(get(&mut client, "a"), json!({"value": 2}));
}

#[test]
fn a_disk_that_takes_nothing_is_an_error_for_the_proxy() {
    let directory = Directory::new();
    // Not even root can make a folder there.
    let home = directory.file("home", "a file");
    let (mut client, _agent) = start(&home);
    let error = set(&mut client, "a", &json!(1));
    assert_eq!(error["code"], -32603, "{error}");
    let message = error["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("cannot be used") && !message.contains("home"),
        "{message}"
    );
    client.expect_standard_error("the saved state of proxy `keeper`");
    // The proxy is there as before.
    let error = set(&mut client, "a", &json!(1));
    assert_eq!(error["code"], -32603, "{error}");
}

#[test]
fn wrong_requests_are_told_what_is_wrong() {
    let home = Directory::new();
    let (mut client, _agent) = start(home.path());
    for (method, params, word) in [
        ("_state/set", json!({"key": "a"}), "`value`"),
        ("_state/set", json!({"value": 1}), "`key`"),
        ("_state/get", json!({"key": 7}), "string"),
        ("_state/delete", json!({}), "`key`"),
    ] {
        let error = ask(&mut client, method, &params);
        assert_eq!(error["code"], -32602, "{method} {error}");
        assert!(error["message"].to_string().contains(word), "{method} {error}");
    }
    let error = ask(&mut client, "_state/clear", &json!({}));
    assert_eq!(error["code"], -32601, "{error}");
    assert!(error["message"].to_string().contains("host/state/keys"), "{error}");
    assert!(!home.path().join("consort/state").exists(), "nothing was kept");
}
