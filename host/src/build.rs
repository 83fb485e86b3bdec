//! Compiles proxy crates to components with the user's own cargo. Knows cargo and rustup; knows nothing of what proxies do.
//!
//! Cargo decides what is out of date. It works in a target directory of its own, so that it never waits for a cargo that
//! runs this code (in a test, say), and under a lock, so that several processes may ask for the same guests at once.

mod packages;
mod toolchain;

use crate::manifest::{self, Manifest};
use crate::sandbox::{self, describe};
use anyhow::{Context, anyhow, bail};
use packages::{Package, Workspace};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};

/// The profile that guests are built with, if their workspace has it; otherwise `release`.
const PROFILE: &str = "guest";

/// What is to be built.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Crates, workspaces, or folders whose direct subfolders are crates.
    pub directories: Vec<PathBuf>,
    /// Where the components go; none: `proxies` in the workspace's target directory.
    pub out: Option<PathBuf>,
    /// The compiler for guests: a path as seen from the current directory, or a name that is looked up in `PATH`; none: cargo's own.
    pub rustc: Option<PathBuf>,
    /// Whether cargo's progress goes to standard error. Otherwise what it says is only shown when it fails.
    pub progress: bool,
}

/// A component that was built.
#[derive(Clone, Debug)]
pub struct Built {
    /// The name of the crate.
    pub name: String,
    /// The component.
    pub file: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// Whether the file is another one than before.
    pub changed: bool,
    /// Why this Consort would not run it as a proxy, if so.
    pub unsuitable: Option<describe::Unsuitable>,
    /// What is wrong with its manifest.
    pub warnings: Vec<String>,
}

/// Builds guests, in the order of the directories and of their names.
///
/// # Errors
///
/// When there is no proxy crate, the target is missing and cannot be added, two crates have the same name, or cargo fails.
pub fn build(options: &Options) -> anyhow::Result<Vec<Built>> {
    let workspaces = packages::find(&options.directories)?;
    let mut names = HashSet::new();
    for package in workspaces.iter().flat_map(|workspace| &workspace.packages) {
        if !names.insert(&package.name) {
            bail!(
                "two of the crates are named {}; their components would be the same file",
                package.name
            );
        }
    }
    // Cargo and the compiler run in the directories of the workspaces.
    let rustc = options.rustc.as_deref().map(toolchain::named_here).transpose()?;
    let options = Options {
        rustc,
        ..options.clone()
    };
    let mut built = Vec::new();
    for workspace in &workspaces {
        built.extend(build_workspace(workspace, &options)?);
    }
    Ok(built)
}

fn build_workspace(workspace: &Workspace, options: &Options) -> anyhow::Result<Vec<Built>> {
    let target = workspace.target.join("wasm");
    let out = match &options.out {
        Some(out) => out.clone(),
        None => workspace.target.join("proxies"),
    };
    for directory in [&target, &out] {
        fs::create_dir_all(directory).with_context(|| format!("cannot make the directory {}", directory.display()))?;
    }
    let _lock = lock(&target.join(".consort-build.lock"))?;
    toolchain::ensure_target(&workspace.root, options.rustc.as_deref())?;
    let artifacts = compile(workspace, &target, options)?;
    let mut built = Vec::with_capacity(workspace.packages.len());
    for package in &workspace.packages {
        let artifact = artifacts
            .iter()
            .find(|artifact| artifact.package_id == package.id)
            .and_then(Artifact::component)
            .with_context(|| format!("cargo made no component of the crate {}", package.name))?;
        built.push(deliver(package, artifact, &out)?);
    }
    Ok(built)
}

/// Holds other builders off until the file is closed.
fn lock(path: &Path) -> anyhow::Result<File> {
    File::create(path)
        .and_then(|file| file.lock().map(|()| file))
        .with_context(|| format!("cannot lock {}", path.display()))
}

fn compile(workspace: &Workspace, target: &Path, options: &Options) -> anyhow::Result<Vec<Artifact>> {
    let profile = if workspace.has_profile(PROFILE) {
        PROFILE
    } else {
        "release"
    };
    let mut cargo = toolchain::cargo(&workspace.root);
    cargo
        .args(["build", "--target", toolchain::TARGET, "--profile", profile])
        .args(["--message-format", "json-render-diagnostics"])
        .arg("--target-dir")
        .arg(target);
    for package in &workspace.packages {
        cargo.args(["--package", &package.id]);
    }
    if let Some(rustc) = &options.rustc {
        cargo.env("RUSTC", rustc);
    }
    if options.progress {
        cargo.stderr(Stdio::inherit());
    }
    let output = cargo.stdin(Stdio::null()).output().map_err(toolchain::not_started)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "cargo could not build {}{}",
            workspace
                .packages
                .iter()
                .map(|package| package.name.as_str())
                .collect::<Vec<_>>()
                .join(", "),
            match said.trim() {
                "" => "; what it said stands above".to_owned(),
                said => format!(": {said}"),
            }
        );
    }
    // Other lines are about build scripts and the end of the build, and may be of kinds that this code does not know.
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect())
}

/// What cargo says of something that it built, or found to be up to date.
#[derive(Deserialize)]
struct Artifact {
    package_id: String,
    filenames: Vec<PathBuf>,
}

impl Artifact {
    fn component(&self) -> Option<&Path> {
        self.filenames
            .iter()
            .map(PathBuf::as_path)
            .find(|file| file.extension().is_some_and(|extension| extension == "wasm"))
    }
}

/// Puts a component where it is expected, unless it is there already.
fn deliver(package: &Package, artifact: &Path, out: &Path) -> anyhow::Result<Built> {
    let bytes = fs::read(artifact).with_context(|| format!("cannot read the component {}", artifact.display()))?;
    let (manifest, warnings) = Manifest::of(&package.consort);
    let bytes = manifest::attach(&bytes, &manifest.to_section())
        .map_err(|reason| anyhow!("{} {reason}", artifact.display()))?;
    let file = out.join(format!("{}.wasm", package.name));
    let changed = replace(&file, &bytes)?;
    Ok(Built {
        name: package.name.clone(),
        size: bytes.len() as u64,
        changed,
        warnings,
        unsuitable: describe::describe(&bytes)
            .and_then(|description| description.check())
            .err(),
        file,
    })
}

/// Puts bytes into a file unless they are there already; says whether they were not. Nobody sees a file that is only half
/// written.
fn replace(file: &Path, bytes: &[u8]) -> anyhow::Result<bool> {
    if fs::read(file).ok().as_deref() == Some(bytes) {
        return Ok(false);
    }
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder.join(format!(".{name}.{}.tmp", process::id()));
    File::create(&temporary)
        .and_then(|mut target| target.write_all(bytes))
        .and_then(|()| fs::rename(&temporary, file))
        .with_context(|| format!("cannot write the component {}", file.display()))?;
    Ok(true)
}

/// Attaches the manifest of a TOML file, in which stands what `[package.metadata.consort]` has in the Cargo.toml of a crate, to a
/// component in place.
///
/// # Errors
///
/// When a file cannot be read or written, is no TOML, or no component.
pub fn attach_manifest(component: &Path, file: &Path) -> anyhow::Result<Built> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read the manifest {}", file.display()))?;
    let fields: Map<String, Value> =
        toml::from_str(&text).map_err(|error| anyhow!("the manifest {}: {}", file.display(), error.message()))?;
    let (manifest, warnings) = Manifest::of(&fields);
    let bytes = sandbox::read_component(component).map_err(|fault| anyhow!(fault.cause))?;
    let description = describe::describe(&bytes).map_err(|reason| anyhow!("{} {reason}", component.display()))?;
    let attached = manifest::attach(&bytes, &manifest.to_section())
        .map_err(|reason| anyhow!("{} {reason}", component.display()))?;
    let name = component.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Built {
        name,
        changed: replace(component, &attached)?,
        size: attached.len() as u64,
        unsuitable: description.check().err(),
        warnings,
        file: component.to_owned(),
    })
}
