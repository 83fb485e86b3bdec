//! The limits of the sandbox that are the same for every proxy, with their reasons. Those that may differ stand in
//! [`crate::limits`].

use std::time::Duration;
use wasmtime::ResourceLimiter;

/// How deeply text may nest that a proxy hands over. serde_json and most other parsers stop there as well.
pub(super) const MAX_DEPTH: usize = 128;

/// Text that a proxy was given and has behind handles, in messages of the largest size, or of the size of the largest that it got. Text
/// that several handles share counts for each of them, though it is in memory once.
pub(super) const MAX_HELD_MESSAGES: usize = 8;

/// Time between epoch ticks: long enough to cost nothing, short enough for a turn that lasts to be noticed at once.
pub(super) const TICK: Duration = Duration::from_millis(5);

/// Ticks that a turn has before it is moved out of the connection's way: only long turns pay for that.
pub(super) const FIRST_TICKS: u64 = 2;

/// Text above this size is worth a look at the clock when the host works on it: reading it takes some 10 µs.
pub(super) const LARGE_TEXT: usize = 64 * 1024;

/// The largest component file. Interpreters inside a component make some 20 MiB.
pub(super) const MAX_COMPONENT: u64 = 128 * 1024 * 1024;

/// Handles of WASI that a proxy may have at a time: streams, timers and open files. Programs have a handful; a thousand and more would
/// be all the descriptors that a process usually may have.
pub(super) const MAX_WASI: usize = 200;

/// Bytes of random numbers in one call.
pub(super) const MAX_RANDOM: u64 = 64 * 1024;

/// Sums the memory of all memories and tables of an instance.
#[derive(Debug)]
pub(super) struct Limiter {
    used: u64,
    limit: u64,
    /// Whether something was refused: tells a memory fault from another trap.
    pub(super) refused: bool,
}

impl Limiter {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            used: 0,
            limit,
            refused: false,
        }
    }

    /// Bytes that were given.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Passes on whether something else fits, as a trap if not.
    pub(super) fn fits(&mut self, counted: Result<(), String>) -> wasmtime::Result<()> {
        counted.map_err(|reason| {
            self.refused = true;
            wasmtime::Error::msg(reason)
        })
    }

    fn grow(&mut self, bytes: u64) -> bool {
        let fits = self.used.saturating_add(bytes) <= self.limit;
        if fits {
            self.used += bytes;
        } else {
            self.refused = true;
        }
        fits
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.grow(desired.saturating_sub(current) as u64))
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        // An element is a pointer.
        Ok(self.grow(desired.saturating_sub(current) as u64 * size_of::<usize>() as u64))
    }

    fn instances(&self) -> usize {
        64
    }

    fn tables(&self) -> usize {
        64
    }

    fn memories(&self) -> usize {
        16
    }
}
