//! Lists in text: `status`, `prioritystatus`, `workers`, `show jobs`, `show unique jobs`, `show dead jobs`. Also the
//! search for one function.
//!
//! Spec: `PROTOCOL`, "Administrative Protocol"; the order of rows is not specified.
//!
//! The engine returns a list in pages, so that no list stalls other connections. A row that changes meanwhile may be
//! missing or shown twice, but no function is shown twice. The lines of a page are sent before the next page is
//! requested.

use bytes::BytesMut;
use windlass_engine::{
    ClientRow, Command, Cursor, Filter, JobStateKind, JobView, Protocol, Query, QueueRow, Schedule,
};

use super::admin::Task;
use super::client::is_live;
use super::{GearmanSpeaker, NAMELESS, Talk, dead, unique};
use crate::wire::reply;

/// gearmand has a column for jobs that were cancelled or abandoned; none of them is listed here.
const NOT_IGNORED: u64 = 0;

/// Rows per page.
const PAGE_ROWS: u32 = 200;

impl Task {
    /// Requests the page after `after`.
    fn page(&self, after: Cursor) -> Command {
        let limit = PAGE_ROWS;
        match self {
            Self::Workers { .. } => Command::Query(Query::Clients { after, limit }),
            Self::Jobs | Self::Uniques => Command::Query(Query::Jobs {
                filter: Filter::default().into(),
                after,
                limit,
            }),
            Self::Dead => Command::Query(Query::Jobs {
                filter: dead::filter().into(),
                after,
                limit,
            }),
            Self::Schedules { .. } => Command::Query(Query::Schedules {
                protocol: None,
                after,
                limit,
            }),
            Self::Status
            | Self::PriorityStatus
            | Self::Drop { .. }
            | Self::Limit { .. }
            | Self::Cancel(_)
            | Self::Requeue(_)
            | Self::Confirm => Command::Query(Query::Queues { after, limit }),
        }
    }
}

impl GearmanSpeaker {
    pub(super) fn queues(&mut self, rows: &[QueueRow], next: Option<Cursor>, talk: &mut Talk<'_>) {
        let mut rows = rows.iter();
        match self.task.take() {
            Some(task @ Task::PriorityStatus) => {
                rows.for_each(|row| priority_row(row, talk.bytes()));
                self.turn_page(task, next, talk);
            }
            Some(Task::Drop { wanted, found }) => {
                let exact = rows.clone().find(|row| row.name == wanted);
                let like = |row: &&QueueRow| row.name.eq_ignore_ascii_case(&wanted);
                let found = found.or_else(|| rows.find(like).cloned().map(Box::new));
                match (exact, next) {
                    (None, Some(next)) => self.ask_page(Task::Drop { wanted, found }, next, talk),
                    (row, _) => self.found_to_drop(row.or(found.as_deref()), talk),
                }
            }
            Some(Task::Limit { wanted, limits }) => {
                match (rows.find(|row| row.name == wanted), next) {
                    (None, Some(next)) => self.ask_page(Task::Limit { wanted, limits }, next, talk),
                    (row, _) => self.found_to_limit(row, limits, talk),
                }
            }
            Some(task) => {
                rows.for_each(|row| status_row(row, talk.bytes()));
                self.turn_page(task, next, talk);
            }
            None => {}
        }
    }

    pub(super) fn jobs(&mut self, rows: &[JobView], next: Option<Cursor>, talk: &mut Talk<'_>) {
        let Some(task) = self.task.take() else { return };
        if matches!(task, Task::Dead) {
            rows.iter().for_each(|view| self.dead_row(view, talk));
            return self.turn_page(task, next, talk);
        }
        let uniques = matches!(task, Task::Uniques);
        for view in rows.iter().filter(|view| is_live(&view.job)) {
            if uniques {
                let key = view.job.key().unwrap_or_default();
                let unique = unique::submitted(view.job.protocol, key, &view.job.meta());
                reply::row(talk.bytes(), unique, &[]);
            } else {
                self.job_row(view, talk.bytes());
            }
        }
        match next {
            Some(_) => self.turn_page(task, next, talk),
            // The schedules follow, as further pages.
            None => self.turn_page(Task::Schedules { uniques }, Some(Cursor::default()), talk),
        }
    }

    /// A schedule is shown as a background job that was never handed out.
    pub(super) fn schedules(
        &mut self,
        rows: &[Schedule],
        next: Option<Cursor>,
        talk: &mut Talk<'_>,
    ) {
        let Some(task) = self.task.take() else { return };
        for schedule in rows {
            let (job, handle) = (&schedule.job, self.handle(schedule.id));
            let key = job
                .unique
                .as_ref()
                .map(|unique| &*unique.key)
                .unwrap_or_default();
            if matches!(task, Task::Schedules { uniques: true }) {
                reply::row(
                    talk.bytes(),
                    unique::submitted(job.protocol, key, &job.meta),
                    &[],
                );
            } else {
                reply::row(talk.bytes(), &handle, &[0, NOT_IGNORED, 1]);
            }
        }
        self.turn_page(task, next, talk);
    }

    pub(super) fn clients(
        &mut self,
        rows: &[ClientRow],
        next: Option<Cursor>,
        talk: &mut Talk<'_>,
    ) {
        let Some(Task::Workers { amid_row }) = self.task.take() else {
            return;
        };
        let mut amid_row = amid_row;
        for row in rows.iter().filter(|row| concerns_gearman(row)) {
            // The last client of the previous page may be gone.
            if amid_row && !row.is_continued {
                reply::worker_row_end(talk.bytes());
            }
            if amid_row || !row.is_continued {
                client_row(row, talk.bytes());
                amid_row = row.goes_on;
            }
        }
        if amid_row && next.is_none() {
            reply::worker_row_end(talk.bytes());
        }
        self.turn_page(Task::Workers { amid_row }, next, talk);
    }

    pub(super) fn ask_page(&mut self, task: Task, after: Cursor, talk: &mut Talk<'_>) {
        let command = task.page(after);
        self.begin(task, command, talk);
    }

    /// Requests the next page, or ends the list.
    fn turn_page(&mut self, task: Task, next: Option<Cursor>, talk: &mut Talk<'_>) {
        match next {
            Some(after) => {
                self.amid_lines = true;
                self.ask_page(task, after, talk);
            }
            None => self.answer(reply::END, talk),
        }
    }

    /// A job returned as often as it was handed out. A lease that is still open does not count.
    fn job_row(&self, view: &JobView, out: &mut BytesMut) {
        let job = &view.job;
        let retries = u64::from(job.attempts).saturating_sub(u64::from(job.lease().is_some()));
        reply::row(
            out,
            &self.handle(job.id),
            &[retries, NOT_IGNORED, job.durable.into()],
        );
    }
}

fn status_row(row: &QueueRow, out: &mut BytesMut) {
    let running = row.jobs(JobStateKind::Leased);
    reply::row(
        out,
        &row.name,
        &[row.live().into(), running.into(), row.workers.into()],
    );
}

/// 7–9 are high, 4–6 normal, 1–3 low. Delayed jobs count as normal, which is their priority in Gearman.
fn priority_row(row: &QueueRow, out: &mut BytesMut) {
    let [high, normal, low] = [0, 3, 6].map(|lane| {
        row.ready
            .iter()
            .skip(lane)
            .take(3)
            .map(|n| u64::from(*n))
            .sum()
    });
    let later: u64 = [JobStateKind::Scheduled, JobStateKind::Retrying]
        .map(|state| u64::from(row.jobs(state)))
        .iter()
        .sum();
    let normal = later + normal;
    reply::row(out, &row.name, &[high, normal, low, row.workers.into()]);
}

/// Connections of other protocols are shown if they count as workers in `status`.
fn concerns_gearman(row: &ClientRow) -> bool {
    row.protocol == Some(Protocol::GEARMAN) || !row.subscriptions.is_empty()
}

/// The function registered last comes first, as in gearmand. A Gearman peer may set an empty id. Any other missing
/// value (the id of another protocol's connection, the address of a Unix socket) is shown as `-`, so that every row has
/// all its columns.
fn client_row(row: &ClientRow, out: &mut BytesMut) {
    let foreign = row.protocol != Some(Protocol::GEARMAN);
    let id = if foreign && row.label.is_empty() {
        NAMELESS
    } else {
        &row.label
    };
    let address = if row.address.is_empty() {
        "-"
    } else {
        &*row.address
    };
    if !row.is_continued {
        reply::worker_row_begin(out, row.number.into(), address, id);
    }
    reply::worker_row_functions(out, row.subscriptions.iter().rev());
    if !row.goes_on {
        reply::worker_row_end(out);
    }
}
