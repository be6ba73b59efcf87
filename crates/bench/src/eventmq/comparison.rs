//! Cases × peers × runs: which peers run which case, and the report.

use std::path::PathBuf;

use crate::compare::{CaseResult, Contestant};
use crate::error::Error;
use crate::eventmq::CLIENT;
use crate::eventmq::cases::{self, Case, Work};
use crate::eventmq::peers::{Peer, PeerName, Programs};
use crate::eventmq::run::Run;
use crate::interrupt::Interrupt;
use crate::report::Report;
use crate::settings::Settings;
use crate::windlass::Durability;

/// The options.
#[derive(Debug, Clone)]
pub struct Options {
    /// Cases and groups of cases.
    pub cases: Vec<String>,
    /// The peers; empty for all available ones.
    pub peers: Vec<PeerName>,
    /// Where the released programs are.
    pub venv: Option<PathBuf>,
    /// Durabilities of `windlass`.
    pub durabilities: Vec<Durability>,
    /// Options that all protocols share.
    pub settings: Settings,
}

impl Options {
    /// The peers. By default `windlass`, and the router if the released programs are given.
    fn peers(&self) -> Vec<Peer> {
        let there: &[PeerName] = match (self.peers.as_slice(), &self.venv) {
            ([], Some(_)) => &[PeerName::Windlass, PeerName::Router],
            ([], None) => &[PeerName::Windlass],
            (named, _) => named,
        };
        Peer::expand(there, &self.durabilities)
    }

    /// The cases, and the cases left out because the released programs are missing.
    ///
    /// # Errors
    /// [`Error::Usage`] for an unknown name.
    fn cases(&self) -> Result<(Vec<Case>, Vec<Case>), Error> {
        let possible = |case: &Case| self.venv.is_some() || !matches!(case.work, Work::JobManager { .. });
        Ok(cases::by_names(&self.cases)?.into_iter().partition(possible))
    }
}

/// Runs everything and passes each case to `show` as soon as it is finished.
///
/// # Errors
/// [`Error::Usage`] and [`Error::Missing`] before the first run; [`Error::Interrupted`]. Failures of runs are in the report.
pub fn hold(options: &Options, interrupt: &Interrupt, mut show: impl FnMut(&CaseResult)) -> Result<Report, Error> {
    let settings = &options.settings;
    let plan = settings.plan()?;
    let programs = Programs::new(settings.windlass_bin.clone(), options.venv.as_deref());
    let peers = options.peers();
    let (cases, left_out) = options.cases()?;
    let mut report = Report { facts: settings.facts(&plan)?, cases: Vec::new() };
    for peer in &peers {
        report.facts.push((peer.to_string(), programs.version(*peer)?));
    }
    report.facts.push(("client".to_owned(), CLIENT.to_owned()));
    if options.venv.is_none() {
        if cases.is_empty() {
            programs.venv()?;
        }
        let names = std::iter::once("the released router".to_owned()).chain(left_out.into_iter().map(|case| case.name));
        let text = format!("{}: there is no --eventmq-venv", names.collect::<Vec<_>>().join(", "));
        report.facts.push(("left out".to_owned(), text));
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
    let entrants: Vec<Peer> = peers.iter().copied().filter(|peer| case.work.fits(*peer)).collect();
    let contestant = |peer: &Peer| Contestant { name: peer.to_string(), ours: peer.is_ours() };
    let mut result = CaseResult::new(case.name.clone(), case.about.clone(), entrants.iter().map(contestant));
    result.run(runs, |index| match entrants.get(index) {
        Some(peer) => run.run(&case.work, *peer),
        None => Err(Error::Usage("a contestant without a peer".to_owned())),
    })?;
    Ok(result)
}
