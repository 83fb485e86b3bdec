//! What the end-to-end tests share: the command under test, a client and an agent that say exactly what a test wants them to say,
//! line by line, and the guests. Nothing here knows what ACP means beyond a few helpers to get a session.

pub mod agent;
pub mod chains;
pub mod client;
pub mod command;
pub mod directory;
pub mod frame;
pub mod guests;
pub mod hops;
pub mod http;
pub mod intruder;
pub mod mcp;
pub mod model;
pub mod raw;
pub mod reached;
pub mod real;
pub mod session;
pub mod stack;
pub mod terminal;
pub mod transcript;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use agent::{Agent, AgentListener};
pub use client::Client;
pub use directory::Directory;

/// How long a test waits for something that has to come. It never decides a test that goes well, so it is generous.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The root of the source tree.
pub fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the package is in the workspace")
}

/// A program of this package, built together with the tests.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test is a file");
    // target/PROFILE/deps/TEST-HASH
    let folder = test.ancestors().nth(2).expect("a test is in target/PROFILE/deps");
    let program = folder.join(name);
    assert!(
        program.is_file(),
        "{} is missing: run the tests of the whole package, `cargo test -p consort-tests`",
        program.display()
    );
    program
}

/// The command under test.
pub fn consort() -> PathBuf {
    program("consort-under-test")
}

/// The command under test beside a program of this package, for programs that are no tests.
///
/// # Errors
///
/// If it was not built.
pub fn consort_beside() -> std::io::Result<PathBuf> {
    let folder = std::env::current_exe()?;
    let program = folder.with_file_name("consort-under-test");
    match program.is_file() {
        true => Ok(program),
        false => Err(std::io::Error::other(format!(
            "{} is missing: build it first with `cargo build --release -p consort-tests`",
            program.display()
        ))),
    }
}
