//! A proxy that protects lets nothing past it when it fails: `on-failure = "closed"`.

use consort_tests::guests::{guest, proxy};
use consort_tests::session::{SESSION, begin, chunk, notification, prompt};
use consort_tests::{Agent, AgentListener, Client, Directory};
use serde_json::{Value, json};
use std::ffi::OsString;

/// A proxy that traps on messages with a certain word in them, closed by an option.
fn start(on: &str, source: &str) -> (Client, Agent) {
    let listener = AgentListener::new();
    let config = json!({"on": on, "source": source, "when": "handler", "text": "BOOM"});
    let options: [OsString; 6] = [
        "--proxy".into(),
        guest("trap").into(),
        "--proxy-config".into(),
        format!("trap={config}").into(),
        "--on-failure".into(),
        "trap=closed".into(),
    ];
    let mut client = Client::in_front_of(&listener, &options);
    let agent = begin(&mut client, &listener);
    (client, agent)
}

fn assert_refused(line: &Value, id: &Value) {
    assert_eq!((&line["id"], &line["error"]["code"]), (id, &json!(-32603)), "{line}");
    assert_eq!(line["error"]["data"]["proxy"], "trap", "{line}");
}

#[test]
fn a_prompt_that_it_failed_on_never_reaches_the_agent() {
    let (mut client, mut agent) = start("session/prompt", "client");
    client.send_json(&prompt(1, "BOOM secret"));
    assert_refused(&client.expect(), &json!(1));
    client.send_json(&notification("_marker", &json!({})));
    assert_eq!(agent.expect()["method"], "_marker");
    client.send_json(&prompt(2, "fine"));
    assert_eq!(
        agent.expect()["params"]["prompt"][0]["text"],
        "fine",
        "it is there again"
    );
}

#[test]
fn an_update_that_it_failed_on_never_reaches_the_client() {
    let (mut client, mut agent) = start("session/update", "agent");
    agent.send_json(&chunk("BOOM secret"));
    agent.send_json(&notification("_marker", &json!({"sessionId": SESSION})));
    assert_eq!(client.expect()["method"], "_marker");
    client.expect_standard_error("`session/update` was kept from going past it");
}

#[test]
fn when_it_has_failed_too_often_nothing_passes_that_it_would_have_seen() {
    let (mut client, mut agent) = start("session/prompt", "client");
    for number in 0..10 {
        client.send_json(&prompt(number, "BOOM"));
        assert_refused(&client.expect(), &json!(number));
    }
    client.send_json(&prompt("fine", "fine"));
    let refused = client.expect();
    assert_refused(&refused, &json!("fine"));
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("nothing passes that it protects"), "{message}");
    // What it never asked for does pass.
    client.send_json(&notification("_marker", &json!({})));
    assert_eq!(agent.expect()["method"], "_marker");
}

#[test]
fn the_configuration_file_says_it_too() {
    let directory = Directory::new();
    let config = r#"{ on = "session/prompt", source = "client", when = "handler", text = "BOOM" }"#;
    let text = format!(
        "[[proxies]]\nfile = {:?}\nconfig = {config}\non-failure = \"closed\"\n",
        guest("trap")
    );
    let file = directory.file("consort.toml", text);
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &[OsString::from("--config"), file.into()]);
    let _agent = begin(&mut client, &listener);
    client.send_json(&prompt(1, "BOOM"));
    assert_refused(&client.expect(), &json!(1));
}

#[test]
fn redact_fails_closed_by_its_own_manifest() {
    let directory = Directory::new();
    let text = format!("[[proxies]]\nfile = {:?}\nlimits.memory = \"4 MiB\"\n", proxy("redact"));
    let config = directory.file("consort.toml", text);
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &[OsString::from("--config"), config.into()]);
    let mut agent = begin(&mut client, &listener);
    // To search this it needs more memory than it has.
    let large = "password = hunter2 ".repeat(80_000);
    client.send_json(&prompt(1, &large));
    let refused = client.expect();
    assert_eq!(
        (&refused["id"], &refused["error"]["data"]["proxy"]),
        (&json!(1), &json!("redact"))
    );
    assert_eq!(refused["error"]["data"]["class"], "memory", "{refused}");
    client.send_json(&notification("_marker", &json!({})));
    assert_eq!(agent.expect()["method"], "_marker", "nothing of it reached the agent");
    // What the agent says does not go past it either.
    agent.send_json(&chunk(&large));
    agent.send_json(&notification("_marker", &json!({"sessionId": SESSION})));
    assert_eq!(client.expect()["method"], "_marker", "nothing of it reached the client");
}
