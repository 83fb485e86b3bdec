//! The agent as a process: what it inherits, how its end is told, and that nothing of it stays behind.

use consort_tests::command::command;
use consort_tests::session::{SESSION, begin, chunk, prompt, request};
use consort_tests::transcript::Transcript;
use consort_tests::{AgentListener, Client, Directory, PATIENCE, consort};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const NONE: [&str; 0] = [];

fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).expect("process ids are small")).expect("it is not zero")
}

/// Waits until a process is gone, or only waits to be reaped.
fn assert_gone(pid: Pid) {
    let begun = Instant::now();
    while test_kill_process(pid).is_ok() {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        if stat.is_ok_and(|stat| stat.contains(") Z ")) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "process {pid:?} is still there");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a file has a line, and returns it.
fn line_of(file: &Path) -> String {
    let begun = Instant::now();
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if let Some((line, _)) = text.split_once('\n') {
            return line.to_owned();
        }
        assert!(begun.elapsed() < PATIENCE, "{} stays empty", file.display());
        thread::sleep(Duration::from_millis(5));
    }
}

/// A client in front of an agent that starts a helper of its own, which would stay for ever; and the helper's id.
fn with_a_helper(directory: &Directory) -> (Client, Pid) {
    let file = directory.path().join("helper");
    let script = format!(
        "sleep 999 & echo $! > '{}'; exec '{}' demo-agent",
        file.display(),
        consort().display()
    );
    let mut client = Client::start(&NONE, &["sh", "-c", &script]);
    client.send_json(&request(1, "initialize", &json!({"protocolVersion": 1})));
    assert_eq!(client.expect()["id"], 1);
    let helper = line_of(&file).parse().expect("a process id");
    (client, pid(helper))
}

#[test]
fn helpers_of_the_agent_end_with_the_clients_input() {
    let directory = Directory::new();
    let (mut client, helper) = with_a_helper(&directory);
    client.close_input();
    assert!(client.wait().success());
    assert_gone(helper);
}

#[test]
fn helpers_of_the_agent_end_with_a_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let directory = Directory::new();
        let (mut client, helper) = with_a_helper(&directory);
        kill_process(pid(client.pid()), signal).expect("it is there");
        client.wait();
        assert_gone(helper);
    }
}

#[test]
fn helpers_of_the_agent_end_with_the_agent() {
    let directory = Directory::new();
    let file = directory.path().join("helper");
    let script = format!("sleep 999 & echo $! > '{}'; echo bye >&2; exit 7", file.display());
    let mut client = Client::start(&NONE, &["sh", "-c", &script]);
    client.send_json(&request(1, "initialize", &json!({"protocolVersion": 1})));
    let message = client.expect()["error"]["message"].to_string();
    assert!(message.contains("code 7") && message.contains("bye"), "{message}");
    assert_gone(pid(line_of(&file).parse().expect("a process id")));
}

#[test]
fn a_killed_agent_is_told_at_once_with_its_signal_and_its_last_words() {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &NONE);
    let mut agent = begin(&mut client, &listener);
    client.send_json(&prompt(3, "go"));
    agent.expect();
    agent.complain("out of luck");
    agent.send_json(
        &json!({"jsonrpc": "2.0", "id": 1, "method": "session/request_permission", "params": {"sessionId": SESSION}}),
    );
    let asked = client.expect();
    kill_process(pid(agent.pid()), Signal::KILL).expect("it is there");
    let mut lines = [client.expect(), client.expect()];
    lines.sort_by_key(|line| line["id"].is_null());
    let error = &lines[0]["error"];
    assert_eq!(lines[0]["id"], 3);
    let message = error["message"].as_str().expect("an error has a message");
    assert!(
        message.contains("SIGKILL") && message.contains("out of luck"),
        "{message}"
    );
    assert_eq!(
        lines[1]["params"],
        json!({"requestId": asked["id"]}),
        "the question is withdrawn"
    );
    client.send_json(&prompt(4, "still there?"));
    assert!(client.expect()["error"]["message"].to_string().contains("SIGKILL"));
    // The client may begin anew.
    client.send_json(&request(5, "initialize", &json!({"protocolVersion": 1})));
    let mut agent = listener.accept();
    let initialize = agent.expect();
    agent.answer(&initialize, &json!({"protocolVersion": 1}));
    assert_eq!(client.expect()["id"], 5);
}

#[test]
fn what_an_agent_prints_besides_messages_stays_in_the_log() {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &NONE);
    let mut agent = begin(&mut client, &listener);
    for junk in [
        "Welcome to the agent!",
        "",
        "\u{1b}[32mok\u{1b}[0m",
        "\"str\"",
        "{\"level\":\"info\"}",
        "null",
    ] {
        agent.send(junk);
        agent.send_json(&chunk("fine"));
        assert_eq!(client.expect(), chunk("fine"), "after {junk:?}");
    }
    let log = client.expect_standard_error("Welcome to the agent!");
    assert!(log.contains("Welcome to the agent!"), "{log}");
    assert!(!log.contains('\u{1b}'), "escapes are shown, not obeyed: {log:?}");
}

#[test]
fn an_agent_may_ask_while_it_answers() {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(
        &listener,
        &[
            "--proxy".as_ref(),
            consort_tests::guests::proxy("passthrough").as_os_str(),
        ],
    );
    let mut agent = begin(&mut client, &listener);
    client.send_json(&request(3, "session/new", &json!({"cwd": "/", "mcpServers": []})));
    let new = agent.expect();
    agent.send_json(&json!({"jsonrpc": "2.0", "id": 3, "method": "fs/read_text_file", "params": {"sessionId": "unborn", "path": "/x"}}));
    let read = client.expect();
    assert_eq!(read["method"], "fs/read_text_file");
    client.send_json(&json!({"jsonrpc": "2.0", "id": read["id"], "result": {"content": "text"}}));
    assert_eq!(agent.expect()["result"]["content"], "text");
    agent.answer(&new, &json!({"sessionId": "unborn"}));
    assert_eq!(client.expect()["id"], 3);
}

#[test]
fn lines_of_a_mebibyte_pass_both_ways() {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &NONE);
    let mut agent = begin(&mut client, &listener);
    let text = "é".repeat(512 * 1024);
    let line = prompt(3, &text);
    thread::scope(|scope| {
        scope.spawn(|| client.send_json(&line));
        assert!(agent.expect()["params"] == line["params"]);
    });
    thread::scope(|scope| {
        scope.spawn(|| agent.send_json(&chunk(&text)));
        assert!(client.expect() == chunk(&text));
    });
}

#[test]
fn requests_in_a_pipe_are_answered_after_its_end() {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &NONE);
    let mut agent = begin(&mut client, &listener);
    client.send_json(&prompt(3, "go"));
    client.close_input();
    let request = agent.expect();
    agent.send_json(
        &json!({"jsonrpc": "2.0", "id": 8, "method": "session/request_permission", "params": {"sessionId": SESSION}}),
    );
    let refusal = agent.expect();
    assert_eq!(refusal["id"], 8);
    assert!(
        refusal["error"]["message"].to_string().contains("input has ended"),
        "{refusal}"
    );
    agent.send_json(&chunk("late"));
    agent.answer(&request, &json!({"stopReason": "end_turn"}));
    assert_eq!(client.expect(), chunk("late"));
    assert_eq!(client.expect()["id"], 3);
    client.expect_end();
    agent.expect_end();
    assert!(client.wait().success());
}

#[test]
fn the_environment_is_reduced_to_what_agents_need() {
    let directory = Directory::new();
    let file = directory.path().join("environment");
    let script = format!(
        "env > '{}.new'; mv '{0}.new' '{0}'; exec '{}' demo-agent",
        file.display(),
        consort().display()
    );
    let words = [
        "run",
        "--env",
        "MINE",
        "--env",
        "SET=to this",
        "--",
        "sh",
        "-c",
        &script,
        "claude",
    ]
    .map(OsString::from);
    let mut run = command(&words);
    run.env("SOMEBODYS_SECRET", "secret")
        .env("MINE", "mine")
        .env("ANTHROPIC_API_KEY", "key")
        .env("OPENAI_API_KEY", "other");
    let mut client = Client::spawn(run, Transcript::default());
    client.send_json(&request(1, "initialize", &json!({"protocolVersion": 1})));
    client.expect();
    let environment = std::fs::read_to_string(&file).expect("the agent has written it");
    for line in ["MINE=mine", "SET=to this", "ANTHROPIC_API_KEY=key"] {
        assert!(
            environment.lines().any(|other| other == line),
            "{line} is missing: {environment}"
        );
    }
    for name in ["SOMEBODYS_SECRET", "OPENAI_API_KEY"] {
        assert!(!environment.contains(name), "{environment}");
    }
    assert!(
        environment.lines().any(|line| line.starts_with("PATH=")),
        "{environment}"
    );
}

#[test]
fn nine_mebibytes_behind_initialize_wait_for_it() {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &NONE);
    let big = prompt(3, &"x".repeat(9 * 1024 * 1024));
    client.send_json(&request(1, "initialize", &json!({"protocolVersion": 1})));
    let mut agent = listener.accept();
    let initialize = agent.expect();
    thread::scope(|scope| {
        scope.spawn(|| {
            client.send_json(&big);
            client.send_json(&prompt(4, "small"));
            assert_eq!(client.expect()["id"], 1);
        });
        // Long enough for the prompts to be read; if not, this test shows less, but does not fail.
        thread::sleep(Duration::from_millis(200));
        agent.answer(&initialize, &json!({"protocolVersion": 1}));
        assert!(agent.expect()["params"] == big["params"]);
        assert_eq!(agent.expect()["params"]["prompt"][0]["text"], "small");
    });
}

#[test]
fn a_request_behind_initialize_can_be_cancelled() {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &NONE);
    client.send_json(&request(1, "initialize", &json!({"protocolVersion": 1})));
    client.send_json(&prompt(2, "never"));
    client.send_json(&json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 2}}));
    let answer = client.expect();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(2), &json!(-32800)));
    let mut agent = listener.accept();
    let initialize = agent.expect();
    agent.answer(&initialize, &json!({"protocolVersion": 1}));
    assert_eq!(client.expect()["id"], 1);
    client.send_json(&prompt(3, "second"));
    assert_eq!(agent.expect()["params"]["prompt"][0]["text"], "second");
}

#[test]
fn an_answer_that_cannot_be_read_is_an_error_to_its_request() {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &NONE);
    let mut agent = begin(&mut client, &listener);
    let answers = [
        (r#"{"id":ID,"result":{},"result":{}}"#, false),
        (r#"{"id":ID,"result":{}"#, false),
        (r#"{"id":ID.0,"result":{}}"#, false),
        (r#"{"id":ID,"jsonrpc":"1.0","result":{}}"#, false),
        (r#"{"id":ID,"result":{},"error":null}"#, true),
    ];
    for (answer, readable) in answers {
        client.send_json(&prompt(3, "go"));
        let id = agent.expect()["id"].to_string();
        agent.send(&answer.replace("ID", &id));
        let line = client.expect();
        assert_eq!(line["id"], 3, "{answer}");
        assert_eq!(line["result"].is_object(), readable, "{answer}: {line}");
        if !readable {
            let message = line["error"]["message"].to_string();
            assert!(message.contains("cannot be read"), "{message}");
        }
    }
}

#[test]
fn a_session_that_is_named_twice_is_refused() {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &NONE);
    let mut agent = begin(&mut client, &listener);
    client.send(
        r#"{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"a","prompt":[],"sessionId":"b"}}"#,
    );
    assert_eq!(client.expect()["error"]["code"], -32600);
    client.send(r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"a","sessionId":"b"}}"#);
    client.send(r#"{"jsonrpc":"2.0","method":"x/marker","params":{"other":1,"other":2}}"#);
    assert_eq!(agent.expect()["method"], "x/marker");
}

#[test]
fn an_agent_that_closes_its_input_is_gone() {
    let script = "read line; id=$(echo \"$line\" | sed 's/.*\"id\":\\([0-9]*\\).*/\\1/'); exec 0<&-; \
        echo \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":$id,\\\"result\\\":{\\\"protocolVersion\\\":1}}\"; sleep 999";
    let mut client = Client::start(&NONE, &["sh", "-c", script]);
    client.send_json(&request(1, "initialize", &json!({"protocolVersion": 1})));
    assert_eq!(client.expect()["result"]["protocolVersion"], 1);
    client.send_json(&prompt(2, "anybody there?"));
    let message = client.expect()["error"]["message"].to_string();
    assert!(message.contains("standard input"), "{message}");
}

#[test]
fn a_line_of_a_log_that_has_an_id_is_no_answer() {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &NONE);
    let mut agent = begin(&mut client, &listener);
    client.send_json(&prompt(1, "go"));
    let asked = agent.expect();
    agent.send(&format!(
        r#"{{"level":30,"id":{},"msg":"handling a request"}}"#,
        asked["id"]
    ));
    agent.send(&format!(r#"{{"id":{0},"id":{0},"result":{{}}}}"#, asked["id"]));
    agent.answer(&asked, &serde_json::json!({"stopReason": "end_turn"}));
    assert_eq!(client.expect()["result"]["stopReason"], "end_turn");
}

#[test]
fn an_answer_in_an_odd_shape_never_leaves_its_request_open() {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &NONE);
    let mut agent = begin(&mut client, &listener);
    for shape in [
        r#"{"jsonrpc":"2.0","id":ID}"#,
        r#"[{"jsonrpc":"2.0","id":ID,"result":1}]"#,
        r#"Loading...{"jsonrpc":"2.0","id":ID,"result":1}"#,
    ] {
        client.send_json(&prompt(1, "go"));
        let asked = agent.expect();
        agent.send(&shape.replace("ID", &asked["id"].to_string()));
        let answer = client.expect();
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&1.into(), &(-32603).into()),
            "{shape}"
        );
    }
    client.send_json(&prompt(1, "go"));
    let asked = agent.expect();
    agent.send(&format!(
        "\u{feff}{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":1}}",
        asked["id"]
    ));
    assert_eq!(client.expect()["result"], 1, "a byte order mark is no fault");
}

#[test]
fn too_many_requests_without_an_answer_are_refused_and_room_comes_with_answers() {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &NONE);
    let mut agent = begin(&mut client, &listener);
    let mut asked = Vec::new();
    for number in 0..16_384 {
        client.send(&format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"x"}}"#));
        asked.push(agent.expect());
    }
    client.send(r#"{"jsonrpc":"2.0","id":"more","method":"x"}"#);
    let refused = client.expect();
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&"more".into(), &(-32603).into())
    );
    agent.answer(&asked[0], &serde_json::json!({}));
    assert_eq!(client.expect()["id"], 0);
    client.send(r#"{"jsonrpc":"2.0","id":"more","method":"x"}"#);
    agent.expect();
}
