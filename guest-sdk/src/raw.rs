//! The world `consort:proxy` as plain types: the generated ones in a component, types of the same shape natively.
//! Owns that switch and nothing else: no meaning is given to a message here.

#[cfg(target_family = "wasm")]
pub(crate) use crate::__bindings::consort::proxy::channel::{
    Message, Notification, Peer, Refusal, Request, Response, release, send,
};
#[cfg(target_family = "wasm")]
pub(crate) use crate::__bindings::consort::proxy::json::{Content, Edit, Value};
#[cfg(target_family = "wasm")]
pub(crate) use crate::__bindings::{How, Interest, Receipt, Registration};

#[cfg(not(target_family = "wasm"))]
mod native;
#[cfg(not(target_family = "wasm"))]
mod text;
#[cfg(not(target_family = "wasm"))]
pub(crate) use native::{
    Channel, Content, Edit, Message, Notification, Peer, Receipt, Refusal, Request, Response, Value, live_values,
};
