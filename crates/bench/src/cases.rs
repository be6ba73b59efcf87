//! The cases by name. The table itself is in [`crate::table`].

use crate::driver::Plan;
use crate::error::Error;
use crate::metric::Sample;
use crate::protocol::Protocol;
use crate::run::Run;
use crate::servers::{Home, Server};
use crate::shape::Shape;

/// More jobs in one queue must be a typing error.
const JOBS_MAX: u64 = 50_000_000;
/// The group of cases that run only by name.
pub(crate) const EXTRA: &str = "queue";

/// The work of a case.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    /// A steady load, measured by time or by number of jobs; or, if there are only workers, until the queue is empty.
    Load(Shape),
    /// Waiting connections without jobs.
    Idle(Shape, Plan),
    /// Fill a queue, then empty it.
    Fill { jobs: u64, unique: bool },
    /// Fill a queue, kill the server, and start it again.
    Restart { jobs: u64 },
    /// A protocol's own work, with a released program.
    Own {
        jobs: u64,
        run: fn(&Run<'_>, u64, &Server, &Home) -> Result<Sample, Error>,
    },
}

/// What a case requires of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Speed without durability.
    Memory,
    /// Jobs that survive a crash.
    Durability,
    /// A count of waiting jobs, which the released router does not report.
    Count,
}

/// One case.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) protocol: &'static Protocol,
    /// Its name on the command line.
    pub(crate) name: String,
    pub(crate) group: &'static str,
    /// A description in one line.
    pub(crate) about: String,
    pub(crate) needs: Needs,
    pub(crate) work: Work,
}

/// The cases with these names, out of `all`: groups, single cases, and cases with another number of jobs, like
/// `fill-2m`. [`Error::Usage`] for an unknown name.
pub(crate) fn by_names(all: &[Case], names: &[String]) -> Result<Vec<Case>, Error> {
    let mut found = Vec::new();
    for name in names {
        let before = found.len();
        let is_meant = |case: &&Case| match name.as_str() {
            "default" => case.group != EXTRA,
            _ => case.name == *name || case.group == name,
        };
        found.extend(all.iter().filter(is_meant).cloned());
        if found.len() == before {
            let sized = all.iter().find_map(|case| case.sized(name));
            found.push(
                sized.ok_or_else(|| {
                    Error::Usage(format!("no case or group {name:?}; see --list"))
                })?,
            );
        }
    }
    Ok(found)
}

/// The cases as text, with their groups.
pub(crate) fn list(all: &[Case]) -> String {
    let line = |case: &Case| format!("{:<12}{:<24}{}\n", case.group, case.name, case.about);
    all.iter().map(line).collect::<String>()
        + "\nAny number of jobs can be asked for where a name ends in one: fill-2m.\n"
}

impl Case {
    /// This case under another name, which ends in another number of jobs.
    fn sized(&self, name: &str) -> Option<Self> {
        let (kind, count) = name.rsplit_once('-')?;
        let jobs = count_of(count).filter(|_| {
            self.name
                .rsplit_once('-')
                .is_some_and(|(own, _)| own == kind)
        })?;
        let work = match self.work {
            Work::Fill { unique, .. } => Work::Fill { jobs, unique },
            Work::Restart { .. } => Work::Restart { jobs },
            Work::Own { run, .. } => Work::Own { jobs, run },
            Work::Load(_) | Work::Idle(..) => return None,
        };
        Some(Self {
            name: name.to_owned(),
            work,
            ..self.clone()
        })
    }
}

/// A number of jobs in the notation of case names: `500`, `100k`, `1m`.
fn count_of(text: &str) -> Option<u64> {
    let scaled = [("k", 1_000), ("m", 1_000_000)]
        .into_iter()
        .find_map(|(suffix, scale)| Some((text.strip_suffix(suffix)?, scale)));
    let (digits, scale): (&str, u64) = scaled.unwrap_or((text, 1));
    let count = digits.parse::<u64>().ok()?.checked_mul(scale)?;
    (1..=JOBS_MAX).contains(&count).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{eventmq, faktory, gearman, spiderq, summary};

    fn count(cases: &[Case], name: &str) -> Result<usize, Error> {
        by_names(cases, &[name.to_owned()]).map(|cases| cases.len())
    }

    #[test]
    fn names_are_unique_and_found() {
        for all in [gearman(), faktory(), spiderq(), eventmq(), summary()] {
            let names: Vec<_> = all.iter().map(|case| case.name.clone()).collect();
            let distinct: std::collections::BTreeSet<_> = names.iter().collect();
            assert_eq!(distinct.len(), names.len());
            assert!(
                by_names(&all, &names)
                    .unwrap()
                    .iter()
                    .map(|case| &case.name)
                    .eq(&names)
            );
            assert!(list(&all).contains(&names[0]));
            let wrong = [
                "", "fill", "fill-", "fill-0", "fill-k", "fill-99m", "drain-1k", "bg-2", "-1k",
                "e2e-", "ping-1x2",
            ];
            assert!(wrong.iter().all(|name| count(&all, name).is_err()));
        }
    }

    #[test]
    fn groups_and_sizes() {
        let table = [
            (gearman(), "default", 28),
            (gearman(), "queue", 3),
            (gearman(), "fill-plain-2k", 1),
            (faktory(), "default", 12),
            (faktory(), "restart-1m", 1),
            (spiderq(), "cycle", 3),
            (spiderq(), "default", 10),
            (eventmq(), "request", 3),
            (eventmq(), "default", 9),
            (eventmq(), "jobmanager-5k", 1),
            (summary(), "default", 18),
            (summary(), "faktory", 6),
        ];
        for (all, name, expected) in table {
            assert_eq!(count(&all, name).unwrap(), expected, "{name}");
        }
        for (text, jobs) in [("500", 500), ("2k", 2_000), ("1m", 1_000_000)] {
            assert_eq!(count_of(text), Some(jobs));
        }
    }
}
