//! How long it takes from the start to the answer of `initialize`, the agent's start included.

use super::{Bench, Subject, subjects_with};
use crate::contestants::{Contestant, Edits};
use crate::metrics;
use crate::settings::Settings;
use anyhow::Context;
use std::fs;
use std::time::Instant;

pub(super) fn subjects(settings: &Settings) -> Vec<Subject> {
    subjects_with(&settings.some_proxies(&[0, 1, 8, 16]))
}

pub(super) fn run(bench: &mut Bench, subject: Subject) -> anyhow::Result<()> {
    let Subject { contestant, proxies } = subject;
    // Once before, so that everything is in memory and compiled.
    bench.start(subject, Edits::Updates)?.initialize()?;
    for _ in 0..bench.settings.effort.pick(1, 3, 7) {
        let begun = Instant::now();
        let mut client = bench.start(subject, Edits::Updates)?;
        client.initialize()?;
        let taken = begun.elapsed().as_secs_f64() * 1e3;
        bench.results.add(&metrics::START_WARM, contestant, proxies, taken);
    }
    if contestant == Contestant::Consort {
        let cache = bench.programs.work.join("cold");
        if cache.exists() {
            fs::remove_dir_all(&cache).with_context(|| format!("cannot empty {}", cache.display()))?;
        }
        let mut command = bench.programs.chain(contestant, proxies, Edits::Updates)?;
        command.env("XDG_CACHE_HOME", &cache);
        let begun = Instant::now();
        bench.start_with(command, proxies, Edits::Updates)?.initialize()?;
        let taken = begun.elapsed().as_secs_f64() * 1e3;
        bench.results.add(&metrics::START_COLD, contestant, proxies, taken);
    }
    Ok(())
}
