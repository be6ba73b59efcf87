//! Runs of cases, interleaved: peer A, peer B, A, B… so that changes in the machine's speed affect both alike.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;

use crate::cases::{Case, Work};
use crate::driver::Plan;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::links::Idle;
use crate::metric::{Metric, Sample};
use crate::peers::{Peer, Programs};
use crate::process;
use crate::report::Report;
use crate::run::Run;

/// What to run, and how.
#[derive(Debug, Clone)]
pub(crate) struct Comparison {
    pub(crate) cases: Vec<Case>,
    pub(crate) peers: Vec<Peer>,
    /// Peers and cases whose programs are missing are left out instead of failing.
    pub(crate) skips_missing: bool,
    /// Runs per case and peer.
    pub(crate) runs: usize,
    /// Length of a steady load's window, s.
    pub(crate) seconds: f64,
    /// Jobs in a steady load's window, instead of a time.
    pub(crate) jobs: Option<u64>,
    pub(crate) idle: Idle,
    /// The daemon's path, if not beside this program.
    pub(crate) windlass_bin: Option<PathBuf>,
    /// Where EventMQ's released programs are.
    pub(crate) venv: Option<PathBuf>,
    /// The folder for the servers' data.
    pub(crate) data_root: PathBuf,
}

impl Comparison {
    /// Runs everything and passes each case to `show` as soon as it is finished. [`Error::Usage`] and
    /// [`Error::Missing`] before the first run; [`Error::Interrupted`]. Failures of runs are in the report.
    pub(crate) fn hold(&self, interrupt: &Interrupt, mut show: impl FnMut(&CaseResult)) -> Result<Report, Error> {
        let plan = Plan::asked(self.jobs, self.seconds)?;
        let programs = Programs::new(self.windlass_bin.clone(), self.venv.clone());
        let mut report = Report { facts: self.facts(&plan)?, cases: Vec::new() };
        let (mut peers, mut left_out) = (Vec::new(), Vec::new());
        for peer in self.peers.iter().filter(|peer| self.cases.iter().any(|case| peer.fits(case))) {
            match programs.version(*peer) {
                Ok(version) => {
                    report.facts.push((peer.to_string(), version));
                    peers.push(*peer);
                }
                Err(missing @ Error::Missing(..)) if self.skips_missing && !peer.is_ours() => {
                    left_out.push(format!("{peer} ({missing})"));
                }
                Err(error) => return Err(error),
            }
        }
        let needs_venv = |case: &Case| matches!(case.work, Work::Own { .. });
        let (unable, cases): (Vec<_>, Vec<_>) =
            self.cases.iter().partition(|case| self.venv.is_none() && needs_venv(case));
        if cases.is_empty() {
            programs.venv()?;
        }
        left_out.extend(unable.iter().map(|case| format!("{} (there is no --eventmq-venv)", case.name)));
        report.facts.extend(left_out.into_iter().map(|what| ("left out".to_owned(), what)));
        let clients = cases.iter().filter_map(|case| case.protocol.client).collect::<BTreeSet<_>>();
        report.facts.extend(clients.into_iter().map(|client| ("client".to_owned(), client.to_owned())));
        eprint!("{}", report.text());
        let run = Run {
            programs: &programs,
            data_root: &self.data_root,
            plan,
            idle: self.idle,
            counts_replies: true,
            interrupt,
        };
        for case in cases {
            let entrants: Vec<Peer> = peers.iter().copied().filter(|peer| peer.fits(case)).collect();
            let contestant = |peer: &Peer| Contestant { name: peer.to_string(), ours: peer.is_compared() };
            let contestants = entrants.iter().map(contestant);
            let mut result = CaseResult::new(case.name.clone(), case.about.clone(), contestants);
            result.run(self.runs, |index| match entrants.get(index) {
                Some(peer) => run.of(case, *peer),
                None => Err(Error::Usage("a contestant without a peer".to_owned())),
            })?;
            show(&result);
            report.cases.push(result);
        }
        Ok(report)
    }

    /// Facts on machine, disk and plan. Also raises the limit of open files as the cases require.
    fn facts(&self, plan: &Plan) -> Result<Vec<(String, String)>, Error> {
        process::raise_open_files()?;
        let mut facts = process::machine_facts();
        let kind = process::file_system(&self.data_root);
        let note = if kind == "tmpfs" { " (memory: what is written there is never on a disk)" } else { "" };
        facts.push(("data on".to_owned(), format!("{kind}{note}, {}", self.data_root.display())));
        let length = match plan {
            Plan::Timed { warm, window } => format!("{window:?} after {warm:?} of warming up"),
            Plan::Counted { warm, window } => format!("{window} jobs after {warm} to warm up"),
        };
        facts.push(("runs".to_owned(), format!("{}, interleaved; steady loads: {length}", self.runs)));
        Ok(facts)
    }
}

/// One contestant, with its name in the tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Contestant {
    /// Its name, `windlass-sync` or `gearmand-t0`.
    pub(crate) name: String,
    /// Whether this is the numerator of ratios.
    pub(crate) ours: bool,
}

/// The results of one contestant in one case.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    /// The contestant.
    pub(crate) contestant: Contestant,
    /// One sample per finished run, in the order of the rounds.
    pub(crate) samples: Vec<Sample>,
    /// Why there are no further samples.
    pub(crate) failure: Option<String>,
}

impl Row {
    /// All values of one metric, in the order of the rounds.
    pub(crate) fn values(&self, metric: Metric) -> Vec<f64> {
        self.samples.iter().filter_map(|sample| sample.get(&metric).copied()).collect()
    }
}

/// One case with all its contestants.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CaseResult {
    /// Its name.
    pub(crate) name: String,
    /// A description in one line.
    pub(crate) about: String,
    /// One row per contestant.
    pub(crate) rows: Vec<Row>,
}

impl CaseResult {
    /// A case without results.
    pub(crate) fn new(name: String, about: String, contestants: impl IntoIterator<Item = Contestant>) -> Self {
        let row = |contestant| Row { contestant, samples: Vec::new(), failure: None };
        Self { name, about, rows: contestants.into_iter().map(row).collect() }
    }

    /// Does `rounds` rounds. Each calls `run` once per contestant with its index; the starting contestant rotates, so
    /// that no contestant always follows the same neighbour. A contestant that fails once is skipped for the rest of
    /// the case. [`Error::Interrupted`] only; every other failure is stored in the row.
    pub(crate) fn run(
        &mut self,
        rounds: usize,
        mut run: impl FnMut(usize) -> Result<Sample, Error>,
    ) -> Result<(), Error> {
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
