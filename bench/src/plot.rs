//! A picture of the results, as SVG: small charts with logarithmic axes, readable on light and on dark backgrounds.

use crate::contestants::Contestant;
use crate::metrics::{self, Metric};
use crate::results::Results;
use crate::statistics::Summary;
use crate::table::number;
use std::fmt::Write as _;

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 280.0;
const COLUMNS: usize = 2;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 40.0;
const LEGEND: f64 = 34.0;

/// The charts with their titles, where there are values for them.
static CHARTS: &[(&str, &Metric)] = &[
    ("prompt round trip, every proxy edits (µs)", &metrics::ROUND_TRIP),
    ("updates a second, every proxy edits each", &metrics::UPDATES),
    ("permission round trip, every proxy edits (µs)", &metrics::PERMISSION),
    ("CPU time for an update (µs)", &metrics::CPU),
    ("prompts a second, 64 sessions at once", &metrics::FLIGHT_64),
    ("memory, idle after the start (MiB)", &metrics::MEMORY_IDLE),
    ("round trip past uninterested proxies (µs)", &metrics::UNINTERESTED_TRIP),
    ("start to `initialize`, compiled before (ms)", &metrics::START_WARM),
    ("16 MiB prompt, every proxy adds a block (ms)", &metrics::BIG_16),
    ("memory while the client does not read (MiB)", &metrics::STALLED_PEAK),
    ("round trip with so many sessions (µs)", &metrics::GROWTH_SESSIONS),
    ("round trip with so many unanswered (µs)", &metrics::GROWTH_REQUESTS),
];

fn colour(contestant: Contestant) -> &'static str {
    match contestant {
        Contestant::Direct => "#3f9f63",
        Contestant::Relay => "#9a6fd0",
        Contestant::Consort => "#2f81f7",
        Contestant::Reference => "#e0701a",
    }
}

/// A logarithmic axis: from values to places between 0 and 1.
#[derive(Debug)]
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// One that has room for all values, between powers of ten or halves of those.
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let positive: Vec<f64> = values.filter(|value| *value > 0.0 && value.is_finite()).collect();
        let least = positive.iter().copied().fold(f64::INFINITY, f64::min);
        let most = positive.iter().copied().fold(0.0, f64::max);
        (!positive.is_empty()).then(|| Self {
            low: least.log10().floor(),
            high: (most.log10() + 1e-9).ceil().max(least.log10().floor() + 1.0),
        })
    }

    fn place(&self, value: f64) -> f64 {
        ((value.max(f64::MIN_POSITIVE).log10() - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// The powers of ten on it.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        (self.low as i32..=self.high as i32).map(|power| 10_f64.powi(power))
    }
}

/// The whole picture.
pub(crate) fn svg(results: &Results) -> String {
    let charts: Vec<String> = CHARTS
        .iter()
        .filter_map(|(title, metric)| chart(title, metric, results))
        .collect();
    let rows = charts.len().div_ceil(COLUMNS);
    let (width, height) = (WIDTH * COLUMNS as f64, HEIGHT * rows as f64 + LEGEND);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
         <style>text {{ fill: #7d8590 }} .title {{ font-weight: 600 }} .grid {{ stroke: #8c959f; stroke-opacity: .3 }}</style>\n"
    );
    let mut left = LEFT;
    for contestant in Contestant::ALL {
        if CHARTS
            .iter()
            .any(|(_, metric)| !results.series(metric, contestant).is_empty())
        {
            let colour = colour(contestant);
            let _ = writeln!(
                svg,
                "<circle cx=\"{left}\" cy=\"17\" r=\"4\" fill=\"{colour}\"/><text x=\"{}\" y=\"21\">{}</text>",
                left + 9.0,
                contestant.name()
            );
            left += 120.0;
        }
    }
    for (number, chart) in charts.iter().enumerate() {
        let x = WIDTH * (number % COLUMNS) as f64;
        let y = LEGEND + HEIGHT * (number / COLUMNS) as f64;
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">\n{chart}</g>");
    }
    svg + "</svg>\n"
}

/// One chart; none without values.
fn chart(title: &str, metric: &Metric, results: &Results) -> Option<String> {
    let (all, columns) = results.of_all(metric);
    let values = all.iter().flat_map(|(_, points)| points.iter());
    let scale = Scale::of(values.flat_map(|(_, summary)| [summary.least, summary.most]))?;
    let (inner_width, inner_height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    // Numbers of proxies are few and grow by doubling, those of sessions tenfold: side by side shows both.
    let x = |at: u64| {
        let index = columns.iter().position(|column| *column == at).unwrap_or(0);
        LEFT + inner_width * (index as f64 + 0.5) / columns.len() as f64
    };
    let y = |value: f64| TOP + inner_height * (1.0 - scale.place(value));
    let (title, middle) = (escaped(title), LEFT + inner_width / 2.0);
    let mut svg = format!("<text class=\"title\" x=\"10\" y=\"20\">{title}</text>\n");
    for tick in scale.ticks() {
        let y = y(tick);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            short(tick)
        );
    }
    for column in &columns {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            x(*column),
            HEIGHT - BOTTOM + 17.0,
            short(*column as f64)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        HEIGHT - BOTTOM + 33.0,
        metric.over
    );
    for (contestant, points) in &all {
        let colour = colour(*contestant);
        line(&mut svg, colour, points, &x, &y);
        // What cannot have proxies is the limit for all that can.
        if let ([(_, only)], false) = (points.as_slice(), contestant.has_proxies()) {
            let y = y(only.median);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-dasharray=\"3 5\"/>",
                WIDTH - RIGHT
            );
        }
    }
    Some(svg)
}

/// A line through the medians, with bars from the least to the most.
fn line(svg: &mut String, colour: &str, points: &[(u64, Summary)], x: &dyn Fn(u64) -> f64, y: &dyn Fn(f64) -> f64) {
    let path: Vec<String> = points
        .iter()
        .map(|(at, summary)| format!("{:.1},{:.1}", x(*at), y(summary.median)))
        .collect();
    if path.len() > 1 {
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
    }
    for (at, summary) in points {
        let x = x(*at);
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"1.5\"/>\
             <circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{colour}\"/>",
            y(summary.least),
            y(summary.most),
            y(summary.median)
        );
    }
}

/// A number of an axis, which has little room.
fn short(value: f64) -> String {
    match value {
        _ if value >= 1e6 => number(value / 1e6) + "M",
        _ if value >= 1e4 => number(value / 1e3) + "k",
        _ => number(value),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_has_room_for_all_values() {
        let scale = Scale::of([0.0, 12.0, 850.0].into_iter()).unwrap();
        assert_eq!(scale.ticks().collect::<Vec<_>>(), [10.0, 100.0, 1000.0]);
        assert_eq!(scale.place(10.0), 0.0);
        assert_eq!(scale.place(100.0), 0.5);
        assert_eq!(scale.place(1000.0), 1.0);
        assert_eq!(scale.place(0.0), 0.0);
        let one = Scale::of([100.0].into_iter()).unwrap();
        assert_eq!((one.low, one.high), (2.0, 3.0));
        assert!(Scale::of([0.0].into_iter()).is_none());
    }

    #[test]
    fn a_chart_has_a_point_for_each_value() {
        let mut results = Results::default();
        for proxies in [0, 1, 8] {
            results.add(
                &metrics::ROUND_TRIP,
                Contestant::Consort,
                proxies,
                10.0 + proxies as f64,
            );
        }
        let svg = svg(&results);
        // One more is the legend's.
        assert_eq!(svg.matches("<circle").count(), 4);
        assert_eq!(svg.matches("<polyline").count(), 1);
        assert!(svg.ends_with("</svg>\n"));
    }
}
