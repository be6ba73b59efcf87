//! Cases × peers × runs: who takes part in which case, and the report of it all.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::compare::{CaseResult, Contestant};
use crate::error::Error;
use crate::gearman::cases::{self, Case};
use crate::gearman::client::Idle;
use crate::gearman::crew::Plan;
use crate::gearman::ground::Ground;
use crate::gearman::peers::{Durability, Peer, PeerName, Programs};
use crate::interrupt::Interrupt;
use crate::process;
use crate::report::Report;

/// A thousand connections on either side, and what else a process has open.
const OPEN_FILES: u64 = 4096;
/// The unmeasured beginning of a timed run, as a share of the window, and its least length.
const WARM_SHARE: f64 = 0.2;
const WARM_SECONDS_MIN: f64 = 0.2;
/// More than an hour per run is a slip of the finger.
const SECONDS_MAX: f64 = 3600.0;

/// What was asked for.
#[derive(Debug, Clone)]
pub struct Options {
    /// Cases and groups of cases.
    pub cases: Vec<String>,
    /// Who takes part.
    pub peers: Vec<PeerName>,
    /// Which `windlass` there are.
    pub durabilities: Vec<Durability>,
    /// Runs per case and peer.
    pub runs: usize,
    /// Length of a steady load's window, s.
    pub seconds: f64,
    /// Jobs in a steady load's window, instead of a time.
    pub jobs: Option<u64>,
    /// What the generator does between events.
    pub idle: Idle,
    /// Where the daemon is, if not beside this program.
    pub windlass_bin: Option<PathBuf>,
    /// The folder under which servers keep their data.
    pub data_root: PathBuf,
}

impl Options {
    fn plan(&self) -> Result<Plan, Error> {
        if let Some(window) = self.jobs {
            return Ok(Plan::Counted { warm: window / 10, window });
        }
        if !(0.05..=SECONDS_MAX).contains(&self.seconds) {
            return Err(Error::Usage(format!("{} seconds are too few or too many", self.seconds)));
        }
        let warm = (self.seconds * WARM_SHARE).max(WARM_SECONDS_MIN);
        Ok(Plan::Timed { warm: Duration::from_secs_f64(warm), window: Duration::from_secs_f64(self.seconds) })
    }
}

/// Runs everything and hands each case to `show` as soon as it is finished.
///
/// # Errors
/// [`Error::Usage`] and [`Error::Missing`] before anything has run; [`Error::Interrupted`]. What fails in a run is in
/// the report.
pub fn hold(options: &Options, interrupt: &Interrupt, mut show: impl FnMut(&CaseResult)) -> Result<Report, Error> {
    let plan = options.plan()?;
    let peers = Peer::expand(&options.peers, &options.durabilities);
    let programs = Programs::new(options.windlass_bin.clone());
    let cases = cases::by_names(&options.cases)?;
    process::raise_open_files(OPEN_FILES)?;
    let mut report = Report { facts: facts(options, &plan, &peers, &programs)?, cases: Vec::new() };
    eprint!("{}", report.facts_text());
    let ground = Ground { programs: &programs, data_root: &options.data_root, plan, idle: options.idle, interrupt };
    for case in &cases {
        let result = play(case, &peers, options.runs, &ground)?;
        show(&result);
        report.cases.push(result);
    }
    Ok(report)
}

fn play(case: &Case, peers: &[Peer], runs: usize, ground: &Ground<'_>) -> Result<CaseResult, Error> {
    let entrants: Vec<Peer> = peers.iter().copied().filter(|peer| case.fits(*peer)).collect();
    let contestant = |peer: &Peer| Contestant { name: peer.to_string(), ours: peer.is_ours() };
    let mut result = CaseResult::new(case.name.clone(), case.about.clone(), entrants.iter().map(contestant));
    result.run(runs, |index| match entrants.get(index) {
        Some(peer) => ground.run(&case.work, *peer),
        None => Err(Error::Usage("a contestant without a peer".to_owned())),
    })?;
    Ok(result)
}

/// Machine, versions, disk and plan. Finds out whether every program is there.
fn facts(options: &Options, plan: &Plan, peers: &[Peer], programs: &Programs) -> Result<Vec<(String, String)>, Error> {
    let mut facts = process::machine_facts();
    facts.push(("data on".to_owned(), disk(&options.data_root)));
    let length = match plan {
        Plan::Timed { warm, window } => format!("{window:?} after {warm:?} of warming up"),
        Plan::Counted { warm, window } => format!("{window} jobs after {warm} to warm up"),
    };
    facts.push(("runs".to_owned(), format!("{}, interleaved; steady loads: {length}", options.runs)));
    for peer in peers {
        facts.push((peer.to_string(), programs.version(*peer)?));
    }
    Ok(facts)
}

fn disk(root: &Path) -> String {
    let kind = process::file_system(root);
    let note = if kind == "tmpfs" { " (memory: what is written there is never on a disk)" } else { "" };
    format!("{kind}{note}, {}", root.display())
}
