//! Trying a component out: a scripted client and a scripted agent, with the proxy between them in a cage where nothing is real: no
//! process, no file, no waiting; only directories that it is granted are the real ones. Reports what it asked for, what it did, what it
//! was denied, its faults, and its time and memory. Takes no longer than a few minutes, whatever the component does.

mod cage;
mod script;
mod tally;

use crate::connection::{DEFAULT_MAX_LINE, contained};
use crate::fault::{Class, Fault, Phase};
use crate::grants::{Grant, Policy};
use crate::limits::{Limit, Limits, Settings};
use crate::manifest::Manifest;
use crate::message::{Denial, Interest, OnFailure, Peer};
use crate::sandbox::{Instance, Loaded, Prepared, Sandbox};
use crate::wire::text::Text;
use cage::{Cage, Times};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
pub use tally::{Did, Timing};

/// How long compiling may take, as in a chain.
const COMPILE_TIME: Duration = Duration::from_secs(120);

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
    /// What it did, in no order.
    pub did: Vec<Did>,
    /// How many messages it changed, by where they came from and their method.
    pub changed: Vec<(Peer, Arc<str>, u64)>,
    /// What it was denied, each once, with how often.
    pub denials: Vec<(Denial, u64)>,
    /// Its faults, each with the part of the script in which it came.
    pub faults: Vec<(&'static str, Fault)>,
    /// Requests that it did nothing about, by the part of the script.
    pub unanswered: Vec<(&'static str, u64)>,
    /// The parts of the script that were not played to their end when the time for it was over.
    pub not_played: Vec<&'static str>,
    /// How long its turns took, by method.
    pub timings: Vec<(String, Timing)>,
    /// The most memory in bytes that an instance had.
    pub memory: u64,
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
    let wishes = own.and_then(|manifest| manifest.wishes.as_ref());
    let wishes: Option<Vec<Grant>> = wishes.map(|wishes| wishes.iter().map(|(grant, _)| grant.clone()).collect());
    let policy = Arc::new(Policy::agreed(wishes.as_deref(), options.grants));
    let mut limits = Limits::agreed(own.map_or(&[], |manifest| &manifest.limits), options.limits);
    let message = limits.get(Limit::MessageSize).min(DEFAULT_MAX_LINE as u64);
    limits.set(Limit::MessageSize, message);
    let on_failure = own.and_then(|manifest| manifest.on_failure).unwrap_or_default();
    let loaded = Arc::new(Loaded::new(Arc::new(prepared), "proxy", limits, policy.clone(), false));
    let configuration = Text::parse(options.configuration, usize::MAX)
        .map_err(|reason| Fault::new(Class::Load, Phase::Start, format!("its configuration is {reason}")))?;
    let begun = Instant::now();
    let (instance, registration) = contained(Phase::Start, Instance::start(&loaded, configuration.clone())).await?;
    let started = begun.elapsed();
    let interests = registration.interests.clone();
    let missing = registration.missing.clone();
    let is_set = |limit: &(Limit, u64)| matches!(limit.0, Limit::Time | Limit::Cpu);
    let turn = match options.limits.iter().any(is_set) {
        true => limits.time(Limit::Time),
        false => limits.time(Limit::Time).min(TURN_TIME),
    };
    let times = Times {
        turn,
        end: Instant::now() + options.time,
    };
    let mut cage = Cage::new(loaded, configuration, instance, registration, on_failure, times);
    for part in script::PARTS {
        cage.play(part).await;
    }
    let mut trial = cage.end();
    if on_failure == OnFailure::Closed
        && let Some(cause) = crate::connection::unprotecting(&missing)
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
        did: trial.did,
        changed: trial.changed,
        denials: trial.denials,
        faults: trial.faults,
        unanswered: trial.unanswered,
        not_played: trial.not_played,
        timings: trial.timings,
        memory: trial.memory,
    })
}

/// Compiles a component. wasmtime cannot be interrupted meanwhile: what is not done in time ends with the process.
async fn load(file: &Path) -> Result<Prepared, Fault> {
    let path = file.to_owned();
    let load = tokio::task::spawn_blocking(move || {
        let sandbox = Sandbox::new(None).map_err(|error| {
            let cause = format!("WebAssembly cannot run on this machine: {error:#}");
            Fault::new(Class::Host, Phase::Load, cause)
        })?;
        sandbox.load(&path)
    });
    match tokio::time::timeout(COMPILE_TIME, load).await {
        Ok(Ok(loaded)) => loaded,
        Ok(Err(error)) => Err(Fault::new(Class::Host, Phase::Load, error.to_string())),
        Err(_) => {
            let seconds = COMPILE_TIME.as_secs();
            let cause = format!("{} could not be compiled within {seconds} seconds", file.display());
            Err(Fault::new(Class::Load, Phase::Load, cause))
        }
    }
}
