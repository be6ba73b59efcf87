//! Laws of the history, which look only at the engine's jobs before and after a turn and at the rows that it wrote.
//!
//! - A job that lived has exactly one row when it is over or gone, and its row says which.
//! - A job that lives on has none, unless it is an entry of a `cycle` queue: each repayment of it has one.
//! - A dead job that is gone has a row only if somebody deleted it.
//! - A row says where its job comes from, and in which queue it was.

use std::collections::BTreeMap;

use windlass_engine::{Change, Ended, Ending, Engine, Job, JobId, JobState};

/// The jobs as the last turn left them.
#[derive(Debug, Default)]
pub(crate) struct History {
    before: BTreeMap<JobId, Stage>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Lives,
    /// Lives in a `cycle` queue.
    Cycles,
    Dead,
    Done,
}

impl Stage {
    fn of(job: &Job) -> Self {
        match job.state {
            JobState::Dead(_) => Self::Dead,
            JobState::Done(_) => Self::Done,
            JobState::Ready
            | JobState::Leased(_)
            | JobState::Scheduled(_)
            | JobState::Retrying(_)
            | JobState::Parked => match job.cycle() {
                Some(_) => Self::Cycles,
                None => Self::Lives,
            },
        }
    }
}

impl History {
    /// The engine runs anew: what only lived for its clients has ended with them, and has no row.
    pub(crate) fn survive(&mut self, engine: &Engine) {
        self.before = stages(engine);
    }

    /// Checks the changes of a turn.
    pub(crate) fn watch(&mut self, engine: &Engine, changes: &[Change]) {
        let mut rows = BTreeMap::<JobId, Vec<&Ended>>::new();
        for change in changes {
            if let Change::Ended(row) = change {
                check_row(row);
                rows.entry(row.job).or_default().push(row);
            }
        }
        let after = stages(engine);
        for (job, before) in &self.before {
            let rows = rows.remove(job).unwrap_or_default();
            let endings: Vec<Ending> = rows.iter().map(|row| row.ending).collect();
            check_endings(*job, *before, after.get(job).copied(), &endings);
        }
        // Jobs that came in this turn: at most one end each, which is also that of a retried one.
        for (job, rows) in rows {
            let ends = rows
                .iter()
                .filter(|row| row.ending != Ending::Deleted)
                .count();
            assert!(ends <= 1, "{job:?} came in this turn, and has {rows:?}");
        }
        self.before = after;
    }
}

fn stages(engine: &Engine) -> BTreeMap<JobId, Stage> {
    engine.jobs().map(|job| (job.id, Stage::of(job))).collect()
}

fn check_row(row: &Ended) {
    let origin = row.origin.as_deref();
    assert!(origin.is_some(), "no origin: {row:?}");
    assert!(!row.queue.is_empty(), "no queue: {row:?}");
}

fn check_endings(job: JobId, before: Stage, after: Option<Stage>, endings: &[Ending]) {
    use Ending::{Cancelled, Dead, Deleted, Done, Expired, Failed, Replaced};
    let fits = match (before, after) {
        // A dead job may be tried again, and die again, within one turn.
        (Stage::Dead, Some(Stage::Lives)) => endings.is_empty(),
        (Stage::Dead, Some(Stage::Dead)) => endings.iter().all(|it| *it == Dead),
        (Stage::Dead, Some(Stage::Done)) => matches!(endings, [.., Done | Failed | Expired]),
        (Stage::Dead, None) => matches!(
            endings,
            [] | [
                ..,
                Deleted | Done | Failed | Expired | Cancelled | Replaced | Dead
            ]
        ),
        (Stage::Done, _) => endings.is_empty(),
        (Stage::Lives, Some(Stage::Lives)) => matches!(endings, [] | [Dead]),
        (Stage::Lives, Some(Stage::Dead)) => matches!(endings, [Dead]),
        (Stage::Lives, Some(Stage::Done)) => matches!(endings, [Done | Failed | Expired]),
        (Stage::Lives, None) => matches!(
            endings,
            [Done | Failed | Expired | Cancelled | Deleted | Replaced] | [Dead] | [Dead, Deleted]
        ),
        (Stage::Cycles, Some(Stage::Cycles)) => endings.iter().all(|it| matches!(it, Done | Dead)),
        (Stage::Cycles, None) => !endings.is_empty(),
        (Stage::Cycles | Stage::Dead, Some(_)) | (Stage::Lives, Some(Stage::Cycles)) => true,
    };
    assert!(
        fits,
        "{job:?} was {before:?}, is {after:?}, and has the rows {endings:?}"
    );
}
