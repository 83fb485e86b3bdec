//! Test guest: hands the client's requests `_state/get`, `_state/set`, `_state/delete` and `_state/keys` to the host as `host/state/…`,
//! and the answers back, byte for byte. Beyond that:
//! - `_state/trap` panics;
//! - `_state/count` adds one to the number under `count`, and answers with it;
//! - `_state/both {"key": K, "value": V}` sets a key, asks for it before that is answered, and answers with what it got;
//! - `_file/list` is handed on in the same way.

#![allow(clippy::panic, reason = "this is what the guest is for")]

use consort_proxy::Peer::{Client, Host};
use consort_proxy::{Interests, Json, Outcome, Proxy, Request, host};

/// The proxy.
pub struct Keeper;

impl Proxy for Keeper {
    fn start(_config: Json) -> Result<(Self, Interests), String> {
        Ok((
            Self,
            Interests::new()
                .intercept(Client, "_state/*")
                .intercept(Client, "_file/list")
                .observe(Client, "session/new"),
        ))
    }

    async fn request(&self, request: Request) -> Outcome {
        match request.method() {
            "_state/trap" => panic!("trap, as asked for"),
            "_state/count" => {
                let count: u64 = match host::state::get("count").await? {
                    Some(value) => value.decode()?,
                    None => 0,
                };
                host::state::set("count", count + 1).await?;
                request.reply(Json::encode(&(count + 1))?)
            }
            "_state/both" => {
                let set = Host.request("host/state/set", request.params());
                let key = request.params().string("/key").unwrap_or_default();
                let got = host::state::get(&key).await?;
                set.await?;
                request.reply(Json::encode(&got.map(|value| value.text()))?)
            }
            method => {
                let answer = Host
                    .request(&method.replacen('_', "host/", 1), request.params())
                    .await?;
                request.reply(answer)
            }
        }
    }
}

consort_proxy::export!(Keeper);

#[cfg(test)]
mod tests {
    use super::*;
    use consort_proxy::testing::Harness;
    use serde_json::json;

    #[test]
    fn what_it_is_told_is_kept() {
        let mut host = Harness::start::<Keeper>(json!({})).unwrap();
        for (method, params, answer) in [
            ("_state/set", json!({"key": "a", "value": 1}), json!({})),
            ("_state/get", json!({"key": "a"}), json!({"value": 1})),
            ("_state/both", json!({"key": "b", "value": 2}), json!("2")),
            ("_state/count", json!({}), json!(1)),
            ("_state/count", json!({}), json!(2)),
            ("_state/keys", json!({}), json!({"keys": ["a", "b", "count"]})),
            ("_state/delete", json!({"key": "a"}), json!({})),
        ] {
            host.request(Client, method, params);
            assert_eq!(host.next().result(), answer, "{method}");
        }
    }

    #[test]
    #[should_panic(expected = "trap, as asked for")]
    fn it_traps() {
        Harness::start::<Keeper>(json!({}))
            .unwrap()
            .request(Client, "_state/trap", json!({}));
    }
}
