//! What agents get from a server, in both generations.

use std::cell::RefCell;

use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::Peer::{Agent, Client};
use crate::testing::{Harness, Kind, Sent};
use crate::{Interests, Outcome, Proxy, Request, RpcError};

#[derive(Deserialize, JsonSchema)]
struct Shout {
    /// What to shout.
    text: String,
    #[serde(default)]
    times: Option<u8>,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

thread_local! {
    static HANDLE: RefCell<Option<Handle>> = const { RefCell::new(None) };
}

struct Offers;

impl Proxy for Offers {
    fn start(config: Json) -> Result<(Self, Interests), String> {
        let server = Server::new("loud", "1.2")
            .title("Loud things")
            .instructions("Shout little.")
            .tool("shout", "Shouts", async |shout: Shout, caller: Caller| {
                if shout.text.is_empty() {
                    return Err(Failure::from("there is nothing to shout"));
                }
                caller.progress(0.5, Some(1.0), Some("breathing in"));
                let times = usize::from(shout.times.unwrap_or(1));
                let session = caller.session().unwrap_or("nobody").to_owned();
                Ok(format!("{} in {session}", shout.text.to_uppercase().repeat(times)))
            })
            .tool("break", "Breaks", async |_: Nothing, _: Caller| {
                Err::<Reply, _>(Failure::protocol(-32000, "broken"))
            })
            .tool_with(
                "count",
                "Counts",
                json!({"annotations": {"readOnlyHint": true}}),
                async |_: Nothing, _: Caller| Ok(Structured(json!({"count": 3}))),
            )
            .tool("log", "Logs", async |_: Nothing, caller: Caller| {
                caller.log(Level::Info, "something");
                caller.log(Level::Error, "something bad");
                Ok("logged")
            })
            .tool("ask", "Asks the agent", async |_: Nothing, caller: Caller| {
                let roots = caller.request("roots/list", json!({})).await?;
                Ok(roots.text())
            })
            .resource(
                "loud://text",
                "text",
                json!({"mimeType": "text/plain"}),
                async |_: Caller| Ok(Contents::Text("AH".into())),
            )
            .resources(
                async |caller: Caller| {
                    let session = caller.session().unwrap_or("nobody").to_owned();
                    Ok(vec![Listed::new(
                        format!("loud://of/{session}"),
                        &session,
                        json!({"size": 1}),
                    )])
                },
                async |uri: String, _: Caller| match uri.strip_prefix("loud://of/") {
                    Some("locked") => Err(Failure::from("it is locked")),
                    Some(session) => Ok(Some(Contents::Text(session.to_owned()))),
                    None => Ok(None),
                },
            )
            .resource_template(
                "loud://{town}/at/{hour}",
                "hour",
                json!({"mimeType": "text/plain"}),
                async |variables: BTreeMap<String, String>, _: Caller| {
                    let text = format!("{} {}", variables["town"], variables["hour"]);
                    Ok((variables["hour"] != "never").then_some(Contents::Text(text)))
                },
            )
            .completion(async |completing: Completing, _: Caller| {
                let Completing {
                    of,
                    name,
                    value,
                    others,
                } = completing;
                let first = format!("{of} {name} {value} {}", others.len());
                Ok((1..150)
                    .map(|number| number.to_string())
                    .fold(vec![first], |mut all, one| {
                        all.push(one);
                        all
                    }))
            })
            .prompt("shouting", "How to shout", async |shout: Shout, _: Caller| {
                Ok(vec![Message::user(shout.text)])
            });
        HANDLE.set(Some(server.handle()));
        let server = match config.is_string("/scope", "session") {
            true => server.each_session(),
            false => server,
        };
        let interests = Interests::new().intercept(Client, "session/prompt");
        let interests = match config.decode_at::<bool>("/seesAll") {
            Ok(true) => interests.intercept(Agent, "mcp/*"),
            _ => interests,
        };
        Ok((Self, interests.serve(server)))
    }

    async fn request(&self, request: Request) -> Outcome {
        match request.method() {
            "session/prompt" => {
                HANDLE.with_borrow(Clone::clone).unwrap().offer("ask", false);
                HANDLE.with_borrow(Clone::clone).unwrap().updated("loud://text");
                request.forward()
            }
            "mcp/connect" | "mcp/message" => request.forward(),
            method => Err(RpcError::internal(format!("{method} is none of its business"))),
        }
    }
}

fn start() -> Harness {
    Harness::start::<Offers>(json!({})).unwrap()
}

fn set_up(host: &mut Harness, params: Value) -> Value {
    host.request(Client, "session/new", params);
    host.next().params()
}

fn connect(host: &mut Harness) -> String {
    host.request(Agent, "mcp/connect", json!({"acpId": "consort:loud"}));
    host.next().result()["connectionId"].as_str().unwrap().to_owned()
}

fn ask(host: &mut Harness, method: &str, params: Value) -> Sent {
    let connection = connect(host);
    host.request(
        Agent,
        "mcp/message",
        json!({"connectionId": connection, "method": method, "params": params}),
    );
    host.next()
}

#[test]
fn it_adds_itself_to_the_set_up_and_leaves_the_rest_as_it_is() {
    let mut host = start();
    let before = r#"{"cwd":"/w","n":1.10,"mcpServers":[{"name":"loud","command":"/x","args":[],"env":[]}]}"#;
    host.request_text(Client, "session/new", before);
    let sent = host.next();
    assert!(
        sent.text().starts_with(before.trim_end_matches("]}")),
        "{}",
        sent.text()
    );
    assert_eq!(
        sent.params()["mcpServers"][1],
        json!({"type": "acp", "name": "loud-2", "id": "consort:loud-2", "serverId": "consort:loud-2"})
    );
    for method in ["session/load", "session/resume", "session/fork"] {
        host.request(Client, method, json!({"sessionId": "s", "cwd": "/w"}));
        let sent = host.next();
        assert_eq!(sent.params()["mcpServers"][0]["name"], "loud", "{method}");
    }
    host.request(Client, "session/prompt", json!({"sessionId": "s"}));
    assert_eq!(host.next().method(), "session/prompt");
}

#[test]
fn a_server_of_each_session_has_an_id_of_its_own() {
    let mut host = Harness::start::<Offers>(json!({"scope": "session"})).unwrap();
    let ids = [0, 1].map(|_| set_up(&mut host, json!({"mcpServers": []}))["mcpServers"][0]["serverId"].clone());
    assert_ne!(ids[0], ids[1]);
    host.request(Agent, "mcp/connect", json!({"serverId": ids[1]}));
    assert!(host.next().result()["connectionId"].is_string());
}

#[test]
fn two_proxies_with_a_server_of_the_same_name_answer_for_their_own() {
    for config in [json!({}), json!({"scope": "session"}), json!({"seesAll": true})] {
        let mut first = Harness::start::<Offers>(config.clone()).unwrap();
        let mut second = Harness::start::<Offers>(config).unwrap();
        let servers = set_up(&mut first, json!({"mcpServers": []}));
        let servers = set_up(&mut second, servers)["mcpServers"].clone();
        assert_eq!(
            (&servers[0]["name"], &servers[1]["name"]),
            (&json!("loud"), &json!("loud-2"))
        );
        let ids = [0, 1].map(|place: usize| servers[place]["serverId"].clone());
        assert_ne!(ids[0], ids[1]);
        let tools = |key: &str, id: &Value| json!({key: id, "requestId": "r", "method": "tools/list"});
        // What the agent says comes to the second one first.
        for (method, params) in [
            ("mcp/connect", json!({"serverId": ids[0]})),
            ("mcp/message", tools("serverId", &ids[0])),
        ] {
            second.request(Agent, method, params.clone());
            let passed = second.next();
            assert_eq!(
                (passed.method(), passed.to(), passed.params()),
                (method, Client, params)
            );
        }
        for (host, id) in [(&mut first, &ids[0]), (&mut second, &ids[1])] {
            host.request(Agent, "mcp/connect", json!({"serverId": id}));
            let connection = host.next().result()["connectionId"].clone();
            host.request(Agent, "mcp/message", tools("connectionId", &connection));
            assert!(host.next().result()["tools"].is_array());
        }
        first.request(Agent, "mcp/connect", json!({"serverId": ids[0]}));
        let connection = first.next().result()["connectionId"].clone();
        second.request(Agent, "mcp/message", tools("connectionId", &connection));
        assert_eq!(
            second.next().to(),
            Client,
            "a connection to the first one is not its own"
        );
    }
}

#[test]
fn a_new_instance_goes_on_unless_it_could_be_another_proxys_server() {
    for (config, answered) in [(json!({}), true), (json!({"seesAll": true}), false)] {
        let mut host = Harness::start::<Offers>(config).unwrap();
        for id in ["consort:loud-2", "consort:loud@0", "consort:loud-2@0#1"] {
            host.request(Agent, "mcp/message", json!({"connectionId": id, "method": "ping"}));
            assert_eq!(host.next().kind() == Kind::Result, answered, "{id}");
        }
    }
}

#[test]
fn it_is_introduced_in_the_revision_that_is_asked_for() {
    let mut host = start();
    for (asked, spoken) in [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2099-01-01", "2025-11-25"),
    ] {
        let answer = ask(
            &mut host,
            "initialize",
            json!({"protocolVersion": asked, "capabilities": {}}),
        );
        assert_eq!(
            answer.result(),
            json!({
                "protocolVersion": spoken,
                "capabilities": {"logging": {}, "tools": {"listChanged": true}, "resources": {"subscribe": true}, "prompts": {}, "completions": {}},
                "serverInfo": {"name": "loud", "version": "1.2", "title": "Loud things"},
                "instructions": "Shout little.",
            })
        );
    }
    assert_eq!(ask(&mut host, "ping", json!({})).result(), json!({}));
}

#[test]
fn tools_are_listed_with_the_schema_of_their_arguments_and_called() {
    let mut host = start();
    let listed = ask(&mut host, "tools/list", json!({}));
    let listed = listed.result();
    let tools = listed["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 5);
    assert_eq!(tools[0]["description"], "Shouts");
    let schema = &tools[0]["inputSchema"];
    assert_eq!(
        (&schema["type"], &schema["required"]),
        (&json!("object"), &json!(["text"]))
    );
    assert_eq!(schema["properties"]["text"]["description"], "What to shout.");
    assert_eq!(tools[1]["inputSchema"]["type"], "object");
    assert_eq!(tools[2]["annotations"]["readOnlyHint"], true);
    let called = ask(
        &mut host,
        "tools/call",
        json!({"name": "shout", "arguments": {"text": "hi", "times": 2}}),
    );
    assert_eq!(
        called.result(),
        json!({"content": [{"type": "text", "text": "HIHI in nobody"}], "isError": false})
    );
    let counted = ask(&mut host, "tools/call", json!({"name": "count"}));
    assert_eq!(counted.result()["structuredContent"], json!({"count": 3}));
    assert_eq!(counted.result()["content"][0]["text"], r#"{"count":3}"#);
}

#[test]
fn what_goes_wrong_is_told_to_the_model_or_to_the_client() {
    let mut host = start();
    for (arguments, part) in [
        (json!({"text": ""}), "nothing to shout"),
        (json!({"text": 7}), "not as this expects"),
        (json!({}), "text"),
    ] {
        let answer = ask(
            &mut host,
            "tools/call",
            json!({"name": "shout", "arguments": arguments}),
        );
        assert_eq!(answer.result()["isError"], true);
        let said = answer.result()["content"][0]["text"].as_str().unwrap().to_owned();
        assert!(said.contains(part), "{said}");
    }
    for (method, params, code) in [
        ("tools/call", json!({"name": "break"}), -32000),
        ("tools/call", json!({"name": "nothing"}), RpcError::INVALID_PARAMS),
        ("resources/read", json!({"uri": "loud://other"}), RpcError::NOT_FOUND),
        ("prompts/get", json!({"name": "other"}), RpcError::INVALID_PARAMS),
        ("completion/complete", json!({}), RpcError::INVALID_PARAMS),
        ("resources/subscribe", json!({}), RpcError::INVALID_PARAMS),
        (
            "resources/subscribe",
            json!({"uri": "x".repeat(3000)}),
            RpcError::INVALID_PARAMS,
        ),
        (
            "resources/read",
            json!({"uri": "loud://a/at/never"}),
            RpcError::NOT_FOUND,
        ),
        ("nothing/at/all", json!({}), RpcError::METHOD_NOT_FOUND),
        (
            "tools/list",
            json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}}),
            -32022,
        ),
    ] {
        assert_eq!(ask(&mut host, method, params).error()["code"], code, "{method}");
    }
}

#[test]
fn resources_and_prompts_are_given() {
    let mut host = start();
    assert_eq!(
        ask(&mut host, "resources/read", json!({"uri": "loud://text"})).result(),
        json!({"contents": [{"uri": "loud://text", "text": "AH", "mimeType": "text/plain"}]})
    );
    assert_eq!(
        ask(&mut host, "resources/list", json!({})).result()["resources"][0],
        json!({"uri": "loud://text", "name": "text", "mimeType": "text/plain"})
    );
    let listed = ask(&mut host, "prompts/list", json!({}));
    assert_eq!(
        listed.result()["prompts"][0]["arguments"],
        json!([{"name": "text", "description": "What to shout.", "required": true}, {"name": "times", "required": false}])
    );
    assert_eq!(
        ask(
            &mut host,
            "prompts/get",
            json!({"name": "shouting", "arguments": {"text": "so"}})
        )
        .result()["messages"],
        json!([{"role": "user", "content": {"type": "text", "text": "so"}}])
    );
}

#[test]
fn resources_that_are_not_known_beforehand_are_asked_for() {
    let mut host = start();
    let listed = ask(&mut host, "resources/list", json!({})).result();
    let found = &listed["resources"][1];
    let session = found["name"].as_str().unwrap();
    assert_eq!(
        *found,
        json!({"uri": format!("loud://of/{session}"), "name": session, "size": 1})
    );
    assert_eq!(
        ask(&mut host, "resources/read", json!({"uri": "loud://of/s2"})).result(),
        json!({"contents": [{"uri": "loud://of/s2", "text": "s2"}]})
    );
    let locked = ask(&mut host, "resources/read", json!({"uri": "loud://of/locked"})).error();
    assert_eq!(
        (&locked["code"], &locked["message"]),
        (&json!(-32603), &json!("it is locked"))
    );
}

#[test]
fn resources_are_found_by_templates_and_arguments_completed() {
    let mut host = start();
    assert_eq!(
        ask(&mut host, "resources/templates/list", json!({})).result()["resourceTemplates"],
        json!([{"uriTemplate": "loud://{town}/at/{hour}", "name": "hour", "mimeType": "text/plain"}])
    );
    assert_eq!(
        ask(&mut host, "resources/read", json!({"uri": "loud://Ulm/at/7"})).result()["contents"],
        json!([{"uri": "loud://Ulm/at/7", "text": "Ulm 7", "mimeType": "text/plain"}])
    );
    for (reference, of) in [
        (json!({"type": "ref/prompt", "name": "shouting"}), "shouting"),
        (
            json!({"type": "ref/resource", "uri": "loud://{town}/at/{hour}"}),
            "loud://{town}/at/{hour}",
        ),
    ] {
        let argument = json!({"name": "town", "value": "U"});
        let params = json!({"ref": reference, "argument": argument, "context": {"arguments": {"hour": "7"}}});
        let completion = ask(&mut host, "completion/complete", params).result()["completion"].clone();
        assert_eq!(completion["values"][0], format!("{of} town U 1"));
        assert_eq!(completion["values"].as_array().unwrap().len(), 100);
        assert_eq!(
            (&completion["total"], &completion["hasMore"]),
            (&json!(150), &json!(true))
        );
    }
}

#[test]
fn whoever_has_subscribed_hears_of_a_resource() {
    let mut host = start();
    let connection = connect(&mut host);
    connect(&mut host);
    let news = json!({"connectionId": connection, "method": "notifications/resources/updated", "params": {"uri": "loud://text"}});
    for (method, uri, told) in [
        ("resources/subscribe", "loud://other", false),
        ("resources/subscribe", "loud://text", true),
        ("resources/unsubscribe", "loud://text", false),
    ] {
        let params = json!({"connectionId": connection, "method": method, "params": {"uri": uri}});
        host.request(Agent, "mcp/message", params);
        assert_eq!(host.next().result(), json!({}));
        host.request(Client, "session/prompt", json!({"sessionId": "s"}));
        let sent = host.sent();
        let messages = sent.iter().filter(|sent| sent.method() == "mcp/message");
        let heard: Vec<Value> = messages
            .map(Sent::params)
            .filter(|params| params["method"] == news["method"])
            .collect();
        assert_eq!(
            heard,
            if told { vec![news.clone()] } else { Vec::new() },
            "{method} {uri}"
        );
    }
    let ask =
        |uri: String| json!({"connectionId": connection, "method": "resources/subscribe", "params": {"uri": uri}});
    for number in 0..255 {
        host.request(Agent, "mcp/message", ask(number.to_string()));
        host.next().result();
    }
    host.request(Agent, "mcp/message", ask("one more".into()));
    assert_eq!(host.next().error()["code"], RpcError::INVALID_PARAMS);
}

#[test]
fn requests_without_a_connection_are_answered_in_their_own_way() {
    let mut host = start();
    let version = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    let mut ask = |method: &str, mut params: Value| {
        params["_meta"] = version.clone();
        let message = json!({"serverId": "consort:loud", "requestId": "r1", "method": method, "params": params, "_meta": {"consort/sessionId": "s7"}});
        host.request(Agent, "mcp/message", message);
        host.next().result()
    };
    let found = ask("server/discover", json!({}));
    let result = &found["result"];
    assert_eq!(result["supportedVersions"][0], "2026-07-28");
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "loud");
    assert_eq!(
        (&result["resultType"], &result["ttlMs"]),
        (&json!("complete"), &json!(0))
    );
    assert_eq!(ask("tools/list", json!({}))["result"]["cacheScope"], "private");
    let called = ask("tools/call", json!({"name": "shout", "arguments": {"text": "a"}}));
    assert_eq!(
        called["result"],
        json!({"content": [{"type": "text", "text": "A in s7"}], "isError": false, "resultType": "complete"})
    );
    assert_eq!(
        ask("tools/call", json!({"name": "nothing"}))["error"]["code"],
        RpcError::INVALID_PARAMS
    );
}

#[test]
fn whoever_waits_hears_how_far_it_is_and_can_be_asked() {
    let mut host = start();
    let connection = connect(&mut host);
    let message = |method: &str, params: Value| json!({"connectionId": connection, "method": method, "params": params});
    host.request(
        Agent,
        "mcp/message",
        message(
            "tools/call",
            json!({"name": "shout", "arguments": {"text": "a"}, "_meta": {"progressToken": 5}}),
        ),
    );
    let told = host.next();
    let expected = json!({"progressToken": 5, "progress": 0.5, "total": 1.0, "message": "breathing in"});
    assert_eq!((told.to(), &told.params()["params"]), (Agent, &expected));
    assert_eq!(told.params()["connectionId"], connection.as_str());
    host.next();
    host.request(Agent, "mcp/message", message("tools/call", json!({"name": "ask"})));
    let asked = host.next();
    assert_eq!(
        (asked.method(), &asked.params()["method"]),
        ("mcp/message", &json!("roots/list"))
    );
    host.answer(&asked, json!({"roots": []}));
    assert_eq!(host.next().result()["content"][0]["text"], r#"{"roots":[]}"#);
}

#[test]
fn lines_for_the_log_come_to_whoever_wants_them() {
    let mut host = start();
    let connection = connect(&mut host);
    let message = |method: &str, params: Value| json!({"connectionId": connection, "method": method, "params": params});
    let logging = || message("tools/call", json!({"name": "log"}));
    for (level, lines) in [("debug", 2), ("error", 1), ("emergency", 0)] {
        host.request(
            Agent,
            "mcp/message",
            message("logging/setLevel", json!({"level": level})),
        );
        assert_eq!(host.next().result(), json!({}));
        host.request(Agent, "mcp/message", logging());
        assert_eq!(host.sent().len(), lines + 1, "{level}");
    }
    host.request(Agent, "mcp/message", message("logging/setLevel", json!({"level": "x"})));
    assert_eq!(host.next().error()["code"], RpcError::INVALID_PARAMS);
    for (meta, lines) in [
        (json!({}), 0),
        (json!({"io.modelcontextprotocol/logLevel": "warning"}), 1),
    ] {
        let params = json!({"name": "log", "_meta": meta});
        let message = json!({"serverId": "consort:loud", "requestId": "r1", "method": "tools/call", "params": params});
        host.request(Agent, "mcp/message", message);
        assert_eq!(host.sent().len(), lines + 1);
    }
}

#[test]
fn whoever_is_connected_hears_that_the_tools_are_others_now() {
    let mut host = start();
    let connection = connect(&mut host);
    for changes in [true, false] {
        host.request(Client, "session/prompt", json!({"sessionId": "s"}));
        let mut sent = host.sent();
        assert_eq!(sent.pop().unwrap().method(), "session/prompt");
        let told = sent.pop().map(|told| told.params());
        let news = json!({"connectionId": connection, "method": "notifications/tools/list_changed", "params": {}});
        assert_eq!(told, changes.then_some(news));
    }
    let listed = ask(&mut host, "tools/list", json!({}));
    assert_eq!(listed.result()["tools"].as_array().unwrap().len(), 4);
    assert_eq!(
        ask(&mut host, "tools/call", json!({"name": "ask"})).error()["code"],
        RpcError::INVALID_PARAMS
    );
}

#[test]
fn what_is_for_others_goes_on() {
    let mut host = start();
    host.request(Agent, "mcp/connect", json!({"serverId": "consort:louder"}));
    assert_eq!(host.next().method(), "mcp/connect");
    host.request(
        Agent,
        "mcp/message",
        json!({"connectionId": "other", "method": "tools/list"}),
    );
    assert_eq!(host.next().method(), "mcp/message");
    host.notify(
        Agent,
        "mcp/message",
        json!({"connectionId": "other", "method": "notifications/initialized"}),
    );
    assert_eq!(host.next().method(), "mcp/message");
    host.notify(
        Agent,
        "mcp/message",
        json!({"connectionId": "consort:loud#1", "method": "notifications/initialized"}),
    );
    host.request(Agent, "mcp/disconnect", json!({"connectionId": "consort:loud#1"}));
    assert_eq!(host.next().result(), json!({}));
}
