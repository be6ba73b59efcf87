//! The screen of `top`: the daemon's figures, a list, and the keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Sparkline, Table, TableState};
use serde_json::Value;

use super::view::{Tab, View};
use crate::show::layout::{GAP, Layout as Rows};
use crate::show::{self, Column, QUEUES, WORKERS, at, many, size, text};
use crate::terminal::now;

/// Draws everything.
pub(super) fn draw(view: &View, frame: &mut Frame<'_>) {
    let rows = [
        Constraint::Length(3),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ];
    let [head, _, list, keys] = Layout::vertical(rows).areas(frame.area());
    draw_head(view, frame, head);
    draw_list(view, frame, list);
    let message = if view.message.is_empty() {
        Line::styled(keys_of(view), Style::new().add_modifier(Modifier::DIM))
    } else {
        Line::styled(
            show::printable(&view.message),
            Style::new().add_modifier(Modifier::REVERSED),
        )
    };
    frame.render_widget(Paragraph::new(message), keys);
}

fn draw_head(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let status = view.status();
    let of = |path| text(at(status, path));
    let bold = |text: String| Span::styled(text, Style::new().add_modifier(Modifier::BOLD));
    let first = Line::from_iter([
        bold(format!("windlass {}", of("/version"))),
        Span::raw(format!(
            "  {}  {}, {}, {} of jobs",
            of("/state"),
            many(at(status, "/connections"), "connection"),
            many(at(status, "/workers"), "named worker"),
            size(at(status, "/bytes").as_u64().unwrap_or_default())
        )),
    ]);
    let rates = View::COUNTERS.map(|counter| format!("{counter} {:.0}/s", view.rate(counter)));
    let lines = vec![
        first,
        Line::raw(format!("jobs   {}", show::counts(at(status, "/states")))),
        Line::raw(""),
    ];
    frame.render_widget(Paragraph::new(lines), area);
    let rates = format!("rates  {}  ", rates.join("  "));
    let [_, _, last] = Layout::vertical([Constraint::Length(1); 3]).areas(area);
    let width = u16::try_from(rates.len()).unwrap_or(u16::MAX);
    let [words, curve] =
        Layout::horizontal([Constraint::Length(width), Constraint::Min(0)]).areas(last);
    frame.render_widget(Paragraph::new(rates), words);
    let newest = view.done.len().saturating_sub(curve.width.into());
    frame.render_widget(
        Sparkline::default().data(view.done.iter().copied().skip(newest)),
        curve,
    );
}

fn draw_list(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let columns = if view.tab == Tab::Queues {
        QUEUES
    } else {
        WORKERS
    };
    let mut cells: Vec<Vec<String>> = view.rows().iter().map(|row| cells(columns, row)).collect();
    let mut titles: Vec<String> = columns
        .iter()
        .map(|Column(title, ..)| (*title).to_owned())
        .collect();
    if view.tab == Tab::Queues {
        // After the ready jobs.
        titles.insert(2, "CHANGE".to_owned());
        for (row, cells) in view.rows().iter().zip(&mut cells) {
            cells.insert(2, change(view.growth(&text(at(row, "/name")))));
        }
    }
    let list = Rows::new(titles, cells).fitting(area.width.into(), now());
    let widths =
        (0..list.titles.len()).map(|column| u16::try_from(list.width(column)).unwrap_or(u16::MAX));
    let table = Table::new(
        list.rows
            .iter()
            .map(|row| Row::new(row.iter().map(String::as_str))),
        widths.map(Constraint::Length),
    )
    .header(
        Row::new(list.titles.iter().map(String::as_str))
            .style(Style::new().add_modifier(Modifier::BOLD)),
    )
    .column_spacing(u16::try_from(GAP).unwrap_or_default())
    .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(
        table,
        area,
        &mut TableState::new().with_selected(view.chosen_at()),
    );
}

fn cells(columns: &[Column], row: &Value) -> Vec<String> {
    columns
        .iter()
        .map(|Column(_, value, _)| show::printable(&value(row)))
        .collect()
}

/// A queue's growth per second; empty if there is none.
fn change(by: f64) -> String {
    if by.abs() < 0.5 {
        String::new()
    } else {
        format!("{by:+.0}/s")
    }
}

fn keys_of(view: &View) -> String {
    match view.tab {
        Tab::Queues => {
            format!(
                "q quit  ↑↓ choose  p pause or resume  s sorted by {}  Tab workers",
                view.order()
            )
        }
        Tab::Workers => "q quit  ↑↓ choose  p quiet  Tab queues".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    use serde_json::json;

    use super::super::view::Seen;
    use super::super::view::tests::seen;
    use super::*;
    use crate::failure;

    fn screen(view: &View, width: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, 10)).unwrap();
        terminal.draw(|frame| draw(view, frame)).unwrap();
        let text = terminal.backend().to_string();
        text.lines()
            .map(|line| line.trim_matches('"').trim_end().to_owned())
            .collect()
    }

    #[test]
    fn the_screen_shows_figures_a_list_and_keys() {
        let (mut view, begun) = (View::default(), Instant::now());
        view.update(seen(begun, 0, 100, [1, 2, 3]));
        view.update(seen(begun, 1, 150, [1, 2, 14]));
        let screen = screen(&view, 110);
        assert_eq!(
            screen[0],
            "windlass 1.0  ready  3 connections, 1 named worker, 77 bytes of jobs"
        );
        assert_eq!(screen[1], "jobs   6 ready");
        assert!(
            screen[2].starts_with("rates  pushed 100/s  taken 50/s  succeeded 50/s  failed 0/s  "),
            "{screen:?}"
        );
        assert!(
            screen[4].starts_with("QUEUE  READY  CHANGE  LEASED"),
            "{screen:?}"
        );
        assert!(
            screen[5].starts_with("c      14     +11/s   2"),
            "{screen:?}"
        );
        assert!(
            screen[6].contains("paused") && screen[7].contains("1m"),
            "{screen:?}"
        );
        assert_eq!(
            screen[9],
            "q quit  ↑↓ choose  p pause or resume  s sorted by ready  Tab workers"
        );
    }

    #[test]
    fn a_narrow_screen_leaves_out_columns_and_keeps_names() {
        let mut view = View::default();
        let name = "a-queue-with-a-long-name";
        let queues = vec![
            json!({"name": name, "states": {"ready": 1_234_567, "leased": 2}, "oldest_ready_seconds": 0.5}),
        ];
        view.update(Seen {
            queues,
            ..seen(Instant::now(), 0, 100, [1, 2, 3])
        });
        assert_eq!(
            screen(&view, 43)[4..6],
            [
                "QUEUE             READY      CHANGE  LEASED",
                "a-queue-…ng-name  1,234,567          2"
            ]
        );
        assert_eq!(
            screen(&view, 34)[4..6],
            [
                "QUEUE            READY      CHANGE",
                "a-queue…ng-name  1,234,567"
            ]
        );
        assert_eq!(
            screen(&view, 26)[4..6],
            ["QUEUE            READY", "a-queue…ng-name  1,234,567"]
        );
        assert_eq!(
            screen(&view, 10)[5],
            "a-que…name",
            "a name alone is cut at last"
        );
    }

    #[test]
    fn the_screen_shows_workers_and_errors_however_narrow() {
        let (mut view, begun) = (View::default(), Instant::now());
        assert!(screen(&view, 20)[0].starts_with("windlass"));
        view.update(seen(begun, 0, 100, [1, 2, 3]));
        view.press(KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE));
        assert!(
            screen(&view, 80)[5].starts_with("w1"),
            "{:?}",
            screen(&view, 80)
        );
        view.note(Some(failure("no daemon answers")));
        assert_eq!(screen(&view, 80)[9], "no daemon answers");
        screen(&view, 1);
    }
}
