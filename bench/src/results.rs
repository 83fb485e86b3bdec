//! All values of all rounds.

use crate::contestants::Contestant;
use crate::metrics::{self, Metric};
use crate::statistics::Summary;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The values of one figure of one contestant, by what it is measured over.
type Series = BTreeMap<u64, Vec<f64>>;

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
    pub(crate) fn series(&self, metric: &Metric, contestant: Contestant) -> Vec<(u64, Summary)> {
        let series = self.values.get(&(metric.id, contestant)).into_iter().flatten();
        series
            .filter_map(|(at, values)| Some((*at, Summary::of(values)?)))
            .collect()
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
