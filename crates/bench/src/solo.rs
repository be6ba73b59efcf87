//! Windlass alone, with each durability, for protocols without a peer to compare: cases × durabilities × runs, and their
//! report.

use std::path::Path;

use crate::compare::{CaseResult, Contestant};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::load::client::Idle;
use crate::load::driver::Plan;
use crate::metric::Sample;
use crate::report::Report;
use crate::settings::Settings;
use crate::windlass::{self, Durability};

/// The options.
#[derive(Debug, Clone)]
pub struct Options {
    /// Durabilities to run.
    pub durabilities: Vec<Durability>,
    /// Options that all protocols share.
    pub settings: Settings,
}

/// One case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case<W> {
    /// Its name on the command line.
    pub name: String,
    /// A description in one line.
    pub about: String,
    /// The work.
    pub work: W,
}

/// The work of a protocol's case.
pub trait Work {
    /// One run, on a server started for it.
    ///
    /// # Errors
    /// Any error that leaves the run without figures; unaccounted jobs are [`Error::Mismatch`].
    fn run(&self, run: &Run<'_>, durability: Durability) -> Result<Sample, Error>;
}

/// Everything a run needs besides its work and its server's durability.
#[derive(Debug)]
pub struct Run<'a> {
    /// The daemon.
    pub windlass: &'a Path,
    /// The folder for the daemon's data.
    pub data_root: &'a Path,
    /// The length of steady loads.
    pub plan: Plan,
    /// How the generator waits for events.
    pub idle: Idle,
    /// Checked in every wait.
    pub interrupt: &'a Interrupt,
}

/// Runs every case and passes each to `show` as soon as it is finished. `facts` are the protocol's additions.
///
/// # Errors
/// [`Error::Usage`] and [`Error::Missing`] before the first run; [`Error::Interrupted`]. Failures of runs are in the report.
pub fn hold<W: Work>(
    options: &Options,
    facts: &[(&str, &str)],
    cases: &[Case<W>],
    interrupt: &Interrupt,
    mut show: impl FnMut(&CaseResult),
) -> Result<Report, Error> {
    let settings = &options.settings;
    let plan = settings.plan()?;
    let program = windlass::program(settings.windlass_bin.clone());
    let mut report = Report { facts: settings.facts(&plan)?, cases: Vec::new() };
    report.facts.push(("windlass".to_owned(), windlass::version(&program)?));
    report.facts.extend(facts.iter().map(|(name, fact)| ((*name).to_owned(), (*fact).to_owned())));
    eprint!("{}", report.facts_text());
    let run = Run { windlass: &program, data_root: &settings.data_root, plan, idle: settings.idle, interrupt };
    for case in cases {
        let contestant = |durability: &Durability| Contestant { name: format!("windlass-{durability}"), ours: true };
        let contestants = options.durabilities.iter().map(contestant);
        let mut result = CaseResult::new(case.name.clone(), case.about.clone(), contestants);
        result.run(settings.runs, |index| match options.durabilities.get(index) {
            Some(durability) => case.work.run(&run, *durability),
            None => Err(Error::Usage("a contestant without a server".to_owned())),
        })?;
        show(&result);
        report.cases.push(result);
    }
    Ok(report)
}
