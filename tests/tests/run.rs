//! `consort run` without proxies: an agent behind it, a client in front of it, and what stands between is not seen.

use consort_tests::command::{command, run_with_input, wait, wait_until_gone};
use consort_tests::session::{begin, chunk, prompt};
use consort_tests::transcript::Transcript;
use consort_tests::{AgentListener, Client, Directory, terminal};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::ffi::OsString;
use std::fs;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

const NONE: [&str; 0] = [];

#[test]
fn a_prompt_goes_through_and_its_answer_comes_back() {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &NONE);
    let mut agent = begin(&mut client, &listener);
    client.send_json(&prompt(3, "Hello"));
    let request = agent.expect();
    assert_eq!(request["params"]["prompt"][0]["text"], "Hello");
    agent.send_json(&chunk("one"));
    agent.send_json(&chunk("two"));
    agent.answer(&request, &json!({"stopReason": "end_turn"}));
    assert_eq!(client.expect(), chunk("one"));
    assert_eq!(client.expect(), chunk("two"));
    assert_eq!(
        client.expect(),
        json!({"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "end_turn"}})
    );
    client.close_input();
    agent.expect_end();
    client.expect_end();
    assert!(client.wait().success());
}

#[test]
fn a_signal_ends_the_chain_and_an_agent_that_stays() {
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let listener = AgentListener::staying();
        let mut client = Client::in_front_of(&listener, &NONE);
        let agent = begin(&mut client, &listener);
        let pid = Pid::from_raw(i32::try_from(client.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        assert_eq!(client.wait().code(), Some(status));
        wait_until_gone(agent.pid());
    }
}

#[test]
fn a_signal_ends_what_waits_for_a_terminal_that_is_not_read() {
    let listener = AgentListener::new();
    let (terminal, output) = terminal::open();
    let mut arguments: Vec<OsString> = vec!["run".into(), "--".into()];
    arguments.extend(listener.command());
    let mut process = command(&arguments);
    process.stdin(Stdio::piped()).stdout(output);
    let mut child = process.spawn().unwrap();
    drop(process);
    let mut input = child.stdin.take().unwrap();
    use std::io::Write;
    writeln!(
        input,
        r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":1}}}}"#
    )
    .unwrap();
    let mut agent = listener.accept();
    let initialize = agent.expect();
    // More than fits into the terminal, less than fits into it and what stands before it: the chain can end.
    agent.answer(
        &initialize,
        &json!({"protocolVersion": 1, "_meta": {"x": "x".repeat(115 << 10)}}),
    );
    drop(input);
    agent.expect_end();
    wait_until_gone(agent.pid());
    // Whether or not the chain has ended in the meantime, the signal ends the command; this makes it likely that it has.
    thread::sleep(Duration::from_millis(300));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(wait(&mut child).code(), Some(143));
    drop(terminal);
}

#[test]
fn files_and_sockets_do_for_input_and_output() {
    let lines = [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}"#,
    ]
    .map(|line| format!("{line}\n"))
    .concat();
    let agent = consort_tests::consort();
    let arguments = ["run".as_ref(), "--".as_ref(), agent.as_os_str(), "demo-agent".as_ref()];
    let check = |how: &str, output: &str| {
        assert!(output.contains(r#""id":1"#), "{how}: {output}");
        assert!(output.contains(r#""sessionId":"demo-1""#), "{how}: {output}");
    };

    let piped = run_with_input(&arguments, lines.as_bytes());
    check("pipes", &piped.output);

    let directory = Directory::new();
    let input = directory.file("input", &lines);
    let output = directory.file("output", "");
    let mut process = command(&arguments);
    process
        .stdin(fs::File::open(&input).unwrap())
        .stdout(fs::File::create(&output).unwrap());
    let status = process.status().unwrap();
    assert!(status.success());
    check("files", &fs::read_to_string(&output).unwrap());

    use std::io::{Read, Write};
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut process = command(&arguments);
    process
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs.try_clone().unwrap())))
        .stdout(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
    let mut child = process.spawn().unwrap();
    drop(process);
    ours.write_all(lines.as_bytes()).unwrap();
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    let mut output = String::new();
    ours.read_to_string(&mut output).unwrap();
    assert!(child.wait().unwrap().success());
    check("a socket", &output);
}

#[test]
fn a_pipe_that_is_shared_keeps_blocking() {
    // Standard input is shared with this process, which must not notice.
    let (reader, mut writer) = std::io::pipe().unwrap();
    let agent = consort_tests::consort();
    let mut process = command(&["run".as_ref(), "--".as_ref(), agent.as_os_str(), "demo-agent".as_ref()]);
    process.stdin(reader.try_clone().unwrap());
    // `Client` takes the output; its input is replaced.
    process.stdout(Stdio::piped());
    let mut child = process.spawn().unwrap();
    use std::io::{BufRead, BufReader, Write};
    writeln!(
        writer,
        r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":1}}}}"#
    )
    .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.contains(r#""id":1"#), "{line}");
    let flags = rustix::fs::fcntl_getfl(&reader).unwrap();
    assert!(
        !flags.contains(rustix::fs::OFlags::NONBLOCK),
        "the shared end was made non-blocking"
    );
    drop((reader, writer));
    child.wait().unwrap();
}

#[test]
fn arguments_reach_the_agent_as_they_are() {
    let directory = Directory::new();
    let script = "printf '%s\\n' \"$@\" > \"$0\"";
    let file = directory.path().join("arguments of the agent");
    let words = [
        "two words",
        "quo\"te",
        "back\\slash",
        "ünï",
        "--flag",
        "",
        "$HOME",
        "--",
    ];
    let mut agent = vec!["sh", "-c", script, file.to_str().unwrap()];
    agent.extend(words);
    let mut client = Client::start(&NONE, &agent);
    client.send(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#);
    let answer = client.expect();
    assert_eq!(answer["id"], 1);
    assert!(answer["error"].is_object(), "the agent has exited: {answer}");
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        words.map(|word| format!("{word}\n")).concat()
    );
}

#[test]
fn the_configuration_file_names_the_agent_and_flags_win() {
    let directory = Directory::new();
    let listener = AgentListener::new();
    let words = listener.command();
    let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
    let config = directory.file(
        "consort.toml",
        format!("[agent]\ncommand = {:?}\nargs = [{:?}]\n", words[0], words[1]),
    );
    let arguments = ["run".as_ref(), "--config".as_ref(), config.as_os_str()];
    let mut client = Client::spawn(command(&arguments), Transcript::default());
    begin(&mut client, &listener);

    let other = AgentListener::new();
    let mut client = Client::in_front_of(&other, &["--config".as_ref(), config.as_os_str()]);
    begin(&mut client, &other);
}

#[test]
fn a_missing_agent_is_an_error_to_the_request_and_exit_status_127() {
    let mut client = Client::start(&NONE, &["/nonexistent/agent"]);
    client.send(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#);
    let answer = client.expect();
    assert_eq!(answer["id"], 1);
    let message = answer["error"].to_string();
    assert!(message.contains("/nonexistent/agent"), "{message}");
    client.close_input();
    client.expect_end();
    assert_eq!(client.wait().code(), Some(127));
}

#[test]
fn what_keeps_a_chain_from_being_set_up_is_the_answer_to_initialize() {
    let directory = Directory::new();
    let unknown_key = directory.file("key.toml", "[agent]\ncomand = \"x\"\n");
    let memory = directory.file(
        "memory.toml",
        "[[proxies]]\nfile = \"a.wasm\"\nlimits.memory = \"much\"\n",
    );
    let path = |file: &std::path::Path| file.to_str().unwrap().to_owned();
    for (options, status, words) in [
        (
            vec!["--config".into(), path(&unknown_key)],
            1,
            "did you mean `command`?",
        ),
        (vec!["--config".into(), path(&memory)], 1, "`memory` must be from"),
        (
            vec!["--config".into(), "/nonexistent/c.toml".into()],
            1,
            "/nonexistent/c.toml",
        ),
        (
            vec!["--proxies".into(), "/nonexistent".into(), "agent".into()],
            1,
            "/nonexistent",
        ),
        (vec![], 2, "no agent to start"),
    ] {
        let mut arguments = vec!["run".to_owned()];
        arguments.extend(options);
        let mut client = Client::spawn(command(&arguments), Transcript::default());
        client.send(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#);
        let answer = client.expect();
        assert_eq!(answer["id"], 1, "{answer}");
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{answer}");
        client.close_input();
        client.expect_end();
        assert_eq!(client.wait().code(), Some(status), "{answer}");
        let said = client.expect_standard_error(words);
        assert!(said.contains(words), "{said}");
        assert_eq!(said.lines().count(), 1, "it is told once: {said}");
    }
}

#[test]
fn what_keeps_a_chain_from_being_set_up_is_only_shown_on_a_terminal() {
    let (status, shown) = terminal::run(&["run", "--no-config"], &[]);
    assert_eq!(status, Some(2), "{shown}");
    assert_eq!(shown.matches("no agent to start").count(), 1, "{shown}");
}

#[test]
fn on_a_terminal_the_agent_gets_the_terminal() {
    let script = "test -t 0 && test -t 1 && echo \"log in: $1\" && read -r answer && echo \"<$answer>\"; exit 7";
    let (status, shown) = terminal::run(
        &[
            "run",
            "--no-config",
            "--env",
            "A=b",
            "--",
            "sh",
            "-c",
            script,
            "sh",
            "--login",
        ],
        &[("log in: --login", "me\n")],
    );
    assert_eq!(status, Some(7), "{shown}");
    assert!(shown.contains("<me>"), "{shown}");
    let (status, shown) = terminal::run(&["run", "--no-config", "--", "/nonexistent/agent"], &[]);
    assert_eq!(status, Some(127), "{shown}");
    assert!(shown.contains("/nonexistent/agent"), "{shown}");
}
