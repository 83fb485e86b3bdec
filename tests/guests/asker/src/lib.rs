//! Test guest: asks the client with `session/request_permission` before it passes a prompt on. What is not allowed ends the turn with
//! the stop reason `refusal`.
//!
//! Configuration: none, or `{"method": METHOD}` for another request than `session/request_permission`.

use consort_proxy::Peer::Client;
use consort_proxy::{Interests, Json, Outcome, Proxy, Request, json};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    method: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            method: "session/request_permission".to_owned(),
        }
    }
}

/// The proxy.
pub struct Asker(Config);

impl Proxy for Asker {
    fn start(config: Json) -> Result<(Self, Interests), String> {
        Ok((
            Self(config.decode()?),
            Interests::new().intercept(Client, "session/prompt"),
        ))
    }

    async fn request(&self, request: Request) -> Outcome {
        let question = json!({
            "sessionId": request.session_id().unwrap_or_default(),
            "toolCall": {"toolCallId": format!("asker-{}", request.ticket()), "title": "Send this prompt to the agent"},
            "options": [
                {"optionId": "allow", "name": "Send", "kind": "allow_once"},
                {"optionId": "reject", "name": "Don't send", "kind": "reject_once"},
            ],
        });
        let answer = Client.request(&self.0.method, question).await?;
        match answer.is_string("/outcome/optionId", "allow") {
            true => request.forward(),
            false => request.reply(json!({"stopReason": "refusal"})),
        }
    }
}

consort_proxy::export!(Asker);

#[cfg(test)]
mod tests {
    use super::*;
    use consort_proxy::Peer::Agent;
    use consort_proxy::testing::Harness;
    use serde_json::json;

    #[test]
    fn the_client_decides() {
        let mut host = Harness::start::<Asker>(json!({})).unwrap();
        for (option, to) in [("allow", Agent), ("reject", Client)] {
            let ticket = host.request(Client, "session/prompt", json!({"sessionId": "s1", "prompt": []}));
            let question = host.next();
            assert_eq!((question.to(), question.on_behalf_of()), (Client, Some(ticket)));
            assert_eq!(question.params()["sessionId"], "s1");
            assert!(host.holds(ticket));
            host.answer(
                &question,
                json!({"outcome": {"outcome": "selected", "optionId": option}}),
            );
            let sent = host.next();
            assert_eq!((sent.to(), sent.ticket()), (to, ticket));
        }
    }
}
