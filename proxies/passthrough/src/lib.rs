//! A proxy that passes everything on. Copy this folder to begin a proxy of your own: keep what you need, and say in `start`
//! which messages you want, since whatever you don't ask for goes past your proxy at no cost.

use consort_proxy::Peer::{Agent, Client};
use consort_proxy::{Interests, Json, Notification, Outcome, Proxy, Request};

/// The proxy. State that has to last between messages goes here: in a `RefCell`, since handlers get `&self`, or by session in
/// `consort_proxy::Sessions`.
pub struct Passthrough;

impl Proxy for Passthrough {
    /// Called once. `config` is what the user wrote for this proxy, `{}` if nothing. An error is a sentence for that user.
    fn start(_config: Json) -> Result<(Self, Interests), String> {
        // Everything from both sides. Name methods instead where you can: `.intercept(Client, "session/prompt")`.
        // Version 2 of ACP, still a draft, passes as well, since nothing here depends on what is in a message.
        let interests = Interests::new()
            .intercept(Client, "*")
            .intercept(Agent, "*")
            .protocol_version(2);
        Ok((Self, interests))
    }

    /// A request from the client (such as `session/prompt`) or from the agent (such as `session/request_permission`).
    async fn request(&self, request: Request) -> Outcome {
        // Other things that can be done here:
        // - look at it: `request.params().string("/sessionId")`;
        // - change it: `request.params().add("/prompt/0", json!({"type": "text", "text": "Hello"}))?`;
        // - answer it: `request.reply(json!({"stopReason": "refusal"}))`, or `Err(RpcError::new(code, "why"))`;
        // - see the answer: `let result = request.forward_and_wait().await?;` and then `request.reply(result)`;
        // - ask something first: `Client.request("session/request_permission", params).await?`.
        request.forward()
    }

    /// A notification, such as `session/update` from the agent.
    async fn notification(&self, notification: Notification) -> Outcome {
        // `notification.discard()` would end it here.
        notification.forward()
    }
}

consort_proxy::export!(Passthrough);

#[cfg(test)]
mod tests {
    use super::*;
    use consort_proxy::testing::Harness;

    /// Unknown fields and odd numbers, as they come.
    const PARAMS: &str = r#"{"sessionId":"s1", "n":[1.10, 12345678901234567890123, 1e400], "_meta":{"x":null}}"#;

    #[test]
    fn everything_passes_byte_for_byte() {
        let mut host = Harness::start::<Passthrough>(serde_json::json!({})).unwrap();
        for (source, method) in [
            (Client, "initialize"),
            (Client, "session/prompt"),
            (Agent, "fs/read_text_file"),
        ] {
            let ticket = host.request_text(source, method, PARAMS);
            let sent = host.next();
            assert_eq!(
                (sent.to(), sent.method(), sent.ticket(), sent.text()),
                (source.opposite(), method, ticket, PARAMS)
            );
            assert!(!host.holds(ticket), "the answer goes straight back");
        }
        for source in [Client, Agent] {
            host.notify_text(source, "_any/thing", PARAMS);
            let sent = host.next();
            assert_eq!(
                (sent.to(), sent.method(), sent.text()),
                (source.opposite(), "_any/thing", PARAMS)
            );
        }
    }
}
