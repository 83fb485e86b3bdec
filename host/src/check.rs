//! Trying a component out: a scripted client and a scripted agent, with the proxy between them in a cage where nothing is real: no
//! process, no file, no waiting; only directories that it is granted are the real ones. Reports what it asked for, what it did, what it
//! was denied, its faults, and its time and memory. Takes no longer than a few minutes, whatever the component does.

mod cage;
mod script;
mod tally;

use crate::connection::{COMPILE_TIME, DEFAULT_MAX_LINE, Started, agree, loaded_until, unprotecting};
use crate::fault::{Class, Fault, Phase};
use crate::grants::Grant;
use crate::limits::{Limit, Settings};
use crate::manifest::Manifest;
use crate::message::{Interest, OnFailure};
use crate::sandbox::{Loaded, Prepared, Sandbox};
pub use cage::Trial;
use cage::{Cage, Times};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
pub use tally::{Did, Timing};

/// How long the script may take to be played.
pub const TRIAL_TIME: Duration = Duration::from_secs(60);

/// How long a turn may take unless the user gave it another limit: the script has thousands of lines.
const TURN_TIME: Duration = Duration::from_secs(2);

/// What to try, and how.
pub struct Options<'a> {
    /// The component.
    pub file: &'a Path,
    /// Its configuration, as JSON text.
    pub configuration: &'a str,
    /// What it is granted beyond the ordinary things that it asks for.
    pub grants: &'a [Grant],
    /// How long the script may take.
    pub time: Duration,
    /// Its limits where they differ.
    pub limits: &'a Settings,
}

/// What came of it.
pub struct Report {
    /// The manifest and what is wrong with it, if there is one.
    pub manifest: Option<(Manifest, Vec<String>)>,
    /// The SHA-256 of the component.
    pub sha256: String,
    /// How long compiling took.
    pub compiled: Duration,
    /// How long `start` took.
    pub started: Duration,
    /// What it was granted.
    pub grants: Vec<Grant>,
    /// What is left of its interests.
    pub interests: Vec<Interest>,
    /// What it did and what came of it.
    pub trial: Trial,
}

/// Tries a component. Must run on tokio's multi-thread runtime.
///
/// # Errors
///
/// The fault if it cannot be loaded or does not start.
pub async fn check(options: &Options<'_>) -> Result<Report, Fault> {
    let prepared = load(options.file).await?;
    let (manifest, sha256, compiled) = (prepared.manifest.clone(), prepared.sha256.clone(), prepared.compiled);
    let own = manifest.as_ref().map(|(manifest, _)| manifest);
    let (policy, limits) = agree(own, options.grants, options.limits, DEFAULT_MAX_LINE);
    let on_failure = own.and_then(|manifest| manifest.on_failure).unwrap_or_default();
    let loaded = Loaded::new(prepared, "proxy", limits, policy.clone(), false);
    let begun = Instant::now();
    let proxy = Started::new(loaded, options.configuration, on_failure).await?;
    let started = begun.elapsed();
    let interests = proxy.registration.interests.clone();
    let missing = proxy.registration.missing.clone();
    let is_set = |limit: &(Limit, u64)| matches!(limit.0, Limit::Time | Limit::Cpu);
    let turn = match options.limits.iter().any(is_set) {
        true => proxy.loaded.limits.time(Limit::Time),
        false => proxy.loaded.limits.time(Limit::Time).min(TURN_TIME),
    };
    let times = Times {
        turn,
        end: Instant::now() + options.time,
    };
    let mut cage = Cage::new(proxy, times);
    for part in script::PARTS {
        cage.play(part).await;
    }
    let mut trial = cage.end();
    if on_failure == OnFailure::Closed
        && let Some(cause) = unprotecting(&missing)
    {
        trial.faults.insert(
            0,
            ("its start in a chain", Fault::new(Class::Denied, Phase::Start, cause)),
        );
    }
    Ok(Report {
        manifest,
        sha256,
        compiled: compiled.unwrap_or_default(),
        started,
        grants: policy.grants().to_vec(),
        interests,
        trial,
    })
}

/// Compiles a component, in the time that a chain gives it.
async fn load(file: &Path) -> Result<Arc<Prepared>, Fault> {
    let path = file.to_owned();
    let until = tokio::time::Instant::now() + COMPILE_TIME;
    let load = tokio::task::spawn_blocking(move || {
        let sandbox = Sandbox::new(None).map_err(|error| {
            let cause = format!("WebAssembly cannot run on this machine: {error:#}");
            Fault::new(Class::Host, Phase::Load, cause)
        })?;
        sandbox.load(&path)
    });
    loaded_until(until, file, load).await
}
