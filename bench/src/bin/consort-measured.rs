//! The `consort` command for the benchmark: the same as the real one.

use std::process::ExitCode;
use tikv_jemallocator::Jemalloc;

/// Gives back by itself what a flood of messages has taken; the allocator of the GNU C library keeps most of that.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    consort::cli::main()
}
