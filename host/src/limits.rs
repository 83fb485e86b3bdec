//! Every limit that may be different for each proxy: its meaning, its default and the reason for that, what a manifest can ask
//! for by itself, and how it is written. Must not know who enforces it.

use crate::units;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000;

/// What a limit is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, written like `16 MiB`.
    Bytes,
    /// Milliseconds, written like `10 s` or `250 ms`.
    Time,
    /// Things, written as a number.
    Count,
}

/// One kind of limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Memory of one instance, summed over its memories and tables.
    Memory,
    /// Processor time for one message.
    Cpu,
    /// Processor time in any minute.
    CpuPerMinute,
    /// Wall-clock time for one message, waits in the host included.
    Time,
    /// How long a message may be held while nothing that was sent on its behalf is unanswered.
    HoldTime,
    /// Messages that are sent in one turn.
    Messages,
    /// Bytes of the largest message that is sent, and of the largest text that is parsed.
    MessageSize,
    /// Messages of its own making in any minute: other than those that carry a delivered one on.
    MessagesPerMinute,
    /// Bytes of these.
    BytesPerMinute,
    /// Requests without an answer.
    Requests,
    /// JSON handles at a time.
    Handles,
    /// Bytes of log a second.
    Log,
    /// Bytes of saved state.
    State,
}

/// What stands in the table of limits for each one.
struct Row {
    name: &'static str,
    unit: Unit,
    default: u64,
    /// The most that a manifest gets by asking for it. It may always ask for less.
    ceiling: u64,
    /// What a user may set.
    allowed: RangeInclusive<u64>,
}

impl Limit {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Memory,
        Self::Cpu,
        Self::CpuPerMinute,
        Self::Time,
        Self::HoldTime,
        Self::Messages,
        Self::MessageSize,
        Self::MessagesPerMinute,
        Self::BytesPerMinute,
        Self::Requests,
        Self::Handles,
        Self::Log,
        Self::State,
    ];

    fn row(self) -> Row {
        let row = |name, unit, default, ceiling, allowed| Row {
            name,
            unit,
            default,
            ceiling,
            allowed,
        };
        match self {
            // A Rust proxy needs one to two MiB, one with an interpreter inside 20 to 40. A 32-bit memory has no more than 4 GiB.
            Self::Memory => row("memory", Unit::Bytes, 64 * MIB, 256 * MIB, 64 * KIB..=4 << 30),
            // The start of an interpreter takes a slow machine seconds; a Rust proxy takes microseconds.
            Self::Cpu => row("cpu", Unit::Time, 10 * SECOND, 30 * SECOND, 10..=600 * SECOND),
            // Half of one core. Who needs it all the time slows everything else down.
            Self::CpuPerMinute => row(
                "cpu-per-minute",
                Unit::Time,
                30 * SECOND,
                60 * SECOND,
                10..=600 * SECOND,
            ),
            // Three times the processor time, for machines that have other things to do.
            Self::Time => row("time", Unit::Time, 30 * SECOND, 60 * SECOND, 10..=3_600 * SECOND),
            // What takes longer waits for somebody, and then the clock stands still.
            Self::HoldTime => row(
                "hold-time",
                Unit::Time,
                60 * SECOND,
                600 * SECOND,
                100..=86_400 * SECOND,
            ),
            // A session that is replayed has hundreds.
            Self::Messages => row("messages", Unit::Count, 1_000, 10_000, 1..=1_000_000),
            // As long as the longest line, which cuts it as well.
            Self::MessageSize => row("message-size", Unit::Bytes, 1 << 30, 1 << 30, KIB..=1 << 30),
            // Far above what a person can read, far below what two proxies reach that send each other the same thing for ever.
            Self::MessagesPerMinute => row(
                "messages-per-minute",
                Unit::Count,
                100_000,
                1_000_000,
                1..=1_000_000_000,
            ),
            // Images and files now and then; not so much that whoever reads slowly has the memory filled.
            Self::BytesPerMinute => row("bytes-per-minute", Unit::Bytes, 64 * MIB, 1 << 30, MIB..=1 << 40),
            // The chain gives a proxy nothing new well before that, so that one which waits with each message never meets it.
            Self::Requests => row("requests", Unit::Count, 16_384, 16_384, 1..=16_384),
            // One turn needs a handful; a proxy that remembers one for each of its sessions thousands. wasmtime's own default of
            // 100,000 costs 0.4 ms for 20,000 when a store is dropped.
            Self::Handles => row("handles", Unit::Count, 10_000, 10_000, 16..=100_000),
            // A screen full each second.
            Self::Log => row("log", Unit::Bytes, 64 * KIB, 256 * KIB, 0..=16 * MIB),
            // Notes, not a database.
            Self::State => row("state", Unit::Bytes, MIB, 16 * MIB, 0..=64 * MIB),
        }
    }

    /// The name in manifests and configurations.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// What it is counted in.
    pub fn unit(self) -> Unit {
        self.row().unit
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limit| limit.name() == name)
    }

    /// A value as it is written in text.
    ///
    /// # Errors
    ///
    /// A sentence if it is none, or not among the allowed ones.
    pub fn parse(self, text: &str) -> Result<u64, String> {
        let value = match self.unit() {
            Unit::Bytes => units::bytes(text),
            Unit::Time => units::milliseconds(text),
            Unit::Count => text.trim().parse().ok(),
        };
        self.check(value)
    }

    /// The same for a value that is there or could not be read.
    ///
    /// # Errors
    ///
    /// A sentence if it is not among the allowed ones.
    pub fn check(self, value: Option<u64>) -> Result<u64, String> {
        let row = self.row();
        value.filter(|value| row.allowed.contains(value)).ok_or_else(|| {
            let example = match row.unit {
                Unit::Bytes => ", such as \"16 MiB\"",
                Unit::Time => ", such as \"10 s\" or \"250 ms\"",
                Unit::Count => "",
            };
            let (least, most) = (self.shown(*row.allowed.start()), self.shown(*row.allowed.end()));
            format!("`{}` must be from {least} to {most}{example}", row.name)
        })
    }

    /// A value for a person.
    pub fn shown(self, value: u64) -> String {
        match self.unit() {
            Unit::Bytes => units::shown(value),
            Unit::Time => units::time(Duration::from_millis(value)),
            Unit::Count => value.to_string(),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Some limits, as a manifest wishes or a user sets them.
pub type Settings = Vec<(Limit, u64)>;

/// The limits of one proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    values: [u64; Limit::ALL.len()],
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            values: Limit::ALL.map(|limit| limit.row().default),
        }
    }
}

impl Limits {
    /// What holds when a manifest wishes for something and the user has set something: the user's word is final.
    pub fn agreed(wishes: &[(Limit, u64)], set: &[(Limit, u64)]) -> Self {
        let mut limits = Self::default();
        for (limit, wish) in wishes {
            limits.set(*limit, (*wish).min(limit.row().ceiling));
        }
        for (limit, value) in set {
            limits.set(*limit, *value);
        }
        limits
    }

    /// Sets one of them.
    pub fn set(&mut self, limit: Limit, value: u64) {
        self.values[limit as usize] = value;
    }

    /// All of them by name, for the audit.
    pub fn to_json(&self) -> serde_json::Value {
        let limits = Limit::ALL.map(|limit| (limit.name().to_owned(), limit.shown(self.get(limit)).into()));
        serde_json::Value::Object(limits.into_iter().collect())
    }

    /// One of them, in its unit.
    pub fn get(&self, limit: Limit) -> u64 {
        self.values[limit as usize]
    }

    /// One that is counted in bytes or things.
    pub fn count(&self, limit: Limit) -> usize {
        usize::try_from(self.get(limit)).unwrap_or(usize::MAX)
    }

    /// One that is a time.
    pub fn time(&self, limit: Limit) -> Duration {
        Duration::from_millis(self.get(limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_and_read_again() {
        for limit in Limit::ALL {
            let row = limit.row();
            for value in [row.default, row.ceiling, *row.allowed.start(), *row.allowed.end()] {
                assert!(row.allowed.contains(&value), "{limit}");
                let shown = limit.shown(value);
                if !shown.ends_with("bytes") {
                    assert_eq!(limit.parse(&shown), Ok(value), "{limit}");
                }
            }
            assert!(row.default <= row.ceiling, "{limit}");
            assert_eq!(Limit::named(row.name), Some(limit));
        }
        assert_eq!(Limit::Cpu.parse("2 min"), Ok(120_000));
        let error = Limit::Cpu.parse("1 d").unwrap_err();
        assert!(error.contains("`cpu`") && error.contains("10 s"), "{error}");
    }

    #[test]
    fn a_manifest_gets_less_or_a_little_more_and_the_user_decides() {
        let wishes = [(Limit::Memory, 1 << 40), (Limit::Cpu, 100), (Limit::Requests, 7)];
        let limits = Limits::agreed(&wishes, &[(Limit::Requests, 9)]);
        assert_eq!(limits.get(Limit::Memory), 256 * MIB);
        assert_eq!(limits.time(Limit::Cpu), Duration::from_millis(100));
        assert_eq!(limits.count(Limit::Requests), 9);
        assert_eq!(limits.get(Limit::State), MIB);
    }
}
