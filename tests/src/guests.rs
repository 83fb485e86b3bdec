//! The proxies and the test guests, built when a test first asks for one.

use crate::{consort, root};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A proxy that ships with Consort.
pub fn proxy(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    component(BUILT.get_or_init(|| build("proxies", "target/proxies")), name)
}

/// A guest of the tests.
pub fn guest(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    component(BUILT.get_or_init(|| build("tests/guests", "target/guests")), name)
}

/// A guest of the tests, built by a certain command.
pub fn guest_with(consort: &Path, name: &str) -> PathBuf {
    component(&build_with(consort, "tests/guests", "target/guests"), name)
}

fn component(folder: &Path, name: &str) -> PathBuf {
    let file = folder.join(format!("{name}.wasm"));
    assert!(file.is_file(), "there is no {}", file.display());
    file
}

/// Builds with the command under test, which takes care of what is up to date and of other tests that want the same.
fn build(crates: &str, out: &str) -> PathBuf {
    build_with(&consort(), crates, out)
}

fn build_with(consort: &Path, crates: &str, out: &str) -> PathBuf {
    let out = root().join(out);
    let output = Command::new(consort)
        .arg("build")
        .arg(root().join(crates))
        .arg("--out")
        .arg(&out)
        .output()
        .expect("the command can be started");
    assert!(
        output.status.success(),
        "{crates} cannot be built: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    out
}
