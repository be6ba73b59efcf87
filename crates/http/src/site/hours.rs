//! Plots of what ended in each hour: how many jobs, and how long they waited and ran.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_daemon::operator_port::history::{Ends, HOUR_MS, HourRow};
use windlass_engine::{Histogram, Timestamp};

use crate::api::kinds::Durations;
use crate::time::{Age, moment_text};

/// Hours of a plot, at most: a week.
const HOURS_MAX: u64 = 168;

/// The height of a plot, and the width of an hour.
const HEIGHT: f64 = 96.0;
const WIDTH: usize = 8;

/// A plot with a bar for each hour.
#[derive(Debug)]
pub(super) struct Plot {
    pub(super) title: &'static str,
    /// What it shows.
    pub(super) about: String,
    pub(super) bars: Vec<Bar>,
}

/// An hour in a plot.
#[derive(Debug)]
pub(super) struct Bar {
    /// When it begins and ends.
    pub(super) from: String,
    pub(super) until: String,
    /// What it shows, in words.
    pub(super) label: String,
    /// From the one that is drawn first.
    pub(super) parts: [Part; 3],
}

/// A part of a bar.
#[derive(Debug)]
pub(super) struct Part {
    /// Its class in the style sheet.
    pub(super) class: &'static str,
    pub(super) top: f64,
    pub(super) height: f64,
}

/// The last hours from the first to the last one in which something ended.
fn hours(ends: &Ends) -> Vec<HourRow> {
    let empty = |hour_ms| HourRow {
        hour_ms,
        ..HourRow::default()
    };
    let mut sums = BTreeMap::<u64, HourRow>::new();
    for row in ends.rows.iter().chain(&ends.others) {
        let sum = sums.entry(row.hour_ms);
        sum.or_insert_with(|| empty(row.hour_ms)).add(row);
    }
    let Some(first) = sums.keys().next().copied() else {
        return Vec::new();
    };
    let last = sums.keys().next_back().copied().unwrap_or(first);
    let mut hour_ms = first.max(last.saturating_sub((HOURS_MAX - 1) * HOUR_MS));
    let mut hours = Vec::new();
    while hour_ms <= last {
        hours.push(sums.remove(&hour_ms).unwrap_or_else(|| empty(hour_ms)));
        hour_ms += HOUR_MS;
    }
    hours
}

impl Plot {
    /// All plots; none if nothing ended.
    pub(super) fn all(ends: &Ends) -> Vec<Self> {
        let hours = hours(ends);
        if hours.is_empty() {
            return Vec::new();
        }
        vec![
            Self::of_numbers(&hours),
            Self::of_durations("How long they waited", &hours, |hour| &hour.waited),
            Self::of_durations("How long they ran", &hours, |hour| &hour.ran),
        ]
    }

    pub(super) fn width(&self) -> usize {
        self.bars.len() * WIDTH
    }

    fn of_numbers(hours: &[HourRow]) -> Self {
        let most = hours.iter().map(HourRow::ends).max().unwrap_or(0);
        let bar = |hour: &HourRow| {
            let HourRow {
                done,
                failed,
                other,
                ..
            } = hour;
            let label = format!("{done} done, {failed} failed, {other} other");
            let mut bottom = HEIGHT;
            let mut part = |class, count: u64| {
                let part = Part::new(class, bottom, count as f64 / most as f64);
                bottom = part.top;
                part
            };
            let parts = [
                part("done", *done),
                part("failed", *failed),
                part("other", *other),
            ];
            Bar::new(hour.hour_ms, &label, parts)
        };
        Self {
            title: "What ended in each hour",
            about: String::new(),
            bars: hours.iter().map(bar).collect(),
        }
    }

    /// On a logarithmic scale: a second is seen beside an hour.
    fn of_durations(
        title: &'static str,
        hours: &[HourRow],
        of: fn(&HourRow) -> &Histogram,
    ) -> Self {
        let all = hours.iter().map(|hour| Durations::of(of(hour)));
        let most = all.filter_map(|it| it.p99).max().unwrap_or(0);
        let scale = |ms: u64| (ms as f64 + 2.0).ln();
        let part = |class, ms: Option<u64>| {
            let share = ms.map_or(0.0, |ms| scale(ms) / scale(most));
            Part::new(class, HEIGHT, share)
        };
        let bar = |hour: &HourRow| {
            let Durations { p50, p95, p99 } = Durations::of(of(hour));
            let [half, most, nearly_all] = [&p50, &p95, &p99].map(lasted);
            let label = format!("{half}, {most}, {nearly_all}");
            // The longest one is drawn first, and the others over it.
            let parts = [part("p99", p99), part("p95", p95), part("p50", p50)];
            Bar::new(hour.hour_ms, &label, parts)
        };
        Self {
            title,
            about: format!(
                "From below: how long a half, 95 % and 99 % of the jobs took at most. Up to {}, on a logarithmic scale.",
                lasted(&Some(most))
            ),
            bars: hours.iter().map(bar).collect(),
        }
    }
}

impl Bar {
    fn new(hour_ms: u64, label: &str, parts: [Part; 3]) -> Self {
        let text = |ms: u64| moment_text(Timestamp(ms)).unwrap_or_default();
        let from = text(hour_ms);
        Self {
            label: format!("{from}: {label}"),
            from,
            until: text(hour_ms + HOUR_MS),
            parts,
        }
    }
}

impl Part {
    /// A part of this share of the height. Whatever happened is seen, however little it is beside the rest.
    fn new(class: &'static str, bottom: f64, share: f64) -> Self {
        let height = if share > 0.0 {
            (share * HEIGHT).max(1.0)
        } else {
            0.0
        };
        Self {
            class,
            top: (bottom - height).max(0.0),
            height,
        }
    }
}

/// A duration for people; a dash if there was none.
pub(super) fn lasted(ms: &Option<u64>) -> String {
    ms.map_or_else(
        || "–".to_owned(),
        |ms| Age(Duration::from_millis(ms)).to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hour_has_its_numbers_and_durations_and_hours_without_ends_have_none() {
        let row = |hour: u64, done, failed, ran_ms: &[u64]| {
            let mut ran = Histogram::default();
            ran_ms.iter().for_each(|ms| ran.observe(*ms));
            HourRow {
                hour_ms: hour * HOUR_MS,
                done,
                failed,
                ran,
                ..HourRow::default()
            }
        };
        let ends = Ends {
            rows: vec![row(1, 2, 0, &[100, 100]), row(3, 0, 1, &[1_000])],
            others: vec![row(1, 1, 1, &[100])],
            from_ms: 0,
        };
        let [numbers, waited, ran] = &Plot::all(&ends)[..] else {
            panic!("three plots");
        };
        let labels = |plot: &Plot| -> Vec<String> {
            plot.bars.iter().map(|bar| bar.label.clone()).collect()
        };
        assert_eq!(
            labels(numbers),
            [
                "1970-01-01T01:00:00.000Z: 3 done, 1 failed, 0 other",
                "1970-01-01T02:00:00.000Z: 0 done, 0 failed, 0 other",
                "1970-01-01T03:00:00.000Z: 0 done, 1 failed, 0 other",
            ]
        );
        let heights = |plot: &Plot, hour: usize| -> Vec<f64> {
            let parts = plot.bars[hour].parts.iter();
            parts.map(|part| part.height.round()).collect()
        };
        assert_eq!(heights(numbers, 0), [72.0, 24.0, 0.0]);
        assert_eq!(heights(numbers, 1), [0.0, 0.0, 0.0]);
        assert_eq!(heights(numbers, 2), [0.0, 24.0, 0.0]);
        assert_eq!(labels(waited)[0], "1970-01-01T01:00:00.000Z: –, –, –");
        assert_eq!(labels(ran)[2], "1970-01-01T03:00:00.000Z: 1 s, 1 s, 1 s");
        assert_eq!(heights(ran, 2), [96.0, 96.0, 96.0]);
        assert!(
            heights(ran, 0).iter().all(|height| *height > 40.0),
            "a tenth of it is seen"
        );
        assert!(Plot::all(&Ends::default()).is_empty());
    }

    #[test]
    fn a_plot_has_the_last_week() {
        let row = |hour: u64| HourRow {
            hour_ms: hour * HOUR_MS,
            done: 1,
            ..HourRow::default()
        };
        let ends = Ends {
            rows: vec![row(1), row(1_000)],
            ..Ends::default()
        };
        let plots = Plot::all(&ends);
        assert_eq!(plots[0].bars.len(), 168);
        assert!(plots[0].bars.last().unwrap().label.contains("1 done"));
    }
}
