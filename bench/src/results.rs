//! All values of all rounds.

use crate::contestants::Contestant;
use crate::metrics::{self, Metric};
use crate::statistics::Summary;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The values of one figure of one contestant, by what it is measured over.
type Series = BTreeMap<u64, Vec<f64>>;

/// The same, summed up.
pub(crate) type Points = Vec<(u64, Summary)>;

/// What was measured so far.
#[derive(Default)]
pub(crate) struct Results {
    values: BTreeMap<(&'static str, Contestant), Series>,
}

impl Results {
    pub(crate) fn add(&mut self, metric: &Metric, contestant: Contestant, at: usize, value: f64) {
        let series = self.values.entry((metric.id, contestant)).or_default();
        series.entry(at as u64).or_default().push(value);
    }

    /// All points of a contestant, in order.
    pub(crate) fn series(&self, metric: &Metric, contestant: Contestant) -> Points {
        let series = self.values.get(&(metric.id, contestant)).into_iter().flatten();
        series
            .filter_map(|(at, values)| Some((*at, Summary::of(values)?)))
            .collect()
    }

    /// All points of all contestants, and what these are measured over, in order.
    pub(crate) fn of_all(&self, metric: &Metric) -> (Vec<(Contestant, Points)>, Vec<u64>) {
        let all = Contestant::ALL.map(|contestant| (contestant, self.series(metric, contestant)));
        let columns: BTreeSet<u64> = all.iter().flat_map(|(_, points)| points).map(|(at, _)| *at).collect();
        (all.into(), columns.into_iter().collect())
    }

    /// One point.
    pub(crate) fn get(&self, metric: &Metric, contestant: Contestant, at: usize) -> Option<Summary> {
        Summary::of(self.values.get(&(metric.id, contestant))?.get(&(at as u64))?)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(crate) fn json(&self) -> Value {
        let mut all = Vec::new();
        for metric in metrics::ALL {
            for contestant in Contestant::ALL {
                let points: Vec<Value> = self
                    .series(metric, contestant)
                    .into_iter()
                    .map(|(at, summary)| {
                        json!({"at": at, "median": summary.median, "min": summary.least, "max": summary.most,
                            "values": self.values[&(metric.id, contestant)][&at]})
                    })
                    .collect();
                if !points.is_empty() {
                    all.push(
                        json!({"measure": metric.id, "title": metric.title, "unit": metric.unit, "over": metric.over,
                        "contestant": contestant, "points": points}),
                    );
                }
            }
        }
        all.into()
    }
}
