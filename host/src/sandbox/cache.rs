//! Compiled components on disk. Compiled code is run unchecked, so an artefact counts only with a keyed hash over its
//! bytes, the source bytes and the engine, made with a key that only this user can read.

use anyhow::Context as _;
use std::hash::{Hash, Hasher};
use std::io::Write as _;
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

    fn file(&self, source: &[u8]) -> PathBuf {
        self.folder
            .join(format!("{}-{:016x}.compiled", blake3::hash(source), self.engine))
    }

    fn seal(&self, source: &[u8], artefact: &[u8]) -> blake3::Hash {
        blake3::Hasher::new_keyed(&self.key)
            .update(&self.engine.to_le_bytes())
            .update(blake3::hash(source).as_bytes())
            .update(artefact)
            .finalize()
    }

    /// The compiled code for exactly this source, if it is there and was made by this cache.
    pub(super) fn get(&self, engine: &Engine, source: &[u8]) -> Option<Component> {
        let file = self.file(source);
        let bytes = std::fs::read(&file).ok()?;
        let (seal, artefact) = bytes.split_first_chunk::<KEY>()?;
        // Comparing two of blake3's hashes takes constant time.
        if blake3::Hash::from_bytes(*seal) != self.seal(source, artefact) {
            tracing::warn!("{} was not made by this cache; compiling again", file.display());
            return None;
        }
        // SAFETY: `deserialize` must only get what `serialize` made. The seal over these very bytes in memory shows that:
        // it was made by `put` with a key that only this user can read.
        #[allow(unsafe_code, reason = "wasmtime has no safe way to load compiled code")]
        let component = unsafe { Component::deserialize(engine, artefact) };
        component
            .inspect_err(|error| tracing::warn!("{} cannot be used: {error}; compiling again", file.display()))
            .ok()
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
    pub(super) fn put(&self, component: &Component, source: &[u8]) {
        let kept = (|| {
            let artefact = component.serialize()?;
            let mut bytes = self.seal(source, &artefact).as_bytes().to_vec();
            bytes.extend_from_slice(&artefact);
            write_whole(&self.file(source), &bytes)?;
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

/// Refuses a key that others can read or that belongs to somebody else.
fn private(file: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::symlink_metadata(file)?;
    let own = metadata.uid() == rustix::process::geteuid().as_raw();
    anyhow::ensure!(
        metadata.is_file() && own && metadata.mode() & 0o077 == 0,
        "its file `key` is not private to this user: remove the folder"
    );
    Ok(())
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
fn write_whole(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let (path, mut open) = temporary(file)?;
    let written = open.write_all(bytes).and_then(|()| std::fs::rename(&path, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&path);
    }
    written.map_err(Into::into)
}
