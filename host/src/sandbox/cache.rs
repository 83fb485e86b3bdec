//! Compiled components on disk. Compiled code is run unchecked, so an artefact counts only if its file is private to this user and ends in a
//! keyed hash over its bytes, the source bytes and the engine, made with a key that only this user can read.

use anyhow::Context as _;
use std::hash::{Hash, Hasher};
use std::io::{Read, Write};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use wasmtime::Engine;
use wasmtime::component::Component;

/// Compiled components that are kept: several versions of as many proxies as anybody is likely to use.
const MAX_FILES: usize = 200;

/// Bytes of the key and of a hash.
const KEY: usize = blake3::KEY_LEN;

/// The folder of compiled components.
pub(super) struct Cache {
    folder: PathBuf,
    key: [u8; KEY],
    engine: u64,
}

impl Cache {
    /// Opens the cache; none, with a line in the log, if that is not possible: everything works without it.
    pub(super) fn open(folder: &Path, engine: &Engine) -> Option<Self> {
        let mut hasher = std::hash::DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        match key(folder) {
            Ok(key) => Some(Self {
                folder: folder.to_owned(),
                key,
                engine: hasher.finish(),
            }),
            Err(error) => {
                tracing::warn!("compiled proxies are not kept in {}: {error:#}", folder.display());
                None
            }
        }
    }

    fn file(&self, source: &blake3::Hash) -> PathBuf {
        self.folder.join(format!("{source}-{:016x}.compiled", self.engine))
    }

    /// The keyed hash over compiled code, which is read to its end.
    fn seal(&self, source: &blake3::Hash, artefact: impl Read) -> std::io::Result<blake3::Hash> {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher
            .update(&self.engine.to_le_bytes())
            .update(source.as_bytes())
            .update_reader(artefact)?;
        Ok(hasher.finalize())
    }

    /// The compiled code for the source with this hash, if it is there and was made by this cache.
    pub(super) fn get(&self, engine: &Engine, source: &blake3::Hash) -> Option<Component> {
        let path = self.file(source);
        let file = std::fs::File::open(&path).ok()?;
        match self.is_sealed(&file, source) {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!("{} was not made by this cache; compiling again", path.display());
                return None;
            }
            Err(error) => {
                tracing::warn!("{} cannot be read: {error}; compiling again", path.display());
                return None;
            }
        }
        load(engine, &file)
            .inspect_err(|error| tracing::warn!("{} cannot be used: {error}; compiling again", path.display()))
            .ok()
    }

    /// Whether the file belongs to this user alone and ends in the seal over the rest of it.
    fn is_sealed(&self, mut file: &std::fs::File, source: &blake3::Hash) -> std::io::Result<bool> {
        let metadata = file.metadata()?;
        let Some(length) = metadata.len().checked_sub(KEY as u64).filter(|_| is_private(&metadata)) else {
            return Ok(false);
        };
        let made = self.seal(source, file.take(length))?;
        let mut seal = [0; KEY];
        file.read_exact(&mut seal)?;
        // Comparing two of blake3's hashes takes constant time.
        Ok(blake3::Hash::from_bytes(seal) == made)
    }

    /// Removes what was made longest ago beyond the number that is kept.
    fn evict(&self) -> anyhow::Result<()> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "compiled") {
                // Another process may have removed it.
                let Ok(metadata) = path.metadata() else { continue };
                files.push((metadata.modified()?, path));
            }
        }
        files.sort();
        for (_, path) in &files[..files.len().saturating_sub(MAX_FILES)] {
            std::fs::remove_file(path)?;
        }
        Ok(())
    }

    /// Keeps compiled code. A failure is logged and does no harm.
    pub(super) fn put(&self, component: &Component, source: &blake3::Hash) {
        let kept = (|| {
            let artefact = component.serialize()?;
            let seal = self.seal(source, artefact.as_slice())?;
            write_whole(&self.file(source), &[&artefact, seal.as_bytes()])?;
            self.evict()
        })();
        if let Err(error) = kept {
            tracing::warn!("a compiled proxy was not kept: {error:#}");
        }
    }
}

/// Reads the cache's key, or makes one.
fn key(folder: &Path) -> anyhow::Result<[u8; KEY]> {
    std::fs::create_dir_all(folder).context("the folder cannot be made")?;
    let file = folder.join("key");
    for _ in 0..2 {
        if let Ok(bytes) = std::fs::read(&file) {
            private(&file)?;
            return bytes.try_into().ok().context("its file `key` is damaged: remove it");
        }
        let mut key = [0; KEY];
        crate::random::fill(&mut key)?;
        // Two processes may do this at once: the first one wins, and the other reads its key.
        let _ = link_new(&file, &key)?;
    }
    anyhow::bail!("its file `key` cannot be read")
}

/// Loads compiled code, mapped: processes that use it share the pages that they touch.
#[allow(unsafe_code, reason = "wasmtime has no safe way to load compiled code")]
fn load(engine: &Engine, file: &std::fs::File) -> wasmtime::Result<Component> {
    // The very file that was looked at, whatever is under its name by now.
    let descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
    // SAFETY: only what `serialize` made may be loaded, and it must stay as it is. The seal shows that `put` wrote this file, with a key
    // that only this user can read; the file is this user's, and nobody else may write it. Consort replaces or removes such files by
    // name and never writes into one. What else runs as this user, and could, can also read the key.
    unsafe { Component::deserialize_file(engine, descriptor) }
}

/// Refuses a key that others can read or that belongs to somebody else.
fn private(file: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(
        is_private(&std::fs::symlink_metadata(file)?),
        "its file `key` is not private to this user: remove the folder"
    );
    Ok(())
}

fn is_private(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    metadata.is_file() && metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o077 == 0
}

fn temporary(file: &Path) -> anyhow::Result<(PathBuf, std::fs::File)> {
    use std::os::unix::fs::OpenOptionsExt as _;
    static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = file.with_extension(format!("{}.{count}.new", std::process::id()));
    let open = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)?;
    Ok((path, open))
}

/// Puts a file in place unless it is there.
fn link_new(file: &Path, bytes: &[u8]) -> anyhow::Result<bool> {
    let (path, mut open) = temporary(file)?;
    let linked = open.write_all(bytes).and_then(|()| std::fs::hard_link(&path, file));
    std::fs::remove_file(&path)?;
    match linked {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Puts a file in place as a whole.
fn write_whole(file: &Path, parts: &[&[u8]]) -> anyhow::Result<()> {
    let (path, mut open) = temporary(file)?;
    let mut write = || parts.iter().try_for_each(|part| open.write_all(part));
    let written = write().and_then(|()| std::fs::rename(&path, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&path);
    }
    written.map_err(Into::into)
}
