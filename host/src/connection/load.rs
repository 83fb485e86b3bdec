//! Loading the chain's components: side by side, with a word to the user when it takes long.

use super::contained::contained;
use super::{ConnectionOptions, ProxyOptions};
use crate::audit::Recorder;
use crate::fault::{Class, Fault, Phase};
use crate::grants::{Grant, Policy};
use crate::limits::{Limit, Limits};
use crate::message::{OnFailure, Registration};
use crate::sandbox::{Instance, Loaded, Prepared, Sandbox};
use crate::wire::text::Text;
use anyhow::Context as _;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Compiling for longer than this is told on a terminal.
const SHOW_AFTER: Duration = Duration::from_millis(500);

/// How long all proxies together may take to be compiled. One with an interpreter inside takes seconds, half a minute on a busy
/// machine; editors give up before this.
const COMPILE_TIME: Duration = Duration::from_secs(120);

/// A proxy that is ready for its first turn.
pub(super) struct Started {
    pub(super) loaded: Arc<Loaded>,
    pub(super) configuration: Text,
    pub(super) instance: Instance,
    pub(super) registration: Registration,
    pub(super) on_failure: OnFailure,
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
    let sandbox = Arc::new(Sandbox::new(cache_folder().as_deref()).context("WebAssembly cannot run on this machine")?);
    // A component that stands in the chain several times is loaded once.
    let mut files: Vec<&PathBuf> = proxies.iter().map(|proxy| &proxy.file).collect();
    files.sort();
    files.dedup();
    let loads = all_within(COMPILE_TIME, files, |file| {
        let (sandbox, file) = (sandbox.clone(), file.clone());
        move || sandbox.load(&file).map(Arc::new)
    });
    let mut loads = std::pin::pin!(loads);
    let loaded = match tokio::time::timeout(SHOW_AFTER, &mut loads).await {
        Ok(loaded) => loaded?,
        Err(_) => {
            let begun = Instant::now();
            if *progress {
                eprintln!("consort: compiling proxies (kept for the next time) …");
            } else {
                tracing::info!("compiling proxies (kept for the next time)");
            }
            let loaded = loads.await?;
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

/// Does something that blocks for each file, side by side. wasmtime cannot be interrupted while it compiles: what is not done in time
/// is left alone, and ends with the process at the latest.
async fn all_within<T, L>(
    time: Duration,
    files: Vec<&PathBuf>,
    load: impl Fn(&PathBuf) -> L,
) -> anyhow::Result<HashMap<&PathBuf, Result<T, Fault>>>
where
    T: Send + 'static,
    L: FnOnce() -> Result<T, Fault> + Send + 'static,
{
    let until = tokio::time::Instant::now() + time;
    let loads: Vec<_> = files
        .iter()
        .map(|file| tokio::task::spawn_blocking(load(file)))
        .collect();
    let mut all = HashMap::new();
    for (file, load) in files.into_iter().zip(loads) {
        let loaded = match tokio::time::timeout_at(until, load).await {
            Ok(loaded) => loaded.context("the task that loads a proxy ended")?,
            Err(_) => {
                let seconds = time.as_secs();
                let cause = format!("{} could not be compiled within {seconds} seconds", file.display());
                Err(Fault::new(Class::Load, Phase::Load, cause))
            }
        };
        all.insert(file, loaded);
    }
    Ok(all)
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
    if let Some(time) = prepared.compiled {
        tracing::info!("proxy `{}` compiled in {} ms", proxy.name, time.as_millis());
    }
    let manifest = prepared.manifest.as_ref().map(|(manifest, warnings)| {
        for warning in warnings {
            tracing::warn!(target: "consort::grants", "the manifest of proxy `{}`: {warning}", proxy.name);
        }
        manifest
    });
    let wished = manifest.map_or(&[][..], |manifest| &manifest.limits);
    let mut limits = Limits::agreed(wished, &proxy.limits);
    let message = limits.get(Limit::MessageSize).min(max_line as u64);
    limits.set(Limit::MessageSize, message);
    let wishes = manifest.and_then(|manifest| manifest.wishes.as_ref());
    let wishes: Option<Vec<Grant>> = wishes.map(|wishes| wishes.iter().map(|(grant, _)| grant.clone()).collect());
    for grant in proxy.grants.iter().filter(|grant| !is_wished(wishes.as_deref(), grant)) {
        tracing::warn!(
            target: "consort::grants",
            "proxy `{}` does not wish for `{}`, so that grant has no effect; `consort inspect` shows what it wishes for",
            proxy.name,
            grant.without_value()
        );
    }
    let granted = [proxy.grants.as_slice(), &proxy.common_grants].concat();
    let policy = Arc::new(Policy::agreed(wishes.as_deref(), &granted));
    let on_failure = proxy.on_failure.or(manifest.and_then(|manifest| manifest.on_failure));
    audit.started(
        Some(&proxy.name),
        serde_json::json!({
            "file": proxy.file.to_string_lossy(),
            "sha256": prepared.sha256,
            "grants": policy.grants().iter().map(Grant::without_value).collect::<Vec<_>>(),
            "limits": limits.to_json(),
            "on-failure": on_failure.unwrap_or_default().name(),
        }),
    );
    let dangerous = policy.grants().iter().filter(|grant| !grant.is_ordinary());
    let dangerous: Vec<String> = dangerous.map(Grant::without_value).collect();
    if !dangerous.is_empty() {
        audit.granted(&proxy.name, serde_json::json!({ "dangerous": dangerous }));
    }
    let loaded = Arc::new(Loaded::new(
        prepared,
        &proxy.name,
        limits,
        policy,
        audit.keeps_changes(),
    ));
    let configuration = Text::parse(&proxy.configuration, usize::MAX)
        .map_err(|reason| Fault::new(Class::Load, Phase::Start, format!("its configuration is {reason}")))?;
    let (instance, registration) = contained(Phase::Start, Instance::start(&loaded, configuration.clone())).await?;
    let on_failure = on_failure.unwrap_or_default();
    // Who lets everything past it because it gets nothing does not protect, whatever its rules say.
    if on_failure == OnFailure::Closed
        && let Some(cause) = unprotecting(&registration.missing)
    {
        return Err(Fault::new(Class::Denied, Phase::Start, cause));
    }
    Ok(Started {
        loaded,
        configuration,
        instance,
        registration,
        on_failure,
    })
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
fn is_wished(wishes: Option<&[Grant]>, grant: &Grant) -> bool {
    wishes.is_none_or(|wishes| wishes.iter().any(|wish| wish.meet(grant).is_some()))
}

/// Where compiled components are kept: `$XDG_CACHE_HOME/consort`, or `~/.cache/consort`.
fn cache_folder() -> Option<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("consort"))
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
        let loads = all_within(Duration::ZERO, vec![&file], |_| {
            let ended = ended.clone();
            move || {
                let _ = ended.lock().map(|ended| ended.recv());
                Ok(())
            }
        });
        let loads = runtime.block_on(loads).unwrap();
        let fault = loads[&file].as_ref().unwrap_err();
        assert_eq!((fault.class, fault.phase), (Class::Load, Phase::Load));
        assert!(fault.cause.contains("a.wasm could not be compiled within"), "{fault}");
        let loads = all_within(Duration::from_secs(60), vec![&file], |_| || Ok(7));
        assert!(matches!(runtime.block_on(loads).unwrap()[&file], Ok(7)));
        drop(end);
    }
}
