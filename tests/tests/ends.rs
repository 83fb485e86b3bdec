//! Ends of every kind: the client's input or output, the agent, a signal. Each pending request is answered first where somebody could
//! read it, and nothing stays behind.

use consort_tests::chains::{Chain, every, none, passing, slow};
use consort_tests::command::{command, wait, wait_until_gone};
use consort_tests::session::{SESSION, chunk, notification, prompt, request};
use consort_tests::{AgentListener, Client};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).expect("process ids are small")).expect("it is not zero")
}

#[test]
fn requests_that_are_piped_in_are_all_answered_after_the_end_of_input() {
    for chain in every(50, &["session/prompt", "session/update"]) {
        let (mut client, listener) = chain.fresh();
        client.send_json(&request(1, "initialize", &json!({"protocolVersion": 1})));
        client.send_json(&request(2, "session/new", &json!({"cwd": "/", "mcpServers": []})));
        client.send_json(&prompt(3, "go"));
        client.close_input();
        let mut agent = listener.accept();
        for result in [
            json!({"protocolVersion": 1}),
            json!({"sessionId": SESSION}),
            json!({"stopReason": "end_turn"}),
        ] {
            let asked = agent.expect();
            if asked["method"] == "session/prompt" {
                agent.send_json(&chunk("text"));
            }
            agent.answer(&asked, &result);
        }
        assert_eq!(client.expect()["id"], 1, "{}", chain.name);
        assert_eq!(client.expect()["id"], 2, "{}", chain.name);
        assert_eq!(client.expect(), chunk("text"), "{}", chain.name);
        assert_eq!(client.expect()["id"], 3, "{}", chain.name);
        client.expect_end();
        agent.expect_end();
        assert!(client.wait().success(), "{}", chain.name);
    }
}

#[test]
fn a_client_that_closes_its_end_while_it_reads_still_gets_what_is_under_way() {
    // What a proxy holds at the end of input is passed on, and its answer waited for.
    for chain in every(300, &["session/prompt"]) {
        let (mut client, mut agent) = chain.start();
        client.send_json(&prompt(3, "go"));
        client.close_input();
        let asked = agent.expect();
        agent.answer(&asked, &json!({"stopReason": "end_turn"}));
        assert_eq!(client.expect()["id"], 3, "{}", chain.name);
        client.expect_end();
    }
}

#[test]
fn when_the_reader_of_the_output_is_gone_everything_ends_at_once() {
    for chain in every(10, &["session/update"]) {
        let listener = AgentListener::staying();
        let mut arguments: Vec<OsString> = vec!["run".into()];
        arguments.extend(chain.options());
        arguments.push("--".into());
        arguments.extend(listener.command());
        let mut child = command(&arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command can be started");
        let mut input = child.stdin.take().expect("it is piped");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        writeln!(input, "{}", request(1, "initialize", &json!({"protocolVersion": 1}))).expect("it is read");
        let mut agent = listener.accept();
        let initialize = agent.expect();
        agent.answer(&initialize, &json!({"protocolVersion": 1}));
        let mut line = String::new();
        output.read_line(&mut line).expect("it answers");
        // A prompt is open and the input too; yet nobody is there any more.
        writeln!(input, "{}", prompt(2, "go")).expect("it is read");
        agent.expect();
        drop(output);
        agent.send_json(&chunk("for nobody"));
        let status = wait(&mut child);
        assert!(status.code().is_some(), "{}: no signal ended it: {status}", chain.name);
        wait_until_gone(agent.pid());
    }
}

#[test]
fn a_signal_ends_a_chain_whose_proxies_are_busy() {
    let spinning = Chain::new("a proxy that spins", &[("spin", json!({"on": "x/busy"}))]);
    for chain in [spinning, slow(3_600_000, &["x/busy"]), passing(1)] {
        for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130)] {
            let listener = AgentListener::staying();
            let mut client = Client::in_front_of(&listener, &chain.options());
            let mut agent = consort_tests::session::begin(&mut client, &listener);
            client.send_json(&request(3, "x/busy", &json!({"sessionId": SESSION})));
            client.send_json(&notification("marker", &json!({})));
            while agent.expect()["method"] != "marker" {}
            kill_process(pid(client.pid()), signal).expect("it is there");
            assert_eq!(client.wait().code(), Some(status), "{}", chain.name);
            wait_until_gone(agent.pid());
        }
    }
}

#[test]
fn a_killed_agent_is_told_at_once_through_every_chain_and_each_request_is_answered_once() {
    for chain in every(20, &["session/prompt", "session/request_permission"]) {
        let (mut client, mut agent) = chain.start();
        client.send_json(&prompt("p", "go"));
        agent.expect();
        client.send_json(&request("l", "session/list", &json!({})));
        agent.expect();
        agent.complain("out of luck");
        agent.send_json(&request(
            1,
            "session/request_permission",
            &json!({"sessionId": SESSION}),
        ));
        let asked = client.expect();
        kill_process(pid(agent.pid()), Signal::KILL).expect("it is there");
        let (mut answered, mut withdrawn) = (Vec::new(), 0);
        while answered.len() < 2 || withdrawn < 1 {
            let line = client.expect();
            if line["method"] == "$/cancel_request" {
                assert_eq!(line["params"]["requestId"], asked["id"], "{}", chain.name);
                withdrawn += 1;
                continue;
            }
            let message = line["error"]["message"].as_str().unwrap_or_default();
            assert!(
                message.contains("SIGKILL") && message.contains("out of luck"),
                "{}: {line}",
                chain.name
            );
            answered.push(line["id"].clone());
        }
        answered.sort_by_key(Value::to_string);
        assert_eq!(answered, [json!("l"), json!("p")], "{}", chain.name);
        // An answer to what was withdrawn harms nothing.
        client.send_json(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {}}));
        client.send_json(&request("next", "session/list", &json!({})));
        let next = client.expect();
        assert_eq!(next["id"], "next", "{}: {next}", chain.name);
        assert!(
            next["error"]["message"]
                .as_str()
                .unwrap_or_default()
                .contains("SIGKILL"),
            "{}: {next}",
            chain.name
        );
    }
}

#[test]
fn an_agent_that_wants_a_login_and_exits_is_started_again_by_the_client_alone() {
    let refusal = json!({"code": -32000, "message": "Authentication required", "data": {"methods": ["a"], "n": null}});
    for chain in every(10, &["session/new", "authenticate"]) {
        let (mut client, listener) = chain.fresh();
        let initialize = |id: u64| request(id, "initialize", &json!({"protocolVersion": 1}));
        let methods = json!({"protocolVersion": 1, "authMethods": [{"id": "a", "name": "A"}]});
        client.send_json(&initialize(1));
        let mut agent = listener.accept();
        let first = agent.expect();
        agent.answer(&first, &methods);
        assert_eq!(client.expect()["result"], chain.bridged(&methods), "{}", chain.name);
        client.send_json(&request(2, "session/new", &json!({"cwd": "/", "mcpServers": []})));
        let new = agent.expect();
        agent.send_json(&json!({"jsonrpc": "2.0", "id": new["id"], "error": refusal}));
        assert_eq!(client.expect()["error"], refusal, "{}", chain.name);
        agent.exit(1);
        agent.expect_end();
        // What is asked of an agent that is gone gets an error; only `initialize` starts one, and nothing is asked by the host itself.
        client.send_json(&request(3, "authenticate", &json!({"methodId": "a"})));
        let gone = client.expect();
        assert_eq!(gone["id"], 3, "{}", chain.name);
        assert!(
            gone["error"]["message"].as_str().unwrap_or_default().contains("code 1"),
            "{}: {gone}",
            chain.name
        );
        client.send_json(&initialize(4));
        let mut agent = listener.accept();
        let first = agent.expect();
        assert_eq!(first["method"], "initialize", "{}", chain.name);
        agent.answer(&first, &methods);
        assert_eq!(client.expect()["id"], 4, "{}", chain.name);
        client.send_json(&request(5, "authenticate", &json!({"methodId": "a"})));
        let login = agent.expect();
        assert_eq!(
            (&login["method"], &login["params"]),
            (&json!("authenticate"), &json!({"methodId": "a"})),
            "{}",
            chain.name
        );
        agent.answer(&login, &json!({}));
        assert_eq!(
            client.expect(),
            json!({"jsonrpc": "2.0", "id": 5, "result": {}}),
            "{}",
            chain.name
        );
        client.send_json(&request(6, "session/new", &json!({"cwd": "/", "mcpServers": []})));
        let new = agent.expect();
        assert_eq!(new["method"], "session/new", "{}", chain.name);
        agent.answer(&new, &json!({"sessionId": SESSION}));
        assert_eq!(client.expect()["id"], 6, "{}", chain.name);
    }
}

#[test]
fn what_an_agent_prints_before_its_first_answer_stays_in_the_log_with_its_name() {
    for chain in [none(), passing(1)] {
        let (mut client, listener) = chain.fresh();
        client.send_json(&request(1, "initialize", &json!({"protocolVersion": 1})));
        let mut agent = listener.accept();
        for junk in [
            "Welcome!",
            "",
            "\u{1b}[32mok\u{1b}[0m",
            "\"str\"",
            "{\"level\":\"info\"}",
            "[1]",
            "Listening on :1\r",
        ] {
            agent.send(junk);
        }
        let first = agent.expect();
        agent.answer(&first, &json!({"protocolVersion": 1}));
        assert_eq!(
            client.expect()["id"],
            1,
            "{}: nothing of it reached the client",
            chain.name
        );
        let log = client.expect_standard_error("Listening on :1");
        for junk in ["Welcome!", "\"str\"", "{\"level\":\"info\"}"] {
            let line = log
                .lines()
                .find(|line| line.contains(junk))
                .unwrap_or_else(|| panic!("no {junk} in {log}"));
            assert!(
                line.contains("scripted-agent"),
                "{}: it does not say who: {line}",
                chain.name
            );
        }
        assert!(agent.is_quiet(), "{}: it is never answered", chain.name);
    }
}
