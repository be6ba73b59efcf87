//! The load as data, and the names of the cases. Each protocol brings a [`Catalogue`].

use crate::driver::Plan;
use crate::error::Error;
use crate::metric::Sample;
use crate::peers::Needs;
use crate::run::Run;
use crate::servers::{Home, Server};
use crate::tally::{Ending, Rules};

/// More jobs in one queue must be a typing error.
const JOBS_MAX: u64 = 50_000_000;

/// What a client's requests do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// Nothing: an echo, a ping, a fetch from an empty queue.
    Echo,
    /// Queue a job; the server acknowledges it.
    Submit,
    /// Queue a job and wait for its result.
    Call,
    /// Take a job and put it back.
    Cycle,
    /// Take a job and remove it.
    Take,
}

/// A load: the number of connections per role, and the event that completes a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Connections that request.
    pub(crate) clients: usize,
    pub(crate) request: Request,
    /// Requests unanswered on each, or jobs in its one request.
    pub(crate) window: usize,
    /// Connections that work: they take jobs and finish them at once, as long as there are any.
    pub(crate) workers: usize,
    /// Workers send a report and the next request in one write, where the protocol allows a choice.
    pub(crate) eager: bool,
    /// Random unique ids, where they are optional: a queue keyed by unique id needs them to keep every job.
    pub(crate) unique: bool,
    /// Most jobs submitted and not yet worked; clients pause there.
    pub(crate) backlog_max: u64,
    pub(crate) ending: Ending,
    /// Jobs in the queue before the load begins.
    pub(crate) queued: u64,
}

impl Shape {
    /// Clients without workers.
    pub(crate) const fn clients(request: Request, clients: usize, window: usize) -> Self {
        let ending = if matches!(request, Request::Submit) { Ending::Acknowledged } else { Ending::Answered };
        let (workers, eager, unique, backlog_max, queued) = (0, false, false, u64::MAX, 0);
        Shape { clients, request, window, workers, eager, unique, backlog_max, ending, queued }
    }

    /// Jobs from submit to worker.
    pub(crate) const fn flow(clients: usize, window: usize, workers: usize, backlog_max: u64) -> Self {
        Shape { workers, backlog_max, ending: Ending::Worked, ..Self::clients(Request::Submit, clients, window) }
    }

    /// Workers alone, for a queue that is already full.
    pub(crate) const fn drain(workers: usize, ending: Ending) -> Self {
        Shape { workers, ending, ..Self::clients(Request::Submit, 0, 1) }
    }

    pub(crate) const fn with_unique_ids(self) -> Self {
        Shape { unique: true, ..self }
    }

    /// The counting rules of this shape. A server that does not acknowledge every job has `acknowledges` unset.
    pub(crate) fn rules(&self, acknowledges: bool) -> Rules {
        let submits = self.clients > 0 && matches!(self.request, Request::Submit | Request::Call);
        Rules {
            ending: self.ending,
            backlog_max: self.backlog_max,
            acknowledged: submits && acknowledges,
            worked: self.workers > 0,
        }
    }
}

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
    /// A protocol's own work.
    Own { jobs: u64, run: fn(&Run<'_>, u64, &Server, &Home) -> Result<Sample, Error> },
}

/// One case.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Its name on the command line.
    pub(crate) name: String,
    pub(crate) group: &'static str,
    /// A description in one line.
    pub(crate) about: String,
    pub(crate) needs: Needs,
    pub(crate) work: Work,
}

/// A case without its name: its group, a description, what it needs, and its work.
pub(crate) type Sized = (&'static str, String, Needs, Work);

/// The cases of one protocol.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Catalogue {
    /// Groups of cases, as `(name, description)`; the last one is the default.
    pub(crate) groups: &'static [(&'static str, &'static str)],
    /// Groups that are not in the default.
    pub(crate) extra: &'static [&'static str],
    /// The cases of a fixed load.
    pub(crate) steady: fn() -> Vec<Case>,
    /// The cases whose names end in a number of jobs.
    pub(crate) sized: fn(kind: &str, jobs: u64) -> Option<Sized>,
    /// The names of such cases that are listed.
    pub(crate) examples: &'static [&'static str],
}

impl Catalogue {
    /// The cases with these names: groups, single cases, and names with a number of jobs, like `fill-100k`.
    /// [`Error::Usage`] for an unknown name.
    pub(crate) fn by_names(&self, names: &[String]) -> Result<Vec<Case>, Error> {
        let mut found = Vec::new();
        for name in names {
            let before = found.len();
            let is_meant = |case: &Case| match name.as_str() {
                "default" => !self.extra.contains(&case.group),
                _ => case.name == *name || case.group == name,
            };
            found.extend(self.named().into_iter().filter(is_meant));
            if found.len() == before {
                let sized = self.by_size(name);
                found.push(sized.ok_or_else(|| Error::Usage(format!("no case or group {name:?}; see --list")))?);
            }
        }
        Ok(found)
    }

    /// Every case with a fixed name.
    pub(crate) fn named(&self) -> Vec<Case> {
        (self.steady)().into_iter().chain(self.examples.iter().filter_map(|name| self.by_size(name))).collect()
    }

    /// Groups and cases as text.
    pub(crate) fn list(&self) -> String {
        let groups = self.groups.iter().map(|(name, about)| format!("{name:<22}{about}\n"));
        let cases = self.named().into_iter().map(|case| format!("{:<22}{}\n", case.name, case.about));
        format!("groups\n{}\ncases\n{}", groups.collect::<String>(), cases.collect::<String>())
    }

    fn by_size(&self, name: &str) -> Option<Case> {
        let (kind, count) = name.rsplit_once('-')?;
        let (group, about, needs, work) = (self.sized)(kind, count_of(count)?)?;
        Some(Case { name: name.to_owned(), group, about, needs, work })
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
    use crate::{eventmq, faktory, gearman, spiderq};

    const ALL: [&Catalogue; 4] = [&gearman::CASES, &faktory::CASES, &spiderq::CASES, &eventmq::CASES];

    fn names(cases: Vec<Case>) -> Vec<String> {
        cases.into_iter().map(|case| case.name).collect()
    }

    #[test]
    fn names_are_unique_and_found() {
        for catalogue in ALL {
            let all = names(catalogue.named());
            let distinct: std::collections::BTreeSet<_> = all.iter().collect();
            assert_eq!(distinct.len(), all.len());
            assert_eq!(names(catalogue.by_names(&all).unwrap()), all);
            assert_eq!(catalogue.groups.last().unwrap().0, "default");
            for (group, _) in catalogue.groups {
                assert!(!catalogue.by_names(&[(*group).to_owned()]).unwrap().is_empty(), "{group}");
            }
            assert!(catalogue.list().contains(&all[0]));
        }
    }

    #[test]
    fn groups_and_sizes() {
        let count = |catalogue: &Catalogue, name: &str| catalogue.by_names(&[name.to_owned()]).map(|cases| cases.len());
        let [gearman, faktory, spiderq, eventmq] = ALL;
        let table = [
            (gearman, "default", 22),
            (gearman, "queue", 3),
            (gearman, "fill-plain-2k", 1),
            (faktory, "default", 9),
            (faktory, "restart-1m", 1),
            (spiderq, "cycle", 3),
            (spiderq, "default", 10),
            (eventmq, "request", 3),
            (eventmq, "default", 9),
            (eventmq, "jobmanager-5k", 1),
        ];
        for (catalogue, name, expected) in table {
            assert_eq!(count(catalogue, name).unwrap(), expected, "{name}");
        }
        let wrong =
            ["", "fill", "fill-", "fill-0", "fill-k", "fill-99m", "drain-1k", "bg-2", "-1k", "e2e-", "ping-1x2"];
        for name in wrong {
            assert!(ALL.iter().all(|catalogue| count(catalogue, name).is_err()), "{name}");
        }
        for (text, jobs) in [("500", 500), ("2k", 2_000), ("1m", 1_000_000)] {
            assert_eq!(count_of(text), Some(jobs));
        }
    }

    #[test]
    fn rules_bound_a_run() {
        let flow = Shape::flow(4, 64, 2, 256);
        let rules = Rules { ending: Ending::Worked, backlog_max: 256, acknowledged: true, worked: true };
        assert_eq!(flow.rules(true), rules);
        assert_eq!(flow.rules(false), Rules { acknowledged: false, ..rules });
        let alone = Shape::clients(Request::Submit, 4, 64).rules(true);
        assert_eq!(alone, Rules { ending: Ending::Acknowledged, backlog_max: u64::MAX, worked: false, ..rules });
    }
}
