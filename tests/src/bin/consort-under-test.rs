//! The `consort` command for the tests: the same as the real one.

use std::process::ExitCode;

fn main() -> ExitCode {
    consort::cli::main()
}
