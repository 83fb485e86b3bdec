//! Test guest: never returns from a configured message.
//!
//! Configuration: `{"on": METHOD, "text": TEXT?}`: the method from either side, with a text only if the params contain it. `"on":
//! "start"` spins in `start`.

use consort_proxy::Peer::{Agent, Client};
use consort_proxy::{Interests, Json, Notification, Outcome, Proxy, Request};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    on: String,
    text: Option<String>,
}

/// The proxy.
pub struct Spin(Config);

impl Proxy for Spin {
    fn start(config: Json) -> Result<(Self, Interests), String> {
        let config: Config = config.decode()?;
        if config.on == "start" {
            spin();
        }
        let interests = Interests::new()
            .intercept(Client, &config.on)
            .intercept(Agent, &config.on);
        Ok((Self(config), interests))
    }

    async fn request(&self, request: Request) -> Outcome {
        if self.means(request.params()) {
            spin();
        }
        request.forward()
    }

    async fn notification(&self, notification: Notification) -> Outcome {
        if self.means(notification.params()) {
            spin();
        }
        notification.forward()
    }
}

consort_proxy::export!(Spin);

impl Spin {
    fn means(&self, params: &Json) -> bool {
        self.0.text.as_ref().is_none_or(|text| params.text().contains(text))
    }
}

fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = std::hint::black_box(turns.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use consort_proxy::testing::Harness;
    use serde_json::json;

    #[test]
    fn other_messages_pass() {
        let mut host = Harness::start::<Spin>(json!({"on": "a", "text": "boom"})).unwrap();
        host.request(Client, "a", json!({"text": "quiet"}));
        assert_eq!(host.sent().len(), 1);
    }
}
