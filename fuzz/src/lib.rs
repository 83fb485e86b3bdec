//! Checks of the wire on arbitrary bytes, each against a naive reference. The wire is compiled from its source, linked beside this
//! file, instead of taken from the crate `consort`: the instrumented build stays free of WebAssembly, and what is private to
//! that crate can be checked as well.

pub mod edit;
pub mod envelope;
pub mod feed;
pub mod lines;
pub mod scan;
pub mod tree;
pub mod wire;
