//! What nobody edits arrives byte for byte, and what is edited changes in that place alone.

use consort_tests::guests::{guest, proxy};
use consort_tests::raw::{id, last};
use consort_tests::session::begin;
use consort_tests::{AgentListener, Client};
use std::ffi::OsString;

/// Params and results that decoding and encoding again would spoil.
const ODD: &[&str] = &[
    r#"{"n":1.10,"big":12345678901234567890123,"huge":1e400,"minus":-0,"e":1E+2}"#,
    r#"{"_meta":{"x":[1, 2 ,{"deep":null}]},"unknown":{"b":1,"a":2},"sessionUpdate":"not_known_yet"}"#,
    r#"{"lone":"\ud800","escaped":"\u00e9\/","plain":"é✓","uri":"file:///C:/My%20Docs/%E2%9C%93.rs"}"#,
    r#"{"twice":1,"twice":2,"":0}"#,
    r#"[1,"two",null]"#,
    r#"{  "spaced" : [ ] }"#,
];

fn passthrough(count: usize) -> Vec<OsString> {
    (0..count)
        .flat_map(|_| ["--proxy".into(), proxy("passthrough").into()])
        .collect()
}

fn odd_things_pass(options: &[OsString]) {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, options);
    let mut agent = begin(&mut client, &listener);
    for odd in ODD {
        client.send(&format!(
            r#"{{"jsonrpc":"2.0","method":"nobody/knows","params":{odd}}}"#
        ));
        assert_eq!(last(&agent.expect_line(), "params"), *odd);
        agent.send(&format!(r#"{{"jsonrpc":"2.0","method":"_ext/thing","params":{odd}}}"#));
        assert_eq!(last(&client.expect_line(), "params"), *odd);

        client.send(&format!(
            r#"{{"jsonrpc":"2.0","id":"q","method":"session/prompt","params":{odd}}}"#
        ));
        let request = agent.expect_line();
        assert_eq!(last(&request, "params"), *odd);
        agent.send(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{odd}}}"#, id(&request)));
        assert_eq!(last(&client.expect_line(), "result"), *odd);

        agent.send(&format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"unknown_without_underscore","params":{odd}}}"#
        ));
        let request = client.expect_line();
        assert_eq!(last(&request, "params"), *odd);
        client.send(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{odd}}}"#, id(&request)));
        assert_eq!(last(&agent.expect_line(), "result"), *odd);
    }
}

#[test]
fn odd_things_pass_without_proxies() {
    odd_things_pass(&[]);
}

#[test]
fn odd_things_pass_through_proxies() {
    odd_things_pass(&passthrough(3));
}

#[test]
fn results_and_errors_of_every_shape_pass() {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &passthrough(2));
    let mut agent = begin(&mut client, &listener);
    let outcomes = [
        r#""result":null"#,
        r#""result":"text""#,
        r#""error":{"code":-32000,"message":"login","data":{"methods":[1.0]}}"#,
        r#""error":{"code":4711,"message":"custom","data":null}"#,
        r#""error":{"code":1,"message":"no data"}"#,
    ];
    for outcome in outcomes {
        client.send(r#"{"jsonrpc":"2.0","id":9,"method":"x/y"}"#);
        let request = agent.expect_line();
        assert!(!request.contains("params"), "{request}");
        agent.send(&format!(r#"{{"jsonrpc":"2.0","id":{},{outcome}}}"#, id(&request)));
        assert_eq!(client.expect_line(), format!(r#"{{"jsonrpc":"2.0","id":9,{outcome}}}"#));
    }
}

#[test]
fn an_edit_leaves_the_rest_as_it_was() {
    let listener = AgentListener::new();
    let config = r#"rewriter={"method":"x/y","params":[{"op":"replace","path":"/a/1","value":"new"}],"result":[{"op":"remove","path":"/gone"}]}"#;
    let options: Vec<OsString> = vec![
        "--proxy".into(),
        guest("rewriter").into(),
        "--proxy-config".into(),
        config.into(),
    ];
    let mut client = Client::in_front_of(&listener, &options);
    let mut agent = begin(&mut client, &listener);
    client.send(r#"{"jsonrpc":"2.0","id":9,"method":"x/y","params":{ "n":1.10, "a":[ 1, 2 , 3 ], "u":"\u00e9" }}"#);
    let request = agent.expect_line();
    assert_eq!(
        last(&request, "params"),
        r#"{ "n":1.10, "a":[ 1, "new" , 3 ], "u":"\u00e9" }"#
    );
    agent.send(&format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{ "big":1e400, "gone":1, "z": 0 }}}}"#,
        id(&request)
    ));
    assert_eq!(last(&client.expect_line(), "result"), r#"{ "big":1e400, "z": 0 }"#);
}

#[test]
fn bad_lines_are_answered_or_logged_and_change_nothing() {
    let listener = AgentListener::new();
    let mut client = Client::in_front_of(&listener, &passthrough(1));
    let mut agent = begin(&mut client, &listener);
    let bad = [
        (&b"nonsense"[..], -32700),
        (b"{\"id\":1,\"method\":\"x\"", -32700),
        (b"{\"id\":1,\"method\":\"\xff\"}", -32700),
        (b"42", -32600),
        (b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}]", -32600),
        (b"{\"id\":1,\"id\":1,\"method\":\"x\"}", -32600),
        (b"{\"id\":1.5,\"method\":\"x\"}", -32600),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"proxy/successor\",\"params\":{\"method\":\"x\"}}",
            -32600,
        ),
    ];
    for (line, code) in bad {
        client.send_raw(&[line, b"\r\n\n"].concat());
        let answer = client.expect();
        assert_eq!(
            answer["error"]["code"],
            code,
            "{}: {answer}",
            String::from_utf8_lossy(line)
        );
        agent.send_raw(&[line, b"\n  \n"].concat());
    }
    let refusal = agent.expect();
    assert_eq!(
        refusal["error"]["code"], -32600,
        "the agent's own proxy/successor is refused: {refusal}"
    );
    client.send(r#"{"jsonrpc":"2.0","method":"still/alive"}"#);
    assert_eq!(agent.expect()["method"], "still/alive");
}
