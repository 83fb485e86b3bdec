//! The time that calls of one instance use. What a call computes is counted in the processor time of its thread once it lasts;
//! shorter calls are sampled by the clock, which costs them nothing. Only what happens between [`Meter::resume`] and [`Meter::pause`]
//! counts: while a call waits, its thread works for others.

use super::engine::Clock;
use super::limits::{FIRST_TICKS, LARGE_TEXT, TICK};
use super::record::Record;
use crate::limits::{Limit, Limits};
use crate::units;
use rustix::time::{ClockId, clock_gettime};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

/// Why a call was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutOfTime {
    /// It computed for too long.
    Message(Duration),
    /// The proxy has computed too much in the last minute.
    Minute(Duration),
    /// So much time has passed, whatever it did.
    Clock(Duration),
}

impl std::fmt::Display for OutOfTime {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Message(limit) => write!(
                formatter,
                "it computed for more than {} for one message; `limits.cpu` in consort.toml gives it more",
                units::time(*limit)
            ),
            Self::Minute(limit) => write!(
                formatter,
                "it computed for more than {} in a minute; `limits.cpu-per-minute` in consort.toml gives it more",
                units::time(*limit)
            ),
            Self::Clock(limit) => write!(
                formatter,
                "it did not return within {}; `limits.time` in consort.toml gives it more",
                units::time(*limit)
            ),
        }
    }
}

impl std::error::Error for OutOfTime {}

/// What the calls of one instance use.
pub(super) struct Meter {
    message: Duration,
    minute: Duration,
    /// In milliseconds.
    time: AtomicU64,
    record: Arc<Record>,
    clock: Arc<Clock>,
    call: Mutex<Call>,
}

/// The call at hand.
#[derive(Debug, Default)]
struct Call {
    used: Duration,
    /// How often it was resumed.
    resumed: u64,
    /// Whether it was interrupted.
    interrupted: bool,
    /// What the clock showed when it was resumed.
    ticks: u64,
    /// The time of its thread up to which all is counted; none if that is not known.
    seen: Option<Duration>,
    /// When it turned out to last.
    since: Option<Instant>,
}

/// When the host began to work for a call, on this thread.
#[derive(Debug)]
pub(super) struct Watch {
    begun: Instant,
    thread: Duration,
    ticks: u64,
}

impl Meter {
    pub(super) fn new(limits: &Limits, record: Arc<Record>, clock: Arc<Clock>) -> Self {
        Self {
            message: limits.time(Limit::Cpu),
            minute: limits.time(Limit::CpuPerMinute),
            time: limits.get(Limit::Time).into(),
            record,
            clock,
            call: Mutex::default(),
        }
    }

    fn call(&self) -> MutexGuard<'_, Call> {
        self.call.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a call may take, whatever it does.
    pub(super) fn time(&self) -> Duration {
        Duration::from_millis(self.time.load(Ordering::Relaxed))
    }

    /// Calls take no longer than this from now on.
    pub(super) fn hurry(&self, time: Duration) {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.time.fetch_min(time, Ordering::Relaxed);
    }

    /// A call begins.
    pub(super) fn begin(&self) {
        self.clock.wake();
        *self.call() = Call::default();
    }

    /// Runs a call; it ends as soon as it has used too much.
    pub(super) async fn run<T>(&self, call: impl Future<Output = wasmtime::Result<T>>) -> wasmtime::Result<T> {
        let mut call = pin!(call);
        poll_fn(|context| {
            self.resume();
            let poll = call.as_mut().poll(context);
            match (self.pause(poll.is_pending()), poll) {
                // Why it failed is what counts.
                (_, Poll::Ready(Err(error))) => Poll::Ready(Err(error)),
                (Err(out_of_time), _) => Poll::Ready(Err(wasmtime::Error::new(out_of_time))),
                (Ok(()), poll) => poll,
            }
        })
        .await
    }

    /// The call goes on, on this thread.
    fn resume(&self) {
        let mut call = self.call();
        // Looking costs too much for a call that ends at once.
        call.seen = (call.resumed > 0).then(thread_time);
        call.resumed += 1;
        call.ticks = self.clock.ticks();
    }

    /// The call ends, or waits for something.
    fn pause(&self, waits: bool) -> Result<(), OutOfTime> {
        let mut call = self.call();
        if waits {
            call.since.get_or_insert_with(Instant::now);
        }
        match call.seen.take() {
            Some(before) => self.spend(&mut call, thread_time().saturating_sub(before)),
            None => self.sampled(self.clock.ticks().saturating_sub(call.ticks)),
        }
    }

    /// The call goes on computing; says whether this is the first time.
    ///
    /// # Errors
    ///
    /// When it must not.
    pub(super) fn tick(&self) -> Result<bool, OutOfTime> {
        let mut call = self.call();
        let first = !std::mem::replace(&mut call.interrupted, true);
        let thread = thread_time();
        let used = match call.seen.replace(thread) {
            // What it used before is not known any better.
            None => TICK * u32::try_from(FIRST_TICKS).unwrap_or(1),
            Some(before) => thread.saturating_sub(before),
        };
        self.spend(&mut call, used)?;
        let time = self.time();
        match call.since.get_or_insert_with(Instant::now).elapsed() > time {
            true => Err(OutOfTime::Clock(time)),
            false => Ok(first),
        }
    }

    /// The host begins to work for the call on so many bytes of text, if that is worth a look.
    pub(super) fn watch(&self, bytes: usize) -> Option<Watch> {
        (bytes > LARGE_TEXT).then(|| self.watch_closely())
    }

    /// The host begins to work for the call.
    pub(super) fn watch_closely(&self) -> Watch {
        Watch {
            begun: Instant::now(),
            thread: thread_time(),
            ticks: self.clock.ticks(),
        }
    }

    /// The host has worked for the call; says whether that has lasted. No epoch ends what the host does.
    ///
    /// # Errors
    ///
    /// When the call must not go on.
    pub(super) fn works(&self, watch: Option<&Watch>) -> Result<bool, OutOfTime> {
        let Some(watch) = watch.filter(|watch| watch.begun.elapsed() >= TICK) else {
            return Ok(false);
        };
        let mut call = self.call();
        let time = thread_time();
        let before = call.seen.replace(time);
        if before.is_none() {
            self.sampled(watch.ticks.saturating_sub(call.ticks))?;
        }
        let used = time.saturating_sub(before.unwrap_or(watch.thread));
        self.spend(&mut call, used)?;
        Ok(true)
    }

    /// The same, and lets others go on if it has lasted.
    pub(super) async fn breathe(&self, watch: &mut Option<Watch>) -> Result<(), OutOfTime> {
        if self.works(watch.as_ref())? {
            tokio::task::yield_now().await;
            *watch = Some(self.watch_closely());
        }
        Ok(())
    }

    fn spend(&self, call: &mut Call, used: Duration) -> Result<(), OutOfTime> {
        call.used += used;
        let within = self.record.compute(micros(used));
        if call.used > self.message {
            return Err(OutOfTime::Message(self.message));
        }
        match within {
            true => Ok(()),
            false => Err(OutOfTime::Minute(self.minute)),
        }
    }

    /// The clock ticked so often while a call computed without being interrupted: on average, that is what such calls take.
    fn sampled(&self, ticks: u64) -> Result<(), OutOfTime> {
        if ticks == 0 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use wasmtime::Engine;

    const LONG: Duration = Duration::from_millis(40);

    /// The first poll of a call is under way.
    fn meter(message: Duration, time: u64) -> (Engine, Meter) {
        let engine = Engine::default();
        let mut limits = Limits::default();
        limits.set(Limit::Cpu, u64::try_from(message.as_millis()).unwrap());
        limits.set(Limit::Time, time);
        let record = Arc::new(Record::new(&limits, false));
        let clock = Clock::start(engine.weak()).unwrap();
        let meter = Meter::new(&limits, record, clock);
        meter.begin();
        meter.resume();
        (engine, meter)
    }

    /// Uses up processor time of this thread.
    fn compute() {
        let begun = thread_time();
        while thread_time() - begun < LONG {}
    }

    #[test]
    fn a_call_that_has_waited_is_still_counted() {
        let (_engine, meter) = meter(LONG * 100, 3_600_000);
        assert_eq!(meter.pause(true), Ok(()));
        meter.resume();
        compute();
        assert_eq!(meter.pause(false), Ok(()));
        assert!(meter.call().used >= LONG);
    }

    #[test]
    fn what_its_thread_does_while_a_call_waits_is_not_counted() {
        let (_engine, meter) = meter(LONG * 100, 3_600_000);
        assert_eq!(meter.tick(), Ok(true));
        assert_eq!(meter.pause(true), Ok(()));
        let before = meter.call().used;
        compute();
        meter.resume();
        assert_eq!(meter.tick(), Ok(false));
        assert!(meter.call().used - before < LONG / 2);
    }

    #[test]
    fn a_call_that_computes_is_ended_by_the_clock_as_well() {
        let (_engine, meter) = meter(LONG * 100, 0);
        assert_eq!(meter.pause(true), Ok(()));
        meter.resume();
        assert_eq!(meter.tick(), Err(OutOfTime::Clock(Duration::ZERO)));
    }

    #[test]
    fn what_the_host_does_for_a_call_is_counted_even_before_the_first_tick() {
        let (_engine, meter) = meter(LONG / 2, 3_600_000);
        assert!(meter.watch(LARGE_TEXT).is_none());
        let watch = meter.watch(LARGE_TEXT + 1);
        compute();
        assert_eq!(meter.works(watch.as_ref()), Err(OutOfTime::Message(LONG / 2)));
    }
}
