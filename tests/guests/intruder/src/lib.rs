//! Test guest: does what its configuration says, whether or not that is allowed, and says on its output what came of it. It speaks
//! the bare world, so that it can also do what the SDK would never do. Without a rule for a message it passes it on.
//!
//! Configuration: see [`script::Script`].

#[cfg(target_family = "wasm")]
mod channel;
pub mod script;
#[cfg(target_family = "wasm")]
mod surroundings;
