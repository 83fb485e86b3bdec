//! Test guest: puts its mark on what its configuration names. Also what is measured.
//!
//! Configuration: `{"prompts": false, "updates": false, "permissions": false}`:
//! - `prompts`: puts a text block in front of each prompt, without looking at the rest of it;
//! - `updates`: puts `>` in front of the text of each `agent_message_chunk`;
//! - `permissions`: puts `>` in front of the title in each question for permission.
//!
//! With nothing of that, everything goes past it.

use consort_proxy::Peer::{Agent, Client};
use consort_proxy::{Interests, Json, Notification, Outcome, Proxy, Request, json};
use serde::Deserialize;

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    prompts: bool,
    updates: bool,
    permissions: bool,
}

/// The proxy.
pub struct Marker;

impl Proxy for Marker {
    fn start(config: Json) -> Result<(Self, Interests), String> {
        let config: Config = config.decode()?;
        let mut interests = Interests::new();
        if config.prompts {
            interests = interests.intercept(Client, "session/prompt");
        }
        if config.updates {
            interests = interests.intercept(Agent, "session/update");
        }
        if config.permissions {
            interests = interests.intercept(Agent, "session/request_permission");
        }
        Ok((Self, interests))
    }

    async fn request(&self, request: Request) -> Outcome {
        let params = request.params();
        match request.source() {
            Client => params.add("/prompt/0", json!({"type": "text", "text": "a block of context"}))?,
            _ => mark(params, "/toolCall/title")?,
        }
        request.forward()
    }

    async fn notification(&self, update: Notification) -> Outcome {
        if update
            .params()
            .is_string("/update/sessionUpdate", "agent_message_chunk")
        {
            mark(update.params(), "/update/content/text")?;
        }
        update.forward()
    }
}

consort_proxy::export!(Marker);

fn mark(params: &Json, pointer: &str) -> Result<(), consort_proxy::JsonError> {
    match params.string(pointer) {
        Some(mut text) => {
            text.insert(0, '>');
            params.replace(pointer, text)
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use consort_proxy::testing::Harness;

    #[test]
    fn each_has_its_mark() {
        let mut host =
            Harness::start::<Marker>(serde_json::json!({"prompts": true, "updates": true, "permissions": true}))
                .unwrap();
        host.request_text(Client, "session/prompt", r#"{"prompt":[{"n":1.10}]}"#);
        assert_eq!(
            host.next().text(),
            r#"{"prompt":[{"type":"text","text":"a block of context"},{"n":1.10}]}"#
        );
        host.request_text(Agent, "session/request_permission", r#"{"toolCall":{"title":"a"}}"#);
        assert_eq!(host.next().text(), r#"{"toolCall":{"title":">a"}}"#);
        let update = r#"{"update":{"sessionUpdate":"agent_message_chunk","content":{"text":"a"}}}"#;
        host.notify_text(Agent, "session/update", update);
        assert_eq!(host.next().text(), update.replace("\"a\"", "\">a\""));
        let plan = r#"{"update":{"sessionUpdate":"plan","content":{"text":"a"}}}"#;
        host.notify_text(Agent, "session/update", plan);
        assert_eq!(host.next().text(), plan);
    }
}
