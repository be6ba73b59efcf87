//! What all lanes share: the addresses, the counts, and when to stop.

use std::cell::{Cell, RefCell};
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use windlass_config::{Failure, counted};
use windlass_operate::{Counter, printable};

use super::link::Trouble;
use super::place::Place;

/// Time between two lines about the progress, where no terminal shows it.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Time between two lines with the same text.
const REPEAT_AFTER: Duration = Duration::from_secs(30);

/// Texts that are remembered so as not to be repeated.
const TEXTS_MAX: usize = 64;

/// With more jobs left than this, something is wrong in general: the bridge stops.
const LEFT_MAX: u64 = 1_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) from: Place,
    pub(super) to: Place,
    /// The queues to take from; empty for all.
    pub(super) queues: Vec<String>,
    until_empty: Option<Duration>,
    /// Results are reported to the old broker.
    pub(super) results: bool,
    stop: watch::Sender<bool>,
    counter: Counter,
    moved: Cell<u64>,
    known: Cell<u64>,
    left: Cell<u64>,
    /// Jobs that lanes have.
    in_hand: Cell<u64>,
    /// Since when the old broker has answered that there is no job.
    empty_since: Cell<Option<Instant>>,
    fatal: RefCell<Option<String>>,
    said: RefCell<Vec<(String, Instant)>>,
}

impl Tally {
    pub(super) fn new(
        from: Place,
        to: Place,
        queues: Vec<String>,
        until_empty: Option<Duration>,
        results: bool,
    ) -> Self {
        Self {
            from,
            to,
            queues,
            until_empty,
            results,
            stop: watch::Sender::new(false),
            counter: Counter::of("jobs moved"),
            moved: Cell::new(0),
            known: Cell::new(0),
            left: Cell::new(0),
            in_hand: Cell::new(0),
            empty_since: Cell::new(None),
            fatal: RefCell::new(None),
            said: RefCell::new(Vec::new()),
        }
    }

    /// Whether lanes take no more jobs.
    pub(super) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Stops with this error, if it is the first one.
    pub(super) fn fail(&self, why: String) {
        self.fatal
            .borrow_mut()
            .get_or_insert_with(|| printable(&why));
        self.stop();
    }

    /// Waits this long, or until the bridge stops.
    pub(super) async fn pause(&self, time: Duration) {
        let mut stop = self.stop.subscribe();
        // The sender lives as long as `self`.
        let _ = timeout(time, stop.wait_for(|stop| *stop)).await;
    }

    // ---- jobs ------------------------------------------------------------------------------------------------------------

    /// A lane has a job.
    pub(super) fn took(&self) {
        self.in_hand.set(self.in_hand.get() + 1);
        self.empty_since.set(None);
    }

    /// A lane no longer has its job.
    pub(super) fn released(&self) {
        self.in_hand.set(self.in_hand.get().saturating_sub(1));
    }

    /// A job is durable here. `is_new`: it was not before.
    pub(super) fn landed(&self, is_new: bool) {
        let count = if is_new { &self.moved } else { &self.known };
        count.set(count.get() + 1);
        self.counter.add(1);
    }

    /// A job stays with the old broker.
    pub(super) fn leave(&self, job: &str, why: &str) {
        self.left.set(self.left.get() + 1);
        self.write(&format!("left: {job}: {why}"));
        if self.left.get() >= LEFT_MAX {
            self.fail(format!("{LEFT_MAX} jobs were left: stopped"));
        }
    }

    /// The old broker has no job for a lane. Stops the bridge if that has been so for long enough.
    pub(super) fn found_none(&self) {
        if self.in_hand.get() > 0 {
            return self.empty_since.set(None);
        }
        let since = self.empty_since.get().unwrap_or_else(Instant::now);
        self.empty_since.set(Some(since));
        if self.until_empty.is_some_and(|time| since.elapsed() >= time) {
            self.stop();
        }
    }

    /// The old broker cannot be asked, so it is not known to be empty.
    pub(super) fn cannot_ask(&self) {
        self.empty_since.set(None);
    }

    /// A connection to this place is of no more use. Returns why.
    pub(super) fn lost(&self, at: &Place, why: Trouble) -> String {
        match &why {
            Trouble::Lost(why) => self.print(&format!("{at}: {why}")),
            Trouble::Fatal(why) => self.fail(format!("{at}: {why}")),
        }
        why.into_text()
    }

    // ---- people ----------------------------------------------------------------------------------------------------------

    /// Writes a line to standard error, unless it has been written lately.
    pub(super) fn print(&self, text: &str) {
        let mut said = self.said.borrow_mut();
        said.retain(|(_, at)| at.elapsed() < REPEAT_AFTER);
        if said.iter().any(|(before, _)| before == text) || said.len() >= TEXTS_MAX {
            return;
        }
        said.push((text.to_owned(), Instant::now()));
        self.write(text);
    }

    fn write(&self, text: &str) {
        let text = printable(text);
        // Standard error may be closed; the counts and the exit code still report the outcome.
        self.counter
            .suspended(|| drop(writeln!(io::stderr(), "windlass: {text}")));
    }

    /// Writes the count to standard error from time to time, where no terminal shows it.
    pub(super) async fn report(&self) {
        let mut shown = 0;
        while !self.is_stopping() {
            self.pause(REPORT_EVERY).await;
            let moved = self.moved.get();
            if !self.counter.is_shown() && moved != shown && !self.is_stopping() {
                self.write(&format!("{} moved", counted(moved, "job")));
                shown = moved;
            }
        }
        // The first signal must not end the wait for the lanes: they have their own end.
        sleep(Duration::ZERO).await;
    }

    /// Prints the counts, and returns what determines the exit code.
    pub(super) fn outcome(&self) -> Result<(), Failure> {
        let Self {
            from,
            moved,
            known,
            left,
            ..
        } = self;
        let known = match known.get() {
            0 => String::new(),
            known => format!("; {known} were here already"),
        };
        self.write(&format!(
            "{} moved from {from}{known}",
            counted(moved.get(), "job")
        ));
        if let Some(why) = self.fatal.borrow_mut().take() {
            return Err(Failure::Runtime(why));
        }
        match left.get() {
            0 => Ok(()),
            left => Err(Failure::Incomplete(format!(
                "{} left with {from}",
                counted(left, "job")
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(until_empty: Option<Duration>) -> Tally {
        let place = |text: &str| text.parse().unwrap();
        Tally::new(
            place("gearman://h:1"),
            place("gearman://h:2"),
            Vec::new(),
            until_empty,
            false,
        )
    }

    #[test]
    fn the_bridge_ends_when_no_lane_has_a_job_and_none_finds_one() {
        let tally = tally(Some(Duration::ZERO));
        tally.took();
        tally.found_none();
        assert!(!tally.is_stopping(), "a lane has a job");
        tally.released();
        tally.found_none();
        assert!(tally.is_stopping());
    }

    #[test]
    fn the_time_without_jobs_is_without_a_gap() {
        let tally = tally(Some(Duration::from_secs(3_600)));
        tally.found_none();
        assert!(tally.empty_since.get().is_some() && !tally.is_stopping());
        tally.cannot_ask();
        assert_eq!(tally.empty_since.get(), None);
        tally.found_none();
        tally.took();
        assert_eq!(tally.empty_since.get(), None);
    }

    #[test]
    fn the_outcome_names_what_is_left_and_what_failed() {
        let left = tally(None);
        left.leave("job", "because");
        assert!(
            matches!(left.outcome(), Err(Failure::Incomplete(text)) if text == "1 job left with gearman://h:1")
        );
        left.fail("first \u{1b}".to_owned());
        left.fail("second".to_owned());
        assert!(left.is_stopping());
        assert!(matches!(left.outcome(), Err(Failure::Runtime(text)) if text == "first \u{fffd}"));
        assert!(tally(None).outcome().is_ok());
    }

    #[test]
    fn a_thousand_jobs_that_are_left_stop_the_bridge() {
        let tally = tally(None);
        tally.left.set(LEFT_MAX - 2);
        tally.leave("job", "because");
        assert!(!tally.is_stopping());
        tally.leave("job", "because");
        assert!(tally.is_stopping());
    }
}
