//! Free space for the log. Without enough of it the daemon accepts no new jobs.

use std::sync::Arc;

use windlass_store::LogTail;

use crate::hub::Hub;

/// Space reserved in the log so that existing jobs can end on a full disk: this much in total, …
const RESERVE_BYTES: u64 = 8 << 20;
/// … and this much per job. A job may need two commits, for its lease and its end, of 100 to 130
/// bytes each.
const RESERVE_PER_JOB: u64 = 384;
/// New jobs are refused when less than this is free in addition to the reserve, because the table
/// needs space too. Accepted jobs that are not on disk yet are already subtracted.
const SLACK_BYTES: u64 = 16 << 20;

/// Measures the free space for the log, and acts on it.
#[derive(Clone)]
pub(super) struct Room {
    hub: Arc<Hub>,
    tail: Arc<dyn LogTail>,
}

impl Room {
    pub(super) fn new(hub: Arc<Hub>, tail: Arc<dyn LogTail>) -> Self {
        Self { hub, tail }
    }

    /// Refuses new jobs while existing ones still have space to end, and then reserves that space
    /// on the disk. Accepts new jobs when there is more space.
    pub(super) fn look(&self) {
        let (jobs, on_its_way) = self
            .hub
            .with_journal(|engine, journal| (engine.job_count() as u64, journal.in_flight_bytes()));
        let needed = RESERVE_BYTES + jobs.saturating_mul(RESERVE_PER_JOB);
        let free = self.tail.free_bytes();
        let left = self.tail.room_bytes().saturating_add(free);
        let spare = left.saturating_sub(needed.saturating_add(SLACK_BYTES));
        // A large job gets its own file. The measurement may or may not include data in flight to
        // the disk.
        let room = spare.min(free).saturating_sub(on_its_way);
        self.hub.with_journal(|_, journal| {
            self.hub
                .durable
                .set_room(room.saturating_sub(journal.uncommitted_bytes()))
        });
        if self.hub.durable.full.get() {
            if spare >= SLACK_BYTES
                && self
                    .tail
                    .reserve(0)
                    .and_then(|()| self.tail.make_room())
                    .is_ok()
            {
                self.hub.durable.full.set(false);
                tracing::warn!("disk space available: accepting new jobs again");
            } else {
                // Reserves space that has become free, before other programs use it. A failure
                // changes nothing.
                let _ = self.tail.reserve(needed);
            }
        } else if spare == 0 {
            let reserved = self.tail.reserve(needed).err().map(tracing::field::display);
            self.hub.durable.full.set(true);
            tracing::error!(
                left,
                jobs,
                reserved,
                "disk full: rejecting new jobs; existing jobs continue"
            );
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::ops::ControlFlow;
    use std::sync::atomic::{AtomicU64, Ordering};

    use bytes::Bytes;
    use windlass_engine::{
        ClientCommand, ClientId, Engine, JobCommand, Limits, NewJob, Protocol, Tag,
    };
    use windlass_session::Outbox;
    use windlass_store::{Entry, Error, Journal, Log as _, Span};
    use windlass_testkit::store::MemoryLog;

    use super::*;
    use crate::clock;
    use crate::hub::{Cut, Durability};

    /// A log on a disk of this size.
    pub(in crate::commit) struct SmallDisk {
        log: MemoryLog,
        bytes: AtomicU64,
    }

    impl SmallDisk {
        pub(in crate::commit) fn new(log: MemoryLog, bytes: u64) -> Self {
            Self {
                log,
                bytes: AtomicU64::new(bytes),
            }
        }

        pub(in crate::commit) fn resize(&self, bytes: u64) {
            self.bytes.store(bytes, Ordering::Relaxed);
        }
    }

    impl LogTail for SmallDisk {
        fn newest(&self) -> u64 {
            self.log.tail().newest()
        }
        fn bytes_behind(&self, seq: u64) -> u64 {
            self.log.tail().bytes_behind(seq)
        }
        fn behind_bytes(&self, bytes: u64) -> u64 {
            self.log.tail().behind_bytes(bytes)
        }
        fn read(
            &self,
            after: u64,
            each: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
        ) -> Result<(), Error> {
            self.log.tail().read(after, each)
        }
        fn fetch(&self, spans: &[Span], into: &mut Vec<u8>) -> Result<(), Error> {
            self.log.tail().fetch(spans, into)
        }
        fn forget(&self, upto: u64) -> Result<(), Error> {
            self.log.tail().forget(upto)
        }
        fn disk_bytes(&self) -> u64 {
            self.log.tail().disk_bytes()
        }
        fn room_bytes(&self) -> u64 {
            0
        }
        fn free_bytes(&self) -> u64 {
            self.bytes
                .load(Ordering::Relaxed)
                .saturating_sub(self.disk_bytes())
        }
        fn make_room(&self) -> Result<(), Error> {
            Ok(())
        }
    }

    #[test]
    fn jobs_on_their_way_to_the_disk_take_room() {
        const BODY_BYTES: u64 = 4 << 20;
        // With this durability, large jobs do not wait for one another.
        let hub = Arc::new(Hub::new(
            Engine::new(Limits::default(), 7),
            Journal::new(),
            Durability::Soon,
            7,
        ));
        let mut log = MemoryLog::new();
        let bytes = RESERVE_BYTES + SLACK_BYTES + 11 * BODY_BYTES / 4;
        let room = Room::new(
            Arc::clone(&hub),
            Arc::new(SmallDisk::new(log.clone(), bytes)),
        );
        let mut outbox = Outbox::default();
        outbox.command(Tag::NONE, ClientCommand::Open(Default::default()));
        let jobs = || hub.with_journal(|engine, _| engine.job_count());
        let mut push = |bytes: u64| {
            let before = jobs();
            let body = Bytes::from(vec![7; usize::try_from(bytes).unwrap()]);
            let job = NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"large"), body);
            outbox.command(Tag(1), JobCommand::Push(Box::new(job)));
            hub.visit_all(ClientId(1), &clock::read(), &mut outbox.drain().collect());
            jobs() > before
        };
        // However often the space is measured, allocated space stays allocated: in the pending
        // commit, and in flight to the disk.
        let mut look_and_push = || {
            room.look();
            push(BODY_BYTES)
        };
        let taken: Vec<bool> = (0..4).map(|_| look_and_push()).collect();
        assert_eq!(taken, [true, true, false, false]);
        while let Some(Cut { commit, .. }) = hub.cut() {
            assert!(
                !look_and_push(),
                "jobs on their way to the disk take room, too"
            );
            log.append(&commit).unwrap();
            hub.committed(commit);
        }
        assert!(!hub.durable.full.get(), "the disk is not full");
    }

    #[test]
    fn each_job_has_room_reserved_for_its_end() {
        let hub = Arc::new(Hub::new(
            Engine::new(Limits::default(), 7),
            Journal::new(),
            Durability::Soon,
            7,
        ));
        let mut outbox = Outbox::default();
        outbox.command(Tag::NONE, ClientCommand::Open(Default::default()));
        for _ in 0..10 {
            let job = NewJob::new(
                Protocol::GEARMAN,
                Bytes::from_static(b"small"),
                Bytes::new(),
            );
            outbox.command(Tag(1), JobCommand::Push(Box::new(job)));
        }
        assert!(hub.visit_all(ClientId(1), &clock::read(), &mut outbox.drain().collect()));
        let log = MemoryLog::new();
        let needed = log.tail().disk_bytes() + RESERVE_BYTES + 10 * RESERVE_PER_JOB + SLACK_BYTES;
        let is_full = |bytes| {
            Room::new(
                Arc::clone(&hub),
                Arc::new(SmallDisk::new(log.clone(), bytes)),
            )
            .look();
            hub.durable.full.get()
        };
        assert_eq!([needed + 1, needed].map(is_full), [false, true]);
    }
}
