//! The tables, in Markdown that is aligned for terminals as well.

use crate::budget::Judged;
use crate::machine::Machine;
use crate::metrics::{self, Metric};
use crate::results::Results;
use crate::statistics::Summary;

/// Everything that was measured, for people.
pub(crate) fn text(machine: &Machine, budget: &[Judged], results: &Results) -> String {
    let mut text = machine.sentences();
    if !budget.is_empty() {
        text += "\n## The budget\n\nMedians; `values` is how many stand behind each figure of a row, at least.\n\n";
        text += &self::budget(budget);
    }
    text += "\n## All measures\n";
    for metric in metrics::ALL {
        if let Some(table) = measure(metric, results) {
            let unit = match metric.unit {
                "" => String::new(),
                unit => format!(", in {unit}"),
            };
            text += &format!("\n### {}{unit}\n\n{table}", metric.title);
        }
    }
    text
}

/// What stands behind figures of so many values, at least and at most.
fn behind(least: usize, most: usize) -> String {
    match (least, most) {
        (1, 1) => "One value each.".to_owned(),
        (least, most) if least == most => format!("Median (least–most) of {most} values."),
        (least, most) => format!("Median (least–most) of {least} to {most} values."),
    }
}

fn budget(rows: &[Judged]) -> String {
    let header = ["", "reference", "Consort", "values", "reached", "required", ""];
    let mut cells = vec![header.map(str::to_owned).to_vec()];
    for row in rows {
        let figure =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{} {}", number(value), row.unit));
        let met = match row.met {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None => "not compared",
        };
        cells.push(vec![
            row.what.to_owned(),
            figure(row.reference),
            figure(row.consort),
            row.values.to_string(),
            row.reached.clone(),
            row.required.clone(),
            met.to_owned(),
        ]);
    }
    aligned(&cells)
}

/// How many values stand behind the figures, then a contestant a line, and a column for each number of what it is measured over. None
/// without any values.
fn measure(metric: &Metric, results: &Results) -> Option<String> {
    let (all, columns) = results.of_all(metric);
    if columns.is_empty() {
        return None;
    }
    let mut header = vec![metric.over.to_owned()];
    header.extend(columns.iter().map(u64::to_string));
    let mut cells = vec![header];
    for (contestant, points) in all.iter().filter(|(_, points)| !points.is_empty()) {
        let mut line = vec![contestant.name().to_owned()];
        for column in &columns {
            let point = points.iter().find(|(at, _)| at == column);
            line.push(point.map_or(String::new(), |(_, summary)| cell(summary)));
        }
        cells.push(line);
    }
    let counts = || {
        all.iter()
            .flat_map(|(_, points)| points)
            .map(|(_, summary)| summary.count)
    };
    let behind = behind(counts().min()?, counts().max()?);
    Some(format!("{behind}\n\n{}", aligned(&cells)))
}

fn cell(summary: &Summary) -> String {
    let (median, least, most) = (number(summary.median), number(summary.least), number(summary.most));
    match least == most {
        true => median,
        false => format!("{median} ({least}–{most})"),
    }
}

/// The first line of cells is the header.
fn aligned(cells: &[Vec<String>]) -> String {
    let columns = cells.first().map_or(0, Vec::len);
    let widest = |column: usize| {
        cells
            .iter()
            .map(|line| line[column].chars().count())
            .max()
            .unwrap_or(0)
            .max(3)
    };
    let widths: Vec<usize> = (0..columns).map(widest).collect();
    let mut text = String::new();
    for (number, line) in cells.iter().enumerate() {
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            text += &match column {
                0 => format!("| {cell:width$} "),
                _ => format!("| {cell:>width$} "),
            };
        }
        text += "|\n";
        if number == 0 {
            for (column, width) in widths.iter().enumerate() {
                text += &match column {
                    0 => format!("|{}", "-".repeat(width + 2)),
                    _ => format!("|{}:", "-".repeat(width + 1)),
                };
            }
            text += "|\n";
        }
    }
    text
}

/// A number with three digits that count, and a comma between thousands.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let magnitude = value.abs();
    let decimals = match magnitude {
        0.0 => 0,
        _ if magnitude < 0.1 => 3,
        _ if magnitude < 10.0 => 2,
        _ if magnitude < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    };
    if magnitude < 1000.0 {
        return text;
    }
    let three = value.abs().log10().floor() as i32 - 2;
    let unit = 10_f64.powi(three.max(0));
    let digits = format!("{:.0}", (value / unit).round() * unit);
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestants::Contestant;

    #[test]
    fn numbers_have_three_digits_that_count() {
        for (value, text) in [
            (0.0, "0"),
            (0.012, "0.012"),
            (1.234, "1.23"),
            (2.5, "2.5"),
            (10.0, "10"),
            (98.76, "98.8"),
            (345.6, "346"),
            (1_234.0, "1,230"),
            (1_045_678.0, "1,050,000"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_table_has_a_line_for_each_contestant() {
        let mut results = Results::default();
        results.add(&metrics::UPDATES, Contestant::Relay, 0, 900_000.0);
        for value in [1_000.0, 2_000.0, 4_000.0] {
            results.add(&metrics::UPDATES, Contestant::Consort, 8, value);
        }
        assert_eq!(
            measure(&metrics::UPDATES, &results).unwrap(),
            "Median (least–most) of 1 to 3 values.\n\
             \n\
             | proxies     |       0 |                   8 |\n\
             |-------------|--------:|--------------------:|\n\
             | plain relay | 900,000 |                     |\n\
             | Consort     |         | 2,000 (1,000–4,000) |\n"
        );
        assert_eq!(measure(&metrics::CPU, &results), None);
    }

    #[test]
    fn a_table_says_how_many_values_there_are() {
        for (values, sentence) in [
            (&[1.0][..], "One value each.\n"),
            (&[1.0, 1.0, 2.0], "Median (least–most) of 3 values.\n"),
        ] {
            let mut results = Results::default();
            for value in values {
                results.add(&metrics::BIG_16, Contestant::Consort, 0, *value);
            }
            assert!(measure(&metrics::BIG_16, &results).unwrap().starts_with(sentence));
        }
    }
}
