//! Commits at the end of a serving thread's turn: after all that was ready on the thread has visited the engine.
//!
//! A change that no client waits for, such as the lease of a `FETCH`, is not worth a commit of its own. It joins the next commit
//! that a client waits for, or gets its own after [`GATHER`].

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use tokio::sync::Notify;

use super::Commits;
use crate::mailbox::Mailbox;
use crate::ringer::Ringer;

/// How long a change that no client waits for stays in memory before it gets a commit of its own.
const GATHER: Duration = Duration::from_millis(1);

/// The committing thread writes commits of more bytes.
const BYTES_MAX: u64 = 128 << 10;

/// The events of a serving thread's turns.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Whether the thread commits at all.
    commits: AtomicBool,
    /// A client waits for the pending commit.
    ended: Notify,
    /// The pending commit has begun, and no client waits for it yet.
    begun: Notify,
    /// How often a connection of this thread has read something.
    reads: AtomicUsize,
}

impl Turns {
    /// Whether the thread commits at the ends of its turns.
    pub(crate) fn commit(&self) -> bool {
        self.commits.load(Ordering::Acquire)
    }

    /// Records that a client waits for a change of this turn.
    pub(crate) fn end(&self) {
        self.ended.notify_one();
    }

    /// Records a change of this turn that no client waits for.
    pub(crate) fn begin_commit(&self) {
        self.begun.notify_one();
    }

    /// Records that a connection has read something.
    pub(crate) fn count_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }
}

impl Commits {
    /// Commits at the ends of turns: a task on the serving thread that this ringer belongs to.
    pub(crate) async fn serve(self: Arc<Self>, ringer: Arc<Ringer>) {
        ringer.turns().commits.store(true, Ordering::Release);
        let gather = async {
            loop {
                ringer.turns().begun.notified().await;
                tokio::time::sleep(GATHER).await;
                if self.hub.is_gathering() {
                    self.hub.unpark_committer();
                }
            }
        };
        let commit = async {
            loop {
                ringer.turns().ended.notified().await;
                // All other tasks that are ready on this thread go first, and join the same commit.
                tokio::task::yield_now().await;
                if !self.commit_here(&ringer).await {
                    self.hub.wake_committer();
                }
            }
        };
        tokio::join!(gather, commit);
    }

    /// Commits on the calling thread. If another thread is writing, it will notify this one when it is done. Returns `false` if
    /// the committing thread must write the pending commit.
    async fn commit_here(&self, ringer: &Arc<Ringer>) -> bool {
        let reads_before = ringer.turns().reads();
        let acknowledged = {
            let mut writer = match self.writer.try_lock() {
                Ok(writer) => writer,
                Err(TryLockError::WouldBlock) => {
                    self.queue().push(Arc::clone(ringer));
                    return true;
                }
                Err(TryLockError::Poisoned(_)) => return false,
            };
            let large = self.hub.with_journal(|_, journal| journal.uncommitted_bytes()) > BYTES_MAX;
            if large || writer.failed.is_some() || !self.hub.commits_in_turns() || self.stopping() {
                return false;
            }
            let Some(cut) = self.hub.cut() else {
                drop(writer);
                // Another thread may have queued meanwhile.
                return self.pass_on();
            };
            let Some(acknowledged) = self.append(&mut writer, cut, false) else { return false };
            acknowledged
        };
        let is_here = |mailbox: &Arc<Mailbox>| Arc::ptr_eq(ringer, mailbox.ringer());
        let (ours, others): (Vec<_>, Vec<_>) = acknowledged.into_iter().partition(is_here);
        Ringer::ring_all(others);
        let passed_on = self.pass_on();
        // This thread's write held up every client that sent something meanwhile.
        tokio::task::yield_now().await;
        let held_up = ringer.turns().reads().wrapping_sub(reads_before);
        self.decide(|policy| policy.committed_in_turn(ours.len(), held_up));
        ours.iter().for_each(|mailbox| mailbox.ring());
        passed_on
    }

    /// Passes the changes that gathered during a commit to a thread whose turn ended meanwhile. Returns `false` if there is no
    /// such thread although there is something to commit.
    pub(super) fn pass_on(&self) -> bool {
        let waiting = std::mem::take(&mut *self.queue());
        if !self.hub.is_urgent() {
            return true;
        }
        let next = waiting.first().filter(|_| self.hub.commits_in_turns());
        next.into_iter().for_each(|ringer| ringer.turns().end());
        next.is_some()
    }

    fn queue(&self) -> MutexGuard<'_, Vec<Arc<Ringer>>> {
        // Nothing that holds this lock can panic half way through a change.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;
    use std::thread;

    use bytes::Bytes;
    use windlass_engine::{ClientCommand, ClientId, Command, Engine, JobCommand, Limits, NewJob, Protocol, Tag};
    use windlass_session::{Item, Outbox};
    use windlass_store::{Commit, Error, Journal, Log, LogTail, MemoryLog};

    use super::*;
    use crate::broker::Broker as _;
    use crate::budget::Budget;
    use crate::clock;
    use crate::commit::{Committer, Pace};
    use crate::hub::{Durability, Hub};
    use crate::published::SharedBudget;

    /// A log that records which threads wrote to it.
    struct Witness(MemoryLog, Arc<Mutex<Vec<String>>>);

    impl Log for Witness {
        fn append(&mut self, commit: &Commit) -> Result<(), Error> {
            self.1.lock().unwrap().push(thread::current().name().unwrap_or_default().to_owned());
            self.0.append(commit)
        }
        fn tail(&self) -> Arc<dyn LogTail> {
            self.0.tail()
        }
        fn reopen(&mut self) -> Result<(), Error> {
            self.0.reopen()
        }
        fn close(&mut self) -> Result<(), Error> {
            self.0.close()
        }
    }

    fn items(commands: impl IntoIterator<Item = (Tag, Command)>) -> VecDeque<Item> {
        let mut outbox = Outbox::default();
        commands.into_iter().for_each(|(tag, command)| outbox.command(tag, command));
        outbox.drain().collect()
    }

    fn push(tag: Tag) -> (Tag, Command) {
        let job = NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"q"), Bytes::from_static(b"body"));
        (tag, Command::Job(JobCommand::Push(Box::new(job))))
    }

    /// Runs a closure on a serving thread that commits, with a client of its own. Returns which threads committed.
    fn on_a_serving_thread<F: Future<Output = ()>>(run: impl FnOnce(Arc<Hub>, Arc<Mailbox>) -> F) -> Vec<String> {
        let (names, hour) = (Arc::<Mutex<Vec<String>>>::default(), Duration::from_secs(3600));
        let log = Box::new(Witness(MemoryLog::new(), Arc::clone(&names)));
        let hub = Arc::new(Hub::new(Engine::new(Limits::default(), 7), Journal::new(), Durability::Durable, 7));
        let pace = Pace { interval: None, retry: hour, timeout: hour, abort: hour };
        let committer = Committer::start(Arc::clone(&hub), log, None, pace).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let ringer = Ringer::start(runtime.handle());
        runtime.spawn(Arc::clone(committer.commits()).serve(Arc::clone(&ringer)));
        let budget = Arc::new(Budget::new(usize::MAX));
        let mailbox = Arc::new(Mailbox::new(1 << 20, Arc::new(SharedBudget::new(1 << 20)), budget, ringer));
        hub.open(ClientId(1), Arc::clone(&mailbox));
        runtime.block_on(async {
            tokio::task::yield_now().await;
            hub.visit_all(
                ClientId(1),
                &clock::read(),
                &mut items([(Tag::NONE, Command::Client(ClientCommand::Open(Default::default())))]),
            );
            run(Arc::clone(&hub), mailbox).await;
        });
        drop(runtime);
        assert!(committer.finish());
        let mut names = names.lock().unwrap();
        assert_eq!(names.pop().as_deref(), Some("commit"), "the last one");
        std::mem::take(&mut *names)
    }

    #[test]
    fn a_serving_thread_commits_what_its_clients_wait_for() {
        let here = thread::current().name().unwrap().to_owned();
        let names = on_a_serving_thread(|hub, mailbox| async move {
            // A log in memory is quick, unless the system let this thread wait for a processor.
            let mut in_turns = 0;
            while in_turns < 8 {
                in_turns += u32::from(hub.commits_in_turns());
                hub.visit_all(ClientId(1), &clock::read(), &mut items([push(Tag(1))]));
                let mut mail = Vec::new();
                while mail.is_empty() {
                    mailbox.rung().await;
                    hub.mail(&mailbox, usize::MAX, &mut mail);
                }
            }
        });
        assert!(names.contains(&here) && names.contains(&"commit".to_owned()), "{names:?}");
    }

    #[test]
    fn changes_that_no_client_waits_for_are_committed_too() {
        on_a_serving_thread(|hub, _| async move {
            // The jobs are irrelevant: a push without a tag gets no acknowledgement.
            for _ in 0..3 {
                hub.visit_all(ClientId(1), &clock::read(), &mut items([push(Tag::NONE), push(Tag::NONE)]));
                let pending = hub.with_journal(|_, journal| journal.pending_seq());
                while hub.durable() < pending {
                    tokio::time::sleep(Duration::from_micros(100)).await;
                }
            }
        });
    }
}
