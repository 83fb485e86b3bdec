//! Where proxies run.

pub mod describe;
