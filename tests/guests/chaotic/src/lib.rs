//! Test guest: puts its mark on prompts and on chunks, and misbehaves at random, the same way for the same seed.
//!
//! Configuration: `{"seed": N, "mark": "a", "rate": N, "kinds": ["trap", …]}`: of a thousand messages so many make it misbehave, in one
//! of these ways:
//! - `trap`: panics; `late`: panics in a later turn; `sent`: panics after it has sent the message on;
//! - `spin`, `memory`, `exit`, `block`: computes for ever, takes memory for ever, exits, sleeps for ever without giving way;
//! - `hold`: does nothing about the message any more;
//! - `storm`: sends nearly as many messages as a turn may have; `lie`: sends messages that are not its own to send; both go on then.

#![allow(clippy::panic, reason = "this is what the guest is for")]

use std::cell::Cell;
use std::hint::black_box;
use std::time::Duration;

use consort_proxy::Peer::{Agent, Client};
use consort_proxy::{Interests, Json, Notification, Outcome, Proxy, Request, host, json};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    seed: u64,
    mark: String,
    rate: u64,
    kinds: Vec<Kind>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Trap,
    Late,
    Sent,
    Spin,
    Memory,
    Exit,
    Block,
    Hold,
    Storm,
    Lie,
}

/// The proxy.
pub struct Chaotic {
    config: Config,
    random: Cell<u64>,
}

impl Proxy for Chaotic {
    fn start(config: Json) -> Result<(Self, Interests), String> {
        let config: Config = config.decode()?;
        let random = Cell::new(config.seed | 1);
        let interests = Interests::new()
            .intercept(Client, "session/prompt")
            .intercept(Agent, "session/update");
        Ok((Self { config, random }, interests))
    }

    async fn request(&self, mut request: Request) -> Outcome {
        let kind = self.misbehaviour();
        self.before(kind).await?;
        let block = json!({"type": "text", "text": self.config.mark.as_str()});
        request.params().add("/prompt/-", block)?;
        if matches!(kind, Some(Kind::Sent)) {
            let _ = request.forward();
            panic!("a panic after sending");
        }
        if self.next().is_multiple_of(2) {
            return request.forward();
        }
        let result = request.forward_and_wait().await?;
        request.reply(result)
    }

    async fn notification(&self, update: Notification) -> Outcome {
        let kind = self.misbehaviour();
        self.before(kind).await?;
        if let Some(text) = update.params().string("/update/content/text") {
            let marked = format!("{text}{}", self.config.mark);
            update.params().replace("/update/content/text", marked)?;
        }
        let outcome = update.forward();
        if matches!(kind, Some(Kind::Sent)) {
            panic!("a panic after sending");
        }
        outcome
    }
}

consort_proxy::export!(Chaotic);

impl Chaotic {
    /// A number of xorshift.
    fn next(&self) -> u64 {
        let mut number = self.random.get();
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        self.random.set(number);
        number
    }

    fn misbehaviour(&self) -> Option<Kind> {
        let kinds = &self.config.kinds;
        if kinds.is_empty() || self.next() % 1_000 >= self.config.rate {
            return None;
        }
        let at = self.next() % kinds.len() as u64;
        kinds.get(usize::try_from(at).unwrap_or(0)).copied()
    }

    async fn before(&self, kind: Option<Kind>) -> Result<(), consort_proxy::RpcError> {
        match kind {
            None | Some(Kind::Sent) => {}
            Some(Kind::Trap) => panic!("a panic"),
            Some(Kind::Late) => {
                host::sleep(Duration::from_millis(1)).await?;
                panic!("a panic in a later turn");
            }
            Some(Kind::Spin) => loop {
                black_box(self.next());
            },
            Some(Kind::Memory) => {
                let mut all = Vec::new();
                loop {
                    all.push(black_box(vec![1_u8; 1 << 20]));
                }
            }
            Some(Kind::Exit) => std::process::exit(3),
            Some(Kind::Block) => std::thread::sleep(Duration::from_secs(3_600)),
            Some(Kind::Hold) => std::future::pending().await,
            Some(Kind::Storm) => {
                // A turn may have a thousand.
                for number in 0..900 {
                    // Refused some time.
                    let _ = Client.notify("_chaos/storm", json!({"n": number}));
                }
            }
            Some(Kind::Lie) => {
                let lie = json!({"sessionId": "nobody", "update": {"sessionUpdate": "agent_message_chunk"}});
                let _ = Client.notify("session/update", lie);
                let _ = Agent.notify("session/cancel", json!({"sessionId": "s1"}));
                let _ = Client.notify("terminal/create", json!({"command": "sh"}));
                let _ = Client.notify("_proxy/successor", json!({"method": "x"}));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use consort_proxy::testing::Harness;

    #[test]
    fn without_misbehaving_it_marks_and_passes_on() {
        let config = serde_json::json!({"seed": 1, "mark": "a", "rate": 0, "kinds": []});
        let mut host = Harness::start::<Chaotic>(config).unwrap();
        host.request(Client, "session/prompt", serde_json::json!({"prompt": []}));
        assert_eq!(host.next().params()["prompt"][0]["text"], "a");
        host.notify(
            Agent,
            "session/update",
            serde_json::json!({"update": {"content": {"text": "1 "}}}),
        );
        assert_eq!(host.next().params()["update"]["content"]["text"], "1 a");
    }
}
