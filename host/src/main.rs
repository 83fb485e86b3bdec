//! The `consort` command; all of it is in the library's `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    consort::cli::main()
}
