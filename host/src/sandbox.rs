//! The sandbox: one WebAssembly store for each proxy and connection, and the few ways in and out of it. Knows what a turn
//! is, but not who sends what to whom; nothing of wasmtime is visible outside of this folder.

mod bindings;
mod cache;
mod channel;
pub mod describe;
mod engine;
mod held;
mod instance;
mod json;
mod ledger;
mod limits;
mod meter;
mod output;
mod record;
mod seen;
mod state;

pub use engine::{Loaded, Prepared, Sandbox, read_component};
pub use instance::Instance;
pub(crate) use record::{INVENTED, MAX_INVENTED};
pub use record::{News, Record};
