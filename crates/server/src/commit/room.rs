//! The room that is left for the log. Without enough of it the daemon takes no new jobs.

use std::sync::Arc;

use windlass_store::LogTail;

use crate::hub::Hub;

/// So much of the log is kept for jobs to end in, when the disk has no more: some, …
const RESERVE_BYTES: u64 = 8 << 20;
/// … and this for each job, which is taken and ended in a commit each: some 100 to 130 bytes a commit.
const RESERVE_PER_JOB: u64 = 384;
/// New jobs are refused when so much is left besides, and the table needs some too. What was taken and is not on the disk yet
/// has been taken off what is left.
const SLACK_BYTES: u64 = 16 << 20;

/// What is left for the log, and what follows from that.
#[derive(Clone)]
pub(super) struct Room {
    hub: Arc<Hub>,
    tail: Arc<dyn LogTail>,
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Room")
    }
}

impl Room {
    pub(super) fn new(hub: Arc<Hub>, tail: Arc<dyn LogTail>) -> Self {
        Self { hub, tail }
    }

    /// Refuses new jobs before the room is gone in which those that are there can end, and takes that room from the disk
    /// then. Takes them again once there is more.
    pub(super) fn look(&self) {
        let (jobs, on_its_way) =
            self.hub.with_journal(|engine, journal| (engine.job_count() as u64, journal.in_flight_bytes()));
        let needed = RESERVE_BYTES + jobs.saturating_mul(RESERVE_PER_JOB);
        let free = self.tail.free_bytes();
        let left = self.tail.room_bytes().saturating_add(free);
        let spare = left.saturating_sub(needed.saturating_add(SLACK_BYTES));
        // A large job gets a file of its own. Whether what was on its way has arrived when it was looked is not known.
        let room = spare.min(free).saturating_sub(on_its_way);
        self.hub.with_journal(|_, journal| self.hub.set_room(room.saturating_sub(journal.uncommitted_bytes())));
        if self.hub.full() {
            if spare >= SLACK_BYTES && self.tail.reserve(0).and_then(|()| self.tail.make_room()).is_ok() {
                self.hub.set_full(false);
                tracing::warn!("the disk has room again: new jobs are taken");
            } else {
                // What has become free is not for others. Without it things go on as they were.
                let _ = self.tail.reserve(needed);
            }
        } else if spare == 0 {
            let reserved = self.tail.reserve(needed).err().map(tracing::field::display);
            self.hub.set_full(true);
            tracing::error!(
                left,
                jobs,
                reserved,
                "the disk is full: no new jobs are taken, those that are there go on"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use bytes::Bytes;
    use windlass_engine::{ClientId, Command, Engine, Limits, NewJob, Origin, Tag};
    use windlass_session::Outbox;
    use windlass_store::{Entry, Error, Journal, Log as _, MemoryLog, Place};

    use super::*;
    use crate::clock;
    use crate::hub::{Cut, Promise};

    /// A log on a disk of so many bytes.
    struct SmallDisk {
        log: MemoryLog,
        bytes: u64,
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
        fn read(&self, after: u64, each: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>) -> Result<(), Error> {
            self.log.tail().read(after, each)
        }
        fn fetch(&self, place: Place, len: usize, into: &mut Vec<u8>) -> Result<(), Error> {
            self.log.tail().fetch(place, len, into)
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
            self.bytes.saturating_sub(self.disk_bytes())
        }
        fn make_room(&self) -> Result<(), Error> {
            Ok(())
        }
    }

    #[test]
    fn what_is_on_its_way_is_no_room_for_new_jobs() {
        const BODY_BYTES: u64 = 4 << 20;
        // Where nobody waits for the disk, large jobs do not wait for one another either.
        let hub = Arc::new(Hub::new(Engine::new(Limits::default(), 7), Journal::new(), Promise::Soon, 7));
        let mut log = MemoryLog::new();
        let bytes = RESERVE_BYTES + SLACK_BYTES + 11 * BODY_BYTES / 4;
        let room = Room::new(Arc::clone(&hub), Arc::new(SmallDisk { log: log.clone(), bytes }));
        let mut outbox = Outbox::default();
        outbox.command(Tag::NONE, Command::Open(Default::default()));
        let jobs = || hub.with_journal(|engine, _| engine.job_count());
        let mut push = |bytes: u64| {
            let before = jobs();
            let body = Bytes::from(vec![7; usize::try_from(bytes).unwrap()]);
            let job = NewJob::new(Origin::GEARMAN, Bytes::from_static(b"large"), body);
            outbox.command(Tag(1), Command::Push(Box::new(job)));
            hub.visit(ClientId(1), &clock::read(), &mut outbox.drain().collect());
            jobs() > before
        };
        // However often it is looked, what was taken stays taken: in the pending commit, and on its way to the disk.
        let mut look_and_push = || {
            room.look();
            push(BODY_BYTES)
        };
        let taken: Vec<bool> = (0..4).map(|_| look_and_push()).collect();
        assert_eq!(taken, [true, true, false, false]);
        while let Some(Cut { commit, .. }) = hub.cut() {
            assert!(!look_and_push(), "nor is what is on its way to the disk");
            log.append(&commit).unwrap();
            hub.committed(commit.seq());
        }
        assert!(!hub.full(), "nothing is told to be full that is not");
    }
}
