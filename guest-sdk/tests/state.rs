//! Saved state, as a proxy and its tests use it.

#![allow(clippy::unwrap_used, reason = "a test that finds something else has to fail")]

use consort_proxy::Peer::{Client, Host};
use consort_proxy::testing::{Harness, live_handles};
use consort_proxy::{Interests, Json, Outcome, Proxy, Raw, Request, RpcError, host};
use serde_json::json;

/// Keeps what it is given, and answers with what was there.
struct Keeper;

impl Proxy for Keeper {
    fn start(_: Json) -> Result<(Self, Interests), String> {
        Ok((Self, Interests::new().intercept(Client, "*")))
    }

    async fn request(&self, request: Request) -> Outcome {
        let key = request.params().string("/key").unwrap_or_default();
        // In the order of the calls, not in that of waiting.
        let before = host::state::get(&key);
        let written = match request.params().get("/value") {
            Some(value) => host::state::set(&key, &value).await,
            None => host::state::delete(&key).await,
        };
        if let Err(error) = written {
            return request.reply(Json::encode(&(error.code(), host::state::keys().await?))?);
        }
        match before.await? {
            Some(value) => request.reply(value),
            None => request.reply(Raw("\"nothing\"")),
        }
    }
}

#[test]
fn what_was_kept_is_read_byte_for_byte() {
    let mut host = Harness::start::<Keeper>(json!({})).unwrap();
    host.save("a", json!([1]));
    for (params, answer) in [
        (r#"{"key":"a","value":{"n": 1.10}}"#, "[1]"),
        (r#"{"key":"a","value":null}"#, r#"{"n": 1.10}"#),
        (r#"{"key":"a"}"#, "null"),
        (r#"{"key":"a"}"#, "\"nothing\""),
    ] {
        host.request_text(Client, "keep", params);
        assert_eq!(host.next().text(), answer, "{params}");
    }
    assert_eq!((host.saved("a"), live_handles()), (None, 0));
}

#[test]
fn a_quota_and_a_missing_grant_are_errors() {
    let mut host = Harness::start::<Keeper>(json!({})).unwrap();
    host.save("a", json!(1));
    host.limit_saved(10);
    host.request(Client, "keep", json!({"key": "b", "value": "long enough"}));
    assert_eq!(host.next().result(), json!([RpcError::QUOTA, ["a"]]));
    host.request(Client, "keep", json!({"key": "k".repeat(257), "value": 1}));
    assert_eq!(host.next().result(), json!([RpcError::INVALID_PARAMS, ["a"]]));
    host.deny(Host, "host/state/delete");
    host.request(Client, "keep", json!({"key": "a"}));
    assert!(host.next().result()[0].is_i64());
    assert_eq!(host.saved("a").as_deref(), Some("1"));
}
