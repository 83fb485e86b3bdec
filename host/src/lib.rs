//! Consort: a conductor for the Agent Client Protocol that runs its proxies as sandboxed WebAssembly components.
//!
//! Data flows one way: a line from the [`wire`] becomes a message of the chain, the chain gives it to proxies in the
//! [`sandbox`], takes what they send, and hands it to the wire of the other side.

pub mod agent;
pub mod audit;
pub mod bridge;
pub mod build;
pub mod chain;
pub mod check;
pub mod cli;
pub mod config;
pub mod connection;
pub mod demo_agent;
mod digest;
pub mod fault;
pub mod file_list;
pub mod folders;
pub mod grants;
mod hash;
pub mod limits;
pub mod log;
pub mod manifest;
pub mod message;
mod private_file;
mod random;
pub mod sandbox;
pub mod saved_state;
pub mod tap;
pub mod trace;
pub mod units;
pub mod wire;
