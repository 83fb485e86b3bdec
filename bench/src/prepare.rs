//! Builds and installs what is compared.

use crate::components;
use crate::contestants::{Contestant, Programs};
use crate::measures;
use crate::progress::Progress;
use crate::settings::Settings;
use anyhow::{Context, bail};
use std::env::consts::EXE_SUFFIX;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The reference conductor.
pub(crate) const REFERENCE: &str = "agent-client-protocol-conductor";

/// Its version.
pub(crate) const REFERENCE_VERSION: &str = "5.0.0";

/// The proxies of Consort's chains.
const GUESTS: [&str; 2] = ["arrow", "marker"];

/// The root of the source tree.
pub(crate) fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

/// Makes everything that the contestants need. `build` says whether this crate's other programs are built as well.
pub(crate) fn prepare(settings: &Settings, out: &Path, build: bool, progress: &Progress) -> anyhow::Result<Programs> {
    let out = std::path::absolute(out)?;
    let own = std::env::current_exe()?;
    let work = out.join("work");
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    if build {
        progress.say("building Consort");
        let mut cargo = cargo();
        cargo.args(["build", "--package", "consort-bench", "--bins"]);
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        finish(cargo.current_dir(root()), progress)?;
    }
    let beside = |name: &str| own.with_file_name(format!("{name}{EXE_SUFFIX}"));
    let mut programs = Programs {
        consort: beside("consort-measured"),
        many: beside("consort-many"),
        reference: PathBuf::new(),
        native: PathBuf::new(),
        guests: out.join("guests"),
        own,
        work,
    };
    progress.say("building the guests");
    let mut build = programs.consort(&programs.cache());
    build.arg("build");
    for guest in GUESTS {
        build.arg(root().join("tests/guests").join(guest));
    }
    finish(build.arg("--out").arg(&programs.guests), progress)?;
    for guest in GUESTS {
        components::copy(&programs.guests, guest, measures::most_proxies(settings))?;
    }
    if settings.contestants.contains(&Contestant::Reference) {
        programs.reference = reference(&out, progress)?;
        programs.native = native(&out, progress)?;
    }
    Ok(programs)
}

fn reference(out: &Path, progress: &Progress) -> anyhow::Result<PathBuf> {
    // By its version, so that another one is another install.
    let folder = out.join(format!("reference-{REFERENCE_VERSION}"));
    let program = folder.join("bin").join(format!("{REFERENCE}{EXE_SUFFIX}"));
    if !program.is_file() {
        progress.say("installing the reference conductor, which takes some minutes");
        let mut cargo = cargo();
        cargo
            .args([
                "install",
                "--locked",
                REFERENCE,
                "--version",
                REFERENCE_VERSION,
                "--root",
            ])
            .arg(&folder);
        finish(&mut cargo, progress)?;
    }
    Ok(program)
}

fn native(out: &Path, progress: &Progress) -> anyhow::Result<PathBuf> {
    progress.say("building the native proxies");
    let target = out.join("native");
    let mut cargo = cargo();
    cargo
        .args(["build", "--release", "--locked", "--target-dir"])
        .arg(&target)
        .arg("--manifest-path")
        .arg(root().join("bench/native/Cargo.toml"));
    finish(&mut cargo, progress)?;
    Ok(target.join("release").join(format!("native-proxy{EXE_SUFFIX}")))
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs to the end; what it says is shown on a terminal, and otherwise only if it fails.
fn finish(command: &mut Command, progress: &Progress) -> anyhow::Result<()> {
    command.stdin(Stdio::null());
    let shown = command.get_program().display().to_string();
    let (status, said) = if progress.is_shown() {
        progress.say("");
        (command.stdout(Stdio::null()).status(), String::new())
    } else {
        match command.output() {
            Ok(output) => (Ok(output.status), String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => (Err(error), String::new()),
        }
    };
    let status = status.with_context(|| format!("cannot start {shown}"))?;
    if !status.success() {
        bail!("{shown} failed ({status}) {}", said.trim());
    }
    Ok(())
}
