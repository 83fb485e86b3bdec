//! Test guest: offers the tools, resources and prompts that the conformance suite of MCP asks a server for, under the names that it knows
//! them by.

use consort_proxy::mcp::{Caller, Completing, Contents, Failure, Level, Message, Reply, Server};
use consort_proxy::schemars::{self, JsonSchema};
use consort_proxy::{Interests, Json, Proxy, host};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// A picture of one pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// A sound of no length.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

#[derive(Deserialize, JsonSchema)]
struct Sample {
    /// What to ask the model.
    prompt: String,
}

#[derive(Deserialize, JsonSchema)]
struct Elicit {
    /// What to ask the user.
    message: String,
}

#[derive(Deserialize, JsonSchema)]
struct Two {
    /// The first.
    arg1: String,
    /// The second.
    arg2: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Embed {
    /// The resource.
    resource_uri: String,
}

/// The proxy.
pub struct Conformance;

fn image() -> Value {
    json!({"type": "image", "data": PNG, "mimeType": "image/png"})
}

fn embedded(uri: &str, mime_type: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": text}})
}

/// Asks the user, and tells what came of it.
async fn elicit(caller: &Caller, message: &str, properties: Value, required: Value) -> Result<String, Failure> {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    let params = json!({"message": message, "requestedSchema": schema});
    let answer = caller.request("elicitation/create", params).await?;
    let content = answer
        .get("/content")
        .map_or_else(|| "{}".to_owned(), |content| content.text());
    let action = answer.string("/action").unwrap_or_default();
    Ok(format!("Elicitation completed: action={action}, content={content}"))
}

async fn pause() -> Result<(), Failure> {
    Ok(host::sleep(Duration::from_millis(50)).await?)
}

fn contents(server: Server) -> Server {
    server
        .tool("test_simple_text", "Says something", async |_: Nothing, _: Caller| {
            Ok("This is a simple text response for testing.")
        })
        .tool("test_image_content", "Shows a picture", async |_: Nothing, _: Caller| {
            Ok(Reply::new().block(image()))
        })
        .tool("test_audio_content", "Plays a sound", async |_: Nothing, _: Caller| {
            Ok(Reply::new().block(json!({"type": "audio", "data": WAV, "mimeType": "audio/wav"})))
        })
        .tool("test_embedded_resource", "Gives a resource", async |_: Nothing, _: Caller| {
            let text = "This is an embedded resource content.";
            Ok(Reply::new().block(embedded("test://embedded-resource", "text/plain", text)))
        })
        .tool("test_multiple_content_types", "Gives one of each", async |_: Nothing, _: Caller| {
            let data = r#"{"test":"data","value":123}"#;
            Ok(Reply::new()
                .text("Multiple content types test:")
                .block(image())
                .block(embedded("test://mixed-content-resource", "application/json", data)))
        })
        .tool("test_error_handling", "Fails", async |_: Nothing, _: Caller| {
            Err::<Reply, _>(Failure::from("This tool intentionally returns an error for testing"))
        })
        .tool_with(
            "json_schema_2020_12_tool",
            "Has a schema of its own",
            json!({"inputSchema": {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
                "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
                "additionalProperties": false,
            }}),
            async |_: Nothing, _: Caller| Ok("It is kept."),
        )
}

fn talks(server: Server) -> Server {
    server
        .tool("test_tool_with_logging", "Logs", async |_: Nothing, caller: Caller| {
            caller.log(Level::Info, "Tool execution started");
            pause().await?;
            caller.log(Level::Info, "Tool processing data");
            pause().await?;
            caller.log(Level::Info, "Tool execution completed");
            Ok("It has logged.")
        })
        .tool(
            "test_tool_with_progress",
            "Tells how far it is",
            async |_: Nothing, caller: Caller| {
                for done in [0.0, 50.0, 100.0] {
                    caller.progress(done, Some(100.0), None);
                    pause().await?;
                }
                Ok("It is done.")
            },
        )
        .tool(
            "test_sampling",
            "Asks the model",
            async |sample: Sample, caller: Caller| {
                let content = json!({"type": "text", "text": sample.prompt});
                let params = json!({"messages": [{"role": "user", "content": content}], "maxTokens": 100});
                let answer = caller.request("sampling/createMessage", params).await?;
                let said = answer.string("/content/text").unwrap_or_default();
                Ok(format!("LLM response: {said}"))
            },
        )
        .tool(
            "test_elicitation",
            "Asks the user",
            async |ask: Elicit, caller: Caller| {
                let text = |description: &str| json!({"type": "string", "description": description});
                let properties = json!({"username": text("User's response"), "email": text("User's email address")});
                elicit(&caller, &ask.message, properties, json!(["username", "email"])).await
            },
        )
        .tool(
            "test_elicitation_sep1034_defaults",
            "Suggests answers",
            async |_: Nothing, caller: Caller| {
                let properties = json!({
                    "name": {"type": "string", "default": "John Doe"},
                    "age": {"type": "integer", "default": 30},
                    "score": {"type": "number", "default": 95.5},
                    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
                    "verified": {"type": "boolean", "default": true},
                });
                elicit(&caller, "Who are you?", properties, json!([])).await
            },
        )
        .tool(
            "test_elicitation_sep1330_enums",
            "Lets the user choose",
            async |_: Nothing, caller: Caller| {
                let options = json!(["option1", "option2", "option3"]);
                let titled = |title: &str| {
                    json!([
                        {"const": "value1", "title": format!("First {title}")},
                        {"const": "value2", "title": format!("Second {title}")},
                        {"const": "value3", "title": format!("Third {title}")},
                    ])
                };
                let properties = json!({
                    "untitledSingle": {"type": "string", "enum": options},
                    "titledSingle": {"type": "string", "oneOf": titled("Option")},
                    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"],
                        "enumNames": ["Option One", "Option Two", "Option Three"]},
                    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
                    "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice")}},
                });
                elicit(&caller, "What do you like?", properties, json!([])).await
            },
        )
}

fn things(server: Server) -> Server {
    server
        .resource(
            "test://static-text",
            "text",
            json!({"mimeType": "text/plain"}),
            async |_: Caller| {
                Ok(Contents::Text(
                    "This is the content of the static text resource.".to_owned(),
                ))
            },
        )
        .resource(
            "test://static-binary",
            "binary",
            json!({"mimeType": "image/png"}),
            async |_: Caller| {
                Ok(Contents::Blob {
                    base64: PNG.to_owned(),
                    mime_type: "image/png".to_owned(),
                })
            },
        )
        .resource_template(
            "test://template/{id}/data",
            "template",
            json!({"mimeType": "application/json"}),
            async |variables: BTreeMap<String, String>, _: Caller| {
                let data = json!({"id": variables.get("id"), "templateTest": true});
                Ok(Some(Contents::Text(data.to_string())))
            },
        )
        .resource(
            "test://watched-resource",
            "watched",
            json!({"mimeType": "text/plain"}),
            async |_: Caller| Ok(Contents::Text("This is watched.".to_owned())),
        )
        .completion(async |completing: Completing, _: Caller| {
            let all = ["paris", "park", "party", "testing"].map(str::to_owned);
            Ok(all
                .into_iter()
                .filter(|one| one.starts_with(&completing.value))
                .collect())
        })
        .prompt("test_simple_prompt", "Says something", async |_: Nothing, _: Caller| {
            Ok(vec![Message::user("This is a simple prompt for testing.")])
        })
        .prompt(
            "test_prompt_with_arguments",
            "Says two things",
            async |two: Two, _: Caller| {
                let Two { arg1, arg2 } = two;
                Ok(vec![Message::user(format!(
                    "Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"
                ))])
            },
        )
        .prompt(
            "test_prompt_with_embedded_resource",
            "Gives a resource",
            async |embed: Embed, _: Caller| {
                let text = "Embedded resource content for testing.";
                Ok(vec![
                    Message::user_block(embedded(&embed.resource_uri, "text/plain", text)),
                    Message::user("Please process the embedded resource above."),
                ])
            },
        )
        .prompt(
            "test_prompt_with_image",
            "Shows a picture",
            async |_: Nothing, _: Caller| {
                Ok(vec![
                    Message::user_block(image()),
                    Message::user("Please analyze the image above."),
                ])
            },
        )
}

impl Proxy for Conformance {
    fn start(_config: Json) -> Result<(Self, Interests), String> {
        let server = things(talks(contents(Server::new("conformance", "1.0"))));
        Ok((Self, Interests::new().serve(server)))
    }
}

consort_proxy::export!(Conformance);
