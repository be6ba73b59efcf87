//! The combined state of all queues, for the overview.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use windlass_engine::{JobStateKind, QueueRow, Timestamp};

use crate::name::Name;

/// Queues that are named.
const NAMED_MAX: usize = 5;

/// How long queues are examined after an overview was requested.
const ASKED: Duration = Duration::from_secs(60);

/// A queue, and its namespace if that has a name.
#[derive(Clone, Debug)]
pub(crate) struct QueueName {
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

impl QueueName {
    fn of(row: &QueueRow) -> Self {
        Self {
            namespace: Name::of(&row.namespace).map(|name| name.to_string()),
            name: Name(row.name.clone()).to_string(),
        }
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}

/// The combined state of all queues.
#[derive(Clone, Debug, Default)]
pub(crate) struct Survey {
    /// Queues with jobs that no worker takes.
    pub(crate) unserved: usize,
    /// The names of some of them.
    pub(crate) names: Vec<String>,
    /// Paused queues with ready jobs, and the names of some of them.
    pub(crate) paused: (usize, Vec<String>),
    /// The oldest job that could run: since when, and where.
    pub(crate) oldest: Option<(Timestamp, QueueName)>,
}

/// The last survey of more queues than a single visit can examine, and when an overview last
/// requested it.
#[derive(Debug, Default)]
pub(crate) struct Surveys(Mutex<(Option<Survey>, Option<Instant>)>);

impl Surveys {
    fn of(&self) -> MutexGuard<'_, (Option<Survey>, Option<Instant>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last one, if there is one. More will follow for a while.
    pub(crate) fn ask(&self) -> Option<Survey> {
        let mut of = self.of();
        of.1 = Some(Instant::now());
        of.0.clone()
    }

    /// Returns true if an overview has asked for it lately.
    pub(crate) fn is_asked(&self) -> bool {
        self.of().1.is_some_and(|at| at.elapsed() < ASKED)
    }

    pub(crate) fn keep(&self, survey: Option<Survey>) {
        self.of().0 = survey;
    }
}

impl Survey {
    /// Adds some queues.
    pub(crate) fn add(&mut self, rows: &[QueueRow]) {
        for row in rows
            .iter()
            .filter(|row| row.is_paused() && row.jobs(JobStateKind::Ready) > 0)
        {
            self.paused.0 += 1;
            if self.paused.1.len() < NAMED_MAX {
                self.paused.1.push(QueueName::of(row).to_string());
            }
        }
        for row in rows.iter().filter(|row| !row.is_paused()) {
            if row.served_by() == 0 && row.jobs(JobStateKind::Ready) > 0 {
                self.unserved += 1;
                if self.names.len() < NAMED_MAX {
                    self.names.push(QueueName::of(row).to_string());
                }
            }
            let is_older =
                |at: &Timestamp| self.oldest.as_ref().is_none_or(|(oldest, _)| at < oldest);
            if let Some(at) = row.oldest_ready_at.filter(is_older) {
                self.oldest = Some((at, QueueName::of(row)));
            }
        }
    }
}
