//! What a proxy keeps on the user's computer: a few keys with JSON values, which survive restarts of the proxy and of Consort.
//!
//! They belong to the proxy's name in the chain, so all instances of that name share them, those of other connections included. A key
//! has at most 256 bytes; there are at most 1,000 of them, and 1 MiB in all unless the user sets another limit. What goes beyond that
//! is refused with the code [`RpcError::QUOTA`], and what was kept before stays. Requests are carried out in the order of the calls,
//! whichever is awaited first; each change is on the disk when it is answered.
//!
//! ```
//! use consort_proxy::{RpcError, host};
//!
//! async fn count() -> Result<u64, RpcError> {
//!     let count: u64 = match host::state::get("count").await? {
//!         Some(value) => value.decode()?,
//!         None => 0,
//!     };
//!     host::state::set("count", count + 1).await?;
//!     Ok(count + 1)
//! }
//! ```

use std::future::Future;

use crate::error::RpcError;
use crate::json;
use crate::json::{Content, Json};
use crate::peer::{Call, Peer};

/// The value of a key, byte for byte as it was set; none if nothing is kept under it.
///
/// # Errors
/// If the proxy may not keep anything, or the host cannot read it.
pub fn get(key: &str) -> impl Future<Output = Result<Option<Json>, RpcError>> + use<> {
    let call = Peer::Host.request("host/state/get", json!({"key": key}));
    async move { Ok(call.await?.get("/value")) }
}

/// Keeps a value under a key, in the place of what was there.
///
/// # Errors
/// [`RpcError::QUOTA`] if that would be too much; other codes if the proxy may not keep anything, or the host cannot write it.
pub fn set<C: Content>(key: &str, value: C) -> impl Future<Output = Result<(), RpcError>> + use<C> {
    let params = json!({"key": key});
    let call = match params.add("/value", value) {
        Ok(()) => Peer::Host.request("host/state/set", params),
        Err(error) => Call::failed(error.into()),
    };
    async move { call.await.map(drop) }
}

/// Removes a key and its value, if they are there.
///
/// # Errors
/// As for [`get`].
pub fn delete(key: &str) -> impl Future<Output = Result<(), RpcError>> + use<> {
    let call = Peer::Host.request("host/state/delete", json!({"key": key}));
    async move { call.await.map(drop) }
}

/// All keys, sorted.
///
/// # Errors
/// As for [`get`].
pub fn keys() -> impl Future<Output = Result<Vec<String>, RpcError>> + use<> {
    let call = Peer::Host.request("host/state/keys", json!({}));
    async move { Ok(call.await?.decode_at("/keys")?) }
}
