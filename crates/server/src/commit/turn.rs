//! Commits at the end of a serving thread's turn: after all that was ready on the thread has visited the engine.
//!
//! A change that no client waits for, such as the lease of a `FETCH`, is not worth a commit of its own. It joins the next commit
//! that a client waits for, and gets one of its own after [`GATHER`].

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use tokio::sync::Notify;

use super::Commits;
use crate::ringer::Ringer;

/// How long changes wait for others to share a commit with, if no client waits for them.
const GATHER: Duration = Duration::from_millis(1);

/// Commits of more bytes are for the committing thread.
const BYTES_MAX: u64 = 128 << 10;

/// What a serving thread's turns have brought.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// The thread commits at all.
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

    /// A client waits for what was changed in this turn.
    pub(crate) fn end(&self) {
        self.ended.notify_one();
    }

    /// Something was changed in this turn, and no client waits for it.
    pub(crate) fn begin_commit(&self) {
        self.begun.notify_one();
    }

    /// A connection has read something.
    pub(crate) fn count_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }
}

impl Commits {
    /// Commits at the ends of turns: the work of two tasks on the serving thread that this ringer belongs to.
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
                // Whatever else is ready on this thread has its turn first, and comes into the same commit.
                tokio::task::yield_now().await;
                if !self.commit_here(&ringer).await {
                    self.hub.wake_committer();
                }
            }
        };
        tokio::join!(gather, commit);
    }

    /// Commits on the calling thread. If another thread is writing, this one is told when that is done. Returns `false` if the
    /// pending commit is for the committing thread.
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
            if large || writer.failed.is_some() || !writer.policy.in_turns() || self.stopping() {
                return false;
            }
            let Some(cut) = self.hub.cut() else { return true };
            let Some(acknowledged) = self.append(&mut writer, cut, false) else { return false };
            acknowledged
        };
        let is_here = |mailbox: &Arc<_>| Arc::ptr_eq(ringer, crate::mailbox::Mailbox::ringer(mailbox));
        let (ours, others): (Vec<_>, Vec<_>) = acknowledged.into_iter().partition(is_here);
        Ringer::ring_all(others);
        let passed_on = self.pass_on();
        // Whoever has sent something while this thread wrote was held up by it.
        tokio::task::yield_now().await;
        let held_up = ringer.turns().reads().wrapping_sub(reads_before);
        self.learn(ours.len(), held_up);
        ours.iter().for_each(|mailbox| mailbox.ring());
        passed_on
    }

    fn learn(&self, acknowledged: usize, held_up: usize) {
        // Another thread that writes now learns something itself.
        if let Ok(mut writer) = self.writer.try_lock() {
            writer.policy.committed_in_turn(acknowledged, held_up);
            self.hub.set_commit_in_turns(writer.policy.in_turns());
        }
    }

    /// What gathered while a commit was written is for a thread whose turn ended meanwhile. Returns `false` if there is no such
    /// thread, and something to commit.
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
    use windlass_engine::{ClientId, Command, Engine, Limits, NewJob, Origin, Tag};
    use windlass_session::{Item, Outbox};
    use windlass_store::{Commit, Error, Journal, Log, LogTail, MemoryLog};

    use super::*;
    use crate::budget::Budget;
    use crate::clock;
    use crate::commit::{Committer, Pace};
    use crate::hub::{Hub, Promise};
    use crate::mailbox::Mailbox;
    use crate::parcel::Depot;

    /// A log that knows which threads wrote to it.
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
        let job = NewJob::new(Origin::GEARMAN, Bytes::from_static(b"q"), Bytes::from_static(b"body"));
        (tag, Command::Push(Box::new(job)))
    }

    /// Runs something on a serving thread that commits, with a client of its own. Returns which threads committed.
    fn on_a_serving_thread<F: Future<Output = ()>>(run: impl FnOnce(Arc<Hub>, Arc<Mailbox>) -> F) -> Vec<String> {
        let (names, hour) = (Arc::<Mutex<Vec<String>>>::default(), Duration::from_secs(3600));
        let log = Box::new(Witness(MemoryLog::new(), Arc::clone(&names)));
        let hub = Arc::new(Hub::new(Engine::new(Limits::default(), 7), Journal::new(), Promise::Durable, 7));
        let pace = Pace { interval: None, retry: hour, timeout: hour, abort: hour };
        let committer = Committer::start(Arc::clone(&hub), log, None, pace).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let ringer = Ringer::start(runtime.handle());
        runtime.spawn(Arc::clone(committer.commits()).serve(Arc::clone(&ringer)));
        let budget = Arc::new(Budget::new(usize::MAX));
        let mailbox = Arc::new(Mailbox::new(1 << 20, Arc::new(Depot::new(1 << 20)), budget, ringer));
        hub.join(ClientId(1), Arc::clone(&mailbox));
        runtime.block_on(async {
            tokio::task::yield_now().await;
            hub.visit(ClientId(1), &clock::read(), &mut items([(Tag::NONE, Command::Open(Default::default()))]));
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
            // A log in memory is quick, unless this thread was not let in for a while.
            let mut in_turns = 0;
            while in_turns < 8 {
                in_turns += u32::from(hub.commits_in_turns());
                hub.visit(ClientId(1), &clock::read(), &mut items([push(Tag(1))]));
                let mut mail = Vec::new();
                while mail.is_empty() {
                    mailbox.rung().await;
                    hub.take_mail(&mailbox, usize::MAX, &mut mail);
                }
            }
        });
        assert!(names.contains(&here) && names.contains(&"commit".to_owned()), "{names:?}");
    }

    #[test]
    fn what_no_client_waits_for_is_committed_all_the_same() {
        on_a_serving_thread(|hub, _| async move {
            // Jobs of no use to this test: what is pushed without a tag is acknowledged to nobody.
            for _ in 0..3 {
                hub.visit(ClientId(1), &clock::read(), &mut items([push(Tag::NONE), push(Tag::NONE)]));
                let pending = hub.with_journal(|_, journal| journal.pending_seq());
                while hub.durable() < pending {
                    tokio::time::sleep(Duration::from_micros(100)).await;
                }
            }
        });
    }
}
