//! Runs of one case, interleaved: peer A, peer B, A, B… so that changes in the machine's speed affect both alike.
//! Independent of protocols: a run is a closure.

use serde::Serialize;

use crate::error::Error;
use crate::metric::{Metric, Sample};

/// One contestant, with its name in the tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Contestant {
    /// Its name, `windlass-sync` or `gearmand-t0`.
    pub name: String,
    /// Whether this is the numerator of ratios.
    pub ours: bool,
}

/// The results of one contestant in one case.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The contestant.
    pub contestant: Contestant,
    /// One sample per finished run, in the order of the rounds.
    pub samples: Vec<Sample>,
    /// Why there are no further samples.
    pub failure: Option<String>,
}

impl Row {
    /// All values of one metric, in the order of the rounds.
    pub fn values(&self, metric: Metric) -> Vec<f64> {
        self.samples.iter().filter_map(|sample| sample.get(&metric).copied()).collect()
    }
}

/// One case with all its contestants.
#[derive(Debug, Clone, Serialize)]
pub struct CaseResult {
    /// Its name.
    pub name: String,
    /// A description in one line.
    pub about: String,
    /// One row per contestant.
    pub rows: Vec<Row>,
}

impl CaseResult {
    /// A case without results.
    pub fn new(name: String, about: String, contestants: impl IntoIterator<Item = Contestant>) -> Self {
        let row = |contestant| Row { contestant, samples: Vec::new(), failure: None };
        Self { name, about, rows: contestants.into_iter().map(row).collect() }
    }

    /// Does `rounds` rounds. Each calls `run` once per contestant with its index; the starting contestant rotates, so that no
    /// contestant always follows the same neighbour. A contestant that fails once is skipped for the rest of the case.
    ///
    /// # Errors
    /// [`Error::Interrupted`] only; every other failure is stored in the row.
    pub fn run(&mut self, rounds: usize, mut run: impl FnMut(usize) -> Result<Sample, Error>) -> Result<(), Error> {
        let width = self.rows.len().max(1);
        for context in (0..rounds).flat_map(|round| (0..width).map(move |step| (round + step) % width)) {
            let Some(row) = self.rows.get_mut(context).filter(|row| row.failure.is_none()) else {
                continue;
            };
            match run(context) {
                Ok(sample) => row.samples.push(sample),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(failure) => row.failure = Some(failure.to_string()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contestants(names: &[&str]) -> Vec<Contestant> {
        names.iter().map(|name| Contestant { name: (*name).to_owned(), ours: false }).collect()
    }

    #[test]
    fn rounds_rotate_and_a_failure_leaves_the_others_running() {
        let mut case = CaseResult::new("c".into(), "about".into(), contestants(&["a", "b", "c"]));
        let mut order = Vec::new();
        case.run(3, |index| {
            order.push(index);
            if index == 1 { Err(Error::Mismatch("one lost".into())) } else { Ok(Sample::from([(Metric::RssMib, 1.0)])) }
        })
        .unwrap();
        assert_eq!(order, [0, 1, 2, 2, 0, 2, 0]);
        assert_eq!(case.rows.iter().map(|row| row.samples.len()).collect::<Vec<_>>(), [3, 0, 3]);
        assert_eq!(case.rows[1].failure.as_deref(), Some("count mismatch: one lost"));
        assert_eq!(case.rows[0].values(Metric::RssMib), [1.0; 3]);
    }

    #[test]
    fn an_interrupt_ends_the_case() {
        let mut case = CaseResult::new("c".into(), "about".into(), contestants(&["a", "b"]));
        let mut calls = 0;
        let ended = case.run(5, |_| {
            calls += 1;
            Err(Error::Interrupted)
        });
        assert!(matches!(ended, Err(Error::Interrupted)));
        assert_eq!(calls, 1);
    }
}
