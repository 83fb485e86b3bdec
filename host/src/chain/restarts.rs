//! How often and how soon a failed proxy is started again.

use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

/// The wait before the second restart in a row; it doubles with each one after.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// Restarts in a row after which a proxy rests.
const MAX_RESTARTS: u32 = 6;

/// How long a proxy rests that failed too often.
pub(super) const COOL_DOWN: Duration = Duration::from_secs(60);

/// Time without a fault after which one is forgiven.
const HEAL: Duration = Duration::from_secs(10);

/// A proxy's faults in a row.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    spent: u32,
    /// All faults, forgiven or not.
    faults: u64,
    last: Option<Instant>,
}

impl Restarts {
    /// Whether the last wait is one of those that are long.
    pub(super) fn rests(&self) -> bool {
        self.spent > MAX_RESTARTS
    }

    /// How long to wait before the next restart.
    pub(super) fn next_wait(&mut self, now: Instant) -> Duration {
        if let Some(last) = self.last {
            let healed = now.duration_since(last).as_secs() / HEAL.as_secs();
            self.spent = self.spent.saturating_sub(u32::try_from(healed).unwrap_or(u32::MAX));
        }
        self.last = Some(now);
        self.faults += 1;
        self.spent += 1;
        if self.spent > MAX_RESTARTS {
            return COOL_DOWN;
        }
        if self.spent == 1 {
            return Duration::ZERO;
        }
        let wait = FIRST_WAIT * 2u32.pow(self.spent - 2);
        // Jitter of a quarter, so that several proxies do not come back at the same moment.
        let random = std::hash::RandomState::new().build_hasher().finish();
        wait + wait * u32::try_from(random % 100).unwrap_or(0) / 400
    }

    /// How many faults there were in all.
    pub(super) fn faults(&self) -> u64 {
        self.faults
    }

    /// Begins anew.
    pub(super) fn forgive(&mut self) {
        self.spent = 0;
    }
}
