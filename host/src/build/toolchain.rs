//! The compiler and the target that guests are built with.

use anyhow::{Context, anyhow, bail};
use std::env;
use std::ffi::OsStr;
use std::io;
use std::path::{self, Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The target of guests: its linker makes components.
pub(super) const TARGET: &str = "wasm32-wasip2";

/// Variables that say how something else is to be built, by their beginnings: a cargo that runs this code sets some for itself, and
/// flags for the host's compiler are not for guests. What is about registries, network, number of jobs or the guests' target
/// itself stays.
const SCRUBBED: [&str; 18] = [
    "CARGO_BIN_",
    "CARGO_BUILD_",
    "CARGO_CFG_",
    "CARGO_CRATE_NAME",
    "CARGO_ENCODED_",
    "CARGO_FEATURE_",
    "CARGO_INCREMENTAL",
    "CARGO_MAKEFLAGS",
    "CARGO_MANIFEST_",
    "CARGO_PKG_",
    "CARGO_PRIMARY_PACKAGE",
    "CARGO_PROFILE_",
    "CARGO_TARGET_",
    "LLVM_PROFILE_FILE",
    "MAKEFLAGS",
    "RUSTC",
    "RUSTDOC",
    "RUSTFLAGS",
];
const KEPT: [&str; 2] = ["CARGO_BUILD_JOBS", "CARGO_TARGET_WASM32_"];

/// A cargo that knows nothing of the one that may run this process.
pub(super) fn cargo(directory: &Path) -> Command {
    clean(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), directory)
}

fn clean(program: impl AsRef<OsStr>, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory);
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_scrubbed) {
            command.env_remove(name);
        }
    }
    command
}

fn is_scrubbed(name: &str) -> bool {
    let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| name.starts_with(beginning));
    begins(&SCRUBBED) && !begins(&KEPT)
}

/// The error of a cargo that is not there.
pub(super) fn not_started(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::NotFound => {
            anyhow!("cargo is not installed; proxies are built with it: see https://rustup.rs")
        }
        _ => anyhow!("cannot start cargo: {error}"),
    }
}

/// A program as it is named in the current directory, for use in any other one. A name without a slash is looked up in `PATH` and
/// stays; links stay too, since rustup's programs go by the names that they are called by.
pub(super) fn named_here(program: &Path) -> anyhow::Result<PathBuf> {
    match program.as_os_str().as_encoded_bytes().contains(&b'/') {
        true => path::absolute(program).with_context(|| format!("cannot find the program {}", program.display())),
        false => Ok(program.to_owned()),
    }
}

/// Makes sure that the compiler has the target, with rustup's help if need be.
pub(super) fn ensure_target(directory: &Path, rustc: Option<&Path>) -> anyhow::Result<()> {
    let program = rustc.map_or_else(|| PathBuf::from("rustc"), Path::to_owned);
    if has_target(&program, directory)? {
        return Ok(());
    }
    if rustc.is_some() {
        bail!(
            "the compiler {} has no target {TARGET}; name one that has it with --rustc or CONSORT_GUEST_RUSTC",
            program.display()
        );
    }
    let added = clean("rustup", directory)
        .args(["target", "add", TARGET])
        .stdin(Stdio::null())
        .output();
    let reason = match added {
        Ok(Output { status, .. }) if status.success() && has_target(&program, directory)? => {
            return Ok(());
        }
        Ok(output) => last_line(&output.stderr),
        Err(error) => format!("rustup: {error}"),
    };
    bail!(
        "the compiler has no target {TARGET} and it could not be added ({reason}); run `rustup target add {TARGET}`, or name a compiler that has it with --rustc or CONSORT_GUEST_RUSTC"
    )
}

fn has_target(rustc: &Path, directory: &Path) -> anyhow::Result<bool> {
    let output = clean(rustc, directory)
        .args(["--print", "sysroot"])
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start the compiler {}", rustc.display()))?;
    if !output.status.success() {
        bail!(
            "the compiler {} does not say where its libraries are: {}",
            rustc.display(),
            last_line(&output.stderr)
        );
    }
    let sysroot = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    Ok(sysroot.join("lib/rustlib").join(TARGET).join("lib").is_dir())
}

fn last_line(output: &[u8]) -> String {
    String::from_utf8_lossy(output)
        .trim()
        .lines()
        .next_back()
        .unwrap_or("it says nothing")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_concerns_another_build_is_scrubbed() {
        for name in [
            "RUSTFLAGS",
            "RUSTC_WRAPPER",
            "CARGO_BUILD_TARGET",
            "CARGO_TARGET_DIR",
            "CARGO_ENCODED_RUSTFLAGS",
        ] {
            assert!(is_scrubbed(name), "{name}");
        }
        for name in [
            "CARGO",
            "CARGO_HOME",
            "CARGO_NET_OFFLINE",
            "CARGO_BUILD_JOBS",
            "CARGO_TARGET_WASM32_WASIP2_LINKER",
            "RUSTUP_TOOLCHAIN",
            "PATH",
        ] {
            assert!(!is_scrubbed(name), "{name}");
        }
    }
}
