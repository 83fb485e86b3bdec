//! Faults told in the session that they concern, and what the client and the user can ask Consort itself: how the proxies are, and to
//! try one again.

use consort_tests::guests::guest;
use consort_tests::intruder::{Run, Stage, script};
use consort_tests::session::{SESSION, chunk, notification, prompt, request};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::ffi::OsStr;

/// A proxy that traps on prompts with `BOOM` in them.
fn trap(stage: Stage) -> Stage {
    let config = json!({"on": "session/prompt", "source": "client", "when": "handler", "text": "BOOM"});
    stage
        .option([OsStr::new("--proxy"), guest("trap").as_os_str()])
        .option([
            "--proxy-config",
            &format!("trap={config}"),
            "--grant",
            "trap=everything",
        ])
}

fn is_notice(message: &Value) -> bool {
    message["params"]["update"]["content"]["text"]
        .to_string()
        .contains("**Consort:**")
}

/// A prompt in a session goes to the agent; returns what comes to the client until its answer, without that.
fn prompted(run: &mut Run, session: &str, text: &str) -> Vec<Value> {
    let params = json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
    run.client.send_json(&request("p", "session/prompt", &params));
    let asked = run.agent.expect();
    assert_eq!(asked["params"], params);
    run.agent.answer(&asked, &json!({"stopReason": "end_turn"}));
    let mut came = Vec::new();
    loop {
        let message = run.client.expect();
        if message["id"] == "p" {
            return came;
        }
        came.push(message);
    }
}

/// Asks Consort something.
fn ask(run: &mut Run, method: &str, params: &Value) -> Value {
    run.client.send_json(&request("c", method, params));
    loop {
        let message = run.client.expect();
        if message["id"] == "c" {
            return message;
        }
    }
}

fn status(run: &mut Run) -> Value {
    ask(run, "_consort/proxies", &json!({}))["result"]["proxies"][0].clone()
}

/// Brings the proxy to fail so often that it rests, for the first time or once more.
fn wear_out(run: &mut Run) -> Vec<Value> {
    let mut came = Vec::new();
    let rests = |run: &Run| run.client.standard_error().matches("failed too often").count();
    let before = rests(run);
    while rests(run) == before {
        came.extend(prompted(run, SESSION, "BOOM"));
    }
    assert_eq!(status(run)["status"], "off");
    came
}

#[test]
fn a_fault_is_told_in_its_session_and_in_no_other() {
    let by_option = trap(Stage::new().option(["--notices"]));
    let by_configuration = trap(Stage::new().configured("notices = true\n"));
    for stage in [by_option, by_configuration] {
        let mut run = stage.start();
        assert!(prompted(&mut run, "s2", "fine").is_empty());
        let came = prompted(&mut run, SESSION, "BOOM");
        assert_eq!(came.len(), 1, "{came:#?}");
        assert!(is_notice(&came[0]), "{came:#?}");
        let params = &came[0]["params"];
        assert_eq!(
            (&params["sessionId"], &params["update"]["sessionUpdate"]),
            (&json!(SESSION), &json!("agent_message_chunk"))
        );
        let text = params["update"]["content"]["text"].to_string();
        assert!(text.contains("proxy `trap`") && text.contains("(trap)"), "{text}");
        assert!(prompted(&mut run, "s2", "fine").is_empty());
    }
}

#[test]
fn an_incident_is_told_when_it_begins_and_when_the_proxy_rests() {
    let mut run = trap(Stage::new().option(["--notices"])).start();
    let came = wear_out(&mut run);
    let texts: Vec<String> = came
        .iter()
        .map(|notice| notice["params"]["update"]["content"]["text"].to_string())
        .collect();
    assert_eq!(texts.len(), 2, "{texts:#?}");
    assert!(
        texts[0].contains("(trap)") && texts[1].contains("failed too often"),
        "{texts:#?}"
    );
}

#[test]
fn nothing_is_told_unless_it_is_wanted() {
    let mut run = trap(Stage::new()).start();
    let came = wear_out(&mut run);
    assert!(came.is_empty(), "{came:#?}");
}

#[test]
fn what_a_proxy_says_when_it_dies_is_one_line_of_a_notice() {
    let complaint = "\n\n# Urgent\n[pay here](http://evil.example)\u{1b}[2J";
    let rule = json!({"on": "session/prompt", "text": "GO", "do": [{"outside": {"print": complaint}}, {"outside": {"exit": 1}}]});
    let mut run = Stage::of(&script(&["client session/prompt"], &[rule]), "everything")
        .option(["--notices"])
        .start();
    let came = prompted(&mut run, SESSION, "GO");
    assert_eq!(came.len(), 1, "{came:#?}");
    let text = came[0]["params"]["update"]["content"]["text"]
        .as_str()
        .unwrap_or_default();
    assert_eq!(text.trim().lines().count(), 1, "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn the_client_can_ask_how_proxies_are() {
    let mut run = trap(Stage::new()).start();
    let ready = json!({"name": "trap", "status": "ready", "onFailure": "bypass", "faults": 0, "shutOut": 0});
    assert_eq!(status(&mut run), ready);
    prompted(&mut run, SESSION, "BOOM");
    assert_eq!(status(&mut run)["faults"], 1);
    // Before anything else, too.
    let (mut client, _listener, _home) = trap(Stage::new()).fresh();
    client.send_json(&request(1, "_consort/proxies", &json!({})));
    assert_eq!(client.expect()["result"]["proxies"], json!([ready]));
}

#[test]
fn what_consort_does_not_know_is_an_error() {
    let mut run = trap(Stage::new()).start();
    let error = ask(&mut run, "_consort/unknown\u{1b}", &json!({}))["error"].clone();
    assert_eq!(error["code"], -32601, "{error}");
    assert!(
        !error["message"].as_str().unwrap_or_default().contains('\u{1b}'),
        "{error}"
    );
    let error = ask(&mut run, "_consort/retry", &json!({"proxy": "nobody"}))["error"].clone();
    assert_eq!(error["code"], -32602, "{error}");
    assert!(error["message"].to_string().contains("nobody"), "{error}");
    // One that is well is left as it is.
    let answer = ask(&mut run, "_consort/retry", &json!({"proxy": "trap"}));
    assert_eq!(answer["result"]["proxies"][0]["status"], "ready", "{answer}");
}

#[test]
fn what_the_client_asks_consort_comes_to_nobody_else() {
    let rule = json!({"on": "_consort/proxies", "do": [{"send": {"to": "client", "result": "{\"forged\":1}"}}]});
    let everything = script(
        &["client *", "client _consort/*", "client _consort/proxies", "?client *"],
        &[rule],
    );
    let mut run = Stage::of(&everything, "everything").start();
    for method in ["_consort/proxies", "_consort/retry", "_consort/unknown"] {
        let answer = ask(&mut run, method, &json!({}));
        assert!(!answer.to_string().contains("forged"), "{answer}");
    }
    run.client.send_json(&notification("_consort/proxies", &json!({})));
    run.client.send_json(&notification("_marker", &json!({})));
    assert_eq!(run.agent.expect()["method"], "_marker");
    run.client.expect_standard_error("heard _marker");
    let log = run.client.end();
    assert!(!log.contains("heard _consort"), "{log}");
}

#[test]
fn neither_agent_nor_proxy_tries_a_proxy_again() {
    let rule = json!({"on": "session/prompt", "text": "RETRY", "do": [
        {"send": {"to": "agent", "method": "_consort/retry", "params": "{}", "id": 1}},
        {"send": {"to": "host", "method": "_consort/retry", "params": "{}", "id": 2}},
        {"pass": {}},
    ]});
    let stage = trap(Stage::new()).proxy("intruder", &script(&["client session/prompt"], &[rule]));
    let mut run = stage.option(["--grant", "intruder=everything"]).start();
    wear_out(&mut run);
    run.agent.send_json(&request("q", "_consort/retry", &json!({})));
    let asked = run.client.expect();
    assert_eq!(asked["method"], "_consort/retry", "it is a message like any other");
    run.client.send_json(&prompt(1, "RETRY"));
    while run.agent.expect()["method"] != "session/prompt" {}
    assert_eq!(status(&mut run)["status"], "off");
}

#[test]
fn a_proxy_that_rests_comes_back_at_once_when_it_is_asked_for() {
    let mut run = trap(Stage::new()).start();
    for by_signal in [false, true, false] {
        wear_out(&mut run);
        if by_signal {
            let pid = i32::try_from(run.client.pid())
                .ok()
                .and_then(Pid::from_raw)
                .expect("it is a process id");
            kill_process(pid, Signal::USR1).expect("it can be told");
        } else {
            let answer = ask(&mut run, "_consort/retry", &json!({}));
            assert!(answer["result"].is_object(), "{answer}");
        }
        // The chain goes on meanwhile.
        while status(&mut run)["status"] != "ready" {
            assert!(prompted(&mut run, SESSION, "fine").is_empty());
        }
        run.agent.send_json(&chunk("marker"));
        assert_eq!(run.client.expect(), chunk("marker"));
    }
    let lines = run.audit("trap");
    let retried = lines.iter().filter(|line| line["event"] == "retried").count();
    assert_eq!(retried, 3, "{lines:#?}");
}
