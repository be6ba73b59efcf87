//! Values over time as SVG: lines, or stacked areas, in the classes of the stylesheet. The values are also in
//! the page, for the script that displays them at the pointer.

use std::fmt::Write as _;

use serde_json::json;
use windlass_config::grouped;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 140.0;

/// The number of the stylesheet's red.
const RED: usize = 3;

/// The minimum number of places in a plot, so that the first values are not drawn as wide steps.
const PLACES_MIN: usize = 12;

/// A few values do not determine the scale if they exceed nearly all other values by this factor.
const OUTLIER: f64 = 4.0;

/// A plot.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    pub(super) title: &'static str,
    /// The labels of the scale: top, middle, and zero.
    pub(super) labels: [String; 3],
    pub(super) lines: Vec<Line>,
    /// The start of the plot.
    pub(super) from: String,
    /// Names, values and times, the oldest first, as JSON.
    pub(super) data: String,
}

/// A line of a plot.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: &'static str,
    /// The number of the colour in the stylesheet.
    pub(super) colour: usize,
    pub(super) now: String,
    /// The points of the line.
    pub(super) points: String,
    /// The points of the area between it and the line below, if areas stand one on the other.
    pub(super) area: Option<String>,
}

/// A series: the name, and the function that returns the value of a point; NaN if there is no
/// value.
pub(super) type Series<P> = (&'static str, fn(&P) -> f64);

/// The appearance of a plot.
#[derive(Clone, Copy)]
pub(super) struct Look<'a> {
    /// The value for people.
    pub(super) show: fn(f64) -> String,
    /// The time of a point; 0 is the newest.
    pub(super) time: &'a dyn Fn(usize) -> String,
    /// Areas stand one on the other.
    pub(super) stacked: bool,
}

/// A series: the values, and the heights between which it is drawn.
struct Heights {
    values: Vec<f64>,
    tops: Vec<f64>,
    bottoms: Vec<f64>,
}

impl Plot {
    /// `points`: the newest first.
    pub(super) fn new<P, F: Fn(&P) -> f64>(
        title: &'static str,
        points: &[P],
        series: &[(&'static str, F)],
        look: Look<'_>,
    ) -> Self {
        let places = points.len().max(PLACES_MIN);
        let mut below = vec![0.0; points.len()];
        let mut all = Vec::new();
        for (_, value) in series {
            let values: Vec<f64> = points.iter().map(value).collect();
            // A point without a value is on the ground.
            let drawn = values
                .iter()
                .map(|value| if value.is_nan() { 0.0 } else { *value });
            let tops: Vec<f64> = match look.stacked {
                true => drawn
                    .zip(&below)
                    .map(|(value, below)| value + below)
                    .collect(),
                false => drawn.collect(),
            };
            let bottoms = if look.stacked {
                std::mem::replace(&mut below, tops.clone())
            } else {
                Vec::new()
            };
            all.push(Heights {
                values,
                tops,
                bottoms,
            });
        }
        let top = scale(all.iter().flat_map(|it| it.tops.iter().copied()));
        let place = |index: usize, value: f64| {
            let step = WIDTH / real(places - 1);
            (
                WIDTH - real(index) * step,
                HEIGHT - value.min(top) / top * HEIGHT,
            )
        };
        let shown = |value: f64| {
            if value.is_nan() {
                "–".to_owned()
            } else {
                (look.show)(value)
            }
        };
        let lines = series
            .iter()
            .zip(&all)
            .enumerate()
            .map(|(index, ((name, _), it))| {
                let points = path(
                    it.tops
                        .iter()
                        .enumerate()
                        .map(|(index, value)| place(index, *value)),
                );
                let back = path(
                    it.bottoms
                        .iter()
                        .enumerate()
                        .rev()
                        .map(|(index, value)| place(index, *value)),
                );
                let area = look.stacked.then(|| format!("{points}{back}"));
                // Failures are red on every plot.
                let colour = if matches!(*name, "failed" | "dead" | "p99") {
                    RED
                } else {
                    index + 1
                };
                let now = shown(it.values.first().copied().unwrap_or(f64::NAN));
                Line {
                    name,
                    colour,
                    now,
                    points,
                    area,
                }
            });
        let lines = lines.collect();
        let names: Vec<_> = series.iter().map(|(name, _)| *name).collect();
        let times: Vec<_> = (0..places).rev().map(look.time).collect();
        let all_shown = |it: &Heights| {
            // The empty places before the first value have no values.
            let empty = std::iter::repeat_n(String::new(), places - it.values.len());
            empty
                .chain(it.values.iter().rev().map(|value| shown(*value)))
                .collect::<Vec<_>>()
        };
        let values: Vec<_> = all.iter().map(all_shown).collect();
        let data = json!({"names": names, "values": values, "times": times}).to_string();
        let labels = [top, top / 2.0, 0.0].map(look.show);
        Self {
            title,
            labels,
            lines,
            from: (look.time)(places - 1),
            data,
        }
    }
}

/// The points of a small line without a scale, the newest value first, in a picture of this size.
pub(super) fn spark(values: &[f64], width: f64, height: f64) -> String {
    let top = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let step = width / real(values.len().max(PLACES_MIN) - 1);
    path(
        values
            .iter()
            .enumerate()
            .map(|(index, value)| (width - real(index) * step, height - value / top * height)),
    )
}

fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut text = String::new();
    for (x, y) in points {
        // Writing to a string cannot fail.
        let _ = write!(text, "{x:.1},{y:.1} ");
    }
    text
}

/// The top of a scale that shows nearly all values well.
fn scale(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_unstable_by(f64::total_cmp);
    let largest = values.last().copied().unwrap_or_default();
    let usual = values
        .get(values.len().saturating_sub(1) * 97 / 100)
        .copied()
        .unwrap_or_default();
    let has_outliers = usual > 0.0 && largest > usual * OUTLIER;
    round_up(if has_outliers { usual * 1.5 } else { largest })
}

/// The next of 1, 2, 5, 10, 20, …
fn round_up(value: f64) -> f64 {
    if !value.is_finite() || value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps
        .into_iter()
        .find(|step| *step >= value)
        .unwrap_or(value)
}

#[expect(clippy::cast_precision_loss, reason = "a plot has fewer places")]
const fn real(index: usize) -> f64 {
    index as f64
}

/// A figure with two or three digits.
pub(super) fn figure(value: f64) -> String {
    match value {
        _ if value < 10.0 => format!("{value:.2}")
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned(),
        _ if value < 10_000.0 => grouped(format!("{value:.0}")),
        _ if value < 1e6 => format!("{:.0} k", value / 1e3),
        _ => format!("{:.1} M", value / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Look<'_> = Look {
        show: figure,
        time: &|index| format!("-{index}"),
        stacked: false,
    };

    #[test]
    fn a_line_runs_from_the_right_and_fits() {
        let points: Vec<f64> = [8.0, 0.0, 4.0].into_iter().chain([0.0; 18]).collect();
        let plot = Plot::new("Jobs", &points, &[("pushed", |it| *it)], LOOK);
        assert_eq!(
            (plot.labels[0].as_str(), plot.lines[0].now.as_str()),
            ("10", "8")
        );
        assert!(
            plot.lines[0]
                .points
                .starts_with("720.0,28.0 684.0,140.0 648.0,84.0 "),
            "{plot:?}"
        );
        assert!(
            plot.data.contains("\"names\":[\"pushed\"]")
                && plot.data.contains("\"4\",\"0\",\"8\"]"),
            "{plot:?}"
        );
        assert_eq!(
            spark(&[2.0, 0.0, 4.0], 55.0, 20.0),
            "55.0,10.0 50.0,20.0 45.0,0.0 "
        );
        assert_eq!(spark(&[0.0], 55.0, 20.0), "55.0,20.0 ");
        let empty = Plot::new("Jobs", &[], &[("pushed", |it: &f64| *it)], LOOK);
        assert_eq!(
            (empty.labels[0].as_str(), empty.lines[0].points.as_str()),
            ("1", "")
        );
        assert_eq!(
            (empty.from.as_str(), empty.lines[0].now.as_str()),
            ("-11", "–")
        );
    }

    #[test]
    fn without_a_value_there_is_no_figure() {
        let plot = Plot::new(
            "Wait",
            &[f64::NAN, 4.0, f64::NAN],
            &[("p50", |it: &f64| *it)],
            LOOK,
        );
        assert_eq!(
            (plot.lines[0].now.as_str(), plot.labels[0].as_str()),
            ("–", "5")
        );
        assert!(plot.data.contains("\"–\",\"4\",\"–\"]"), "{plot:?}");
        assert!(
            plot.lines[0].points.contains("720.0,140.0 "),
            "on the ground: {plot:?}"
        );
    }

    #[test]
    fn areas_stand_one_on_the_other() {
        let look = Look {
            stacked: true,
            ..LOOK
        };
        let series: [Series<(f64, f64)>; 2] = [("one", |it| it.0), ("two", |it| it.1)];
        let plot = Plot::new("Jobs", &[(3.0, 7.0)], &series, look);
        assert_eq!(plot.labels[0], "10");
        assert_eq!(plot.lines[1].points, "720.0,0.0 ");
        assert_eq!(plot.lines[1].area.as_deref(), Some("720.0,0.0 720.0,98.0 "));
    }

    #[test]
    fn one_high_value_does_not_flatten_the_rest() {
        let mut values = vec![10.0; 99];
        values.push(5_000.0);
        assert!((scale(values.into_iter()) - 20.0).abs() < 1e-9);
        for (value, top) in [
            (0.0, 1.0),
            (0.3, 0.5),
            (1.0, 1.0),
            (11.0, 20.0),
            (501.0, 1_000.0),
        ] {
            assert!((round_up(value) - top).abs() < 1e-9, "{value}");
        }
        let shown = [0.0, 0.25, 99.4, 12_300.0, 2_500_000.0].map(figure);
        assert_eq!(shown, ["0", "0.25", "99", "12 k", "2.5 M"]);
    }
}
