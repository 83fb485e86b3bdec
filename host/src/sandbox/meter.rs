//! The time that calls of one instance use. What a call computes is counted in the processor time of its thread once it lasts;
//! shorter calls are sampled by the clock, which costs them nothing.

use super::limits::{FIRST_TICKS, TICK};
use super::record::Record;
use crate::limits::{Limit, Limits};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// Why a call was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutOfTime {
    /// It computed for too long.
    Message(Duration),
    /// The proxy has computed too much in the last minute.
    Minute(Duration),
}

impl std::fmt::Display for OutOfTime {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Message(limit) => write!(
                formatter,
                "it computed for more than {} for one message; `limits.cpu` in consort.toml gives it more",
                shown(*limit)
            ),
            Self::Minute(limit) => write!(
                formatter,
                "it computed for more than {} in a minute; `limits.cpu-per-minute` in consort.toml gives it more",
                shown(*limit)
            ),
        }
    }
}

impl std::error::Error for OutOfTime {}

/// A time for a person.
pub(super) fn shown(time: Duration) -> String {
    Limit::Cpu.shown(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// What a call has used.
#[derive(Debug)]
pub(super) struct Meter {
    message: Duration,
    minute: Duration,
    record: Arc<Record>,
    /// Of the call at hand.
    used: Duration,
    /// How often the call was interrupted.
    ticks: u64,
    /// The thread that it ran on at the last interruption, and that thread's time.
    seen: Option<(ThreadId, Duration)>,
}

/// When the host began to work for a call, on this thread.
#[derive(Debug)]
pub(super) struct Watch {
    begun: Instant,
    thread: Duration,
}

impl Watch {
    pub(super) fn start() -> Self {
        Self {
            begun: Instant::now(),
            thread: thread_time(),
        }
    }
}

impl Meter {
    pub(super) fn new(limits: Limits, record: Arc<Record>) -> Self {
        Self {
            message: limits.time(Limit::Cpu),
            minute: limits.time(Limit::CpuPerMinute),
            record,
            used: Duration::ZERO,
            ticks: 0,
            seen: None,
        }
    }

    /// A call begins.
    pub(super) fn begin(&mut self) {
        self.used = Duration::ZERO;
        self.ticks = 0;
        self.seen = None;
    }

    /// The call goes on computing; says whether this is the first time.
    ///
    /// # Errors
    ///
    /// When it must not.
    pub(super) fn tick(&mut self) -> Result<bool, OutOfTime> {
        let first = self.ticks == 0;
        self.ticks += 1;
        let thread = thread::current().id();
        let time = thread_time();
        let used = match self.seen {
            // What it used before is not known any better.
            None => TICK * u32::try_from(FIRST_TICKS).unwrap_or(1),
            Some((seen, before)) if seen == thread => time.saturating_sub(before),
            Some(_) => TICK,
        };
        self.seen = Some((thread, time));
        self.spend(used)?;
        Ok(first)
    }

    /// The host goes on working for the call; says whether that has lasted.
    ///
    /// # Errors
    ///
    /// When it must not.
    pub(super) fn works(&mut self, watch: &Watch) -> Result<bool, OutOfTime> {
        if watch.begun.elapsed() < TICK {
            return Ok(false);
        }
        let time = thread_time();
        self.ticks += 1;
        self.seen = Some((thread::current().id(), time));
        self.spend(time.saturating_sub(watch.thread))?;
        Ok(true)
    }

    fn spend(&mut self, used: Duration) -> Result<(), OutOfTime> {
        self.used += used;
        let within = self.record.compute(micros(used));
        if self.used > self.message {
            return Err(OutOfTime::Message(self.message));
        }
        match within {
            true => Ok(()),
            false => Err(OutOfTime::Minute(self.minute)),
        }
    }

    /// The call ended without being interrupted, and the clock ticked so often meanwhile: on average, that is what such calls
    /// take.
    pub(super) fn sampled(&self, ticks: u64) -> Result<(), OutOfTime> {
        if self.ticks > 0 || ticks == 0 {
            return Ok(());
        }
        let used = TICK * u32::try_from(ticks.min(FIRST_TICKS)).unwrap_or(1);
        match self.record.compute(micros(used)) {
            true => Ok(()),
            false => Err(OutOfTime::Minute(self.minute)),
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}
