//! Every limit of the sandbox with its reason, in one place.

use std::time::Duration;
use wasmtime::ResourceLimiter;

/// Memory of one instance, summed over its memories and tables, unless the user sets another. A Rust proxy needs one to
/// two MiB, one with an interpreter inside 20 to 40.
pub const DEFAULT_MEMORY: u64 = 64 * 1024 * 1024;

/// What may be different for each proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyLimits {
    /// Memory of one instance in bytes, summed over its memories and tables.
    pub memory: u64,
    /// The largest message that it may send, and the largest text that it may parse, in bytes: as much as a line may have.
    pub message: usize,
}

/// How deeply text may nest that a proxy hands over. serde_json and most other parsers stop there as well.
pub(super) const MAX_DEPTH: usize = 128;

/// JSON handles that a proxy may hold at a time. One turn needs a handful; a sidecar that remembers a handle for each of
/// its sessions thousands. The default of wasmtime, 100,000, costs 0.4 ms for 20,000 when the store is dropped.
pub(super) const MAX_HANDLES: usize = 10_000;

/// JSON text behind the handles of one proxy, in messages of the largest size. Text that several handles share counts for each of
/// them, though it is in memory once.
pub(super) const MAX_HELD_MESSAGES: usize = 8;

/// Messages in one turn. A replayed session has hundreds.
pub(super) const MAX_TURN_MESSAGES: usize = 1_000;

/// Requests of one proxy without an answer. The chain gives a proxy nothing new well before that, so that one which waits with
/// each message never meets it.
pub(super) const MAX_REQUESTS: usize = 16_384;

/// Time between epoch ticks: long enough to cost nothing, short enough for a turn that lasts to be noticed at once.
pub(super) const TICK: Duration = Duration::from_millis(5);

/// Ticks that a turn has before it is moved out of the connection's way: only long turns pay for that.
pub(super) const FIRST_TICKS: u64 = 2;

/// Ticks of computing in one turn: ten seconds on an idle machine, so that a slow interpreter's start fits in.
pub(super) const TURN_TICKS: u64 = 2_000;

/// Wall-clock time of one turn, waits in the host included.
pub(super) const TURN_TIME: Duration = Duration::from_secs(30);

/// The largest component file. Interpreters inside a component make some 20 MiB.
pub(super) const MAX_COMPONENT: u64 = 128 * 1024 * 1024;

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
