//! Loading the chain's components: side by side, with a word to the user when it takes long.

use super::ProxyOptions;
use crate::fault::{Class, Fault, Phase};
use crate::message::Interest;
use crate::sandbox::{Instance, Loaded, Sandbox};
use crate::wire::text::Text;
use anyhow::Context as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Compiling for longer than this is told on a terminal.
const SHOW_AFTER: Duration = Duration::from_millis(500);

/// A proxy that is ready for its first turn.
pub(super) struct Started {
    pub(super) loaded: Arc<Loaded>,
    pub(super) configuration: Text,
    pub(super) instance: Instance,
    pub(super) interests: Vec<Interest>,
}

/// Loads and starts all proxies.
///
/// # Errors
///
/// The first fault as a sentence that names the proxy.
pub(super) async fn start_all(proxies: &[ProxyOptions], progress: bool) -> anyhow::Result<Vec<Started>> {
    if proxies.is_empty() {
        return Ok(Vec::new());
    }
    let sandbox = Arc::new(Sandbox::new(cache_folder().as_deref()).context("WebAssembly cannot run on this machine")?);
    let mut loads = Vec::new();
    for proxy in proxies {
        let (sandbox, proxy) = (sandbox.clone(), proxy.clone());
        loads.push(tokio::task::spawn_blocking(move || {
            sandbox.load(&proxy.name, &proxy.file, proxy.memory)
        }));
    }
    let loads = async {
        let mut all = Vec::new();
        for load in loads {
            all.push(load.await);
        }
        all
    };
    let mut loads = std::pin::pin!(loads);
    let loaded = match tokio::time::timeout(SHOW_AFTER, &mut loads).await {
        Ok(loaded) => loaded,
        Err(_) => {
            let begun = Instant::now();
            if progress {
                eprintln!("consort: compiling proxies (kept for the next time) …");
            }
            let loaded = loads.await;
            if progress {
                let seconds = (begun.elapsed() + SHOW_AFTER).as_secs_f32();
                eprintln!("consort: proxies compiled in {seconds:.1} s");
            }
            loaded
        }
    };
    let mut started = Vec::new();
    for (proxy, loaded) in proxies.iter().zip(loaded) {
        let loaded = loaded.context("the task that loads proxies ended")?;
        let one = start(proxy, loaded).await;
        started.push(one.map_err(|fault| anyhow::anyhow!(fault.sentence(&proxy.name)))?);
    }
    Ok(started)
}

async fn start(proxy: &ProxyOptions, loaded: Result<Loaded, Fault>) -> Result<Started, Fault> {
    let loaded = Arc::new(loaded?);
    if let Some(time) = loaded.compiled {
        tracing::info!("proxy `{}` compiled in {} ms", proxy.name, time.as_millis());
    }
    let configuration = Text::parse(&proxy.configuration, usize::MAX)
        .map_err(|reason| Fault::new(Class::Load, Phase::Start, format!("its configuration is {reason}")))?;
    let (instance, interests) = Instance::start(&loaded, configuration.clone()).await?;
    Ok(Started {
        loaded,
        configuration,
        instance,
        interests,
    })
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
