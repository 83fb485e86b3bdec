//! Test guest: panics at a configured point.
//!
//! Configuration: `{"on": METHOD, "source": "client"|"agent", "when": WHEN, "text": TEXT?, "every": N?}`. With a text, only messages
//! whose params contain it count; with a number, only each Nth of those, counted anew after a restart. All others pass. WHEN is
//! - `start`: in `start`;
//! - `handler`: as soon as the message comes;
//! - `after-sleep`: in a later turn, a millisecond after it came;
//! - `after-send`: in the same turn, after it was passed on;
//! - `response`: when the answer to the request comes.

#![allow(clippy::panic, reason = "this is what the guest is for")]

use std::cell::Cell;
use std::num::NonZeroU64;
use std::time::Duration;

use consort_proxy::{Interests, Json, Notification, Outcome, Peer, Proxy, Request, host};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    on: String,
    source: Source,
    when: When,
    text: Option<String>,
    every: Option<NonZeroU64>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Source {
    Client,
    Agent,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum When {
    Start,
    Handler,
    AfterSleep,
    AfterSend,
    Response,
}

/// The proxy.
pub struct Trap {
    config: Config,
    counted: Cell<u64>,
}

impl Proxy for Trap {
    fn start(config: Json) -> Result<(Self, Interests), String> {
        let config: Config = config.decode()?;
        if config.when == When::Start {
            panic!("trap at start, as configured");
        }
        let source = match config.source {
            Source::Client => Peer::Client,
            Source::Agent => Peer::Agent,
        };
        let interests = Interests::new().intercept(source, &config.on);
        let counted = Cell::default();
        Ok((Self { config, counted }, interests))
    }

    async fn initialize(&self, request: Request) -> Outcome {
        match self.config.on.as_str() {
            "initialize" => self.request(request).await,
            _ => request.forward(),
        }
    }

    async fn request(&self, mut request: Request) -> Outcome {
        if self.spares(request.params()) {
            return request.forward();
        }
        self.before().await?;
        if self.config.when == When::Response {
            // Whatever the answer is.
            let _ = request.forward_and_wait().await;
            panic!("trap on the response, as configured");
        }
        let _ = request.forward();
        panic!("trap after sending, as configured");
    }

    async fn notification(&self, notification: Notification) -> Outcome {
        if self.spares(notification.params()) {
            return notification.forward();
        }
        self.before().await?;
        let _ = notification.forward();
        panic!("trap after sending, as configured");
    }
}

consort_proxy::export!(Trap);

impl Trap {
    fn spares(&self, params: &Json) -> bool {
        if let Some(text) = &self.config.text
            && !params.text().contains(text)
        {
            return true;
        }
        self.counted.set(self.counted.get() + 1);
        self.config
            .every
            .is_some_and(|every| !self.counted.get().is_multiple_of(every.get()))
    }

    async fn before(&self) -> Result<(), consort_proxy::RpcError> {
        match self.config.when {
            When::Handler => panic!("trap in the handler, as configured"),
            When::AfterSleep => {
                host::sleep(Duration::from_millis(1)).await?;
                panic!("trap after a sleep, as configured");
            }
            When::Start | When::AfterSend | When::Response => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Peer::{Agent, Client};
    use consort_proxy::testing::Harness;
    use serde_json::json;

    #[test]
    fn only_configured_messages_are_hit() {
        let config = json!({"on": "a", "source": "client", "when": "handler", "text": "boom"});
        let mut host = Harness::start::<Trap>(config).unwrap();
        host.request(Client, "initialize", json!({}));
        host.request(Client, "a", json!({"text": "quiet"}));
        assert_eq!(host.sent().len(), 2);
    }

    #[test]
    #[should_panic(expected = "trap in the handler")]
    fn the_text_sets_it_off() {
        let config = json!({"on": "a", "source": "client", "when": "handler", "text": "boom"});
        Harness::start::<Trap>(config)
            .unwrap()
            .request(Client, "a", json!({"text": "boom"}));
    }

    #[test]
    #[should_panic(expected = "trap in the handler")]
    fn the_third_of_those_that_count_sets_it_off() {
        let config = json!({"on": "a", "source": "client", "when": "handler", "text": "boom", "every": 3});
        let mut host = Harness::start::<Trap>(config).unwrap();
        for text in ["boom", "quiet", "boom", "quiet"] {
            host.request(Client, "a", json!({"text": text}));
        }
        assert_eq!(host.sent().len(), 4);
        host.request(Client, "a", json!({"text": "boom"}));
    }

    #[test]
    #[should_panic(expected = "trap after sending")]
    fn a_notification_is_sent_first() {
        let config = json!({"on": "a", "source": "agent", "when": "after-send"});
        Harness::start::<Trap>(config).unwrap().notify(Agent, "a", json!({}));
    }

    #[test]
    #[should_panic(expected = "trap on the response")]
    fn the_response_sets_it_off() {
        let mut host =
            Harness::start::<Trap>(json!({"on": "initialize", "source": "client", "when": "response"})).unwrap();
        host.request(Client, "initialize", json!({}));
        let sent = host.next();
        host.answer(&sent, json!({}));
    }

    #[test]
    #[should_panic(expected = "trap after a sleep")]
    fn the_clock_sets_it_off() {
        let mut host = Harness::start::<Trap>(json!({"on": "a", "source": "client", "when": "after-sleep"})).unwrap();
        host.request(Client, "a", json!({}));
        host.advance(Duration::from_millis(1));
    }
}
