//! Commits at the end of a serving thread's turn, after everything ready on the thread has visited
//! the engine.
//!
//! A change that no client waits for, such as the lease of a `FETCH`, does not justify its own
//! commit. It joins the next commit that a client waits for, or is committed alone after
//! [`GATHER`].

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::Commits;
use super::gather::Gather;
use crate::broker::CommitDuty;
use crate::mailbox::Mailbox;
use crate::waker::Waker;
use crate::waking::{Asked, NoThread};

/// How long a change that no client waits for stays in memory before it is committed alone.
const GATHER: Duration = Duration::from_millis(1);

/// Larger commits are left to the committing thread.
const BYTES_MAX: u64 = 128 << 10;

/// A serving thread's part in commits.
#[derive(Debug)]
pub struct TurnCommits {
    /// Writes commits. Until it is set, the thread does not commit.
    commits: Arc<OnceLock<Arc<Commits>>>,
    ringer: Arc<dyn Waker>,
    /// Whether the thread commits soon: at the end of the next turn, so that everything ready joins
    /// the same commit, or after a wait.
    is_due: bool,
    /// Whether the thread commits at the end of this turn.
    ends_turn: bool,
    /// Changes gather until then.
    gathers_until: Option<Instant>,
    /// The number of this thread's clients acknowledged by the commit of the last turn, if there
    /// was one.
    acknowledged: Option<usize>,
    /// Whether the acknowledgements of the last commit are sent in this turn.
    replies: bool,
    gather: Gather,
}

impl TurnCommits {
    /// The commits of a serving thread, which `ringer` wakes.
    pub fn new(commits: Arc<OnceLock<Arc<Commits>>>, ringer: Arc<dyn Waker>) -> Self {
        Self {
            commits,
            ringer,
            is_due: false,
            ends_turn: false,
            gathers_until: None,
            acknowledged: None,
            replies: false,
            gather: Gather::default(),
        }
    }

    /// Makes the thread commit soon.
    pub const fn make_due(&mut self) {
        self.is_due = true;
    }

    /// Whether the thread has a pending commit.
    pub const fn is_due(&self) -> bool {
        self.is_due
    }

    /// Adds the duty of a visit.
    pub fn add(&mut self, duty: CommitDuty) {
        match duty {
            CommitDuty::None => {}
            CommitDuty::Later => self.gathers_until = Some(Instant::now() + GATHER),
            CommitDuty::Now { acknowledgements } => {
                self.is_due = true;
                self.gather.add(acknowledgements, Instant::now);
            }
        }
    }

    /// Called when a turn begins in which this many connections have read something. If the last
    /// turn committed, the commit has delayed them.
    pub fn begin_turn(&mut self, reads: usize) {
        self.replies = self.acknowledged.is_some();
        self.ends_turn = self.is_due && self.waits_for().is_none();
        self.is_due &= !self.ends_turn;
        if let Some(acknowledged) = self.acknowledged.take()
            && let Some(commits) = self.commits.get()
        {
            commits.decide(|policy| policy.committed_in_turn(acknowledged, reads));
        }
    }

    /// The maximum time that a due commit waits for clients to send again.
    pub fn waits_for(&self) -> Option<Duration> {
        self.gather
            .waits_until()
            .filter(|_| self.is_due)?
            .checked_duration_since(Instant::now())
    }

    /// Commits, if that is due.
    pub fn end_turn(&mut self) {
        if self.replies {
            self.gather.replied(Instant::now());
        }
        if !self.ends_turn && self.gathers_until.is_none() {
            return;
        }
        let Some(commits) = self.commits.get().map(Arc::clone) else {
            return;
        };
        if self.ends_turn && !self.commit(&commits) {
            commits.hub.durable.wake_committer();
        }
        if self
            .gathers_until
            .is_some_and(|until| until <= Instant::now())
        {
            self.gathers_until = None;
            if commits.hub.is_gathering() {
                commits.hub.durable.unpark_committer();
            }
        }
    }

    /// When the thread needs another turn for its commits.
    pub fn due_in(&self) -> Option<Duration> {
        self.gathers_until
            .map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Commits on the calling thread. If another thread is writing, it will notify this one when it
    /// is done. Returns `false` if the committing thread must write the pending commit.
    fn commit(&mut self, commits: &Commits) -> bool {
        let hub = &commits.hub;
        let acknowledged = {
            let mut writer = match commits.hand_over.ask(|| Arc::clone(&self.ringer)) {
                Asked::Granted(writer) => writer,
                Asked::Queued => return true,
                Asked::Broken => return false,
            };
            let large = hub.with_journal(|_, journal| journal.uncommitted_bytes()) > BYTES_MAX;
            if large
                || writer.failed.is_some()
                || !hub.durable.commit_in_turns.get()
                || commits.stopping()
            {
                return false;
            }
            let Some(cut) = hub.cut() else {
                drop(writer);
                // Another thread may have queued meanwhile.
                return commits.pass_on();
            };
            let begun = Instant::now();
            let Some(acknowledged) = commits.append(&mut writer, cut, false) else {
                return false;
            };
            self.gather.committed(begun.elapsed());
            // The commit also contains the changes of this turn's visit.
            self.is_due = false;
            acknowledged
        };
        // Its own clients get their next turn together with all that have sent something meanwhile.
        Mailbox::ring_all(&acknowledged);
        self.acknowledged = Some(
            acknowledged
                .iter()
                .filter(|mailbox| mailbox.is_on(&self.ringer))
                .count(),
        );
        commits.pass_on()
    }
}

impl Commits {
    /// Leaves commits to serving threads.
    pub fn leave_to_turns(&self) {
        self.hub.durable.has_turns.set(true);
    }

    /// Passes the changes that gathered during a commit to a thread whose turn ended meanwhile.
    /// Returns `false` if there are changes but no such thread.
    pub(super) fn pass_on(&self) -> bool {
        match self.hand_over.pass_on(|| self.hub.is_urgent()) {
            Ok(None) => true,
            Ok(Some(next)) if self.hub.durable.commit_in_turns.get() => {
                next.wake_to_commit();
                true
            }
            Ok(Some(_)) | Err(NoThread) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use windlass_testkit::store::MemoryLog;

    use super::*;
    use crate::commit::tests as commit_tests;
    use crate::hub::{Durability, Hub};
    use crate::testing::nowhere;

    #[test]
    fn changes_are_committed_in_the_next_turn_or_gather() {
        let turn_commits = || TurnCommits::new(Arc::default(), nowhere().waker);
        let mut commits = turn_commits();
        commits.add(CommitDuty::None);
        assert_eq!((commits.is_due(), commits.due_in()), (false, None));
        let before = Instant::now();
        commits.add(CommitDuty::Later);
        assert!(commits.gathers_until.unwrap() >= before + GATHER);
        assert!(!commits.is_due());
        for make_due in [
            TurnCommits::make_due as fn(&mut TurnCommits),
            |it: &mut TurnCommits| {
                it.add(CommitDuty::Now {
                    acknowledgements: 1,
                })
            },
        ] {
            let mut commits = turn_commits();
            make_due(&mut commits);
            assert_eq!((commits.is_due(), commits.due_in()), (true, None));
            commits.begin_turn(0);
            assert_eq!((commits.is_due(), commits.ends_turn), (false, true));
            commits.begin_turn(0);
            assert!(!commits.ends_turn, "once");
        }
    }

    /// The parts of a serving thread, and its commits. No other thread commits.
    fn alone(log: &MemoryLog) -> (Arc<Hub>, Arc<Commits>, TurnCommits) {
        let hub = commit_tests::hub(Durability::Durable);
        let commits = commit_tests::commits(&hub, Box::new(log.clone()), None);
        commits.leave_to_turns();
        hub.durable.commit_in_turns.set(true);
        let turn = TurnCommits::new(Arc::new(Arc::clone(&commits).into()), nowhere().waker);
        (hub, commits, turn)
    }

    /// The events before a commit, by name, and how many commits the serving thread writes then.
    type Case<'a> = (&'a str, &'a dyn Fn(&Commits), u64);

    #[test]
    fn a_serving_thread_leaves_large_commits_and_those_of_a_slow_or_failed_store_to_the_committing_thread()
     {
        let fail = |commits: &Commits| {
            let cut = commits.hub.cut();
            commits.writer().failed = cut;
            commit_tests::push_bytes(&commits.hub, 10);
        };
        let large = |commits: &Commits| {
            commit_tests::push_bytes(&commits.hub, usize::try_from(BYTES_MAX).unwrap())
        };
        let table: [Case<'_>; 5] = [
            ("nothing else", &|_| (), 1),
            ("large", &large, 0),
            ("failed", &fail, 0),
            (
                "slow",
                &|commits| commits.hub.durable.commit_in_turns.set(false),
                0,
            ),
            ("stopping", &|commits| commits.stop.set(true), 0),
        ];
        for (name, happens, written) in table {
            let log = MemoryLog::new();
            let (hub, commits, mut turn) = alone(&log);
            let before = log.commits();
            commit_tests::push_bytes(&hub, 10);
            happens(&commits);
            assert_eq!(
                (turn.commit(&commits), log.commits() - before),
                (written > 0, written),
                "{name}"
            );
        }
    }

    #[test]
    fn a_commit_that_a_serving_thread_leaves_wakes_the_committing_thread() {
        let (hub, _commits, mut turn) = alone(&MemoryLog::new());
        commit_tests::push_bytes(&hub, 10);
        let committing = thread::spawn(thread::park);
        hub.durable.set_committer(committing.thread().clone());
        assert!(hub.durable.idle.may_park(|| false));
        hub.durable.commit_in_turns.set(false);
        turn.ends_turn = true;
        turn.end_turn();
        let end = Instant::now() + Duration::from_secs(20);
        while !committing.is_finished() {
            assert!(Instant::now() < end, "it still sleeps");
            thread::yield_now();
        }
    }

    /// A thread's turn ends while another one is writing.
    fn wait_for_the_writer(commits: &Commits) {
        let _writer = commits.writer();
        assert!(matches!(
            commits.hand_over.ask(|| nowhere().waker),
            Asked::Queued
        ));
    }

    #[test]
    fn changes_that_gathered_during_a_commit_go_to_a_thread_that_waits() {
        let (hub, commits, _) = alone(&MemoryLog::new());
        assert!(commits.pass_on(), "there is nothing to commit");
        commit_tests::push_bytes(&hub, 10);
        assert!(!commits.pass_on(), "no thread waits");
        wait_for_the_writer(&commits);
        assert!(commits.pass_on());
        assert!(!commits.pass_on(), "it waits no more");
        wait_for_the_writer(&commits);
        hub.durable.commit_in_turns.set(false);
        assert!(!commits.pass_on(), "serving threads do not commit now");
    }

    #[test]
    fn changes_gather_until_their_time_has_come() {
        let (_hub, _commits, mut turn) = alone(&MemoryLog::new());
        let later = Some(Instant::now() + Duration::from_secs(3600));
        turn.gathers_until = later;
        turn.end_turn();
        assert_eq!(turn.gathers_until, later);
        turn.gathers_until = Some(Instant::now());
        turn.end_turn();
        assert_eq!(turn.gathers_until, None);
    }

    #[test]
    fn a_commit_that_is_due_waits_for_the_clients_of_the_last_one() {
        let later = Instant::now() + Duration::from_secs(3600);
        let mut commits = TurnCommits::new(Arc::default(), nowhere().waker);
        commits.gather.add(2, || later);
        commits.gather.committed(Duration::from_secs(1));
        commits.gather.add(1, || later);
        commits.gather.replied(later);
        assert_eq!(commits.waits_for(), None, "it is not due");
        commits.make_due();
        assert!(commits.waits_for().is_some());
        commits.begin_turn(0);
        assert_eq!((commits.is_due(), commits.ends_turn), (true, false));
        commits.gather.add(3, || later);
        assert_eq!(commits.waits_for(), None, "all have come back");
        commits.begin_turn(0);
        assert!(commits.ends_turn);
    }

    #[test]
    fn a_thread_sleeps_no_longer_than_changes_gather() {
        let hour = Duration::from_secs(3600);
        let mut commits = TurnCommits::new(Arc::default(), nowhere().waker);
        commits.gathers_until = Some(Instant::now() + hour);
        assert!(
            commits
                .due_in()
                .is_some_and(|time| !time.is_zero() && time <= hour)
        );
        commits.gathers_until = Some(Instant::now());
        assert_eq!(commits.due_in(), Some(Duration::ZERO));
    }
}
