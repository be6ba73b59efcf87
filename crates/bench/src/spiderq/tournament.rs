//! Cases × durabilities × runs, and the report of it all.

use crate::compare::{CaseResult, Contestant};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::report::Report;
use crate::settings::Settings;
use crate::spiderq::cases;
use crate::spiderq::ground::Ground;
use crate::windlass::{self, Durability};

/// Who speaks to the server, since figures depend on it.
const CLIENT: &str = "ZMTP over tcp:// by windlass-zmtp, our own codec on both sides, as a DEALER; not libzmq";

/// What was asked for.
#[derive(Debug, Clone)]
pub struct Options {
    /// Cases and groups of cases.
    pub cases: Vec<String>,
    /// Which `windlass` there are.
    pub durabilities: Vec<Durability>,
    /// The rest.
    pub settings: Settings,
}

/// Runs everything and hands each case to `show` as soon as it is finished.
///
/// # Errors
/// [`Error::Usage`] and [`Error::Missing`] before anything has run; [`Error::Interrupted`]. What fails in a run is in
/// the report.
pub fn hold(options: &Options, interrupt: &Interrupt, mut show: impl FnMut(&CaseResult)) -> Result<Report, Error> {
    let settings = &options.settings;
    let plan = settings.plan()?;
    let program = windlass::program(settings.windlass_bin.clone());
    let cases = cases::by_names(&options.cases)?;
    let mut report = Report { facts: settings.facts(&plan)?, cases: Vec::new() };
    report.facts.push(("windlass".to_owned(), windlass::version(&program)?));
    report.facts.push(("client".to_owned(), CLIENT.to_owned()));
    eprint!("{}", report.facts_text());
    let ground = Ground { windlass: &program, data_root: &settings.data_root, plan, idle: settings.idle, interrupt };
    for case in &cases {
        let contestant = |durability: &Durability| Contestant { name: format!("windlass-{durability}"), ours: true };
        let contestants = options.durabilities.iter().map(contestant);
        let mut result = CaseResult::new(case.name.clone(), case.about.clone(), contestants);
        result.run(settings.runs, |index| match options.durabilities.get(index) {
            Some(durability) => ground.run(&case.shape, *durability),
            None => Err(Error::Usage("a contestant without a server".to_owned())),
        })?;
        show(&result);
        report.cases.push(result);
    }
    Ok(report)
}
