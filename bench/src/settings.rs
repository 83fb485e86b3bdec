//! What is measured, and how long.

use crate::contestants::Contestant;
use std::time::Duration;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effort {
    /// Next to nothing: whether everything works.
    Tiny,
    Quick,
    Full,
}

impl Effort {
    /// One of three.
    pub(crate) fn pick<T>(self, tiny: T, quick: T, full: T) -> T {
        match self {
            Self::Tiny => tiny,
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

/// What is measured.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) proxies: Vec<usize>,
    pub(crate) rounds: usize,
    pub(crate) only: Vec<String>,
    pub(crate) contestants: Vec<Contestant>,
    pub(crate) effort: Effort,
}

impl Settings {
    pub(crate) fn wants(&self, measure: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == measure)
    }

    /// How long one thing is measured in one round.
    pub(crate) fn time(&self) -> Duration {
        self.effort.pick(
            Duration::from_millis(5),
            Duration::from_millis(150),
            Duration::from_millis(400),
        )
    }

    /// Some of the numbers of proxies that are wanted.
    pub(crate) fn some_proxies(&self, of: &[usize]) -> Vec<usize> {
        let both = self.proxies.iter().copied();
        both.filter(|proxies| of.contains(proxies)).collect()
    }
}
