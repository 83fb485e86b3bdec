//! The bridge as MCP's own client library uses it, which agents are built with: over HTTP and by starting a server, and in the
//! revisions that it speaks.

use consort_tests::mcp::start;
use rmcp::ServiceExt;
use rmcp::model::{CallToolRequestParams, ErrorCode, object};
use rmcp::service::{RoleClient, RunningService, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use serde_json::{Value, json};

async fn uses_it(client: RunningService<RoleClient, ()>) {
    let info = client.peer_info().expect("the server has introduced itself");
    assert_eq!(info.instructions.as_deref(), Some("Nothing here does any harm."));
    let tools = client.list_all_tools().await.expect("tools are listed");
    assert_eq!(tools[0].name, "echo");
    let call = |name: &'static str, arguments: Value| {
        client.call_tool(CallToolRequestParams::new(name).with_arguments(object(arguments)))
    };
    let echoed = call("echo", json!({"text": "é"})).await.expect("the tool answers");
    assert_eq!(
        serde_json::to_value(&echoed.content).unwrap(),
        json!([{"type": "text", "text": "é"}])
    );
    let session = call("session", json!({})).await.expect("the tool answers");
    assert_eq!(session.structured_content, Some(json!({"session": "s1"})));
    let failed = call("fail", json!({"text": "no"})).await.expect("the tool answers");
    assert_eq!(failed.is_error, Some(true));
    match call("break", json!({})).await {
        Err(ServiceError::McpError(error)) => assert_eq!(error.code, ErrorCode(-32042)),
        other => panic!("not the tool's error: {other:?}"),
    }
    let many = (0..50).map(|number| call("echo", json!({"text": number.to_string()})));
    for (number, answer) in many.enumerate() {
        let answer = answer.await.expect("the tool answers");
        assert_eq!(
            serde_json::to_value(&answer.content).unwrap()[0]["text"],
            number.to_string()
        );
    }
    client.cancel().await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http() {
    let (_client, _agent, entry) = start(&json!({"http": true}));
    let bearer = entry["headers"][0]["value"]
        .as_str()
        .unwrap()
        .trim_start_matches("Bearer ");
    let config = StreamableHttpClientTransportConfig::with_uri(entry["url"].as_str().unwrap()).auth_header(bearer);
    let client = ().serve(StreamableHttpClientTransport::from_config(config)).await;
    uses_it(client.expect("the client connects")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_starting_it() {
    let (_client, _agent, entry) = start(&json!({}));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut command = tokio::process::Command::new(text(&entry["command"]));
    command.args(entry["args"].as_array().unwrap().iter().map(text));
    command.env(text(&entry["env"][0]["name"]), text(&entry["env"][0]["value"]));
    let client = ().serve(TokioChildProcess::new(command).expect("it starts")).await;
    uses_it(client.expect("the client connects")).await;
}
