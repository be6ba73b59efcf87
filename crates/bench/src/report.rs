//! Reports: tables in Markdown, aligned for the terminal, and ratios. Pure.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;

use crate::comparison::{CaseResult, Row};
use crate::metric::{Direction, Metric};
use crate::stats::{self, Ratio};

/// All results of one call. Serialises as the raw JSON.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Report {
    /// Facts that figures depend on: machine, versions, the command line.
    pub(crate) facts: Vec<(String, String)>,
    /// The cases in the order they ran.
    pub(crate) cases: Vec<CaseResult>,
}

impl Report {
    /// The facts and all cases.
    pub(crate) fn text(&self) -> String {
        let facts = self
            .facts
            .iter()
            .map(|(name, value)| format!("- {name}: {value}\n"));
        facts.chain(self.cases.iter().map(case_text)).collect()
    }

    /// Whether any run of any case failed.
    pub(crate) fn has_failures(&self) -> bool {
        self.cases
            .iter()
            .flat_map(|case| &case.rows)
            .any(|row| row.failure.is_some())
    }
}

/// One case.
pub(crate) fn case_text(case: &CaseResult) -> String {
    let tables = case_tables(case)
        .iter()
        .map(|rows| format!("\n{}", table(rows)))
        .collect::<String>();
    let mut text = format!("\n### {}\n\n{}\n{tables}", case.name, case.about);
    for row in &case.rows {
        if let Some(failure) = &row.failure {
            let _ = writeln!(
                text,
                "\n**FAILED** {} in {}: {failure}",
                row.name, case.name
            );
        }
    }
    text
}

/// A table: rows of cells, of which the first one is left aligned and the others right.
type Rows = Vec<Vec<String>>;

fn table(rows: &Rows) -> String {
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len))
        .map(|at| {
            rows.iter()
                .filter_map(|row| row.get(at))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if at == 0 {
                write!(text, "| {cell:<width$} |")
            } else {
                write!(text, " {cell:>width$} |")
            };
        }
        text.push('\n');
        for (at, width) in
            widths
                .iter()
                .enumerate()
                .take(if number == 0 { widths.len() } else { 0 })
        {
            let _ = if at == 0 {
                write!(text, "|-{}-|", "-".repeat(*width))
            } else {
                write!(text, "-{}:|", "-".repeat(*width))
            };
        }
        text.push_str(if number == 0 { "\n" } else { "" });
    }
    text
}

fn case_tables(case: &CaseResult) -> Vec<Rows> {
    let metrics = metrics_of(case);
    let comparable: Vec<Metric> = metrics
        .iter()
        .copied()
        .filter(|metric| metric.column().1 != Direction::Context)
        .collect();
    if metrics.is_empty() {
        return Vec::new();
    }
    let ratios = ratio_rows(case, &comparable);
    let mut tables = vec![figures(case, &metrics)];
    if !ratios.is_empty() {
        let mut rows = vec![header("ratio (of pairs)", &comparable)];
        rows.extend(ratios);
        tables.push(rows);
    }
    tables
}

fn metrics_of(case: &CaseResult) -> Vec<Metric> {
    let samples = case.rows.iter().flat_map(|row| &row.samples);
    samples
        .flat_map(|sample| sample.keys().copied())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

/// Medians, one row per peer, and the spread of the runs in the case's first metric.
fn figures(case: &CaseResult, metrics: &[Metric]) -> Rows {
    let mut titles = header(&format!("median of {}", most_runs(case)), metrics);
    titles.push("spread".to_owned());
    let mut rows = vec![titles];
    for row in case.rows.iter().filter(|row| !row.samples.is_empty()) {
        let mut cells = vec![row.name.clone()];
        cells.extend(metrics.iter().map(|metric| figure(row, *metric)));
        let spread = metrics
            .first()
            .and_then(|metric| stats::spread_percent(&row.values(*metric)));
        cells.push(spread.map_or("–".to_owned(), |percent| format!("{percent:.0} %")));
        rows.push(cells);
    }
    rows
}

/// The median, with an exclamation mark if it casts doubt on the row.
fn figure(row: &Row, metric: Metric) -> String {
    let mark = |value: f64| if metric.casts_doubt(value) { "!" } else { "" };
    stats::median(&row.values(metric)).map_or("–".to_owned(), |value| {
        format!("{}{}", number(value), mark(value))
    })
}

/// Ours against each other peer, and against the best of them if there are several. Without ours, the first
/// against the rest.
fn ratio_rows(case: &CaseResult, metrics: &[Metric]) -> Vec<Vec<String>> {
    let any_ours = case.rows.iter().any(|row| row.ours);
    let (ours, theirs): (Vec<_>, Vec<_>) = case
        .rows
        .iter()
        .enumerate()
        .filter(|(_, row)| !row.samples.is_empty())
        .partition(|(at, row)| if any_ours { row.ours } else { *at == 0 });
    let theirs: Vec<&Row> = theirs.into_iter().map(|(_, row)| row).collect();
    let mut rows = Vec::new();
    for (_, our) in ours {
        for their in &theirs {
            let label = format!("{} / {}", our.name, their.name);
            rows.push(ratio_row(label, metrics, |metric| {
                stats::ratio(&our.values(metric), &their.values(metric))
            }));
        }
        if theirs.len() > 1 {
            let label = format!("{} / best of {}", our.name, theirs.len());
            rows.push(ratio_row(label, metrics, |metric| {
                stats::ratio(&our.values(metric), &best(&theirs, metric)?.values(metric))
            }));
        }
    }
    rows
}

fn ratio_row(
    label: String,
    metrics: &[Metric],
    ratio: impl Fn(Metric) -> Option<Ratio>,
) -> Vec<String> {
    let cell = |found: Ratio| format!("{}× ({})", number(found.of_medians), number(found.of_pairs));
    let cells = metrics
        .iter()
        .map(|metric| ratio(*metric).map_or("–".to_owned(), cell));
    std::iter::once(label).chain(cells).collect()
}

/// The row whose median is best in this metric.
fn best<'a>(rows: &[&'a Row], metric: Metric) -> Option<&'a Row> {
    let by_median = |row: &&&Row| stats::median(&row.values(metric));
    let ranked = rows.iter().filter(|row| by_median(row).is_some());
    let compare = |a: &&&Row, b: &&&Row| {
        f64::total_cmp(&by_median(a).unwrap_or(0.0), &by_median(b).unwrap_or(0.0))
    };
    let found = match metric.column().1 {
        Direction::HigherIsBetter => ranked.max_by(compare),
        Direction::LowerIsBetter | Direction::Context => ranked.min_by(compare),
    };
    found.copied()
}

/// Titles, with arrows for the better direction.
fn header(first: &str, metrics: &[Metric]) -> Vec<String> {
    let title = |metric: &Metric| match metric.column() {
        (title, Direction::HigherIsBetter) => format!("{title} ↑"),
        (title, Direction::LowerIsBetter) => format!("{title} ↓"),
        (title, Direction::Context) => title.to_owned(),
    };
    std::iter::once(first.to_owned())
        .chain(metrics.iter().map(title))
        .collect()
}

fn most_runs(case: &CaseResult) -> usize {
    case.rows
        .iter()
        .map(|row| row.samples.len())
        .max()
        .unwrap_or(0)
}

/// At least three significant digits, with separators of thousands.
fn number(value: f64) -> String {
    let size = value.abs();
    let plain = match size {
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    if size < 10_000.0 {
        plain
    } else {
        grouped(&plain)
    }
}

fn grouped(digits: &str) -> String {
    let length = digits.len();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (length - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Sample;

    fn row(name: &str, ours: bool, rates: &[f64], micros: f64) -> Row {
        let sample = |rate: &f64| {
            Sample::from([
                (Metric::JobsPerSecond, *rate),
                (Metric::ServerMicrosPerJob, micros),
            ])
        };
        Row {
            samples: rates.iter().map(sample).collect(),
            ..Row::new(name.to_owned(), ours)
        }
    }

    fn case(rows: Vec<Row>) -> CaseResult {
        CaseResult {
            name: "bg-1".into(),
            about: "one at a time".into(),
            rows,
        }
    }

    #[test]
    fn a_case_as_text() {
        let text = case_text(&case(vec![
            row("ours", true, &[20_000.0, 40_000.0, 30_000.0], 10.0),
            row("slow", false, &[10_000.0, 10_000.0, 10_000.0], 5.0),
            row("fast", false, &[15_000.0, 15_000.0, 15_000.0], 20.0),
        ]));
        let expected = "
### bg-1

one at a time

| median of 3 | jobs/s ↑ | server µs/job ↓ | spread |
|-------------|---------:|----------------:|-------:|
| ours        |   30,000 |            10.0 |   67 % |
| slow        |   10,000 |            5.00 |    0 % |
| fast        |   15,000 |            20.0 |    0 % |

| ratio (of pairs) |     jobs/s ↑ | server µs/job ↓ |
|------------------|-------------:|----------------:|
| ours / slow      | 3.00× (3.00) |    2.00× (2.00) |
| ours / fast      | 2.00× (2.00) |    0.50× (0.50) |
| ours / best of 2 | 2.00× (2.00) |    2.00× (2.00) |
";
        assert_eq!(text, expected, "{text}");
    }

    #[test]
    fn without_ours_the_first_is_compared() {
        let cases = vec![case(vec![
            row("a", false, &[10.0], 1.0),
            row("b", false, &[20.0], 1.0),
        ])];
        let text = Report {
            facts: vec![("cores".into(), "2".into())],
            cases,
        }
        .text();
        assert!(
            text.starts_with("- cores: 2\n\n### bg-1\n\none at a time\n\n| median of 1 |"),
            "{text}"
        );
        assert!(
            text.contains("| a / b            | 0.50× (0.50) |    1.00× (1.00) |"),
            "{text}"
        );
    }

    #[test]
    fn a_failure_is_loud_and_makes_no_ratio() {
        let mut lost = row("ours", true, &[], 0.0);
        lost.failure = Some("count mismatch: 3 lost".into());
        let report = Report {
            facts: Vec::new(),
            cases: vec![case(vec![lost, row("b", false, &[20.0], 1.0)])],
        };
        assert!(report.has_failures());
        let text = case_text(&report.cases[0]);
        assert!(
            text.contains("**FAILED** ours in bg-1: count mismatch: 3 lost"),
            "{text}"
        );
        assert!(!text.contains('×'), "{text}");
        let mut nobody = report.cases[0].clone();
        nobody.rows.truncate(1);
        assert!(!case_text(&nobody).contains("median"), "a table of nothing");
    }

    #[test]
    fn a_busy_machine_is_marked() {
        let mut row = row("b", false, &[20.0], 1.0);
        row.samples[0].insert(Metric::OthersBusyPercent, 48.0);
        row.samples[0].insert(Metric::ClientBusyPercent, 48.0);
        let text = case_text(&case(vec![row]));
        assert!(text.contains(" 48.0 |    48.0! |"), "{text}");
    }

    #[test]
    fn numbers_keep_three_digits() {
        for (value, text) in [
            (0.123, "0.12"),
            (9.999, "10.00"),
            (12.34, "12.3"),
            (999.6, "1000"),
            (9_999.0, "9999"),
            (12_345.6, "12,346"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
