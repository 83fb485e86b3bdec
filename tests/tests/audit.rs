//! The audit file: what became of proxies, from their start to the end of the connection, and no harm where it cannot be written.

use consort_tests::command::{command, finish};
use consort_tests::guests::guest;
use consort_tests::session::{begin, notification, prompt, request};
use consort_tests::{Agent, AgentListener, Client, Directory, PATIENCE};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the file is unless another one is named.
fn default_file(home: &Path) -> PathBuf {
    home.join("consort/audit.jsonl")
}

/// A client in front of a chain whose state is in this folder.
fn client(home: &Path, listener: &AgentListener, options: &[OsString]) -> Client {
    let mut arguments: Vec<OsString> = vec!["run".into()];
    arguments.extend_from_slice(options);
    arguments.push("--".into());
    arguments.extend(listener.command());
    let mut command = command(&arguments);
    command.env("XDG_STATE_HOME", home);
    Client::spawn(command, listener.transcript().clone())
}

fn start(home: &Path, options: &[OsString]) -> (Client, Agent) {
    let listener = AgentListener::new();
    let mut client = client(home, &listener, options);
    let agent = begin(&mut client, &listener);
    (client, agent)
}

/// Options for a proxy that traps on prompts with a certain word in them.
fn trap() -> Vec<OsString> {
    let config = json!({"on": "session/prompt", "source": "client", "when": "handler", "text": "BOOM"});
    vec![
        "--proxy".into(),
        guest("trap").into(),
        "--proxy-config".into(),
        format!("trap={config}").into(),
    ]
}

/// A prompt reaches the agent, and its answer comes back.
fn goes_through(client: &mut Client, agent: &mut Agent, text: &str) {
    client.send_json(&prompt(1, text));
    let asked = agent.expect();
    agent.answer(&asked, &json!({"stopReason": "end_turn"}));
    assert_eq!(client.expect()["id"], 1);
}

fn end(client: &mut Client) {
    client.close_input();
    client.wait();
}

fn read(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).expect("there is an audit file");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// The events of a proxy or, without a name, of connections, in order.
fn events<'a>(lines: &'a [Value], proxy: Option<&str>) -> Vec<&'a str> {
    let of = lines.iter().filter(|line| line["proxy"].as_str() == proxy);
    of.map(|line| line["event"].as_str().expect("each line is an event"))
        .collect()
}

#[test]
fn a_proxy_that_fails_is_there_from_its_start_to_the_end() {
    let home = Directory::new();
    let (mut client, mut agent) = start(home.path(), &trap());
    // The one in the middle waits for the new instance.
    for text in ["BOOM", "fine", "BOOM"] {
        goes_through(&mut client, &mut agent, text);
    }
    end(&mut client);
    let file = default_file(home.path());
    let lines = read(&file);
    let of_proxy = events(&lines, Some("trap"));
    assert_eq!(
        of_proxy[..4],
        ["started", "granted", "failed", "restarted"],
        "{lines:#?}"
    );
    assert_eq!(of_proxy[4], "failed", "{lines:#?}");
    assert_eq!(events(&lines, None), ["started", "ended"], "{lines:#?}");
    let of = |event: &str| {
        lines
            .iter()
            .find(|line| line["event"] == event && line["proxy"] == "trap")
    };
    let (started, failed) = (of("started").expect("it has"), of("failed").expect("it has"));
    assert_eq!(started["sha256"].as_str().map(str::len), Some(64), "{started}");
    assert_eq!(started["file"], json!(guest("trap")), "{started}");
    assert_eq!(
        (&failed["phase"], &failed["class"]),
        (&json!("receive"), &json!("trap"))
    );
    assert!(failed["cause"].to_string().contains("panicked"), "{failed}");
    for line in &lines {
        assert_eq!(line["pid"], client.pid(), "{line}");
        assert_eq!(line["connection"], lines[0]["connection"], "{line}");
    }
    let mode = fs::metadata(&file).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// The line that says that the proxy is off.
fn off<'a>(lines: &'a [Value], event: &str) -> &'a Value {
    let found = lines
        .iter()
        .find(|line| line["event"] == event && line["proxy"] == "trap");
    found.unwrap_or_else(|| panic!("no {event} in {lines:#?}"))
}

#[test]
fn a_proxy_that_is_bypassed_says_until_when() {
    let home = Directory::new();
    let (mut client, mut agent) = start(home.path(), &trap());
    let begun = Instant::now();
    // Prompts go past it until its next instance is there.
    while !client.standard_error().contains("failed too often") {
        assert!(
            begun.elapsed() < PATIENCE,
            "it is never off: {}",
            client.standard_error()
        );
        goes_through(&mut client, &mut agent, "BOOM");
        std::thread::sleep(Duration::from_millis(5));
    }
    end(&mut client);
    let lines = read(&default_file(home.path()));
    let off = off(&lines, "bypassed");
    assert!(off["until"].as_str() > off["time"].as_str(), "{off}");
    let of_proxy = events(&lines, Some("trap"));
    let count = |event: &str| of_proxy.iter().filter(|found| **found == event).count();
    assert_eq!(
        (count("failed"), count("shut-out")),
        (count("restarted") + 1, 0),
        "{lines:#?}"
    );
}

#[test]
fn what_a_closed_proxy_shuts_out_is_counted() {
    let home = Directory::new();
    let mut options = trap();
    options.extend(["--on-failure".into(), "trap=closed".into()]);
    let (mut client, _agent) = start(home.path(), &options);
    for id in 0..10 {
        client.send_json(&prompt(id, "BOOM"));
        assert_eq!(client.expect()["error"]["data"]["proxy"], "trap");
    }
    end(&mut client);
    let lines = read(&default_file(home.path()));
    let off = off(&lines, "closed");
    assert!(off["until"].as_str() > off["time"].as_str(), "{off}");
    let shut_out = lines
        .iter()
        .filter(|line| line["event"] == "shut-out" && line["method"] == "session/prompt");
    let counts: Vec<u64> = shut_out.filter_map(|line| line["count"].as_u64()).collect();
    // The first at once, the rest later.
    assert_eq!((counts.first(), counts.iter().sum()), (Some(&1), 10), "{lines:#?}");
    assert!(counts.len() < 10, "{lines:#?}");
}

#[test]
fn a_proxy_that_cannot_be_loaded_is_there() {
    let home = Directory::new();
    let listener = AgentListener::new();
    let broken = home.file("broken.wasm", "not a component");
    let mut client = client(home.path(), &listener, &["--proxy".into(), broken.into()]);
    client.send_json(&request(1, "initialize", &json!({"protocolVersion": 1})));
    assert!(client.expect()["error"].is_object());
    end(&mut client);
    let lines = read(&default_file(home.path()));
    assert_eq!(events(&lines, Some("broken")), ["failed"], "{lines:#?}");
    let failed = lines.iter().find(|line| line["event"] == "failed");
    assert_eq!(failed.map(|line| &line["class"]), Some(&json!("load")));
}

#[test]
fn the_end_is_there_when_a_signal_brings_it() {
    let home = Directory::new();
    let (mut client, _agent) = start(home.path(), &[]);
    let pid = Pid::from_raw(i32::try_from(client.pid()).expect("process ids are small")).expect("it is not zero");
    kill_process(pid, Signal::TERM).expect("it can be told to end");
    client.wait();
    let lines = read(&default_file(home.path()));
    assert_eq!(events(&lines, None), ["started", "ended"], "{lines:#?}");
    assert_eq!(lines[1]["early"], true, "{lines:#?}");
}

#[test]
fn two_processes_add_to_one_file() {
    let home = Directory::new();
    let file = home.path().join("mine.jsonl");
    let options: Vec<OsString> = [trap(), vec!["--audit".into(), file.clone().into()]].concat();
    let mut both = [start(home.path(), &options), start(home.path(), &options)];
    for (client, agent) in &mut both {
        goes_through(client, agent, "BOOM");
    }
    for (client, _) in &mut both {
        end(client);
    }
    let lines = read(&file);
    for (client, _) in &both {
        let own: Vec<Value> = lines
            .iter()
            .filter(|line| line["pid"] == client.pid())
            .cloned()
            .collect();
        assert_eq!(events(&own, None), ["started", "ended"], "{lines:#?}");
        assert_eq!(
            events(&own, Some("trap"))[..3],
            ["started", "granted", "failed"],
            "{lines:#?}"
        );
    }
    assert!(!default_file(home.path()).exists(), "another file was named");
}

#[test]
fn a_file_that_cannot_be_written_is_told_once_and_nothing_else_comes_of_it() {
    let home = Directory::new();
    let notes = home.file("notes.txt", "keep me");
    for (file, word) in [
        (PathBuf::from("/dev/null/audit.jsonl"), "cannot be written"),
        (PathBuf::from("/dev/stdout"), "no audit file"),
        (notes.clone(), "no audit file"),
    ] {
        let options = [trap(), vec!["--audit".into(), file.into()]].concat();
        let (mut client, mut agent) = start(home.path(), &options);
        goes_through(&mut client, &mut agent, "BOOM");
        client.close_input();
        client.expect_end();
        assert!(client.wait().success());
        let log = client.expect_standard_error("the audit file");
        assert!(
            log.contains(word) && log.matches("the audit file").count() == 1,
            "{log}"
        );
    }
    assert_eq!(fs::read_to_string(notes).expect("it is there"), "keep me");
}

#[test]
fn it_can_be_turned_off_and_put_elsewhere() {
    let directory = Directory::new();
    let off = directory.file("off.toml", "audit = \"off\"\n");
    let elsewhere = directory.file("elsewhere.toml", "audit-file = \"here.jsonl\"\n");
    let here = directory.path().join("here.jsonl");
    let named = directory.path().join("named.jsonl");
    let option = |name: &str, value: &Path| [OsString::from(name), value.into()];
    let off = option("--config", &off);
    let elsewhere = option("--config", &elsewhere);
    let cases: [(Vec<OsString>, Option<&Path>); 5] = [
        (vec!["--no-audit".into()], None),
        (off.to_vec(), None),
        (elsewhere.to_vec(), Some(&here)),
        ([elsewhere.to_vec(), vec!["--no-audit".into()]].concat(), None),
        ([off, option("--audit", &named)].concat(), Some(&named)),
    ];
    for (options, file) in cases {
        let _ = fs::remove_file(&here);
        let home = Directory::new();
        let (mut client, mut agent) = start(home.path(), &options);
        client.send_json(&notification("_marker", &json!({})));
        assert_eq!(agent.expect()["method"], "_marker");
        end(&mut client);
        assert!(!default_file(home.path()).exists(), "{options:?}");
        for place in [&here, &named] {
            assert_eq!(place.exists(), file == Some(place.as_path()), "{options:?}");
        }
    }
}

#[test]
fn a_prompt_from_the_shell_is_there_too() {
    let home = Directory::new();
    let mut command = command(&["prompt", "Hello"]);
    command.env("XDG_STATE_HOME", home.path());
    let outcome = finish(command, b"");
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let lines = read(&default_file(home.path()));
    assert_eq!(events(&lines, None), ["started", "ended"], "{lines:#?}");
}
