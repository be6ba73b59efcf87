//! What can be asked of the history, and how that is said in SQL.

use bytes::Bytes;
use windlass_engine::{Ending, JobId};

use crate::cursor::Cursor;
use crate::file_id::HOUR_MS;
use crate::hours::{HourRow, queue_text};
use crate::shelf::{Conditions, Dialect, number};

/// Which rows. All conditions must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Ended at this time or later, in milliseconds since 1970.
    pub from_ms: u64,
    /// Ended before this time.
    pub until_ms: u64,
    /// Of queues of the namespace of this name; empty: of that without a name. `None`: of all.
    pub namespace: Option<Bytes>,
    /// Of this queue, by its name in its namespace.
    pub queue: Option<Bytes>,
    /// What they call: their kind, or their queue if they have none.
    pub kind: Option<Bytes>,
    /// Ended in one of these ways; empty: in any.
    pub endings: Vec<Ending>,
    /// With this key in the policy of their queue.
    pub key: Option<Bytes>,
    /// Their last worker has this name or this address.
    pub worker: Option<Bytes>,
    /// The producer's public name, or the unique id.
    pub name: Option<Bytes>,
    /// This job.
    pub job: Option<JobId>,
    /// A run of this schedule.
    pub schedule: Option<JobId>,
    /// Another run of this job, which had ended.
    pub again_of: Option<JobId>,
    /// A member of this batch.
    pub batch: Option<JobId>,
    /// Their last run took longer than this, in milliseconds.
    pub slower_than_ms: Option<u64>,
    /// This text is in a name, an error, or in what was kept of body, result and output, whatever the case of ASCII letters.
    pub text: Option<Box<str>>,
    /// Rows, at most.
    pub limit: usize,
    /// Where to go on: `next` of an answer.
    pub after: Option<Cursor>,
}

impl Default for Question {
    /// The newest 100 rows.
    fn default() -> Self {
        Self {
            from_ms: 0,
            until_ms: u64::MAX,
            namespace: None,
            queue: None,
            kind: None,
            endings: Vec::new(),
            key: None,
            worker: None,
            name: None,
            job: None,
            schedule: None,
            again_of: None,
            batch: None,
            slower_than_ms: None,
            text: None,
            limit: 100,
            after: None,
        }
    }
}

impl Question {
    /// Numbers are a part of the statement, and texts are values of it.
    pub(crate) fn conditions(&self, dialect: &Dialect) -> Conditions {
        let mut all = Conditions::default();
        let mut others = 0;
        let mut and = |all: &mut Conditions, sql: &str| {
            others += 1;
            all.and(sql);
        };
        if self.from_ms > 0 {
            and(&mut all, &format!("ended_at >= {}", number(self.from_ms)));
        }
        if self.until_ms < u64::MAX {
            and(&mut all, &format!("ended_at < {}", number(self.until_ms)));
        }
        match &self.namespace {
            Some(none) if none.is_empty() => and(&mut all, "namespace IS NULL"),
            Some(namespace) => {
                let mark = all.mark(namespace.clone());
                and(&mut all, &format!("namespace = {mark}"));
            }
            None => {}
        }
        if let Some(kind) = &self.kind {
            let mark = all.mark(kind.clone());
            and(&mut all, &format!("coalesce(kind, queue) = {mark}"));
        }
        if !self.endings.is_empty() {
            // They are words of our own.
            let names = self.endings.iter().map(|it| format!("'{}'", it.name()));
            let names = names.collect::<Vec<_>>().join(", ");
            and(&mut all, &format!("ending IN ({names})"));
        }
        if let Some(key) = &self.key {
            let mark = all.mark(key.clone());
            and(&mut all, &format!("key = {mark}"));
        }
        if let Some(worker) = &self.worker {
            let mark = all.mark(worker.clone());
            let either = format!("(worker = {mark} OR worker_address = {mark})");
            and(&mut all, &either);
        }
        let numbers = [
            ("schedule", self.schedule),
            ("again_of", self.again_of),
            ("batch", self.batch),
        ];
        for (column, id) in numbers {
            if let Some(JobId(id)) = id {
                and(&mut all, &format!("{column} = {}", number(id)));
            }
        }
        if let Some(ms) = self.slower_than_ms {
            and(&mut all, &format!("ended_at - started_at > {}", number(ms)));
        }
        if let Some(wanted) = &self.text {
            const PLACES: [&str; 12] = [
                "queue",
                "name",
                "unique_id",
                "kind",
                "key",
                "worker",
                "error",
                "message",
                "backtrace",
                "body",
                "result",
                "output",
            ];
            let mark = all.mark(format!("%{}%", escaped(wanted)).into());
            let like = dialect.like;
            // SQLite's LIKE finds nothing in a body that is no text unless it is taken for text.
            let places =
                PLACES.map(|place| format!("CAST({place} AS TEXT) {like} {mark} ESCAPE '!'"));
            and(&mut all, &format!("({})", places.join(" OR ")));
        }
        let by_queue = others == 0;
        if let Some(queue) = &self.queue {
            let mark = all.mark(queue.clone());
            all.and(&(dialect.equals)("queue", &mark));
        }
        if let Some(name) = &self.name {
            let mark = all.mark(name.clone());
            let of = |column| (dialect.equals)(column, &mark);
            all.and(&format!("({} OR {})", of("name"), of("unique_id")));
        }
        if let Some(JobId(job)) = self.job {
            all.and(&format!("job = {}", number(job)));
        }
        all.is_indexed = by_queue || self.name.is_some() || self.job.is_some();
        all
    }
}

/// A text for `LIKE`, in which `%` and `_` are themselves.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '%' | '_' | '!') {
            out.push('!');
        }
        out.push(c);
    }
    out
}

/// What ended over some hours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hours {
    /// From this time on, in milliseconds since 1970; the hour that it is in counts as a whole.
    pub from_ms: u64,
    /// Before this time, the same.
    pub until_ms: u64,
    /// Of queues of the namespace of this name; empty: of that without a name. `None`: of all.
    pub namespace: Option<Bytes>,
    /// Of queues of this name.
    pub queue: Option<Bytes>,
    /// Of this kind, or of queues of this name if their jobs have no other kind.
    pub kind: Option<Bytes>,
}

impl Hours {
    pub(crate) fn conditions(&self, dialect: &Dialect) -> Conditions {
        let mut all = Conditions::default();
        let from = self.from_ms / HOUR_MS * HOUR_MS;
        all.and(&format!("hour >= {}", number(from)));
        all.and(&format!("hour < {}", number(self.until_ms)));
        if let Some(namespace) = &self.namespace {
            let mark = all.mark(namespace.clone());
            all.and(&format!("namespace = {mark}"));
        }
        if let Some(queue) = &self.queue {
            let is_queue = self.is_queue(queue, &mut all, dialect);
            all.and(&is_queue);
        }
        if let Some(kind) = &self.kind {
            let is_queue = self.is_queue(kind, &mut all, dialect);
            let kind = all.mark(kind.clone());
            all.and(&format!(
                "CASE kind WHEN '' THEN ({is_queue}) ELSE kind = {kind} END"
            ));
        }
        all
    }

    /// The condition for a queue of this name.
    fn is_queue(&self, name: &Bytes, all: &mut Conditions, dialect: &Dialect) -> String {
        if let Some(namespace) = &self.namespace {
            let mark = all.mark(queue_text(namespace, name));
            return format!("queue = {mark}");
        }
        let mark = all.mark(name.clone());
        format!("({}) = {mark}", dialect.own_queue)
    }
}

/// What ended over some hours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// One for each queue and kind, and each hour if that was asked for.
    pub rows: Vec<HourRow>,
    /// All further queues and kinds, together: one for each hour, or one for all.
    pub others: Vec<HourRow>,
    /// From this time on the answer is complete, in milliseconds since 1970: later than asked if its time was used up, or
    /// if the history begins later.
    pub from_ms: u64,
}
