//! The engine and its journal on a store in memory, with short methods.

use bytes::Bytes;
use windlass_engine::{
    ClientCommand, ClientId, Command, Context, Engine, From, Job, JobCommand, JobId, JobRef,
    LeaseCommand, LeaseTerms, Limits, NewJob, NewSchedule, OnExpiry, Proof, Protocol, Recurrence,
    ScheduleCommand, Select, Tag, Take, TakeCommand, Timestamp, Wait,
};
use windlass_store::{
    Checkpointer, Commit, Journal, Log as _, OpenError, Recovered, StoreLimits, open_parts,
};
use windlass_testkit::store::{MemoryLog, MemoryTable};

pub(crate) const QUEUE: Bytes = Bytes::from_static(b"resize");

/// A daemon without connections, on a store in memory.
pub(crate) struct Daemon {
    pub(crate) engine: Engine,
    pub(crate) journal: Journal,
    pub(crate) log: MemoryLog,
    pub(crate) table: MemoryTable,
    pub(crate) checkpointer: Checkpointer,
}

impl Daemon {
    pub(crate) fn new() -> Self {
        Self::on(MemoryLog::new(), MemoryTable::new())
    }

    pub(crate) fn on(log: MemoryLog, table: MemoryTable) -> Self {
        let (
            checkpointer,
            Recovered {
                engine, journal, ..
            },
        ) = opened(&log, &table).unwrap();
        let mut daemon = Self {
            engine,
            journal,
            log,
            table,
            checkpointer,
        };
        daemon.apply(ClientCommand::Open(Default::default()));
        daemon
    }

    pub(crate) fn apply(&mut self, command: impl Into<Command>) {
        let mut context = Context::new(Timestamp(1_000), 1);
        self.engine
            .apply(ClientId(1), Tag(1), command, &mut context);
        self.journal.append(&self.engine, &context.changes);
    }

    /// Advances the time.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        let mut context = Context::new(now, 1);
        self.engine.tick(&mut context);
        self.journal.append(&self.engine, &context.changes);
    }

    /// Sets a schedule that runs every minute.
    pub(crate) fn schedule(&mut self, body: &[u8]) -> JobId {
        self.apply(ScheduleCommand::Set(Box::new(NewSchedule {
            key: Some(Bytes::from_static(b"minutely")),
            job: NewJob::new(Protocol::GEARMAN, QUEUE, Bytes::copy_from_slice(body)),
            recurrence: Recurrence::Every {
                interval_ms: 60_000,
            },
            at_once: false,
            keep_grid: false,
            runs: None,
        })));
        JobId(self.engine.meta().next_job - 1)
    }

    pub(crate) fn push(&mut self, body: &[u8]) -> JobId {
        self.push_job(NewJob::new(
            Protocol::GEARMAN,
            QUEUE,
            Bytes::copy_from_slice(body),
        ))
    }

    pub(crate) fn push_job(&mut self, job: NewJob) -> JobId {
        self.apply(JobCommand::Push(Box::new(job)));
        JobId(self.engine.meta().next_job - 1)
    }

    pub(crate) fn take(&mut self, connection_bound: bool) -> JobId {
        let lease = LeaseTerms {
            connection_bound,
            lease_ms: Some(1_000),
            on_expiry: OnExpiry::Requeue,
            wish: None,
        };
        let from = From::Listed {
            queues: vec![QUEUE],
            lease,
        };
        self.apply(TakeCommand::Take(Take {
            from,
            select: Select::ListOrder,
            wait: Wait::No,
            worker: Bytes::new(),
        }));
        self.engine
            .jobs()
            .find(|job| job.lease().is_some())
            .map(|job| job.id)
            .unwrap()
    }

    pub(crate) fn extend(&mut self, id: JobId, until: u64) {
        let until = Timestamp(until);
        self.apply(LeaseCommand::Extend {
            job: JobRef::Id(id),
            proof: Proof::AnyLease,
            until,
            only_later: false,
        });
    }

    pub(crate) fn finish(&mut self, id: JobId) {
        self.apply(LeaseCommand::Finish {
            job: JobRef::Id(id),
            proof: Proof::AnyLease,
            result: Bytes::new(),
        });
    }

    pub(crate) fn fail(&mut self, id: JobId) {
        let failure = Box::default();
        self.apply(LeaseCommand::Fail {
            job: JobRef::Id(id),
            proof: Proof::AnyLease,
            failure,
        });
    }

    pub(crate) fn replace(&mut self, id: JobId, body: &[u8]) {
        self.apply(JobCommand::Replace {
            job: JobRef::Id(id),
            body: Bytes::copy_from_slice(body),
        });
    }

    pub(crate) fn cancel(&mut self, id: JobId) {
        self.apply(JobCommand::Cancel(JobRef::Id(id)));
    }

    pub(crate) fn cut(&mut self) -> Commit {
        self.journal.cut(&self.engine).unwrap()
    }

    pub(crate) fn commit(&mut self) -> Commit {
        let commit = self.cut();
        self.log.append(&commit).unwrap();
        self.journal.committed(commit.seq());
        commit
    }

    pub(crate) fn commit_all(&mut self) {
        while let Some(commit) = self.journal.cut(&self.engine) {
            self.log.append(&commit).unwrap();
            self.journal.committed(commit.seq());
        }
    }

    /// Moves all commits to the table.
    pub(crate) fn checkpoint(&mut self) -> bool {
        self.checkpointer.run(true).unwrap()
    }

    pub(crate) fn job(&self, id: JobId) -> &Job {
        self.engine.job(id).unwrap()
    }

    /// Kills the daemon, and starts another with the durable state.
    pub(crate) fn again(self) -> Self {
        Self::on(self.log.cut(None), self.table.cut(|| false))
    }
}

/// Recovers from a store.
pub(crate) fn opened(
    log: &MemoryLog,
    table: &MemoryTable,
) -> Result<(Checkpointer, Recovered), OpenError> {
    open_parts(
        log,
        Box::new(table.clone()),
        &StoreLimits::default(),
        Limits::default(),
        3,
    )
}

pub(crate) fn recovered(log: &MemoryLog, table: &MemoryTable) -> Result<Recovered, OpenError> {
    opened(log, table).map(|(_, recovered)| recovered)
}
