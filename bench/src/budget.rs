//! What Consort has promised to reach, next to the reference in the same run.

use crate::contestants::Contestant::{self, Consort, Reference};
use crate::metrics::{self, Metric};
use crate::results::Results;
use crate::table::number;
use serde::Serialize;

/// How a row is judged.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// Consort takes at most what the reference takes, divided by this.
    Part(f64),
    /// Consort does at least so many times what the reference does.
    Times(f64),
    /// Consort's own figure is at most so many times that without proxies (or of another measure without proxies).
    Own(f64),
    /// Consort's own figure is at most this.
    AtMost(f64),
}

/// A line of the budget.
struct Row {
    what: &'static str,
    metric: &'static Metric,
    proxies: usize,
    rule: Rule,
    /// The figure is what one proxy adds to so many others.
    added_to: Option<usize>,
}

const fn row(what: &'static str, metric: &'static Metric, proxies: usize, rule: Rule) -> Row {
    Row {
        what,
        metric,
        proxies,
        rule,
        added_to: None,
    }
}

const fn added(what: &'static str, metric: &'static Metric, to: usize) -> Row {
    Row {
        what,
        metric,
        proxies: 8,
        rule: Rule::AtMost(0.3),
        added_to: Some(to),
    }
}

static ROWS: &[Row] = &[
    row(
        "prompt round trip, no proxies",
        &metrics::ROUND_TRIP,
        0,
        Rule::Part(4.0),
    ),
    row("updates, no proxies", &metrics::UPDATES, 0, Rule::Times(30.0)),
    row(
        "prompt round trip, 8 proxies that edit the answer",
        &metrics::ROUND_TRIP,
        8,
        Rule::Part(40.0),
    ),
    row(
        "the same, 8 that edit prompt and answer",
        &metrics::ROUND_TRIP_ALL,
        8,
        Rule::Part(40.0),
    ),
    row(
        "updates, 8 proxies that edit each",
        &metrics::UPDATES,
        8,
        Rule::Times(40.0),
    ),
    row(
        "round trip past 8 uninterested proxies, against none",
        &metrics::UNINTERESTED_TRIP,
        8,
        Rule::Own(1.1),
    ),
    row(
        "CPU for an update past 8 uninterested, against none",
        &metrics::UNINTERESTED_CPU,
        8,
        Rule::Own(1.1),
    ),
    row(
        "16 MiB prompt edited by 8, against forwarded by none",
        &metrics::BIG_16,
        8,
        Rule::Own(1.5),
    ),
    added(
        "memory that a proxy adds, idle, 8 against none",
        &metrics::MEMORY_IDLE,
        0,
    ),
    added("the same, 8 against 1", &metrics::MEMORY_IDLE, 1),
    added(
        "memory that a proxy adds, peak under load, 8 against none",
        &metrics::MEMORY_PEAK,
        0,
    ),
    added("the same, 8 against 1", &metrics::MEMORY_PEAK, 1),
    row(
        "start with 8 proxies, compiled before, against none",
        &metrics::START_WARM,
        8,
        Rule::Own(1.5),
    ),
    row(
        "stalled reader, no proxies, 100,000 × 1 KiB, peak",
        &metrics::STALLED_PEAK,
        0,
        Rule::AtMost(64.0),
    ),
    row(
        "answers overtaken by later updates, no proxies",
        &metrics::OVERTAKEN,
        0,
        Rule::AtMost(0.0),
    ),
    row("the same, 8 proxies", &metrics::OVERTAKEN, 8, Rule::AtMost(0.0)),
];

/// A line of the budget with what was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Judged {
    pub(crate) what: &'static str,
    pub(crate) unit: &'static str,
    /// None if it was not measured.
    pub(crate) reference: Option<f64>,
    pub(crate) consort: Option<f64>,
    /// How many values stand behind each of the medians that it is judged by, at least.
    pub(crate) values: usize,
    /// What Consort's figure is judged by: how many times better than the reference, how many times its own without proxies, or the
    /// figure itself.
    pub(crate) ratio: Option<f64>,
    /// The ratio in words.
    pub(crate) reached: String,
    pub(crate) required: String,
    pub(crate) met: Option<bool>,
}

/// All rows that Consort was measured for.
pub(crate) fn judge(results: &Results) -> Vec<Judged> {
    ROWS.iter()
        .map(|row| row.judge(results))
        .filter(|row| row.consort.is_some())
        .collect()
}

impl Row {
    fn figure(&self, results: &Results, contestant: Contestant) -> Option<f64> {
        let figure = results.get(self.metric, contestant, self.proxies)?.median;
        let Some(to) = self.added_to else {
            return Some(figure);
        };
        let fewer = results.get(self.metric, contestant, to)?.median;
        Some((figure - fewer) / (self.proxies - to) as f64)
    }

    /// How many values stand behind each median that the row has, at least.
    fn values(&self, results: &Results) -> usize {
        let own = matches!(self.rule, Rule::Own(_)).then_some(0);
        let numbers = || [Some(self.proxies), self.added_to, own].into_iter().flatten();
        let summaries = [Consort, Reference]
            .into_iter()
            .flat_map(|contestant| numbers().filter_map(move |at| results.get(self.metric, contestant, at)));
        summaries.map(|summary| summary.count).min().unwrap_or(0)
    }

    fn judge(&self, results: &Results) -> Judged {
        let consort = self.figure(results, Consort);
        let reference = self.figure(results, Reference);
        let none = results.get(self.metric, Consort, 0).map(|summary| summary.median);
        let ratio = |numerator: Option<f64>, denominator: Option<f64>| {
            Some(numerator? / denominator?).filter(|ratio| ratio.is_finite())
        };
        let (ratio, required, met): (_, _, fn(f64, f64) -> bool) = match self.rule {
            Rule::Part(part) => (ratio(reference, consort), format!("≤ 1/{part}"), |ratio, part| {
                ratio >= part
            }),
            Rule::Times(times) => (ratio(consort, reference), format!("≥ {times} ×"), |ratio, times| {
                ratio >= times
            }),
            Rule::Own(times) => (ratio(consort, none), format!("≤ {times} × none"), |ratio, times| {
                ratio <= times
            }),
            Rule::AtMost(most) => (consort, format!("≤ {most} {}", self.metric.unit), |figure, most| {
                figure <= most
            }),
        };
        let reached = match (ratio, self.rule) {
            (None, _) => "-".to_owned(),
            (Some(ratio), Rule::Part(_)) => format!("1/{}", number(ratio)),
            (Some(ratio), Rule::Times(_) | Rule::Own(_)) => format!("{} ×", number(ratio)),
            (Some(ratio), Rule::AtMost(_)) => number(ratio),
        };
        Judged {
            reached,
            what: self.what,
            unit: self.metric.unit,
            reference,
            consort,
            values: self.values(results),
            ratio,
            required,
            met: ratio.map(|ratio| met(ratio, self.limit())),
        }
    }

    fn limit(&self) -> f64 {
        match self.rule {
            Rule::Part(limit) | Rule::Times(limit) | Rule::Own(limit) | Rule::AtMost(limit) => limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(results: &Results, what: &str) -> Judged {
        judge(results).into_iter().find(|row| row.what == what).unwrap()
    }

    #[test]
    fn rows_are_judged_by_their_ratios() {
        let mut results = Results::default();
        assert!(judge(&results).is_empty());
        results.add(&metrics::ROUND_TRIP, Reference, 0, 100.0);
        results.add(&metrics::ROUND_TRIP, Consort, 0, 25.0);
        results.add(&metrics::UPDATES, Consort, 8, 39.0);
        for (proxies, mib) in [(0, 4.0), (8, 6.3)] {
            results.add(&metrics::MEMORY_IDLE, Consort, proxies, mib);
            results.add(&metrics::MEMORY_PEAK, Consort, proxies, mib * 2.0);
        }
        assert_eq!(judged(&results, "prompt round trip, no proxies").met, Some(true));
        let updates = judged(&results, "updates, 8 proxies that edit each");
        assert_eq!((updates.consort, updates.met), (Some(39.0), None));
        assert_eq!(
            judged(&results, "memory that a proxy adds, idle, 8 against none").met,
            Some(true)
        );
        assert_eq!(
            judged(&results, "memory that a proxy adds, peak under load, 8 against none").met,
            Some(false)
        );
        results.add(&metrics::UPDATES, Consort, 8, 39.0);
        assert_eq!(judged(&results, "updates, 8 proxies that edit each").values, 2);
        results.add(&metrics::UPDATES, Reference, 8, 1.0);
        assert_eq!(judged(&results, "updates, 8 proxies that edit each").values, 1);
        assert_eq!(judged(&results, "updates, 8 proxies that edit each").met, Some(false));
    }
}
