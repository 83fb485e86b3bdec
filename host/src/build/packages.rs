//! Which crates a directory means, as cargo sees them.

use super::toolchain;
use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fs;
use std::path::{Path, PathBuf};
use toml::de::DeTable;

/// A workspace and those of its crates that are to be built.
#[derive(Debug)]
pub(super) struct Workspace {
    pub(super) root: PathBuf,
    /// Its target directory.
    pub(super) target: PathBuf,
    pub(super) packages: Vec<Package>,
}

/// A crate that makes a component.
#[derive(Clone, Debug)]
pub(super) struct Package {
    pub(super) name: String,
    /// Cargo's name for exactly this crate.
    pub(super) id: String,
    /// What `[package.metadata.consort]` says, with the crate's own name, version and description.
    pub(super) consort: Map<String, Value>,
    manifest: PathBuf,
}

impl Workspace {
    /// Whether the workspace's manifest defines a profile.
    pub(super) fn has_profile(&self, name: &str) -> bool {
        let Ok(text) = fs::read_to_string(self.root.join("Cargo.toml")) else {
            return false;
        };
        // Cargo has read the manifest before and would have complained.
        DeTable::parse(&text).is_ok_and(|manifest| {
            manifest
                .get_ref()
                .get("profile")
                .and_then(|profiles| profiles.get_ref().as_table())
                .is_some_and(|profiles| profiles.contains_key(name))
        })
    }
}

/// What `cargo metadata` tells, as far as it matters here.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
}

#[derive(Deserialize)]
struct MetadataPackage {
    name: String,
    version: String,
    description: Option<String>,
    metadata: Value,
    id: String,
    manifest_path: PathBuf,
    targets: Vec<MetadataTarget>,
}

impl MetadataPackage {
    /// The fields of the component's manifest.
    fn consort(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("name".into(), self.name.as_str().into());
        fields.insert("version".into(), self.version.as_str().into());
        if let Some(description) = &self.description {
            fields.insert("description".into(), description.as_str().into());
        }
        if let Some(Value::Object(own)) = self.metadata.get("consort") {
            fields.extend(own.clone());
        }
        fields
    }
}

#[derive(Deserialize)]
struct MetadataTarget {
    crate_types: Vec<String>,
}

/// Finds the crates that the directories mean, each one once.
pub(super) fn find(directories: &[PathBuf]) -> anyhow::Result<Vec<Workspace>> {
    let mut search = Search::default();
    for directory in directories {
        let directory =
            fs::canonicalize(directory).with_context(|| format!("there is no directory {}", directory.display()))?;
        let before = search.found.len();
        if directory.join("Cargo.toml").is_file() {
            search.take(&directory)?;
        } else {
            let mut folders: Vec<PathBuf> = fs::read_dir(&directory)
                .with_context(|| format!("cannot read the directory {}", directory.display()))?
                .filter_map(|entry| Some(entry.ok()?.path()))
                .filter(|path| path.join("Cargo.toml").is_file())
                .collect();
            folders.sort();
            for folder in folders {
                search.take(&folder)?;
            }
        }
        if search.found.len() == before {
            bail!(
                "no proxy crate in {}: one has `crate-type = [\"cdylib\"]` under [lib] in its Cargo.toml",
                directory.display()
            );
        }
    }
    Ok(search.workspaces())
}

#[derive(Default)]
struct Search {
    known: Vec<Metadata>,
    /// Index into `known`, and the crate. A crate that is named twice is here twice.
    found: Vec<(usize, Package)>,
}

impl Search {
    /// Takes the crate of a directory, or all crates under it if it is the root of a workspace and no such crate itself.
    fn take(&mut self, directory: &Path) -> anyhow::Result<()> {
        let manifest = directory.join("Cargo.toml");
        let index = self.workspace_of(&manifest)?;
        let metadata = &self.known[index];
        let components: Vec<Package> = metadata
            .packages
            .iter()
            .filter(|package| {
                package
                    .targets
                    .iter()
                    .any(|target| target.crate_types.iter().any(|kind| kind == "cdylib"))
            })
            .map(|package| Package {
                consort: package.consort(),
                name: package.name.clone(),
                id: package.id.clone(),
                manifest: package.manifest_path.clone(),
            })
            .collect();
        match components.iter().find(|package| package.manifest == manifest) {
            Some(package) => self.found.push((index, package.clone())),
            None if metadata.workspace_root == directory => self.found.extend(
                components
                    .into_iter()
                    .filter(|package| package.manifest.starts_with(directory))
                    .map(|package| (index, package)),
            ),
            None => {}
        }
        Ok(())
    }

    fn workspace_of(&mut self, manifest: &Path) -> anyhow::Result<usize> {
        let known = self.known.iter().position(|metadata| {
            metadata
                .packages
                .iter()
                .any(|package| package.manifest_path == manifest)
        });
        if let Some(index) = known {
            return Ok(index);
        }
        let folder = manifest.parent().unwrap_or(manifest);
        let output = toolchain::cargo(folder)
            .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
            .arg(manifest)
            .env("CARGO_TERM_COLOR", "never")
            .output()
            .map_err(toolchain::not_started)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().find_map(|line| line.strip_prefix("error: "));
            bail!(
                "cargo does not understand {}: {}",
                manifest.display(),
                said.unwrap_or("it does not say why")
            );
        }
        self.known.push(
            serde_json::from_slice(&output.stdout)
                .with_context(|| format!("cargo's description of {} cannot be read", manifest.display()))?,
        );
        Ok(self.known.len() - 1)
    }

    fn workspaces(self) -> Vec<Workspace> {
        let mut workspaces: Vec<Workspace> = self
            .known
            .into_iter()
            .map(|metadata| Workspace {
                root: metadata.workspace_root,
                target: metadata.target_directory,
                packages: Vec::new(),
            })
            .collect();
        for (index, package) in self.found {
            let packages = &mut workspaces[index].packages;
            if !packages.iter().any(|other| other.id == package.id) {
                packages.push(package);
            }
        }
        workspaces.retain(|workspace| !workspace.packages.is_empty());
        workspaces
    }
}
