//! Lines over time as SVG: a polyline for each series, in the classes of the stylesheet.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 140.0;

/// A plot.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    pub(super) title: &'static str,
    /// The value at the top.
    pub(super) top: String,
    pub(super) lines: Vec<Line>,
    /// The time at the left end.
    pub(super) span: &'static str,
}

/// One series of a plot.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: &'static str,
    /// Its newest value.
    pub(super) now: String,
    /// `x,y` pairs.
    pub(super) points: String,
}

/// A series: its name, and its value at a point.
pub(super) type Series<P> = (&'static str, fn(&P) -> f64);

impl Plot {
    /// A plot of the newest `room` points, newest first.
    pub(super) fn new<P>(
        (title, span): (&'static str, &'static str),
        points: &[P],
        room: u32,
        series: &[Series<P>],
        show: fn(f64) -> String,
    ) -> Self {
        let values = points.iter().flat_map(|point| series.iter().map(move |(_, value)| value(point)));
        let top = round_up(values.fold(0.0, f64::max));
        let step = WIDTH / f64::from(room.saturating_sub(1).max(1));
        let lines = series.iter().map(|(name, value)| {
            let mut text = String::new();
            for (index, point) in (0_u32..room).zip(points) {
                let (x, y) = (WIDTH - f64::from(index) * step, HEIGHT - value(point) / top * HEIGHT);
                // Writing to a string cannot fail.
                let _ = write!(text, "{x:.1},{y:.1} ");
            }
            Line { name, now: show(points.first().map_or(0.0, value)), points: text }
        });
        Self { title, top: show(top), lines: lines.collect(), span }
    }
}

/// 1, 2 or 5 times a power of ten: the next one that is not less.
fn round_up(value: f64) -> f64 {
    if !value.is_finite() || value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= value).unwrap_or(value)
}

/// A count or a rate for people.
pub(super) fn figure(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        _ if value < 10.0 => format!("{value:.1}"),
        _ if value < 10_000.0 => format!("{value:.0}"),
        _ if value < 1e6 => format!("{:.0} k", value / 1e3),
        _ => format!("{:.1} M", value / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_runs_from_the_right_and_fits() {
        let plot = Plot::new(("Jobs", "an hour"), &[8.0, 0.0, 4.0], 721, &[("pushed", |it| *it)], figure);
        assert_eq!((plot.top.as_str(), plot.lines[0].now.as_str()), ("10", "8.0"));
        assert_eq!(plot.lines[0].points, "720.0,28.0 719.0,140.0 718.0,84.0 ");
        let empty = Plot::new(("Jobs", "an hour"), &[], 720, &[("pushed", |it| *it)], figure);
        assert_eq!((empty.top.as_str(), empty.lines[0].points.as_str()), ("1.0", ""));
    }

    #[test]
    fn tops_and_figures_are_round() {
        for (value, top) in [(0.0, 1.0), (0.3, 0.5), (1.0, 1.0), (11.0, 20.0), (501.0, 1_000.0)] {
            assert!((round_up(value) - top).abs() < 1e-9, "{value}");
        }
        let shown = [0.0, 0.25, 99.4, 12_300.0, 2_500_000.0].map(figure);
        assert_eq!(shown, ["0", "0.2", "99", "12 k", "2.5 M"]);
    }
}
