//! What prompts, updates and answers are made of arrives equal and in order, also where a proxy edits something beside it.

use consort_tests::chains::{Chain, every, mixed, none, passing, slow};
use consort_tests::raw::{id, last};
use consort_tests::session::{SESSION, notification, prompt, request};
use serde_json::{Value, json};
use std::thread;

/// A proxy that replaces the first text of a prompt and of an update.
fn editing() -> Chain {
    let edit = |path: &str| json!([{"op": "replace", "path": path, "value": "edited"}]);
    Chain::new(
        "a proxy that edits text",
        &[
            (
                "rewriter",
                json!({"method": "session/prompt", "params": edit("/prompt/0/text")}),
            ),
            (
                "rewriter",
                json!({"method": "session/update", "params": edit("/update/content/0/text")}),
            ),
        ],
    )
}

#[test]
fn an_image_beside_an_edited_text_is_untouched() {
    // Five megabytes, in the order of keys and with the escapes of its sender, without the fields that a library would add.
    let image = format!(
        r#"{{"mimeType":"image\/png","data":"{}","type":"image"}}"#,
        "iVBORw0KGgo+/9==".repeat(5 * 1024 * 64)
    );
    let more = r#"{"type":"text","text":"\u00e9 second","annotations":{"priority":0.50}}"#;
    for (chain, text) in [(none(), "first"), (passing(2), "first"), (editing(), "edited")] {
        let (mut client, mut agent) = chain.start();
        let blocks = |text: &str| format!(r#"[{{"type":"text","text":"{text}"}},{image},{more}]"#);
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{{"sessionId":"s1","prompt":{}}}}}"#,
            blocks("first")
        );
        let received = thread::scope(|scope| {
            scope.spawn(|| client.send(&line));
            agent.expect_line()
        });
        let expected = format!(r#"{{"sessionId":"s1","prompt":{}}}"#, blocks(text));
        assert!(last(&received, "params") == expected, "{}: {received:.300}", chain.name);
        let line = format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s1","update":{{"content":{}}}}}}}"#,
            blocks("first")
        );
        let received = thread::scope(|scope| {
            scope.spawn(|| agent.send(&line));
            client.expect_line()
        });
        let expected = format!(r#"{{"sessionId":"s1","update":{{"content":{}}}}}"#, blocks(text));
        assert!(last(&received, "params") == expected, "{}: {received:.300}", chain.name);
    }
}

#[test]
fn a_link_with_escapes_and_signs_stays_as_it_is() {
    let links = [
        r#"{"type":"resource_link","uri":"file:///C:/My%20Docs/%E2%9C%93.rs","name":"✓.rs"}"#,
        r#"{"name":"\u2713","uri":"file:\/\/\/home/é/a%2Fb?x=1#L10-20","type":"resource_link","size":null}"#,
        r#"{"type":"resource_link","uri":"\\\\server\\share\\a b","name":"\"quoted\"\t"}"#,
    ];
    for chain in [
        none(),
        passing(2),
        slow(10, &["session/prompt"]),
        mixed(10, &["session/prompt"]),
    ] {
        let (mut client, mut agent) = chain.start();
        for link in links {
            let params = format!(r#"{{"sessionId":"s1","prompt":[{link}]}}"#);
            client.send(&format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{params}}}"#
            ));
            let line = agent.expect_line();
            assert_eq!(last(&line, "params"), params, "{}", chain.name);
            agent.send(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{link}}}"#, id(&line)));
            assert_eq!(last(&client.expect_line(), "result"), link, "{}", chain.name);
        }
    }
}

fn update(update: &Value) -> Value {
    notification("session/update", &json!({"sessionId": SESSION, "update": update}))
}

#[test]
fn a_terminal_is_shown_before_it_is_released() {
    let methods = ["session/update"];
    for chain in every(50, &methods) {
        let (mut client, mut agent) = chain.start();
        let shown = update(
            &json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "content": [{"type": "terminal", "terminalId": "x"}]}),
        );
        let released = json!({"sessionId": SESSION, "terminalId": "x"});
        agent.send_raw(format!("{shown}\n{}\n", request(0, "terminal/release", &released)).as_bytes());
        assert_eq!(client.expect(), shown, "{}", chain.name);
        let release = client.expect();
        assert_eq!(
            (&release["method"], &release["params"]),
            (&json!("terminal/release"), &released),
            "{}",
            chain.name
        );
        client.send_json(&json!({"jsonrpc": "2.0", "id": release["id"], "result": {}}));
        assert_eq!(
            agent.expect(),
            json!({"jsonrpc": "2.0", "id": 0, "result": {}}),
            "{}",
            chain.name
        );
    }
}

#[test]
fn a_tool_call_its_permission_and_its_update_come_in_the_order_sent_and_nothing_is_invented() {
    let mut chains = every(50, &["session/update", "session/request_permission"]);
    chains.push(slow(50, &["session/update"]));
    chains.push(slow(50, &["session/request_permission"]));
    chains.push(mixed(50, &["session/update"]));
    for chain in chains {
        let (mut client, mut agent) = chain.start();
        client.send_json(&prompt(3, "go"));
        let asked = agent.expect();
        let lines = [
            update(&json!({"sessionUpdate": "tool_call", "toolCallId": "t", "title": "T", "kind": "other"})),
            request(
                "q",
                "session/request_permission",
                &json!({"sessionId": SESSION, "toolCall": {"toolCallId": "t"}, "options": []}),
            ),
            update(&json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "in_progress"})),
            json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"stopReason": "end_turn"}}),
        ];
        agent.send_raw(
            lines
                .iter()
                .map(|line| format!("{line}\n"))
                .collect::<String>()
                .as_bytes(),
        );
        assert_eq!(client.expect(), lines[0], "{}", chain.name);
        let question = client.expect();
        assert_eq!(
            (&question["method"], &question["params"]),
            (&lines[1]["method"], &lines[1]["params"]),
            "{}",
            chain.name
        );
        assert_eq!(client.expect(), lines[2], "{}", chain.name);
        assert_eq!(
            client.expect(),
            json!({"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "end_turn"}}),
            "{}",
            chain.name
        );
        client.send_json(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {}}));
        assert_eq!(agent.expect()["id"], "q", "{}", chain.name);
        // Nothing else came: no status, no answer.
        agent.send_json(&notification("marker", &json!({})));
        assert_eq!(client.expect()["method"], "marker", "{}", chain.name);
    }
}

#[test]
fn updates_of_unknown_kinds_pass() {
    let kinds = [
        r#"{"sessionId":"s1","update":{"sessionUpdate":"from_the_future","x":[1.0,{"y":null}]}}"#,
        r#"{"update":null,"sessionId":"s1"}"#,
        r#"{"sessionId":"s1"}"#,
        r#"{"sessionId":"s1","update":{"sessionUpdate":7,"content":"not an object"},"_meta":{"a":[]}}"#,
    ];
    let mut chains = every(10, &["session/update"]);
    chains.push(Chain::new("arrows", &[("arrow", json!({})), ("arrow", json!({}))]));
    for chain in chains {
        let (mut client, mut agent) = chain.start();
        for params in kinds {
            agent.send(&format!(
                r#"{{"jsonrpc":"2.0","method":"session/update","params":{params}}}"#
            ));
            assert_eq!(last(&client.expect_line(), "params"), params, "{}", chain.name);
        }
    }
}
