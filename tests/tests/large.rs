//! Large messages: a proxy handles them with far less memory than they have bytes.

use consort_tests::guests::{guest, proxy};
use consort_tests::session::{SESSION, begin, request};
use consort_tests::{AgentListener, Client, Directory};
use serde_json::json;
use std::thread;

const MIB: usize = 1024 * 1024;

#[test]
fn a_prompt_of_16_mib_goes_through_context_in_16_mib_of_memory() {
    let directory = Directory::new();
    directory.file("AGENTS.md", "Be brief.");
    let config = directory.file(
        "consort.toml",
        format!(
            "[[proxies]]\nfile = {:?}\nlimits.memory = \"16 MiB\"\n",
            proxy("context").to_str().expect("the path is UTF-8")
        ),
    );
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &["--config".as_ref(), config.as_os_str()]);
    let mut agent = begin(&mut client, &listener);
    client.send_json(&request(
        "new2",
        "session/new",
        &json!({"cwd": directory.path(), "mcpServers": []}),
    ));
    let new = agent.expect();
    agent.answer(&new, &json!({"sessionId": "s2"}));
    assert_eq!(client.expect()["id"], "new2");
    let big = "z".repeat(16 * MIB);
    let prompt = json!({"sessionId": "s2", "prompt": [{"type": "text", "text": big}]});
    let line = format!("{}\n", request(3, "session/prompt", &prompt));
    let received = thread::scope(|scope| {
        scope.spawn(|| client.send_raw(line.as_bytes()));
        agent.expect()
    });
    let blocks = received["params"]["prompt"].as_array().expect("a prompt is an array");
    assert_eq!(blocks.len(), 2);
    let context = blocks[0]["text"].as_str().expect("the context is text");
    assert!(context.contains("Be brief."), "{context}");
    assert!(blocks[1]["text"] == big, "the prompt itself is unchanged");
}

#[test]
fn a_message_that_is_too_large_for_a_proxy_goes_on_without_it() {
    let directory = Directory::new();
    let config = directory.file(
        "consort.toml",
        format!(
            "[[proxies]]\nfile = {:?}\nlimits.memory = \"4 MiB\"\n",
            guest("arrow").to_str().expect("the path is UTF-8")
        ),
    );
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &["--config".as_ref(), config.as_os_str()]);
    let mut agent = begin(&mut client, &listener);
    let big = "y".repeat(8 * MIB);
    let update = json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": SESSION, "update": {
        "sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": big}}}});
    let line = format!("{update}\n");
    let received = thread::scope(|scope| {
        scope.spawn(|| agent.send_raw(line.as_bytes()));
        client.expect()
    });
    assert!(received == update, "the original arrives");
    agent.send_json(&consort_tests::session::chunk("small"));
    assert_eq!(
        client.expect(),
        consort_tests::session::chunk(">small"),
        "the proxy is back"
    );
}
