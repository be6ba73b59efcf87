//! How far a command is that changes many jobs.

use indicatif::{ProgressBar, ProgressStyle};

/// A count on the terminal, until it is dropped. Nothing where standard error is no terminal.
#[derive(Debug)]
pub struct Counter(ProgressBar);

impl Counter {
    /// Counts from 0. `what`: of what, as in "jobs imported".
    pub fn of(what: &'static str) -> Self {
        let bar = ProgressBar::new_spinner().with_message(what);
        let template = "{spinner} {human_pos} {msg}, {per_sec}, {elapsed}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Adds this many.
    pub fn add(&self, more: u64) {
        self.0.inc(more);
    }

    /// Whether a terminal shows the count.
    pub fn is_shown(&self) -> bool {
        !self.0.is_hidden()
    }

    /// Writes something else to the terminal: the count makes room for it.
    pub fn suspended(&self, write: impl FnOnce()) {
        self.0.suspend(write);
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
