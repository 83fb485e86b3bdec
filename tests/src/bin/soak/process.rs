//! What a process takes, from `/proc`, and whether that grew.

use crate::Result;
use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

/// How often a process is looked at.
const EVERY: Duration = Duration::from_secs(5);

/// Memory that may be added from the first quarter to the last, in KiB and in percent, whichever is more: the allocator's own doings.
const MEMORY: (u64, u64) = (8 * 1024, 10);

/// Descriptors that may be added.
const DESCRIPTORS: u64 = 2;

/// Threads that may be added: those for blocking work come and go.
const THREADS: u64 = 4;

/// One look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Resident memory in KiB.
    memory: u64,
    descriptors: u64,
    threads: u64,
}

impl fmt::Display for Sample {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.memory / 1024, self.memory % 1024 * 10 / 1024);
        write!(
            formatter,
            "{whole}.{part} MiB, {} descriptors, {} threads",
            self.descriptors, self.threads
        )
    }
}

/// Looks at a process again and again.
pub(crate) struct Watch {
    process: u32,
    next: Instant,
    samples: Vec<Sample>,
}

impl Watch {
    pub(crate) fn new(process: u32) -> Self {
        Self {
            process,
            next: Instant::now() + EVERY,
            samples: Vec::new(),
        }
    }

    /// Looks if it is time to.
    pub(crate) fn look(&mut self) -> Result<()> {
        if Instant::now() >= self.next {
            self.next += EVERY;
            self.samples.push(sample(self.process)?);
        }
        Ok(())
    }

    pub(crate) fn last(&self) -> Option<Sample> {
        self.samples.last().copied()
    }

    /// Compares the median of the first quarter behind the warm-up (a tenth of the time) with that of the last.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let warm = &self.samples[self.samples.len() / 10..];
        let quarter = warm.len() / 4;
        if quarter == 0 {
            return vec!["the soak was too short to compare anything".into()];
        }
        let (first, last) = (median(&warm[..quarter]), median(&warm[warm.len() - quarter..]));
        println!("first quarter: {first}; last quarter: {last} (medians)");
        let mut wrong = Vec::new();
        let mut compare = |what: &str, first: u64, last: u64, more: u64| {
            if last > first + more {
                wrong.push(format!("{what} grew from {first} to {last}, more than by {more}"));
            }
        };
        let more = MEMORY.0.max(first.memory * MEMORY.1 / 100);
        compare("KiB of memory", first.memory, last.memory, more);
        compare("descriptors", first.descriptors, last.descriptors, DESCRIPTORS);
        compare("threads", first.threads, last.threads, THREADS);
        wrong
    }
}

fn median(samples: &[Sample]) -> Sample {
    let middle = |take: fn(&Sample) -> u64| {
        let mut all: Vec<u64> = samples.iter().map(take).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    Sample {
        memory: middle(|sample| sample.memory),
        descriptors: middle(|sample| sample.descriptors),
        threads: middle(|sample| sample.threads),
    }
}

fn sample(process: u32) -> Result<Sample> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let field = |name: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.ok_or("the process has ended")?.parse()?)
    };
    Ok(Sample {
        memory: field("VmRSS:")?,
        descriptors: fs::read_dir(format!("/proc/{process}/fd"))?.count() as u64,
        threads: field("Threads:")?,
    })
}
