//! Loading the chain's components: side by side, with a word to the user when it takes long.

use super::contained::contained;
use super::{ConnectionOptions, ProxyOptions};
use crate::audit::Recorder;
use crate::chain::ProxySetup;
use crate::fault::{Class, Fault, Phase};
use crate::folders;
use crate::grants::{Grant, Policy};
use crate::limits::{Limit, Limits, Settings};
use crate::manifest::Manifest;
use crate::message::{OnFailure, Registration};
use crate::sandbox::{Instance, Loaded, Prepared, Sandbox};
use crate::wire::text::Text;
use anyhow::Context as _;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Compiling for longer than this is told on a terminal.
const SHOW_AFTER: Duration = Duration::from_millis(500);

/// How long all proxies together may take to be compiled. One with an interpreter inside takes seconds, half a minute on a busy
/// machine; editors give up before this.
pub(crate) const COMPILE_TIME: Duration = Duration::from_secs(120);

/// A proxy that is ready for its first turn.
pub(crate) struct Started {
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) configuration: Text,
    pub(crate) instance: Instance,
    pub(crate) registration: Registration,
    pub(crate) on_failure: OnFailure,
}

impl Started {
    /// Starts a proxy.
    ///
    /// # Errors
    ///
    /// The fault if its configuration is no JSON, or it does not start.
    pub(crate) async fn new(loaded: Loaded, configuration: &str, on_failure: OnFailure) -> Result<Self, Fault> {
        let loaded = Arc::new(loaded);
        let configuration = Text::parse(configuration, usize::MAX)
            .map_err(|reason| Fault::new(Class::Load, Phase::Start, format!("its configuration is {reason}")))?;
        let (instance, registration) = contained(Phase::Start, Instance::start(&loaded, configuration.clone())).await?;
        Ok(Self {
            loaded,
            configuration,
            instance,
            registration,
            on_failure,
        })
    }
}

/// What the router must know of a proxy.
pub(crate) fn setup(loaded: &Loaded, registration: Registration, on_failure: OnFailure) -> ProxySetup {
    ProxySetup {
        name: loaded.name.clone(),
        log: loaded.log().clone(),
        registration,
        on_failure,
        hold_time: loaded.limits.time(Limit::HoldTime),
        state: loaded.limits.get(Limit::State),
        servers: (!loaded.policy.hears_all_servers()).then(|| loaded.record.servers.clone()),
    }
}

/// An engine with the user's compile cache.
///
/// # Errors
///
/// If WebAssembly cannot run on this machine.
pub fn sandbox() -> anyhow::Result<Arc<Sandbox>> {
    let sandbox = Sandbox::new(folders::cache().as_deref()).context("WebAssembly cannot run on this machine")?;
    Ok(Arc::new(sandbox))
}

/// Loads and starts all proxies.
///
/// # Errors
///
/// The first fault as a sentence that names the proxy.
pub(super) async fn start_all(options: &ConnectionOptions, audit: &Recorder) -> anyhow::Result<Vec<Started>> {
    let ConnectionOptions {
        proxies,
        progress,
        max_line,
        ..
    } = options;
    if proxies.is_empty() {
        return Ok(Vec::new());
    }
    let sandbox = match &options.sandbox {
        Some(sandbox) => sandbox.clone(),
        None => sandbox()?,
    };
    // A component that stands in the chain several times is loaded once.
    let mut files: Vec<&PathBuf> = proxies.iter().map(|proxy| &proxy.file).collect();
    files.sort();
    files.dedup();
    let until = tokio::time::Instant::now() + COMPILE_TIME;
    let loads = all_until(until, files, |file| {
        let (sandbox, file) = (sandbox.clone(), file.clone());
        move || sandbox.load(&file)
    });
    let mut loads = std::pin::pin!(loads);
    let loaded = match tokio::time::timeout(SHOW_AFTER, &mut loads).await {
        Ok(loaded) => loaded,
        Err(_) => {
            let begun = Instant::now();
            if *progress {
                eprintln!("consort: compiling proxies (kept for the next time) …");
            } else {
                tracing::info!("compiling proxies (kept for the next time)");
            }
            let loaded = loads.await;
            if *progress {
                let seconds = (begun.elapsed() + SHOW_AFTER).as_secs_f32();
                eprintln!("consort: proxies compiled in {seconds:.1} s");
            }
            loaded
        }
    };
    let mut started = Vec::new();
    for proxy in proxies {
        let prepared = loaded.get(&proxy.file).cloned();
        let one = start(proxy, prepared, *max_line, audit).await;
        started.push(one.map_err(|fault| {
            audit.failed(&proxy.name, &fault);
            anyhow::anyhow!(fault.sentence(&proxy.name))
        })?);
    }
    Ok(started)
}

/// Does something that blocks for each file, side by side.
async fn all_until<T, L>(
    until: tokio::time::Instant,
    files: Vec<&PathBuf>,
    load: impl Fn(&PathBuf) -> L,
) -> HashMap<&PathBuf, Result<T, Fault>>
where
    T: Send + 'static,
    L: FnOnce() -> Result<T, Fault> + Send + 'static,
{
    let loads: Vec<_> = files
        .iter()
        .map(|file| tokio::task::spawn_blocking(load(file)))
        .collect();
    let mut all = HashMap::new();
    for (file, load) in files.into_iter().zip(loads) {
        all.insert(file, loaded_until(until, file, load).await);
    }
    all
}

/// Waits for a component to be loaded. wasmtime cannot be interrupted while it compiles: what is not done in time is left alone, and
/// ends with the process at the latest.
///
/// # Errors
///
/// The fault of loading it, or that [`COMPILE_TIME`] is over, whose end is `until`.
pub(crate) async fn loaded_until<T>(
    until: tokio::time::Instant,
    file: &Path,
    load: JoinHandle<Result<T, Fault>>,
) -> Result<T, Fault> {
    match tokio::time::timeout_at(until, load).await {
        Ok(Ok(loaded)) => loaded,
        Ok(Err(error)) => Err(Fault::new(Class::Host, Phase::Load, error.to_string())),
        Err(_) => {
            let seconds = COMPILE_TIME.as_secs();
            let cause = format!("{} could not be compiled within {seconds} seconds", file.display());
            Err(Fault::new(Class::Load, Phase::Load, cause))
        }
    }
}

async fn start(
    proxy: &ProxyOptions,
    prepared: Option<Result<Arc<Prepared>, Fault>>,
    max_line: usize,
    audit: &Recorder,
) -> Result<Started, Fault> {
    let prepared = prepared.unwrap_or_else(|| {
        Err(Fault::new(
            Class::Host,
            Phase::Load,
            "it was not loaded; this is a fault of Consort",
        ))
    })?;
    let manifest = prepared.manifest.as_ref().map(|(manifest, warnings)| {
        for warning in warnings {
            tracing::warn!(target: "consort::grants", "the manifest of proxy `{}`: {warning}", proxy.name);
        }
        manifest
    });
    for grant in proxy.grants.iter().filter(|grant| !is_wished(manifest, grant)) {
        tracing::warn!(
            target: "consort::grants",
            "proxy `{}` does not wish for `{}`, so that grant has no effect; `consort inspect` shows what it wishes for",
            proxy.name,
            grant.without_value()
        );
    }
    let granted = [proxy.grants.as_slice(), &proxy.common_grants].concat();
    let (policy, limits) = agree(manifest, &granted, &proxy.limits, max_line);
    let on_failure = proxy.on_failure.or(manifest.and_then(|manifest| manifest.on_failure));
    let on_failure = on_failure.unwrap_or_default();
    audit.started(
        Some(&proxy.name),
        serde_json::json!({
            "file": proxy.file.to_string_lossy(),
            "sha256": prepared.sha256,
            "grants": policy.grants().iter().map(Grant::without_value).collect::<Vec<_>>(),
            "limits": limits.to_json(),
            "on-failure": on_failure.name(),
        }),
    );
    let dangerous = policy.grants().iter().filter(|grant| !grant.is_ordinary());
    let dangerous: Vec<String> = dangerous.map(Grant::without_value).collect();
    if !dangerous.is_empty() {
        audit.granted(&proxy.name, serde_json::json!({ "dangerous": dangerous }));
    }
    let loaded = Loaded::new(prepared, &proxy.name, limits, policy, audit.keeps_changes());
    let started = Started::new(loaded, &proxy.configuration, on_failure).await?;
    // Who lets everything past it because it gets nothing does not protect, whatever its rules say.
    if on_failure == OnFailure::Closed
        && let Some(cause) = unprotecting(&started.registration.missing)
    {
        return Err(Fault::new(Class::Denied, Phase::Start, cause));
    }
    Ok(started)
}

/// What a proxy gets, between what its manifest wishes for and what the user says. It may send what the other side reads.
pub(crate) fn agree(
    manifest: Option<&Manifest>,
    grants: &[Grant],
    set: &Settings,
    max_line: usize,
) -> (Arc<Policy>, Limits) {
    let wishes = manifest.and_then(|manifest| manifest.wishes.as_ref());
    let wishes: Option<Vec<Grant>> = wishes.map(|wishes| wishes.iter().map(|(grant, _)| grant.clone()).collect());
    let mut limits = Limits::agreed(manifest.map_or(&[], |manifest| &manifest.limits), set);
    let message = limits.get(Limit::MessageSize).min(max_line as u64);
    limits.set(Limit::MessageSize, message);
    (Arc::new(Policy::agreed(wishes.as_deref(), grants)), limits)
}

/// Why a proxy that protects must not run, if something is missing that it wants to take part in.
pub(crate) fn unprotecting(missing: &[String]) -> Option<String> {
    let first = missing.first()?;
    Some(format!(
        "it is there to protect (`on-failure` is \"closed\"), but {first}; give it that with --grant or `grant` in consort.toml, or let \
         it run without with `on-failure = \"bypass\"`"
    ))
}

/// Whether a proxy wishes for something of what it is granted, or says nothing about that.
fn is_wished(manifest: Option<&Manifest>, grant: &Grant) -> bool {
    let wishes = manifest.and_then(|manifest| manifest.wishes.as_ref());
    wishes.is_none_or(|wishes| wishes.iter().any(|(wish, _)| wish.meet(grant).is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, mpsc};

    #[test]
    fn what_takes_too_long_is_left_alone_and_named() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .unwrap();
        let file = PathBuf::from("a.wasm");
        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        // Goes on until the test is over.
        let loads = all_until(tokio::time::Instant::now(), vec![&file], |_| {
            let ended = ended.clone();
            move || {
                let _ = ended.lock().map(|ended| ended.recv());
                Ok(())
            }
        });
        let loads = runtime.block_on(loads);
        let fault = loads[&file].as_ref().unwrap_err();
        assert_eq!((fault.class, fault.phase), (Class::Load, Phase::Load));
        assert!(fault.cause.contains("a.wasm could not be compiled within"), "{fault}");
        let later = tokio::time::Instant::now() + Duration::from_secs(60);
        let loads = all_until(later, vec![&file], |_| || Ok(7));
        assert!(matches!(runtime.block_on(loads)[&file], Ok(7)));
        drop(end);
    }
}
