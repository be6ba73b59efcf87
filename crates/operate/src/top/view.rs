//! The state of `top`: the daemon's last responses, the changes since the previous ones, and the
//! operator's selections. Independent of the terminal and the connection.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::Value;

use crate::client::{encoded, with_query};
use crate::show::{at, text};
use windlass_config::Failure;

/// Number of values kept for the chart.
const KEPT: usize = 240;

/// The daemon's responses.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) status: Value,
    pub(super) queues: Vec<Value>,
    pub(super) workers: Vec<Value>,
    pub(super) at: Instant,
}

/// The effect of a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    /// Refresh from the daemon.
    Look,
    /// Send a change to this path.
    Post(String),
    /// Only redraw.
    None,
}

/// The current list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tab {
    #[default]
    Queues,
    Workers,
}

/// A sort order of the queues: its name, and the value that precedes the queue's name.
type Order = (&'static str, fn(&Value) -> i64);
const ORDERS: [Order; 3] = [
    ("ready", |row| -thousandths(row, "/states/ready")),
    ("oldest", |row| -thousandths(row, "/oldest_ready_seconds")),
    ("name", |_| 0),
];

/// A figure as a whole number, which can be ordered.
#[expect(clippy::cast_possible_truncation, reason = "an order, not a figure")]
fn thousandths(row: &Value, path: &str) -> i64 {
    (at(row, path).as_f64().unwrap_or_default() * 1_000.0) as i64
}

/// The meaning of a key.
enum Wish {
    Quit,
    Look,
    /// Move the selection by this many rows.
    Move(isize),
    Order,
    Tab,
    Change,
}

const KEYS: [(KeyCode, Wish); 15] = [
    (KeyCode::Char('q'), Wish::Quit),
    (KeyCode::Esc, Wish::Quit),
    (KeyCode::Char('r'), Wish::Look),
    (KeyCode::Up, Wish::Move(-1)),
    (KeyCode::Char('k'), Wish::Move(-1)),
    (KeyCode::Down, Wish::Move(1)),
    (KeyCode::Char('j'), Wish::Move(1)),
    (KeyCode::PageUp, Wish::Move(-10)),
    (KeyCode::PageDown, Wish::Move(10)),
    (KeyCode::Home, Wish::Move(isize::MIN)),
    (KeyCode::End, Wish::Move(isize::MAX)),
    (KeyCode::Char('s'), Wish::Order),
    (KeyCode::Tab, Wish::Tab),
    (KeyCode::Char('p'), Wish::Change),
    (KeyCode::Enter, Wish::Change),
];

/// Everything on the screen.
#[derive(Debug, Default)]
pub(super) struct View {
    seen: Option<Seen>,
    /// Per second: counters of the daemon, and each queue's ready jobs.
    rates: HashMap<&'static str, f64>,
    growth: HashMap<String, f64>,
    /// Jobs done in each second, newest last.
    pub(super) done: VecDeque<u64>,
    pub(super) tab: Tab,
    /// The index of the sort order.
    order: usize,
    /// The name of the selected row.
    chosen: Option<String>,
    /// The last error.
    pub(super) message: String,
}

impl View {
    /// Counters whose rates are shown.
    pub(super) const COUNTERS: [&str; 4] = ["pushed", "taken", "succeeded", "failed"];

    pub(super) fn update(&mut self, seen: Seen) {
        self.message.clear();
        if let Some(before) = &self.seen {
            let seconds = seen
                .at
                .saturating_duration_since(before.at)
                .as_secs_f64()
                .max(0.001);
            let total = |seen: &Seen, name| {
                at(&seen.status, &format!("/totals/{name}"))
                    .as_f64()
                    .unwrap_or_default()
            };
            let rate = |name| (total(&seen, name) - total(before, name)).max(0.0) / seconds;
            self.rates = Self::COUNTERS.map(|name| (name, rate(name))).into();
            let ready = |seen: &Seen| -> HashMap<String, f64> {
                let row = |row: &Value| {
                    (
                        text(at(row, "/name")),
                        at(row, "/states/ready").as_f64().unwrap_or_default(),
                    )
                };
                seen.queues.iter().map(row).collect()
            };
            let earlier = ready(before);
            let grown = |(name, jobs): (String, f64)| {
                let by = (jobs - earlier.get(&name).copied().unwrap_or_default()) / seconds;
                (name, by)
            };
            self.growth = ready(&seen).into_iter().map(grown).collect();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a curve"
            )]
            self.done.push_back(self.rate("succeeded").round() as u64);
            if self.done.len() > KEPT {
                self.done.pop_front();
            }
        }
        self.seen = Some(seen);
        self.sort();
        if self.chosen_at().is_none() {
            self.chosen = self.names().first().cloned();
        }
    }

    /// Shows an error, if there is one.
    pub(super) fn note(&mut self, error: Option<Failure>) {
        self.message = error.map(|error| error.to_string()).unwrap_or_default();
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Action {
        let is_interrupt =
            key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        match KEYS
            .iter()
            .find(|(code, _)| *code == key.code)
            .map(|(_, wish)| wish)
        {
            _ if is_interrupt => return Action::Quit,
            None => {}
            Some(Wish::Quit) => return Action::Quit,
            Some(Wish::Look) => return Action::Look,
            Some(Wish::Change) => return self.change(),
            Some(Wish::Move(by)) => self.choose(*by),
            Some(Wish::Order) => {
                self.order = (self.order + 1) % ORDERS.len();
                self.sort();
            }
            Some(Wish::Tab) => {
                self.tab = if self.tab == Tab::Queues {
                    Tab::Workers
                } else {
                    Tab::Queues
                };
                self.chosen = self.names().first().cloned();
            }
        }
        Action::None
    }

    /// Pauses or resumes the selected queue, or quiets the selected worker.
    fn change(&self) -> Action {
        let Some((row, name)) = self
            .chosen_at()
            .and_then(|at| self.rows().get(at))
            .zip(self.chosen.as_ref())
        else {
            return Action::None;
        };
        let (of, action) = match self.tab {
            Tab::Queues if *at(row, "/paused") == true => ("queues", "resume"),
            Tab::Queues => ("queues", "pause"),
            Tab::Workers => ("workers", "quiet"),
        };
        // Names are looked up in the namespace of the row, which may not be that of the command.
        let namespace = at(row, "/namespace").as_str().map(str::to_owned);
        let path = format!("/{of}/{}/{action}", encoded(name));
        Action::Post(with_query(&path, &[("namespace", namespace)]))
    }

    fn choose(&mut self, by: isize) {
        let names = self.names();
        let at = self
            .chosen_at()
            .unwrap_or_default()
            .saturating_add_signed(by);
        self.chosen = names.get(at.min(names.len().saturating_sub(1))).cloned();
    }

    fn sort(&mut self) {
        let (Some(seen), Some((_, place))) = (&mut self.seen, ORDERS.get(self.order)) else {
            return;
        };
        let name = |row: &Value| text(at(row, "/name"));
        seen.queues
            .sort_by_cached_key(|row| (place(row), name(row)));
        seen.workers.sort_by_cached_key(name);
    }

    // ---- drawing
    // ----------------------------------------------------------------------------------------

    pub(super) fn status(&self) -> &Value {
        self.seen.as_ref().map_or(&Value::Null, |seen| &seen.status)
    }

    /// The rows of the current list.
    pub(super) fn rows(&self) -> &[Value] {
        match (&self.seen, self.tab) {
            (None, _) => &[],
            (Some(seen), Tab::Queues) => &seen.queues,
            (Some(seen), Tab::Workers) => &seen.workers,
        }
    }

    fn names(&self) -> Vec<String> {
        self.rows()
            .iter()
            .map(|row| text(at(row, "/name")))
            .collect()
    }

    /// The index of the selected row.
    pub(super) fn chosen_at(&self) -> Option<usize> {
        let chosen = self.chosen.as_ref()?;
        self.rows()
            .iter()
            .position(|row| text(at(row, "/name")) == *chosen)
    }

    /// A counter's growth per second.
    pub(super) fn rate(&self, counter: &str) -> f64 {
        self.rates.get(counter).copied().unwrap_or_default()
    }

    /// The growth of a queue's ready jobs per second.
    pub(super) fn growth(&self, queue: &str) -> f64 {
        self.growth.get(queue).copied().unwrap_or_default()
    }

    pub(super) fn order(&self) -> &'static str {
        ORDERS.get(self.order).map_or("", |(name, _)| name)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    /// The daemon's responses `seconds` after the first request.
    pub(in super::super) fn seen(begun: Instant, seconds: u64, done: u64, ready: [u64; 3]) -> Seen {
        let queue = |(name, ready): (&str, u64)| {
            json!({"name": name, "kind": "work", "paused": name == "b", "bridged": false, "throttle": null, "workers": 1,
                   "oldest_ready_seconds": if name == "a" { 90.0 } else { 0.5 }, "states": {"ready": ready, "leased": 2}})
        };
        let totals = json!({"pushed": 2 * done, "taken": done, "succeeded": done, "failed": 0});
        Seen {
            status: json!({"version": "1.0", "state": "ready", "states": {"ready": 6, "dead": 0}, "connections": 3,
                           "workers": 1, "bytes": 77, "totals": totals}),
            queues: ["a", "b", "c"].into_iter().zip(ready).map(queue).collect(),
            workers: vec![
                json!({"name": "w1", "state": "running", "protocol": "faktory", "jobs": 1}),
            ],
            at: begun + Duration::from_secs(seconds),
        }
    }

    fn key(code: KeyCode) -> KeyEvent {
        KeyEvent::new(code, KeyModifiers::NONE)
    }

    #[test]
    fn rates_are_differences() {
        let (mut view, begun) = (View::default(), Instant::now());
        view.update(seen(begun, 0, 100, [1, 2, 3]));
        assert_eq!(
            (view.rate("succeeded"), view.done.len()),
            (0.0, 0),
            "one look has no rate"
        );
        view.update(seen(begun, 2, 300, [1, 2, 13]));
        assert_eq!(
            ["pushed", "succeeded", "failed"].map(|name| view.rate(name)),
            [200.0, 100.0, 0.0]
        );
        assert_eq!(
            (view.growth("c"), view.growth("a"), view.growth("unknown")),
            (5.0, 0.0, 0.0)
        );
        view.update(seen(begun, 3, 0, [1, 2, 3]));
        assert_eq!(
            view.rate("succeeded"),
            0.0,
            "another daemon's counters are lower"
        );
        assert_eq!(view.done, [100, 0]);
    }

    #[test]
    fn keys_choose_sort_and_change() {
        let (mut view, begun) = (View::default(), Instant::now());
        assert_eq!(
            view.press(key(KeyCode::Char('p'))),
            Action::None,
            "nothing is there yet"
        );
        view.update(seen(begun, 0, 0, [1, 2, 3]));
        let chosen = |view: &View| view.chosen.clone().unwrap();
        assert_eq!(chosen(&view), "c", "the most ready jobs are first");
        assert_eq!(view.press(key(KeyCode::Down)), Action::None);
        assert_eq!(
            view.press(key(KeyCode::Char('p'))),
            Action::Post("/queues/b/resume".to_owned())
        );
        for (pressed, expected) in [
            (KeyCode::End, "a"),
            (KeyCode::Down, "a"),
            (KeyCode::PageUp, "c"),
            (KeyCode::Up, "c"),
        ] {
            view.press(key(pressed));
            assert_eq!(chosen(&view), expected, "{pressed:?}");
        }
        assert_eq!(
            view.press(key(KeyCode::Char('p'))),
            Action::Post("/queues/c/pause".to_owned())
        );
        view.press(key(KeyCode::Char('s')));
        assert_eq!(
            (view.order(), chosen(&view), view.chosen_at()),
            ("oldest", "c".to_owned(), Some(2))
        );
        view.update(Seen {
            queues: Vec::new(),
            ..seen(begun, 1, 0, [1, 2, 3])
        });
        assert_eq!(
            view.press(key(KeyCode::Char('p'))),
            Action::None,
            "the queue is gone"
        );
        view.press(key(KeyCode::Tab));
        assert_eq!(
            view.press(key(KeyCode::Char('p'))),
            Action::Post("/workers/w1/quiet".to_owned())
        );
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(
            [key(KeyCode::Char('q')), key(KeyCode::Esc), control_c].map(|key| view.press(key)),
            [(); 3].map(|()| Action::Quit)
        );
        assert_eq!(view.press(key(KeyCode::Char('r'))), Action::Look);
    }
}
