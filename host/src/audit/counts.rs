//! What happens again and again: the first is told at once, and how often it happened since at most once a minute. Bounded, whatever
//! proxies think of.

use super::line::Line;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long what repeats is only counted.
pub(super) const INTERVAL: Duration = Duration::from_secs(60);

/// Different things of one kind that are told apart for each proxy; the rest counts together.
const MAX_DIFFERENT: usize = 256;

/// Details that are told apart for one of these.
const MAX_DETAILS: usize = 16;

/// Bytes of a text that tells them apart.
const MAX_TEXT: usize = 300;

/// What stands for the rest.
const OTHERS: &str = "(others)";

/// Lines about single changes at once, and in each second: a fast chain would have the file replaced within seconds.
const CHANGES: f64 = 1000.0;
const CHANGES_A_SECOND: f64 = 100.0;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Denied,
    Held,
    ShutOut,
    /// Only counted, not told at once.
    Changed,
}

/// Something that may happen again.
pub(super) struct Repeated<'a> {
    pub(super) kind: Kind,
    pub(super) proxy: &'a str,
    pub(super) what: &'a str,
    pub(super) detail: &'a str,
    pub(super) times: u64,
}

/// The counts of one connection.
pub(super) struct Counts {
    connection: Arc<str>,
    proxies: HashMap<Box<str>, Vec<Counter>>,
    changes: f64,
    refilled: Option<Instant>,
}

struct Counter {
    kind: Kind,
    what: Box<str>,
    detail: Box<str>,
    /// Since it was last written.
    count: u64,
    /// When it was last written or, if it never was, when it was first counted.
    written: Instant,
}

impl Counts {
    pub(super) fn new(connection: Arc<str>) -> Self {
        Self {
            connection,
            proxies: HashMap::new(),
            changes: CHANGES,
            refilled: None,
        }
    }

    /// Counts one more; gives the line to write, if there is one now.
    pub(super) fn add(&mut self, repeated: &Repeated<'_>, now: Instant) -> Option<String> {
        let (what, detail) = (cut(repeated.what), cut(repeated.detail));
        if !self.proxies.contains_key(repeated.proxy) {
            self.proxies.insert(repeated.proxy.into(), Vec::new());
        }
        let counters = self.proxies.get_mut(repeated.proxy)?;
        let alike = |counter: &Counter| counter.kind == repeated.kind && *counter.what == *what;
        let exact = |counter: &Counter| alike(counter) && *counter.detail == *detail;
        // A proxy can think of as many details as it likes: the last one of a method stands for the rest.
        let many = counters.iter().filter(|counter| alike(counter)).count() >= MAX_DETAILS;
        let last = counters.iter().rposition(alike).filter(|_| many);
        if let Some(place) = counters.iter().position(exact).or(last) {
            return counters[place].add(repeated, &self.connection, now);
        }
        let different = counters.iter().filter(|counter| counter.kind == repeated.kind).count();
        if different > MAX_DIFFERENT {
            // The last one stands for the rest.
            let rest = |counter: &&mut Counter| counter.kind == repeated.kind && &*counter.what == OTHERS;
            return counters.iter_mut().rfind(rest)?.add(repeated, &self.connection, now);
        }
        let (what, detail) = match different {
            MAX_DIFFERENT => (OTHERS, ""),
            _ => (what, detail),
        };
        let mut counter = Counter {
            kind: repeated.kind,
            what: what.into(),
            detail: detail.into(),
            count: repeated.times,
            written: now,
        };
        let line = (repeated.kind != Kind::Changed).then(|| counter.take(&self.connection, repeated.proxy, now));
        counters.push(counter);
        line
    }

    /// The lines of all that was counted and is due, or with no time of all that was counted.
    pub(super) fn take(&mut self, now: Option<Instant>) -> Vec<String> {
        let mut lines = Vec::new();
        for (proxy, counters) in &mut self.proxies {
            for counter in counters.iter_mut().filter(|counter| counter.count > 0) {
                if now.is_none_or(|now| counter.is_due(now)) {
                    let at = now.unwrap_or(counter.written);
                    lines.push(counter.take(&self.connection, proxy, at));
                }
            }
        }
        lines
    }

    /// Whether there may be a line about one more change now.
    pub(super) fn may_write_change(&mut self, now: Instant) -> bool {
        if let Some(refilled) = self.refilled {
            let passed = now.duration_since(refilled).as_secs_f64();
            self.changes = (self.changes + passed * CHANGES_A_SECOND).min(CHANGES);
        }
        self.refilled = Some(now);
        let may = self.changes >= 1.0;
        if may {
            self.changes -= 1.0;
        }
        may
    }
}

impl Counter {
    fn add(&mut self, repeated: &Repeated<'_>, connection: &str, now: Instant) -> Option<String> {
        self.count += repeated.times;
        self.is_due(now).then(|| self.take(connection, repeated.proxy, now))
    }

    fn is_due(&self, now: Instant) -> bool {
        now.duration_since(self.written) >= INTERVAL
    }

    fn take(&mut self, connection: &str, proxy: &str, now: Instant) -> String {
        self.written = now;
        let count = std::mem::take(&mut self.count);
        let line = |event: &str| Line::new(event, Some(connection)).text("proxy", proxy);
        let line = match self.kind {
            Kind::Denied => line("denied").text("what", &self.what).text("detail", &self.detail),
            Kind::Held => line("failed")
                .text("class", "timeout")
                .text("phase", "receive")
                .text("method", &self.what)
                .text("cause", &self.detail),
            Kind::ShutOut => line("shut-out").text("method", &self.what),
            Kind::Changed => line("changes").text("method", &self.what).text("to", &self.detail),
        };
        line.number("count", count).finish()
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn add(counts: &mut Counts, kind: Kind, what: &str, now: Instant) -> Option<(String, u64)> {
        let repeated = Repeated {
            kind,
            proxy: "p",
            what,
            detail: "d",
            times: 1,
        };
        let line = counts.add(&repeated, now)?;
        let line: Value = serde_json::from_str(&line).unwrap();
        let what = line["what"].as_str().or(line["method"].as_str())?;
        Some((what.to_owned(), line["count"].as_u64()?))
    }

    #[test]
    fn the_first_is_told_at_once_and_the_rest_once_a_minute() {
        let mut counts = Counts::new("c".into());
        let begun = Instant::now();
        assert_eq!(add(&mut counts, Kind::Denied, "a", begun), Some(("a".into(), 1)));
        for _ in 0..10 {
            assert_eq!(add(&mut counts, Kind::Denied, "a", begun), None);
        }
        assert!(counts.take(Some(begun + INTERVAL / 2)).is_empty());
        assert_eq!(counts.take(Some(begun + INTERVAL)).len(), 1);
        assert!(counts.take(None).is_empty(), "it was told");
        let later = begun + INTERVAL * 3 / 2;
        assert_eq!(
            add(&mut counts, Kind::Denied, "a", later),
            None,
            "half a minute after the last line"
        );
        let later = begun + INTERVAL * 4;
        assert_eq!(add(&mut counts, Kind::Denied, "a", later), Some(("a".into(), 2)));
    }

    #[test]
    fn changes_are_only_counted() {
        let mut counts = Counts::new("c".into());
        let begun = Instant::now();
        for _ in 0..10 {
            assert_eq!(add(&mut counts, Kind::Changed, "m", begun), None);
        }
        let lines = counts.take(None);
        assert!(lines.len() == 1 && lines[0].contains(r#""count":10"#), "{lines:?}");
    }

    #[test]
    fn whatever_a_proxy_thinks_of_there_are_only_so_many_lines() {
        let mut counts = Counts::new("c".into());
        let now = Instant::now();
        let lines: Vec<_> = (0..10_000)
            .filter_map(|number| add(&mut counts, Kind::Denied, &format!("{number:0>1000}"), now))
            .collect();
        // As texts are cut, these are all the same.
        assert_eq!(lines.len(), 1);
        let lines: Vec<_> = (0..10_000)
            .filter_map(|number| add(&mut counts, Kind::Denied, &number.to_string(), now))
            .collect();
        assert_eq!(lines.len(), MAX_DIFFERENT);
        assert_eq!(lines.last(), Some(&(OTHERS.to_owned(), 1)));
        let total: u64 = counts
            .take(None)
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["count"].as_u64().unwrap())
            .sum();
        assert_eq!(total + 1 + lines.len() as u64, 20_000, "each is counted somewhere");
        // Other kinds are told apart from these.
        assert_eq!(add(&mut counts, Kind::ShutOut, "m", now), Some(("m".into(), 1)));
    }

    #[test]
    fn lines_about_single_changes_are_limited() {
        let mut counts = Counts::new("c".into());
        let begun = Instant::now();
        let allowed = (0..10_000).filter(|_| counts.may_write_change(begun)).count();
        assert_eq!(allowed, 1000);
        let later = begun + Duration::from_secs(2);
        assert_eq!((0..10_000).filter(|_| counts.may_write_change(later)).count(), 200);
    }
}
