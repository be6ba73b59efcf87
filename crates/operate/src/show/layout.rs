//! Tables that fit into the terminal: important columns stay, and wide ones with little information
//! are shortened or omitted.

use jiff::Timestamp;

/// Characters between two columns.
pub(crate) const GAP: usize = 2;

/// Minimum number of characters of a shortened text.
const TEXT_MIN: usize = 12;

/// Columns that are omitted last.
const LAST_TO_GO: [&str; 2] = ["ERROR", "LAST FAILURE"];

/// The titles of a table, and its rows with a cell per title.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) titles: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// The titles of columns whose times are shown as ages.
    ages: Vec<String>,
}

impl Layout {
    pub(crate) const fn new(titles: Vec<String>, rows: Vec<Vec<String>>) -> Self {
        Self {
            titles,
            rows,
            ages: Vec::new(),
        }
    }

    /// Omits empty columns while a line is longer than this. Not used for a screen that is
    /// refreshed, where columns would appear and disappear.
    pub(crate) fn without_void(mut self, width: usize, now: Timestamp) -> Self {
        if !self.is_within(width) {
            self.tell_ages(now);
        }
        while !self.is_within(width) && self.leave_out(|layout, column| layout.is_void(column)) {}
        self
    }

    /// Fits the table into this many characters per line. While it is too wide, times become ages,
    /// then the longest texts are shortened in the middle, and then columns are omitted: times
    /// first, then from the right. The first column always remains.
    pub(crate) fn fitting(mut self, width: usize, now: Timestamp) -> Self {
        if !self.is_within(width) {
            self.tell_ages(now);
        }
        while self.least_width() > width {
            let title = |layout: &Self, column: usize| {
                layout.titles.get(column).cloned().unwrap_or_default()
            };
            let is_age =
                |layout: &Self, column: usize| layout.ages.contains(&title(layout, column));
            let may_go =
                |layout: &Self, column: usize| !LAST_TO_GO.contains(&&*title(layout, column));
            if !self.leave_out(is_age) && !self.leave_out(may_go) && !self.leave_out(|_, _| true) {
                break;
            }
        }
        if !self.is_within(width) {
            self.cut_texts(width);
        }
        self
    }

    /// The width of a column.
    pub(crate) fn width(&self, column: usize) -> usize {
        let all = std::iter::once(&self.titles)
            .chain(&self.rows)
            .filter_map(|row| row.get(column));
        all.map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    }

    /// Whether all cells of a column are numbers.
    pub(crate) fn is_of_numbers(&self, column: usize) -> bool {
        let is_number = |text: &String| {
            !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit() || it == b',')
        };
        !self.rows.is_empty() && self.cells(column).all(is_number)
    }

    fn cells(&self, column: usize) -> impl Iterator<Item = &String> {
        self.rows.iter().filter_map(move |row| row.get(column))
    }

    fn is_within(&self, width: usize) -> bool {
        self.line((0..self.titles.len()).map(|column| self.width(column))) <= width
    }

    /// The length of a line with columns of these widths.
    fn line(&self, widths: impl Iterator<Item = usize>) -> usize {
        widths.sum::<usize>() + GAP * self.titles.len().saturating_sub(1)
    }

    /// The length of a line with maximally shortened texts.
    fn least_width(&self) -> usize {
        self.line((0..self.titles.len()).map(|column| self.least(column)))
    }

    fn least(&self, column: usize) -> usize {
        let title = self
            .titles
            .get(column)
            .map_or(0, |title| title.chars().count());
        let width = self.width(column);
        if self.is_text(column) {
            width.min(title.max(TEXT_MIN))
        } else {
            width
        }
    }

    /// Whether the column has a cell that is long enough to be shortened.
    fn is_text(&self, column: usize) -> bool {
        !self.is_of_numbers(column) && self.width(column) > TEXT_MIN
    }

    /// Whether the column is empty in all rows.
    fn is_void(&self, column: usize) -> bool {
        self.cells(column)
            .all(|cell| cell.is_empty() || cell == "0")
    }

    /// Omits the last column for which this holds, except the first. Returns whether there was one.
    fn leave_out(&mut self, may_go: impl Fn(&Self, usize) -> bool) -> bool {
        let Some(column) = (1..self.titles.len())
            .rev()
            .find(|column| may_go(self, *column))
        else {
            return false;
        };
        self.titles.remove(column);
        self.rows
            .iter_mut()
            .filter(|row| column < row.len())
            .for_each(|row| drop(row.remove(column)));
        true
    }

    /// Replaces times by ages.
    fn tell_ages(&mut self, now: Timestamp) {
        for row in &mut self.rows {
            for (cell, title) in row.iter_mut().zip(&self.titles) {
                if let Ok(at) = cell.parse::<Timestamp>() {
                    *cell = age(now, at);
                    self.ages.push(title.clone());
                }
            }
        }
    }

    /// Shortens the longest texts until a line fits.
    fn cut_texts(&mut self, width: usize) {
        let widths: Vec<usize> = (0..self.titles.len())
            .map(|column| self.width(column))
            .collect();
        let least: Vec<usize> = (0..self.titles.len())
            .map(|column| self.least(column))
            .collect();
        let capped = |most: usize| {
            widths
                .iter()
                .zip(&least)
                .map(move |(width, least)| (*width).min(most.max(*least)))
        };
        let longest = widths.iter().copied().max().unwrap_or_default();
        let most = (0..=longest)
            .rev()
            .find(|most| self.line(capped(*most)) <= width)
            .unwrap_or_default();
        let mut room: Vec<usize> = capped(most).collect();
        if let [first] = room.as_mut_slice() {
            *first = (*first).min(width);
        }
        for row in std::iter::once(&mut self.titles).chain(&mut self.rows) {
            row.iter_mut()
                .zip(&room)
                .for_each(|(cell, most)| *cell = cut(cell, *most));
        }
    }
}

/// Shortens a text in the middle, because names often differ at the begin or the end.
fn cut(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let kept = most.saturating_sub(1);
    let begin = kept.div_ceil(2);
    let end = text.chars().skip(length - (kept - begin));
    text.chars().take(begin).chain(['…']).chain(end).collect()
}

/// The time since or until a moment.
fn age(now: Timestamp, at: Timestamp) -> String {
    const UNITS: [(i64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let seconds = now.as_second() - at.as_second();
    let unit = UNITS.iter().find(|(unit, _)| seconds.abs() >= *unit);
    let length = unit.map_or_else(
        || "0 s".to_owned(),
        |(unit, name)| format!("{} {name}", seconds.abs() / unit),
    );
    if seconds < 0 {
        format!("in {length}")
    } else {
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(table: &[&[&str]]) -> Layout {
        let mut rows = table
            .iter()
            .map(|row| row.iter().map(|cell| (*cell).to_owned()).collect());
        Layout::new(rows.next().unwrap(), rows.collect())
    }

    fn fitted(table: &[&[&str]], width: usize) -> Vec<String> {
        let now = "2026-11-29T12:00:00Z".parse().unwrap();
        let fitted = layout(table).without_void(width, now).fitting(width, now);
        std::iter::once(&fitted.titles)
            .chain(&fitted.rows)
            .map(|row| row.join("|"))
            .collect()
    }

    #[test]
    fn what_says_little_gives_way_to_figures_and_errors() {
        let table: &[&[&str]] = &[
            &["JOBS", "FIRST", "LAST", "QUEUE", "RATE", "ERROR"],
            &[
                "27",
                "2026-11-29T11:57:00.000Z",
                "2026-11-29T11:59:30.000Z",
                "mail",
                "0",
                "ChargeError: the card was declined",
            ],
        ];
        let cases = [
            (
                120,
                table.iter().map(|row| row.join("|")).collect::<Vec<_>>(),
            ),
            (
                75,
                [
                    "JOBS|FIRST|LAST|QUEUE|RATE|ERROR",
                    "27|3 min|30 s|mail|0|ChargeError: the card was declined",
                ]
                .map(str::to_owned)
                .to_vec(),
            ),
            (
                45,
                [
                    "JOBS|FIRST|LAST|QUEUE|ERROR",
                    "27|3 min|30 s|mail|ChargeErr… declined",
                ]
                .map(str::to_owned)
                .to_vec(),
            ),
            (
                33,
                ["JOBS|FIRST|QUEUE|ERROR", "27|3 min|mail|Charge…clined"]
                    .map(str::to_owned)
                    .to_vec(),
            ),
            (
                20,
                ["JOBS|ERROR", "27|ChargeE…clined"]
                    .map(str::to_owned)
                    .to_vec(),
            ),
        ];
        for (width, expected) in cases {
            assert_eq!(fitted(table, width), expected, "{width}");
        }
    }

    #[test]
    fn one_long_name_hides_no_figure() {
        let name = "a".repeat(60) + &"z".repeat(55);
        let table: &[&[&str]] = &[
            &["QUEUE", "READY", "DEAD", "WORKERS"],
            &[&name, "1,234,567", "3", "2"],
            &["mail", "1", "0", "0"],
        ];
        for width in [40, 80, 120] {
            let shown = fitted(table, width);
            assert!(
                shown[1].ends_with("|1,234,567|3|2")
                    && shown[1].starts_with("aaaaa")
                    && shown[1].contains("…z"),
                "{shown:?}"
            );
            assert_eq!(shown[2], "mail|1|0|0");
        }
        assert_eq!(fitted(table, 8)[1], "aaaa…zzz");
    }

    #[test]
    fn every_line_fits() {
        let long = "x".repeat(200);
        let table: &[&[&str]] = &[
            &["ID", "A", "B", "C"],
            &["1", &long, "2026-11-30T12:00:00Z", &long],
            &["22", "", "", "short"],
        ];
        for width in 1..=260 {
            let fitted = layout(table).fitting(width, Timestamp::UNIX_EPOCH);
            let line: usize = (0..fitted.titles.len())
                .map(|column| fitted.width(column) + GAP)
                .sum();
            assert!(line - GAP <= width.max(2), "{width}: {fitted:?}");
        }
    }

    #[test]
    fn ages_are_in_the_largest_unit() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let table = [
            ("2026-11-29T12:00:00.400Z", "0 s"),
            ("2026-11-29T11:59:01Z", "59 s"),
            ("2026-11-29T11:00:00Z", "1 h"),
            ("2026-11-20T12:00:00Z", "9 d"),
            ("2026-11-29T12:30:00Z", "in 30 min"),
        ];
        for (time, expected) in table {
            assert_eq!(age(at("2026-11-29T12:00:00Z"), at(time)), expected);
        }
    }
}
