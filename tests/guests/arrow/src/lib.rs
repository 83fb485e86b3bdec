//! Test guest: puts `>` in front of the text of each `agent_message_chunk`, with an edit in place. Also what is measured.

use consort_proxy::Peer::Agent;
use consort_proxy::{Interests, Json, Notification, Outcome, Proxy};

/// The proxy.
pub struct Arrow;

impl Proxy for Arrow {
    fn start(_config: Json) -> Result<(Self, Interests), String> {
        Ok((Self, Interests::new().intercept(Agent, "session/update")))
    }

    async fn notification(&self, update: Notification) -> Outcome {
        let params = update.params();
        if params.is_string("/update/sessionUpdate", "agent_message_chunk")
            && let Some(mut text) = params.string("/update/content/text")
        {
            text.insert(0, '>');
            params.replace("/update/content/text", text)?;
        }
        update.forward()
    }
}

consort_proxy::export!(Arrow);

#[cfg(test)]
mod tests {
    use super::*;
    use consort_proxy::testing::Harness;

    #[test]
    fn only_the_text_of_chunks_changes() {
        let mut host = Harness::start::<Arrow>(serde_json::json!({})).unwrap();
        for (came, goes) in [
            (
                r#"{"sessionId":"s", "update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\u00e9\n"}},"n":1.10}"#,
                r#"{"sessionId":"s", "update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":">é\n"}},"n":1.10}"#,
            ),
            (
                r#"{"update":{"sessionUpdate":"plan","content":{"text":"a"}}}"#,
                r#"{"update":{"sessionUpdate":"plan","content":{"text":"a"}}}"#,
            ),
            (
                r#"{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"image"}}}"#,
                r#"{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"image"}}}"#,
            ),
        ] {
            host.notify_text(Agent, "session/update", came);
            assert_eq!(host.next().text(), goes);
        }
    }
}
