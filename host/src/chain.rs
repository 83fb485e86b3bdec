//! The chain: who gets which message next. A state machine without input or output of its own: lines' messages and turns'
//! results go in, bytes for the two edges, turns and effects come out. Must not know WebAssembly, processes or clocks other
//! than through [`Effect`].

mod ahead;
#[cfg(test)]
mod bench;
mod bridged;
mod cancel;
mod commit;
mod conductor;
mod edges;
mod handshake;
mod holding;
mod host;
mod interest;
mod lanes;
mod mcp_sessions;
#[cfg(test)]
mod model;
mod notice;
mod parcel;
mod proxy;
mod recovery;
mod restarts;
mod router;
mod routes;
mod sessions;
mod status;
#[cfg(test)]
mod tests;
mod travel;
mod turns;
mod watch;

pub use conductor::Role;
pub(crate) use host::{file_answer, list_answer};
pub use router::{Effect, ProxySetup, Router};
