//! Cases × peers × runs: which peers run which case, and the report.

use crate::compare::{CaseResult, Contestant};
use crate::error::Error;
use crate::gearman::cases::{self, Case};
use crate::gearman::peers::{Peer, PeerName, Programs};
use crate::gearman::run::Run;
use crate::interrupt::Interrupt;
use crate::report::Report;
use crate::settings::Settings;
use crate::windlass::Durability;

/// The options.
#[derive(Debug, Clone)]
pub struct Options {
    /// Cases and groups of cases.
    pub cases: Vec<String>,
    /// The peers.
    pub peers: Vec<PeerName>,
    /// Durabilities of `windlass`.
    pub durabilities: Vec<Durability>,
    /// Options that all protocols share.
    pub settings: Settings,
}

/// Runs everything and passes each case to `show` as soon as it is finished.
///
/// # Errors
/// [`Error::Usage`] and [`Error::Missing`] before the first run; [`Error::Interrupted`]. Failures of runs are in the report.
pub fn hold(options: &Options, interrupt: &Interrupt, mut show: impl FnMut(&CaseResult)) -> Result<Report, Error> {
    let settings = &options.settings;
    let plan = settings.plan()?;
    let peers = Peer::expand(&options.peers, &options.durabilities);
    let programs = Programs::new(settings.windlass_bin.clone());
    let cases = cases::by_names(&options.cases)?;
    let mut report = Report { facts: settings.facts(&plan)?, cases: Vec::new() };
    for peer in &peers {
        report.facts.push((peer.to_string(), programs.version(*peer)?));
    }
    eprint!("{}", report.facts_text());
    let run = Run { programs: &programs, data_root: &settings.data_root, plan, idle: settings.idle, interrupt };
    for case in &cases {
        let result = play(case, &peers, settings.runs, &run)?;
        show(&result);
        report.cases.push(result);
    }
    Ok(report)
}

fn play(case: &Case, peers: &[Peer], runs: usize, run: &Run<'_>) -> Result<CaseResult, Error> {
    let entrants: Vec<Peer> = peers.iter().copied().filter(|peer| case.fits(*peer)).collect();
    let contestant = |peer: &Peer| Contestant { name: peer.to_string(), ours: peer.is_ours() };
    let mut result = CaseResult::new(case.name.clone(), case.about.clone(), entrants.iter().map(contestant));
    result.run(runs, |index| match entrants.get(index) {
        Some(peer) => run.run(&case.work, *peer),
        None => Err(Error::Usage("a contestant without a peer".to_owned())),
    })?;
    Ok(result)
}
