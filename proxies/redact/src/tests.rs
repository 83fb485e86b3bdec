//! What the proxy does to messages.

use std::time::Duration;

use consort_proxy::Peer::{Agent, Client};
use consort_proxy::testing::{Harness, Sent, live_handles};
use serde_json::{Value, json};

use super::Redact;

const SECRET: &str = "ghp_a1B2c3D4e5F6g7H8i9J0a1B2c3D4e5F6g7H8";
const MASK: &str = "[redacted:github-token]";

fn start(config: Value) -> Harness {
    Harness::start::<Redact>(config).unwrap()
}

fn prompt(host: &mut Harness) -> Sent {
    host.request(Client, "session/prompt", json!({"sessionId": "s1", "prompt": []}));
    host.next()
}

/// As [`prompt`], when text was sent before, which must be masked.
fn prompt_after(host: &mut Harness) -> Sent {
    host.request(Client, "session/prompt", json!({"sessionId": "s1", "prompt": []}));
    let mut sent = host.sent();
    let turn = sent.pop().unwrap();
    assert_eq!(texts(&sent).concat(), format!("a so {MASK} "));
    turn
}

fn chunk(kind: &str, message: Option<&str>, text: &str) -> Value {
    let mut update = json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}});
    if let Some(message) = message {
        update["messageId"] = message.into();
    }
    json!({"sessionId": "s1", "update": update})
}

fn say(host: &mut Harness, text: &str) {
    host.notify(Agent, "session/update", chunk("agent_message_chunk", None, text));
}

fn texts(sent: &[Sent]) -> Vec<String> {
    let text = |sent: &Sent| {
        sent.params()["update"]["content"]["text"]
            .as_str()
            .unwrap_or("-")
            .to_owned()
    };
    sent.iter()
        .filter(|sent| sent.method() == "session/update")
        .map(text)
        .collect()
}

#[test]
fn prompts_are_masked_in_place() {
    let mut host = start(json!({"patterns": {"ticket": "T-[0-9]+"}}));
    let text = format!(
        r#"{{"sessionId":"s1", "n":1.10,"prompt":[ {{"type":"text","text":"a {SECRET}\n\u00e9"}},{{"type":"image","data":"{SECRET}"}},{{"type":"resource","resource":{{"uri":"x","text":"T-77"}}}},{{"type":"text","text":"\u00e9 stays"}}]}}"#
    );
    let ticket = host.request_text(Client, "session/prompt", &text);
    let sent = host.next();
    let expected = text
        .replacen(&format!(r"{SECRET}\n\u00e9"), &format!(r"{MASK}\né"), 1)
        .replace("T-77", "[redacted:ticket]");
    assert_eq!((sent.to(), sent.text()), (Agent, expected.as_str()));
    host.answer_text(&sent, Ok(r#"{ "stopReason":"end_turn","n":1.10 }"#));
    let answer = host.next();
    assert_eq!(
        (answer.ticket(), answer.text()),
        (ticket, r#"{ "stopReason":"end_turn","n":1.10 }"#)
    );
}

#[test]
fn a_text_that_is_too_large_is_never_passed_unsearched() {
    let mut host = start(json!({"maxTextBytes": 100}));
    let large = format!("{SECRET} {}", "x".repeat(100));
    host.request(
        Client,
        "session/prompt",
        json!({"sessionId": "s1", "prompt": [{"type": "text", "text": large}]}),
    );
    let error = host.next().error();
    assert_eq!(error["code"], -32602);
    assert!(error["message"].as_str().unwrap().contains("too large"), "{error}");
    let turn = prompt(&mut host);
    say(&mut host, &large);
    host.answer(&turn, json!({}));
    let texts = texts(&host.sent());
    assert!(
        texts.len() == 1 && texts[0].starts_with("[redacted: ") && !texts[0].contains("ghp_"),
        "{texts:?}"
    );
}

#[test]
fn a_secret_in_chunks_is_masked_at_every_split() {
    let whole = format!("it is {SECRET}, really");
    for (split, _) in whole.char_indices() {
        let mut host = start(json!({}));
        let turn = prompt(&mut host);
        say(&mut host, &whole[..split]);
        say(&mut host, &whole[split..]);
        host.answer(&turn, json!({"stopReason": "end_turn"}));
        let sent = host.sent();
        assert_eq!(
            texts(&sent).concat(),
            format!("it is {MASK}, really"),
            "split at {split}"
        );
        assert_eq!(
            sent.last().unwrap().result()["stopReason"],
            "end_turn",
            "the answer is the last"
        );
    }
}

#[test]
fn what_is_held_back_comes_out_before_the_answer_in_the_shape_of_its_chunk() {
    let mut host = start(json!({}));
    let turn = prompt(&mut host);
    let text = r#"{"sessionId":"s1", "update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"so gh"},"_meta":{"n":1.10}}}"#;
    host.notify_text(Agent, "session/update", text);
    assert_eq!(host.next().text(), text.replace("so gh", "so "));
    host.answer_error(&turn, -32000, "broken");
    assert_eq!(host.next().text(), text.replace("so gh", "gh"));
    assert_eq!(host.next().error()["message"], "broken");
    assert_eq!((host.waiting_handlers(), live_handles()), (0, 0));
}

#[test]
fn what_is_held_back_comes_out_soon_after_the_turn_is_cancelled() {
    let mut host = start(json!({}));
    let ticket = host.request(Client, "session/prompt", json!({"sessionId": "s1", "prompt": []}));
    host.next();
    say(&mut host, "gh");
    assert!(host.sent().is_empty(), "a chunk of which nothing is left is not sent");
    host.advance(Duration::from_secs(5));
    assert!(host.sent().is_empty(), "the turn will bring it out");
    host.cancel(ticket);
    let sent = host.sent();
    assert!(texts(&sent).is_empty());
    assert_eq!(sent.last().unwrap().error()["code"], -32800);
    host.advance(Duration::from_secs(1));
    assert_eq!(texts(&host.sent()), ["gh"]);
    assert_eq!((host.waiting_handlers(), live_handles()), (0, 0));
}

#[test]
fn a_secret_is_masked_though_the_turn_is_cancelled_in_the_middle_of_it() {
    for split in 0..SECRET.len() {
        let mut host = start(json!({}));
        let ticket = host.request(Client, "session/prompt", json!({"sessionId": "s1", "prompt": []}));
        host.next();
        say(&mut host, &format!("key {}", &SECRET[..split]));
        host.cancel(ticket);
        say(&mut host, &format!("{} .", &SECRET[split..]));
        host.advance(Duration::from_secs(2));
        assert_eq!(
            texts(&host.sent()).concat(),
            format!("key {MASK} ."),
            "split at {split}"
        );
        assert_eq!(host.waiting_handlers(), 0);
    }
}

#[test]
fn the_clock_does_not_cut_a_secret_that_is_being_sent() {
    let mut host = start(json!({}));
    let (begin, end) = SECRET.split_at(20);
    say(&mut host, "a s");
    host.advance(Duration::from_millis(900));
    say(&mut host, &format!("o {begin}"));
    host.advance(Duration::from_millis(900));
    say(&mut host, &format!("{end} s"));
    // A turn that begins is one that can bring it out.
    host.advance(Duration::from_millis(100));
    let turn = prompt_after(&mut host);
    host.advance(Duration::from_secs(5));
    host.answer(&turn, json!({}));
    assert_eq!(texts(&host.sent()), ["s"]);
    assert_eq!((host.waiting_handlers(), host.sleeping().len()), (0, 0));
}

#[test]
fn a_session_that_is_closed_in_a_turn_is_not_watched() {
    let mut host = start(json!({}));
    prompt(&mut host);
    say(&mut host, "gh");
    assert_eq!(host.waiting_handlers(), 2);
    host.request(Client, "session/close", json!({"sessionId": "s1"}));
    assert_eq!(host.waiting_handlers(), 1, "the prompt is left");
}

#[test]
fn streams_do_not_mix() {
    let mut host = start(json!({}));
    let turn = prompt(&mut host);
    let (begin, end) = SECRET.split_at(10);
    for (kind, message) in [
        ("agent_message_chunk", Some("a")),
        ("agent_message_chunk", Some("b")),
        ("agent_thought_chunk", None),
    ] {
        host.notify(Agent, "session/update", chunk(kind, message, begin));
    }
    host.notify(Agent, "session/update", chunk("agent_message_chunk", Some("b"), end));
    host.notify(Agent, "session/update", chunk("agent_thought_chunk", None, "!"));
    host.answer(&turn, json!({}));
    let sent = host.sent();
    // b is held to its end since it could be longer; the thought was no secret; a never came to its end.
    assert_eq!(texts(&sent), [format!("{begin}!"), begin.to_owned(), MASK.to_owned()]);
}

#[test]
fn tool_calls_are_masked() {
    let mut host = start(json!({}));
    let turn = prompt(&mut host);
    say(&mut host, "I look s");
    let update = json!({"sessionId": "s1", "update": {
        "sessionUpdate": "tool_call", "title": format!("use {SECRET}"), "rawInput": {"x": "y"},
        "content": [{"type": "diff", "newText": "n"}, {"type": "content", "content": {"type": "text", "text": SECRET}}],
    }});
    host.notify(Agent, "session/update", update);
    let sent = host.sent();
    assert_eq!(texts(&sent), ["I look ", "-"]);
    let call = sent[1].params();
    assert_eq!(call["update"]["title"], format!("use {MASK}"));
    assert_eq!(call["update"]["content"][1]["content"]["text"], MASK);
    assert_eq!(call["update"]["content"][0]["newText"], "n");
    host.answer(&turn, json!({}));
    let sent = host.sent();
    assert_eq!(
        (texts(&sent), sent.len()),
        (vec!["s".to_owned()], 2),
        "before the answer"
    );
}

#[test]
fn a_secret_is_masked_whatever_stands_in_the_middle_of_it() {
    for between in [
        json!({"sessionUpdate": "tool_call", "toolCallId": "t", "title": "look"}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "title": "look"}),
        json!({"sessionUpdate": "plan", "entries": []}),
        json!({"sessionUpdate": "usage_update"}),
        json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": ""}}),
        json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "resource", "resource": {"uri": "x", "text": "y"}}}),
        json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "x".repeat(200)}}),
    ] {
        for split in 0..SECRET.len() {
            let mut host = start(json!({"maxTextBytes": 100}));
            let turn = prompt(&mut host);
            say(&mut host, &format!("key {}", &SECRET[..split]));
            host.notify(Agent, "session/update", json!({"sessionId": "s1", "update": between}));
            say(&mut host, &SECRET[split..]);
            host.answer(&turn, json!({}));
            let mut sent = host.sent();
            assert_eq!(sent.pop().unwrap().method(), "", "the answer is the last");
            let said = |sent: &Sent| {
                sent.params()["update"]["sessionUpdate"] == "agent_message_chunk"
                    && sent.params()["update"]["content"]["type"] == "text"
            };
            sent.retain(said);
            assert_eq!(
                texts(&sent).concat(),
                format!("key {MASK}"),
                "{between}, split at {split}"
            );
        }
    }
}

#[test]
fn diffs_and_plans_are_masked() {
    let mut host = start(json!({"maxTextBytes": 1000}));
    prompt(&mut host);
    let update = r#"{"sessionId":"s1","update":{"sessionUpdate":"tool_call_update","toolCallId":"t","content":[{"type":"diff","path":"/a","oldText":null,"newText":"a X"},{"type":"diff","path":"/b","oldText":"X\ud83d","newText":"y"},{"type":"terminal","terminalId":"1.10"}]}}"#;
    host.notify_text(Agent, "session/update", &update.replace('X', SECRET));
    assert_eq!(
        host.next().text(),
        update.replace('X', MASK).replace(r"\ud83d", "\u{fffd}")
    );

    let plan = r#"{"sessionId":"s1","update":{"sessionUpdate":"plan","entries":[{"content":"x","priority":"low","status":"pending"},{"content":"use X","n":1.10}]}}"#;
    host.notify_text(Agent, "session/update", &plan.replace('X', SECRET));
    assert_eq!(host.next().text(), plan.replace('X', MASK));

    let large = json!({"type": "diff", "path": "/c", "newText": format!("{}{SECRET}", "x ".repeat(500))});
    host.notify(
        Agent,
        "session/update",
        json!({"sessionId": "s1", "update": {"sessionUpdate": "tool_call", "content": [large]}}),
    );
    assert_eq!(
        host.next().params()["update"]["content"][0]["newText"],
        "[redacted: 1042 bytes of text are too many to search for secrets]"
    );
}

#[test]
fn what_stands_behind_too_many_parts_does_not_pass() {
    let mut host = start(json!({}));
    for (kind, list, part) in [
        ("tool_call", "content", json!({"type": "diff", "newText": SECRET})),
        (
            "tool_call_update",
            "content",
            json!({"type": "diff", "newText": SECRET}),
        ),
        ("plan", "entries", json!({"content": SECRET})),
    ] {
        // The parts before it are too short to matter.
        let mut parts = vec![json!(0); crate::MAX_BLOCKS];
        parts.push(part);
        let mut update = json!({"sessionUpdate": kind});
        update[list] = parts.into();
        host.notify(Agent, "session/update", json!({"sessionId": "s1", "update": update}));
        let sent = host.next();
        assert!(!sent.text().contains(SECRET), "{kind}");
        assert!(sent.text().contains("too many to search"), "{kind}");
        assert_eq!(sent.params()["update"][list].as_array().unwrap().len(), 1);
    }
}

#[test]
fn outside_of_a_turn_the_clock_brings_text_out() {
    let mut host = start(json!({}));
    say(&mut host, "so gh");
    say(&mut host, "p_");
    assert_eq!(texts(&host.sent()), ["so "]);
    assert_eq!(host.sleeping().len(), 1, "one timer is enough");
    host.advance(Duration::from_secs(1));
    assert!(host.sent().is_empty(), "more text came meanwhile");
    host.advance(Duration::from_secs(1));
    assert_eq!(texts(&host.sent()), ["ghp_"]);
    assert_eq!((host.waiting_handlers(), live_handles()), (0, 0));
}

#[test]
fn the_replay_of_a_loaded_session_is_a_turn() {
    let mut host = start(json!({}));
    host.request(Client, "session/load", json!({"sessionId": "s1"}));
    let load = host.next();
    host.notify(
        Agent,
        "session/update",
        chunk("user_message_chunk", None, &format!("my {SECRET}")),
    );
    say(&mut host, "ok s");
    host.answer_text(&load, Ok("null"));
    let sent = host.sent();
    assert_eq!(texts(&sent), ["my ", "ok ", MASK, "s"]);
    assert_eq!(sent.last().unwrap().text(), "null");
}

#[test]
fn other_messages_stay_byte_for_byte() {
    let mut host = start(json!({}));
    for text in [
        r#"{"sessionId":"s1", "update":{"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":"ghp_"}},"n":1.10}"#,
        r#"{"sessionId":"s1", "update":{"sessionUpdate":"usage_update","n":1.10}}"#,
        r#"{"sessionId":"s1", "update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\u00e9."}}}"#,
        r#"{"sessionId":7, "update":null}"#,
    ] {
        host.notify_text(Agent, "session/update", text);
        assert_eq!(host.next().text(), text);
    }
}

#[test]
fn half_of_an_emoji_hides_nothing() {
    let mut host = start(json!({}));
    prompt(&mut host);
    say(&mut host, "so s");
    let half = |text: &str| {
        format!(
            r#"{{"sessionId":"s1","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}}}"#
        )
    };
    host.notify_text(Agent, "session/update", &half(&format!(r"ee {SECRET} \ud83d")));
    assert_eq!(texts(&host.sent()), ["so ", &format!("see {MASK} \u{fffd}")]);
    // Where there is nothing to mask, the editor can put the halves together.
    for text in [r"\ude00 fine \ud83d", r"\ude00"] {
        host.notify_text(Agent, "session/update", &half(text));
        assert_eq!(host.next().text(), half(text));
    }

    let prompt = format!(r#"{{"sessionId":"s1","prompt":[{{"type":"text","text":"\ud83d {SECRET}"}}]}}"#);
    host.request_text(Client, "session/prompt", &prompt);
    assert_eq!(host.next().params()["prompt"][0]["text"], format!("\u{fffd} {MASK}"));
    let call =
        format!(r#"{{"sessionId":"s1","update":{{"sessionUpdate":"tool_call_update","title":"{SECRET} \ud83d"}}}}"#);
    host.notify_text(Agent, "session/update", &call);
    assert_eq!(host.next().params()["update"]["title"], format!("{MASK} \u{fffd}"));
}

#[test]
fn an_update_of_no_session_is_masked_for_itself() {
    let mut host = start(json!({}));
    // No Rust string is this session's id.
    for session in ["7", r#""\ud83d""#] {
        for update in [
            r#""sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a X gh"}"#,
            r#""sessionUpdate":"agent_message_chunk","content":{"type":"resource","resource":{"uri":"x","text":"X"}}"#,
            r#""sessionUpdate":"tool_call","title":"X""#,
        ] {
            let text = format!(r#"{{"sessionId":{session},"update":{{{update}}}}}"#);
            host.notify_text(Agent, "session/update", &text.replace('X', SECRET));
            assert_eq!(host.next().text(), text.replace('X', MASK));
        }
    }
}

#[test]
fn many_streams_are_bounded() {
    let mut host = start(json!({}));
    prompt(&mut host);
    for message in 0..9 {
        host.notify(
            Agent,
            "session/update",
            chunk("agent_message_chunk", Some(&message.to_string()), "gh"),
        );
    }
    assert_eq!(texts(&host.sent()), ["gh"], "the oldest makes room");
}

#[test]
fn wrong_configurations_are_named() {
    for (config, named) in [
        (json!({"pattern": {}}), "pattern"),
        (json!({"patterns": {"a": 7}}), "7"),
        (json!({"patterns": {"a": "("}}), "\"a\""),
        (json!({"off": ["nothing"]}), "nothing"),
    ] {
        let error = Harness::start::<Redact>(config).err().unwrap();
        assert!(error.contains(named), "{error}");
    }
}
