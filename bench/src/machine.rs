//! Where, when and with what it was measured.

use crate::contestants::Programs;
use crate::prepare::{REFERENCE, REFERENCE_VERSION, root};
use serde::Serialize;
use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// What figures depend on.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    date: String,
    processor: String,
    cores: usize,
    memory_gib: f64,
    kernel: String,
    consort: String,
    reference: Option<String>,
    rounds: usize,
    optimised: bool,
}

impl Machine {
    pub(crate) fn new(programs: &Programs, rounds: usize) -> Self {
        let line_of = |file: &str, key: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
            line.split_once(':')
                .map_or(String::new(), |(_, value)| value.trim().to_owned())
        };
        let said = |command: &mut Command| {
            let output = command.output().ok().filter(|output| output.status.success());
            output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let version = said(Command::new(&programs.consort).arg("--version")).unwrap_or_default();
        let commit = said(
            Command::new("git")
                .args(["rev-parse", "--short", "HEAD"])
                .current_dir(root()),
        );
        let memory = line_of("/proc/meminfo", "MemTotal");
        let kib: f64 = memory.trim_end_matches(" kB").parse().unwrap_or(0.0);
        let reference = programs.reference.is_file();
        Self {
            date: date(
                SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default()
                    .as_secs()
                    / 86_400,
            ),
            processor: line_of("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: (kib / 1024.0 / 1024.0).round(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            consort: match commit {
                Some(commit) => format!("{version} ({commit})"),
                None => version,
            },
            reference: reference.then(|| format!("{REFERENCE} {REFERENCE_VERSION}")),
            rounds,
            optimised: !cfg!(debug_assertions),
        }
    }

    pub(crate) fn sentences(&self) -> String {
        let against = self
            .reference
            .as_deref()
            .map_or(String::new(), |reference| format!(" against {reference}"));
        let warning = match self.optimised {
            true => "",
            false => "**This is an unoptimised build: its figures say nothing. Use `--release`.**\n",
        };
        format!(
            "# {}{against}\n\n{warning}{}, {} core{} ({}), {} GiB, Linux {}, up to {} round{}. Client, conductor, proxies and agent \
             on the same machine; all limits, grants and the audit of Consort on; each proxy of a chain a component of its own.\n",
            self.consort,
            self.date,
            self.cores,
            if self.cores == 1 { "" } else { "s" },
            self.processor,
            self.memory_gib,
            self.kernel,
            self.rounds,
            if self.rounds == 1 { "" } else { "s" },
        )
    }
}

/// The date of a day since 1970 (UTC).
fn date(days: u64) -> String {
    let (year, month, day) = consort::units::date(days);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        for (day, text) in [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (20_788, "2026-12-01"),
            (20_453, "2025-12-31"),
        ] {
            assert_eq!(date(day), text);
        }
    }
}
