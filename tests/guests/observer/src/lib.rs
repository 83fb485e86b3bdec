//! Test guest: watches everything from both sides, logs each copy, and answers the client's request `_observer/count` with
//! `{"copies": N, "requests": N, "notifications": N, "responses": N, "lost": N}`.
//!
//! Configuration: none, or `{"answers": false}`: then it only watches.

use std::cell::Cell;

use consort_proxy::Peer::{Agent, Client};
use consort_proxy::{Interests, Json, Observed, Outcome, Proxy, Request, Seen, info, json};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    answers: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { answers: true }
    }
}

/// The proxy.
#[derive(Default)]
pub struct Observer {
    requests: Cell<u64>,
    notifications: Cell<u64>,
    responses: Cell<u64>,
    lost: Cell<u64>,
}

impl Proxy for Observer {
    fn start(config: Json) -> Result<(Self, Interests), String> {
        let config: Config = config.decode()?;
        let watching = Interests::new().observe(Client, "*").observe(Agent, "*");
        let interests = match config.answers {
            true => watching.intercept(Client, "_observer/count"),
            false => watching,
        };
        Ok((Self::default(), interests))
    }

    async fn request(&self, request: Request) -> Outcome {
        let [requests, notifications, responses, lost] =
            [&self.requests, &self.notifications, &self.responses, &self.lost].map(Cell::get);
        request.reply(json!({
            "copies": requests + notifications + responses,
            "requests": requests,
            "notifications": notifications,
            "responses": responses,
            "lost": lost,
        }))
    }

    async fn observe(&self, observed: Observed) {
        let Observed {
            source,
            ticket,
            message,
        } = observed;
        let counter = match message {
            Seen::Request { method, .. } => {
                info!("request {ticket} from {source:?}: {method}");
                &self.requests
            }
            Seen::Notification { method, .. } => {
                info!("notification {ticket} from {source:?}: {method}");
                &self.notifications
            }
            Seen::Response { outcome } => {
                info!(
                    "response {ticket} from {source:?}: {}",
                    if outcome.is_ok() { "result" } else { "error" }
                );
                &self.responses
            }
        };
        counter.set(counter.get() + 1);
    }

    fn lost(&self, copies: u64) {
        self.lost.set(self.lost.get() + copies);
    }
}

consort_proxy::export!(Observer);

#[cfg(test)]
mod tests {
    use super::*;
    use consort_proxy::Peer::Host;
    use consort_proxy::testing::Harness;

    #[test]
    fn copies_are_counted_and_nothing_is_sent() {
        let mut host = Harness::start::<Observer>(serde_json::json!({})).unwrap();
        let request = host.request(Client, "session/prompt", serde_json::json!({}));
        host.notify(Agent, "session/update", serde_json::json!({}));
        host.answer_observed(Agent, request, Ok("{}"));
        host.notify(Host, "host/lost", serde_json::json!({"copies": 7}));
        assert!(host.sent().is_empty());
        assert_eq!(host.logs().len(), 3);
        host.request(Client, "_observer/count", serde_json::json!({}));
        let counts = serde_json::json!({"copies": 3, "requests": 1, "notifications": 1, "responses": 1, "lost": 7});
        assert_eq!(host.next().result(), counts);
    }
}
