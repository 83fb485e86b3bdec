//! Test guest: offers an MCP server with tools that answer at once, late, at length, with errors of both kinds, and that ask the agent.

#![allow(clippy::panic, reason = "a tool of the guest takes it down, for the tests")]

use consort_proxy::mcp::{Caller, Contents, Failure, Level, Message, Reply, Server, Structured};
use consort_proxy::schemars::{self, JsonSchema};
use consort_proxy::{Interests, Json, Proxy, host};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

#[derive(Deserialize, JsonSchema)]
struct Say {
    /// What to say.
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Much {
    /// How many bytes to give.
    bytes: usize,
}

#[derive(Deserialize, JsonSchema)]
struct Wait {
    /// How many milliseconds to take.
    milliseconds: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Ask {
    /// A method that MCP clients answer.
    method: String,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// The proxy.
pub struct Offers;

impl Proxy for Offers {
    fn start(config: Json) -> Result<(Self, Interests), String> {
        let name = config.string("/name").unwrap_or_else(|| "offers".to_owned());
        let server = Server::new(name, "1.0")
            .instructions("Nothing here does any harm.")
            .tool("echo", "Says it again", async |say: Say, _: Caller| Ok(say.text))
            .tool("session", "Tells the session", async |_: Nothing, caller: Caller| {
                Ok(Structured(json!({"session": caller.session()})))
            })
            .tool("much", "Gives much", async |much: Much, _: Caller| {
                Ok("x".repeat(much.bytes))
            })
            .tool(
                "wait",
                "Takes its time, and tells so",
                async |wait: Wait, caller: Caller| {
                    for step in 0..4_u32 {
                        caller.progress(f64::from(step), Some(4.0), Some("waiting"));
                        host::sleep(Duration::from_millis(wait.milliseconds / 4)).await?;
                    }
                    caller.log(Level::Info, "waited");
                    Ok("done")
                },
            )
            .tool("fail", "Fails", async |say: Say, _: Caller| {
                Err::<Reply, _>(Failure::from(say.text))
            })
            .tool("break", "Breaks the protocol", async |_: Nothing, _: Caller| {
                Err::<Reply, _>(Failure::protocol(-32042, "broken on purpose"))
            })
            .tool(
                "trap",
                "Takes the whole proxy down",
                async |_: Nothing, _: Caller| -> Result<Reply, Failure> { panic!("on purpose") },
            )
            .tool("ask", "Asks the agent", async |ask: Ask, caller: Caller| {
                Ok(caller.request(&ask.method, json!({})).await?.text())
            })
            .resource(
                "offers://text",
                "text",
                json!({"mimeType": "text/plain"}),
                async |_: Caller| Ok(Contents::Text("a text".to_owned())),
            )
            .prompt("greet", "Greets", async |say: Say, _: Caller| {
                Ok(vec![Message::user(format!("Hello, {}", say.text))])
            });
        let server = match config.is_string("/scope", "session") {
            true => server.each_session(),
            false => server,
        };
        Ok((Self, Interests::new().serve(server)))
    }
}

consort_proxy::export!(Offers);
