//! Trying a component out: a scripted client and a scripted agent, with the proxy between them in a cage where nothing is real: no
//! process, no file, no waiting. Reports what it asked for, what it did, what it was denied, its faults, and its time and memory.

mod cage;
mod script;
mod tally;

use crate::fault::Fault;
use crate::grants::{Grant, Policy};
use crate::limits::{Limits, Settings};
use crate::manifest::Manifest;
use crate::message::{Denial, Interest, Peer};
use crate::sandbox::{Instance, Loaded, Sandbox};
use crate::wire::text::Text;
use cage::Cage;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
pub use tally::{Did, Timing};

/// What to try, and how.
pub struct Options<'a> {
    /// The component.
    pub file: &'a Path,
    /// Its configuration, as JSON text.
    pub configuration: &'a str,
    /// What it is granted beyond the ordinary things that it asks for.
    pub grants: &'a [Grant],
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
    let sandbox = Sandbox::new(None).map_err(|error| {
        let cause = format!("WebAssembly cannot run on this machine: {error:#}");
        Fault::new(crate::fault::Class::Host, crate::fault::Phase::Load, cause)
    })?;
    let prepared = sandbox.load(options.file)?;
    let (manifest, sha256, compiled) = (prepared.manifest.clone(), prepared.sha256.clone(), prepared.compiled);
    let own = manifest.as_ref().map(|(manifest, _)| manifest);
    let wishes = own.and_then(|manifest| manifest.wishes.as_ref());
    let wishes: Option<Vec<Grant>> = wishes.map(|wishes| wishes.iter().map(|(grant, _)| grant.clone()).collect());
    let policy = Arc::new(Policy::agreed(wishes.as_deref(), options.grants));
    let limits = Limits::agreed(own.map_or(&[], |manifest| &manifest.limits), options.limits);
    let loaded = Arc::new(Loaded::new(Arc::new(prepared), "proxy", limits, policy.clone(), false));
    let configuration = Text::parse(options.configuration, usize::MAX).map_err(|reason| {
        let cause = format!("its configuration is {reason}");
        Fault::new(crate::fault::Class::Load, crate::fault::Phase::Start, cause)
    })?;
    let begun = std::time::Instant::now();
    let (instance, registration) = Instance::start(&loaded, configuration.clone()).await?;
    let started = begun.elapsed();
    let interests = registration.interests.clone();
    let mut cage = Cage::new(loaded, configuration, instance, registration);
    for part in script::PARTS {
        cage.play(part).await;
    }
    let trial = cage.end();
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
        timings: trial.timings,
        memory: trial.memory,
    })
}
