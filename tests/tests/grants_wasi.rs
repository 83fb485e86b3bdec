//! What a proxy reaches outside of the channel: files of the directories that it was granted, variables that it was granted, clocks and
//! random numbers, and nothing else. The rows 35 to 39 of the hostile guests.
//!
//! | Row | What it tries | Test |
//! |---|---|---|
//! | 35 | paths, symbolic and hard links, renaming | `a_directory_is_all_that_it_reads`, `what_may_only_be_read_is_not_changed_in_any_way`, `links_lead_nowhere_else`, `a_file_is_not_made_writable_by_way_of_another_directory` |
//! | 36 | the disk, its state, open files | `saved_state_has_a_quota`, `open_files_have_an_end_and_the_host_goes_on`; how much a directory that it may write to takes, only the user's disk limits |
//! | 37 | gigabytes of random bytes | `random_bytes_come_in_small_portions` |
//! | 38 | ends itself | `who_ends_itself_ends_nobody_else` |
//! | 39 | sleeps, looks at the clock for ever | `who_sleeps_is_woken_and_who_watches_the_clock_is_stopped` |

use consort_tests::Directory;
use consort_tests::intruder::{Run, Stage, ask, on, pass, script};
use consort_tests::session::prompt;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

/// Something with files.
fn file(words: &[&str]) -> Value {
    json!({"outside": {"file": words}})
}

/// Does this at a prompt, with these grants, and returns what the guest says of it, line by line.
fn outcome(grants: &str, actions: &[Value]) -> Vec<String> {
    let all = [actions, &[pass(), json!({"outside": {"print": "the end"}})]].concat();
    let rule = on("session/prompt", json!(all));
    let grants = format!("change-prompts,{grants}");
    let mut run = Stage::of(
        &script(&["client session/prompt"], &[rule]),
        grants.trim_end_matches(','),
    )
    .start();
    run.client.send_json(&prompt(1, "GO"));
    assert_eq!(run.agent.expect()["method"], "session/prompt");
    let log = run.client.expect_standard_error("intruder: the end");
    log.lines()
        .filter_map(|line| Some(line.split_once("intruder: ")?.1.to_owned()))
        .filter(|line| !["heard", "sent"].iter().any(|word| line.starts_with(word)))
        .collect()
}

/// A folder with something in it, and something beside it that is none of the guest's business.
fn folder() -> Directory {
    let folder = Directory::new();
    fs::create_dir_all(folder.path().join("data/inner")).expect("a folder can be made");
    fs::create_dir(folder.path().join("data-beside")).expect("a folder can be made");
    folder.file("data/plain", "plain");
    folder.file("data/inner/deep", "deep");
    folder.file("secret", "SECRET");
    folder.file("data-beside/secret", "SECRET");
    folder
}

fn grant(folder: &Directory, kind: &str) -> String {
    format!("{kind}:{}=/data", folder.path().join("data").display())
}

fn assert_failed(lines: &[String]) {
    for line in lines.iter().filter(|line| *line != "the end") {
        assert!(line.contains(": failed, "), "{line}");
    }
}

#[test]
fn without_a_grant_there_is_nothing() {
    let lines = outcome(
        "",
        &[
            file(&["list", "/"]),
            file(&["list", "."]),
            file(&["read", "/etc/passwd"]),
            file(&["write", "/tmp/consort-intruder", "x"]),
            file(&["read", "AGENTS.md"]),
        ],
    );
    assert_failed(&lines);
    let lines = outcome(
        "",
        &[
            json!({"outside": {"environment": {}}}),
            json!({"outside": {"input": {}}}),
        ],
    );
    assert_eq!(lines, ["environment [], 0 arguments", "input: ok", "the end"]);
}

#[test]
fn a_variable_is_that_variable() {
    let rule = on("session/prompt", json!([{"outside": {"environment": {}}}, pass()]));
    let grants = "change-prompts,environment:FOO=bar,environment:INHERITED,environment:NOT_THERE";
    let stage = Stage::of(&script(&["client session/prompt"], &[rule]), grants);
    let mut run = stage.environment("INHERITED", "yes").environment("OTHER", "no").start();
    run.client.send_json(&prompt(1, "GO"));
    assert_eq!(run.agent.expect()["method"], "session/prompt");
    run.client
        .expect_standard_error("environment [FOO=bar,INHERITED=yes], ");
}

#[test]
fn a_directory_is_all_that_it_reads() {
    let folder = folder();
    let read = grant(&folder, "directory");
    let lines = outcome(
        &read,
        &[
            file(&["read", "/data/plain"]),
            file(&["read", "/data/inner/../plain"]),
            file(&["read", "/data/inner/deep"]),
            file(&["list", "/data"]),
        ],
    );
    assert_eq!(
        lines,
        [
            "read /data/plain: ok plain",
            "read /data/inner/../plain: ok plain",
            "read /data/inner/deep: ok deep",
            "list /data: ok inner plain",
            "the end"
        ]
    );
    let outside = folder.path().join("secret").display().to_string();
    let tries = [
        file(&["read", "/data/../secret"]),
        file(&["read", "/data/inner/../../secret"]),
        file(&["read", "/data//../secret"]),
        file(&["read", "/data-beside/secret"]),
        file(&["read", "/data/../data-beside/secret"]),
        file(&["read", &outside]),
        file(&["read", "/etc/passwd"]),
        file(&["list", "/data/.."]),
        file(&["list", "/"]),
    ];
    for kind in ["directory", "directory-write"] {
        assert_failed(&outcome(&grant(&folder, kind), &tries));
    }
}

#[test]
fn what_may_only_be_read_is_not_changed_in_any_way() {
    let folder = folder();
    let times = |name: &str| {
        fs::metadata(folder.path().join(name))
            .expect("it is there")
            .modified()
            .expect("it has a time")
    };
    let before = times("data/plain");
    let lines = outcome(
        &grant(&folder, "directory"),
        &[
            file(&["write", "/data/plain", "x"]),
            file(&["write", "/data/new", "x"]),
            file(&["append", "/data/plain", "x"]),
            file(&["truncate", "/data/plain"]),
            file(&["set-length", "/data/plain"]),
            file(&["set-times", "/data/plain"]),
            file(&["remove", "/data/plain"]),
            file(&["rename", "/data/plain", "/data/other"]),
            file(&["rename", "/data/inner", "/data/other"]),
            file(&["link", "/data/plain", "/data/other"]),
            file(&["symlink", "plain", "/data/other"]),
            file(&["make-folder", "/data/other"]),
            file(&["remove-folder", "/data/inner"]),
        ],
    );
    assert_eq!(lines.len(), 14, "{lines:?}");
    assert_failed(&lines);
    assert_eq!(
        fs::read_to_string(folder.path().join("data/plain")).expect("it is there"),
        "plain"
    );
    assert_eq!(times("data/plain"), before);
    assert_eq!(
        fs::read_dir(folder.path().join("data")).expect("it is there").count(),
        2
    );
}

#[test]
fn what_may_be_written_is_written() {
    let folder = folder();
    let lines = outcome(
        &grant(&folder, "directory-write"),
        &[
            file(&["write", "/data/new", "new"]),
            file(&["append", "/data/new", " text"]),
            file(&["rename", "/data/new", "/data/inner/renamed"]),
            file(&["link", "/data/plain", "/data/linked"]),
            file(&["append", "/data/linked", " more"]),
            file(&["truncate", "/data/inner/deep"]),
            file(&["make-folder", "/data/made"]),
            file(&["remove-folder", "/data/made"]),
            file(&["remove", "/data/linked"]),
            file(&["list", "/data"]),
        ],
    );
    assert!(
        lines.iter().all(|line| line.contains(": ok") || line == "the end"),
        "{lines:#?}"
    );
    let read = |name: &str| fs::read_to_string(folder.path().join("data").join(name)).expect("it is there");
    assert_eq!(
        (read("inner/renamed").as_str(), read("plain").as_str()),
        ("new text", "plain more")
    );
    assert_eq!(read("inner/deep"), "");
}

#[test]
fn links_lead_nowhere_else() {
    let folder = folder();
    let data = folder.path().join("data");
    symlink("../secret", data.join("link")).expect("a link can be made");
    symlink(folder.path().join("secret"), data.join("absolute")).expect("a link can be made");
    symlink("..", data.join("up")).expect("a link can be made");
    symlink("/", data.join("top")).expect("a link can be made");
    symlink("inner/deep", data.join("good")).expect("a link can be made");
    // Of a hard link nobody can tell that the file has another name elsewhere: what the user puts in, is in.
    fs::hard_link(folder.path().join("secret"), data.join("hard")).expect("a link can be made");
    let tries = [
        file(&["read", "/data/link"]),
        file(&["read", "/data/absolute"]),
        file(&["read", "/data/up/secret"]),
        file(&["list", "/data/up"]),
        file(&["read", "/data/top/etc/passwd"]),
        file(&["write", "/data/link", "x"]),
        file(&["truncate", "/data/up/secret"]),
        file(&["remove", "/data/up/secret"]),
        file(&["rename", "/data/up/secret", "/data/stolen"]),
        file(&["link", "/data/up/secret", "/data/stolen"]),
        file(&["rename", "/data/plain", "/data/up/put"]),
    ];
    for kind in ["directory", "directory-write"] {
        assert_failed(&outcome(&grant(&folder, kind), &tries));
    }
    let write = grant(&folder, "directory-write");
    let lines = outcome(
        &write,
        &[
            file(&["symlink", "../secret", "/data/own"]),
            file(&["read", "/data/own"]),
            file(&["write", "/data/own", "x"]),
            file(&["symlink", "/etc", "/data/etc"]),
            file(&["read", "/data/etc/passwd"]),
            file(&["symlink", "..", "/data/inner/above"]),
            file(&["read", "/data/inner/above/plain"]),
            file(&["read", "/data/inner/above/../secret"]),
            // A folder that is moved while a path leads through it.
            file(&["rename", "/data/inner", "/data/moved"]),
            file(&["read", "/data/moved/above/../secret"]),
            file(&["read", "/data/good"]),
            file(&["read", "/data/hard"]),
        ],
    );
    assert!(
        lines.contains(&"read /data/inner/above/plain: ok plain".to_owned()),
        "{lines:#?}"
    );
    let secrets = lines
        .iter()
        .filter(|line| line.contains("SECRET") || line.contains("root:"));
    assert_eq!(
        secrets.collect::<Vec<_>>(),
        ["read /data/hard: ok SECRET"],
        "{lines:#?}"
    );
    assert_eq!(
        fs::read_to_string(folder.path().join("secret")).expect("it is there"),
        "SECRET"
    );
    assert!(!folder.path().join("put").exists());
}

#[test]
fn a_file_is_not_made_writable_by_way_of_another_directory() {
    let folder = folder();
    fs::create_dir(folder.path().join("out")).expect("a folder can be made");
    let grants = format!(
        "{},directory-write:{}=/out",
        grant(&folder, "directory"),
        folder.path().join("out").display()
    );
    let lines = outcome(
        &grants,
        &[
            file(&["link", "/data/plain", "/out/plain"]),
            file(&["rename", "/data/plain", "/out/plain"]),
            file(&["rename", "/out", "/data"]),
            file(&["symlink", "../data/plain", "/out/plain"]),
            file(&["append", "/out/plain", "x"]),
            file(&["write", "/out/../data/plain", "x"]),
            file(&["write", "/out/fine", "fine"]),
            file(&["rename", "/out/fine", "/data/fine"]),
            file(&["link", "/out/fine", "/data/fine"]),
        ],
    );
    let fine: Vec<&String> = lines.iter().filter(|line| line.contains(": ok")).collect();
    assert!(fine.contains(&&"write /out/fine fine: ok".to_owned()), "{lines:#?}");
    assert_eq!(
        fs::read_to_string(folder.path().join("data/plain")).expect("it is there"),
        "plain"
    );
    assert_eq!(
        fs::read_dir(folder.path().join("data")).expect("it is there").count(),
        2
    );
}

#[test]
fn a_directory_that_is_not_there_is_named_before_anything_starts() {
    let grants = "directory:/nonexistent=/data";
    let (mut client, _listener, _home) = Stage::of(&json!({}), grants).fresh();
    client.send(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#);
    let message = client.expect()["error"]["message"].to_string();
    assert!(message.contains("/nonexistent"), "{message}");
}

/// A prompt goes to the agent, and its answer comes back.
fn works(run: &mut Run) {
    run.client.send_json(&prompt("fine", "plain"));
    let asked = run.agent.expect();
    assert_eq!(asked["params"]["prompt"][0]["text"], "plain", "{asked}");
    run.agent.answer(&asked, &json!({"stopReason": "end_turn"}));
    assert_eq!(run.client.expect()["id"], "fine");
}

/// A chain in which the guest does this at a prompt with `GO`, between two others that pass everything on.
fn between(action: &Value, grants: &[&str], limits: &str) -> Run {
    let rule = json!({"on": "session/prompt", "text": "GO", "do": [action, pass()]});
    let script = script(&["client session/prompt"], &[rule]);
    let stage = Stage::new();
    let mut config = String::new();
    for name in ["before", "intruder", "behind"] {
        let file = stage.component(name, None);
        config.push_str(&format!("[[proxies]]\nfile = {file:?}\n"));
        match name {
            "intruder" => config.push_str(&format!("grant = {grants:?}\nlimits = {{ {limits} }}\n")),
            _ => config.push_str("grant = [\"everything\"]\n"),
        }
    }
    let passing = json!({"interests": ["client *", "agent *"]});
    stage
        .configured(&config)
        .option(["--proxy-config", &format!("intruder={script}")])
        .option(["--proxy-config", &format!("before={passing}")])
        .option(["--proxy-config", &format!("behind={passing}")])
        .start()
}

/// Such a chain, whose guest fails with this class; its message goes past it, and everything goes on.
fn fails(action: &Value, limits: &str, class: &str, cause: &str) {
    let mut run = between(action, &["change-prompts"], limits);
    run.client.send_json(&prompt(1, "GO"));
    let asked = run.agent.expect();
    assert_eq!(asked["params"]["prompt"][0]["text"], "GO", "{asked}");
    run.agent.answer(&asked, &json!({"stopReason": "end_turn"}));
    assert_eq!(run.client.expect()["id"], 1);
    works(&mut run);
    let lines = run.audit("intruder");
    let failed = lines.iter().find(|line| line["event"] == "failed");
    let failed = failed.unwrap_or_else(|| panic!("it did not fail: {lines:#?}"));
    assert_eq!(failed["class"], class, "{failed}");
    assert!(failed["cause"].to_string().contains(cause), "{failed}");
}

#[test]
fn saved_state_has_a_quota() {
    let value = |length: usize| json!({"key": "k", "value": "v".repeat(length)}).to_string();
    let actions = [
        ask("host", 1, "host/state/set", &value(100)),
        ask("host", 2, "host/state/set", &value(5_000)),
        pass(),
    ];
    let rules = [
        on("session/prompt", json!(actions)),
        on("response 1", json!([])),
        on("response 2", json!([])),
    ];
    let stage = Stage::new();
    let file = stage.component("intruder", None);
    let mut run = stage
        .configured(&format!(
            "[[proxies]]\nfile = {file:?}\ngrant = [\"keep-state\", \"change-prompts\"]\nlimits = {{ state = \"4 KiB\" }}\n"
        ))
        .option(["--proxy-config", &format!("intruder={}", script(&["client session/prompt"], &rules))])
        .start();
    run.client.send_json(&prompt(1, "GO"));
    assert_eq!(run.agent.expect()["method"], "session/prompt");
    run.client.expect_standard_error("heard response 1 from Peer::Host: {}");
    let log = run.client.expect_standard_error("heard response 2");
    assert!(log.contains("-32010"), "{log}");
    let kept = fs::read_dir(run.home.path().join("consort/state")).expect("there is state");
    let bytes: u64 = kept
        .flatten()
        .filter_map(|entry| Some(entry.metadata().ok()?.len()))
        .sum();
    assert!(bytes < 4096, "{bytes} bytes");
}

#[test]
fn open_files_have_an_end_and_the_host_goes_on() {
    let folder = folder();
    let mut run = between(
        &json!({"outside": {"open-many": "/data/plain"}}),
        &["change-prompts", &grant(&folder, "directory")],
        "handles = 200",
    );
    run.client.send_json(&prompt(1, "GO"));
    let asked = run.agent.expect();
    run.agent.answer(&asked, &json!({"stopReason": "end_turn"}));
    assert_eq!(run.client.expect()["id"], 1);
    works(&mut run);
    let open = fs::read_dir(format!("/proc/{}/fd", run.client.pid()))
        .expect("it runs")
        .count();
    assert!(open < 300, "{open} open files");
}

#[test]
fn random_bytes_come_in_small_portions() {
    for kind in ["random", "insecure-random"] {
        let lines = outcome("", &[json!({"outside": {kind: 1_000}})]);
        assert_eq!(lines[0], "got 1000 random bytes");
        for bytes in [8_u64 << 30, u64::MAX] {
            fails(
                &json!({"outside": {kind: bytes}}),
                "memory = \"16 MiB\"",
                "protocol",
                "",
            );
        }
    }
}

#[test]
fn who_ends_itself_ends_nobody_else() {
    fails(&json!({"outside": {"exit": 0}}), "", "trap", "exit code 0");
    fails(&json!({"outside": {"exit": 3}}), "", "trap", "it ended itself");
}

#[test]
fn who_sleeps_is_woken_and_who_watches_the_clock_is_stopped() {
    let sleep = json!({"outside": {"sleep": 86_400_000}});
    fails(&sleep, "time = \"200 ms\"", "timeout", "did not return within 200 ms");
    fails(
        &json!({"outside": {"spin": {}}}),
        "cpu = \"200 ms\"",
        "cpu",
        "computed for more than 200 ms",
    );
}

#[test]
fn a_pipe_that_nobody_writes_to_keeps_nothing_from_ending() {
    let folder = folder();
    let pipe = folder.path().join("data/pipe");
    let made = std::process::Command::new("mkfifo")
        .arg(&pipe)
        .status()
        .expect("there is mkfifo");
    assert!(made.success());
    fs::set_permissions(&pipe, fs::Permissions::from_mode(0o666)).expect("they can be set");
    let mut run = between(
        &file(&["read", "/data/pipe"]),
        &["change-prompts", &grant(&folder, "directory")],
        "time = \"300 ms\"",
    );
    run.client.send_json(&prompt(1, "GO"));
    let asked = run.agent.expect();
    run.agent.answer(&asked, &json!({"stopReason": "end_turn"}));
    assert_eq!(run.client.expect()["id"], 1);
    works(&mut run);
    run.client.end();
}
