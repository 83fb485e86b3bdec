//! The sandbox: one WebAssembly store for each proxy and connection, and the few ways in and out of it. Knows what a turn
//! is, but not who sends what to whom; nothing of wasmtime is visible outside of this folder.

mod bindings;
mod cache;
mod channel;
pub mod describe;
mod engine;
mod instance;
mod json;
mod limits;
mod output;
mod state;

pub use engine::{Loaded, Prepared, Sandbox, read_component};
pub use instance::Instance;
pub use limits::{DEFAULT_MEMORY, ProxyLimits};
