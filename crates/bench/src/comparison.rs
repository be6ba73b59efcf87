//! Runs of cases, interleaved: peer A, peer B, A, B… so that changes in the machine's speed affect both alike.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
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
    pub(crate) setup: Setup,
}

/// How to run, whatever the cases and peers.
#[derive(Debug, Clone, Args)]
pub(crate) struct Setup {
    /// Runs per case and server; figures are medians over them.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// Length of the measured window of a steady load.
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// Measure this number of jobs instead of a time (no effect on cases with a fixed number of jobs).
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(10..))]
    jobs: Option<u64>,
    /// Poll for answers all the time instead of sleeping: removes the generator's wake-up from latencies, and takes a
    /// core from the servers.
    #[arg(long)]
    spin: bool,
    /// The daemon [default: `windlass` beside this program].
    #[arg(long, value_name = "PATH")]
    windlass_bin: Option<PathBuf>,
    /// The virtual environment with EventMQ's released programs (see the README); without it there is no router and no
    /// JobManager.
    #[arg(long, value_name = "DIR")]
    eventmq_venv: Option<PathBuf>,
    /// The folder for the servers' data, on the disk to measure [default: the folder for temporary files].
    #[arg(long, value_name = "DIR")]
    data_root: Option<PathBuf>,
}

impl Comparison {
    /// Runs everything and passes each case to `show` as soon as it is finished. [`Error::Usage`] and
    /// [`Error::Missing`] before the first run; [`Error::Interrupted`]. Failures of runs are in the report.
    pub(crate) fn hold(
        &self,
        interrupt: &Interrupt,
        mut show: impl FnMut(&CaseResult),
    ) -> Result<Report, Error> {
        let setup = &self.setup;
        let (plan, data_root) = (setup.plan()?, setup.data_root());
        let has_venv = setup.eventmq_venv.is_some();
        let programs = setup.programs();
        let mut report = Report {
            facts: setup.facts(&plan, &data_root)?,
            cases: Vec::new(),
        };
        let (mut peers, mut left_out) = (Vec::new(), Vec::new());
        for peer in self
            .peers
            .iter()
            .filter(|peer| self.cases.iter().any(|case| peer.fits(case)))
        {
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
        let (unable, cases): (Vec<_>, Vec<_>) = self
            .cases
            .iter()
            .partition(|case| !has_venv && needs_venv(case));
        if cases.is_empty() {
            programs.venv()?;
        }
        left_out.extend(
            unable
                .iter()
                .map(|case| format!("{} (there is no --eventmq-venv)", case.name)),
        );
        report.facts.extend(
            left_out
                .into_iter()
                .map(|what| ("left out".to_owned(), what)),
        );
        let clients = cases
            .iter()
            .filter_map(|case| case.protocol.client)
            .collect::<BTreeSet<_>>();
        report.facts.extend(
            clients
                .into_iter()
                .map(|client| ("client".to_owned(), client.to_owned())),
        );
        eprint!("{}", report.text());
        let idle = if setup.spin { Idle::Spin } else { Idle::Sleep };
        let run = Run {
            programs: &programs,
            data_root: &data_root,
            plan,
            idle,
            counts_replies: true,
            interrupt,
        };
        for case in cases {
            let entrants: Vec<Peer> = peers
                .iter()
                .copied()
                .filter(|peer| peer.fits(case))
                .collect();
            let rows = entrants
                .iter()
                .map(|peer| Row::new(peer.to_string(), peer.is_compared()))
                .collect();
            let mut result = CaseResult {
                name: case.name.clone(),
                about: case.about.clone(),
                rows,
            };
            result.run(setup.runs, |index| match entrants.get(index) {
                Some(peer) => run.of(case, *peer),
                None => Err(Error::Usage("a row without a peer".to_owned())),
            })?;
            show(&result);
            report.cases.push(result);
        }
        Ok(report)
    }
}

impl Setup {
    pub(crate) fn plan(&self) -> Result<Plan, Error> {
        Plan::asked(self.jobs, self.seconds)
    }

    pub(crate) fn data_root(&self) -> PathBuf {
        self.data_root.clone().unwrap_or_else(std::env::temp_dir)
    }

    pub(crate) fn programs(&self) -> Programs {
        Programs::new(self.windlass_bin.clone(), self.eventmq_venv.clone())
    }

    /// Facts on machine, disk and plan. Also raises the limit of open files as the cases require.
    pub(crate) fn facts(
        &self,
        plan: &Plan,
        data_root: &Path,
    ) -> Result<Vec<(String, String)>, Error> {
        process::raise_open_files()?;
        let mut facts = process::machine_facts();
        let kind = process::file_system(data_root);
        let note = if kind == "tmpfs" {
            " (memory: what is written there is never on a disk)"
        } else {
            ""
        };
        facts.push((
            "data on".to_owned(),
            format!("{kind}{note}, {}", data_root.display()),
        ));
        let length = match plan {
            Plan::Timed { warm, window } => format!("{window:?} after {warm:?} of warming up"),
            Plan::Counted { warm, window } => format!("{window} jobs after {warm} to warm up"),
        };
        facts.push((
            "runs".to_owned(),
            format!("{}, interleaved; steady loads: {length}", self.runs),
        ));
        Ok(facts)
    }
}

/// The results of one peer in one case.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    /// The peer's name, `windlass-sync` or `gearmand-t0`.
    pub(crate) name: String,
    /// Whether this is the numerator of ratios.
    pub(crate) ours: bool,
    /// One sample per finished run, in the order of the rounds.
    pub(crate) samples: Vec<Sample>,
    /// Why there are no further samples.
    pub(crate) failure: Option<String>,
}

impl Row {
    /// A peer without results.
    pub(crate) fn new(name: String, ours: bool) -> Self {
        Self {
            name,
            ours,
            samples: Vec::new(),
            failure: None,
        }
    }

    /// All values of one metric, in the order of the rounds.
    pub(crate) fn values(&self, metric: Metric) -> Vec<f64> {
        self.samples
            .iter()
            .filter_map(|sample| sample.get(&metric).copied())
            .collect()
    }
}

/// One case with all its contestants.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CaseResult {
    /// Its name.
    pub(crate) name: String,
    /// A description in one line.
    pub(crate) about: String,
    /// One row per peer.
    pub(crate) rows: Vec<Row>,
}

impl CaseResult {
    /// Does `rounds` rounds. Each calls `run` once per row with its index; the starting row rotates, so that no peer
    /// always follows the same neighbour. A peer that fails once is skipped for the rest of the case.
    /// [`Error::Interrupted`] only; every other failure is stored in the row.
    pub(crate) fn run(
        &mut self,
        rounds: u32,
        mut run: impl FnMut(usize) -> Result<Sample, Error>,
    ) -> Result<(), Error> {
        let width = self.rows.len();
        for at in (0..rounds as usize)
            .flat_map(|round| (0..width).map(move |step| (round + step) % width))
        {
            let Some(row) = self.rows.get_mut(at).filter(|row| row.failure.is_none()) else {
                continue;
            };
            match run(at) {
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

    fn case(names: &[&str]) -> CaseResult {
        let rows = names
            .iter()
            .map(|name| Row::new((*name).to_owned(), false))
            .collect();
        CaseResult {
            name: "c".into(),
            about: "about".into(),
            rows,
        }
    }

    #[test]
    fn rounds_rotate_and_a_failure_leaves_the_others_running() {
        let mut case = case(&["a", "b", "c"]);
        let mut order = Vec::new();
        case.run(3, |index| {
            order.push(index);
            if index == 1 {
                Err(Error::Mismatch("one lost".into()))
            } else {
                Ok(Sample::from([(Metric::RssMib, 1.0)]))
            }
        })
        .unwrap();
        assert_eq!(order, [0, 1, 2, 2, 0, 2, 0]);
        assert_eq!(
            case.rows
                .iter()
                .map(|row| row.samples.len())
                .collect::<Vec<_>>(),
            [3, 0, 3]
        );
        assert_eq!(
            case.rows[1].failure.as_deref(),
            Some("count mismatch: one lost")
        );
        assert_eq!(case.rows[0].values(Metric::RssMib), [1.0; 3]);
    }

    #[test]
    fn an_interrupt_ends_the_case() {
        let mut case = case(&["a", "b"]);
        let mut calls = 0;
        let ended = case.run(5, |_| {
            calls += 1;
            Err(Error::Interrupted)
        });
        assert!(matches!(ended, Err(Error::Interrupted)));
        assert_eq!(calls, 1);
    }
}
