//! Test guest: lets configured messages from either side wait before it passes them on.
//!
//! Configuration: `{"milliseconds": N, "methods": ["session/prompt", …]}`.

use std::time::Duration;

use consort_proxy::Peer::{Agent, Client};
use consort_proxy::{Interests, Json, Notification, Outcome, Proxy, Request, host};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    milliseconds: u64,
    methods: Vec<String>,
}

/// The proxy.
pub struct Slow(Duration);

impl Proxy for Slow {
    fn start(config: Json) -> Result<(Self, Interests), String> {
        let config: Config = config.decode()?;
        let both = |interests: Interests, method: &String| interests.intercept(Client, method).intercept(Agent, method);
        let interests = config.methods.iter().fold(Interests::new(), both);
        Ok((Self(Duration::from_millis(config.milliseconds)), interests))
    }

    async fn request(&self, request: Request) -> Outcome {
        host::sleep(self.0).await?;
        request.forward()
    }

    async fn notification(&self, notification: Notification) -> Outcome {
        host::sleep(self.0).await?;
        notification.forward()
    }
}

consort_proxy::export!(Slow);

#[cfg(test)]
mod tests {
    use super::*;
    use consort_proxy::testing::Harness;
    use serde_json::json;

    #[test]
    fn messages_wait_for_the_clock() {
        let mut host = Harness::start::<Slow>(json!({"milliseconds": 200, "methods": ["a", "b"]})).unwrap();
        let request = host.request(Client, "a", json!({}));
        let notification = host.notify(Agent, "b", json!({}));
        host.advance(Duration::from_millis(199));
        assert!(host.sent().is_empty() && host.holds(request) && host.holds(notification));
        host.advance(Duration::from_millis(1));
        let tickets: Vec<_> = host.sent().iter().map(|sent| sent.ticket()).collect();
        assert_eq!(tickets, [request, notification]);
    }
}
