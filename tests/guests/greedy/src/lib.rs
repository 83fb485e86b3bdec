//! Test guest: allocates memory on a configured message from either side, then passes it on.
//!
//! Configuration: `{"on": METHOD, "bytes": N, "keep": false}`; with `keep`, memory is never given back.

use std::cell::RefCell;

use consort_proxy::Peer::{Agent, Client};
use consort_proxy::{Interests, Json, Notification, Outcome, Proxy, Request};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    on: String,
    bytes: usize,
    #[serde(default)]
    keep: bool,
}

/// The proxy.
pub struct Greedy {
    config: Config,
    kept: RefCell<Vec<Vec<u8>>>,
}

impl Proxy for Greedy {
    fn start(config: Json) -> Result<(Self, Interests), String> {
        let config: Config = config.decode()?;
        let interests = Interests::new()
            .intercept(Client, &config.on)
            .intercept(Agent, &config.on);
        Ok((
            Self {
                config,
                kept: RefCell::default(),
            },
            interests,
        ))
    }

    async fn request(&self, request: Request) -> Outcome {
        self.take();
        request.forward()
    }

    async fn notification(&self, notification: Notification) -> Outcome {
        self.take();
        notification.forward()
    }
}

consort_proxy::export!(Greedy);

impl Greedy {
    fn take(&self) {
        // Not zero, and looked at, so that the pages are really there.
        let memory = std::hint::black_box(vec![1_u8; self.config.bytes]);
        if self.config.keep {
            self.kept.borrow_mut().push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use consort_proxy::testing::Harness;
    use serde_json::json;

    #[test]
    fn messages_pass() {
        let mut host = Harness::start::<Greedy>(json!({"on": "a", "bytes": 1000, "keep": true})).unwrap();
        host.request(Client, "a", json!({}));
        host.notify(Agent, "a", json!({}));
        assert_eq!(host.sent().len(), 2);
    }
}
