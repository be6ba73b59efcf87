//! Explores with loom the interleavings of the threads that meet at a mailbox's owner, a serving
//! thread's inbox, the lists of mailboxes that wait for a commit or for memory, and the writer of
//! commits. A lost wake-up is a deadlock here, which loom reports.
//!
//! The files are the daemon's own, with loom's atomics. Around them are the smallest parts that
//! exercise the protocol: a serving thread with one connection in turns as in `serving/turn.rs`,
//! and others that wake it or commit. Each model can also perform one step in the wrong order:
//! [`the_models_find_steps_in_the_wrong_order`].
//!
//! `serving/alarm.rs` is not covered, because one thread sets its alarm and waits for it, and the
//! kernel does the rest.
#![cfg(test)]

mod commits;
#[path = "../../src/waking/for_room.rs"]
#[allow(dead_code, reason = "a file of the library")]
mod for_room;
#[path = "../../src/waking/hand_over.rs"]
#[allow(dead_code, reason = "a file of the library")]
mod hand_over;
#[path = "../../src/waking/inbox.rs"]
#[allow(unreachable_pub, reason = "a file of the library")]
mod inbox;
mod moves;
#[path = "../../src/waking/owner.rs"]
#[allow(unreachable_pub, dead_code, reason = "a file of the library")]
mod owner;
mod room;
#[path = "../../src/waking/waiting.rs"]
#[allow(dead_code, reason = "a file of the library")]
mod waiting;
#[path = "../../src/waking/wake_flag.rs"]
#[allow(unreachable_pub, dead_code, reason = "a file of the library")]
mod wake_flag;
mod sync {
    pub(crate) use std::sync::{PoisonError, TryLockError};

    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
    pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};

    /// Stands in for `arc_swap`, with a lock. It replaces the whole value, and readers wait for
    /// nothing else.
    #[derive(Debug)]
    pub(crate) struct ArcSwap<T>(Mutex<Arc<T>>);

    impl<T> ArcSwap<T> {
        pub(crate) fn new(value: Arc<T>) -> Self {
            Self(Mutex::new(value))
        }

        pub(crate) fn load(&self) -> Arc<T> {
            Arc::clone(&self.0.lock().unwrap())
        }

        pub(crate) fn store(&self, value: Arc<T>) {
            *self.0.lock().unwrap() = value;
        }
    }
}

use std::process::Command;

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex, Notify};
use loom::thread;

use self::inbox::Inbox;
use self::waiting::{OnDisk, Waiting};
use self::wake_flag::WakeFlag;

/// Limits the interleavings of three threads, because all of them are too many.
fn bounded(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// The work queued for a thread.
#[derive(Debug, Default)]
struct Due {
    /// Slots of mailboxes that were woken.
    mail: usize,
    /// Connections that move here.
    moved: usize,
    /// Whether it may commit.
    commit: bool,
    /// Whether it must stop.
    stop: bool,
}

/// A serving thread as others see it: its inbox, and the waker of its `poll`.
struct Thread {
    inbox: Inbox<Due>,
    waker: Notify,
}

impl Thread {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inbox: Inbox::new(),
            waker: Notify::new(),
        })
    }

    fn add(&self, add: impl FnOnce(&mut Due)) {
        if self.inbox.add(add) {
            self.waker.notify();
        }
    }

    /// Waits until there is something to do.
    fn wait(&self, has_work: bool) {
        if has_work || self.inbox.is_due() {
            return;
        }
        if self.inbox.fall_asleep() {
            self.waker.wait();
        }
        self.inbox.wake_up();
    }

    fn take(&self) -> Due {
        let mut due = Due::default();
        self.inbox.take(&mut due);
        due
    }
}

/// A step in the wrong order, or left out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The former flag of the daemon, which lost a wake-up at the beginning of a turn.
    BellForgets,
    /// A connection that must wait checks the commit before it takes the hub's lock.
    LooksBeforeTheLock,
}

/// The hub: mailboxes that wait for the commit with the large job, guarded by its lock.
struct Hub {
    durable: OnDisk,
    waiting: Mutex<Waiting<Arc<WakeFlag>>>,
}

impl Hub {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            durable: OnDisk::new(0),
            waiting: Mutex::new(Waiting::default()),
        })
    }

    /// Whether the owner must wait for the commit.
    fn must_wait(&self, commit: u64, flag: &Arc<WakeFlag>, fault: Fault) -> bool {
        if fault == Fault::LooksBeforeTheLock {
            let waits = commit > self.durable.get();
            if waits {
                self.waiting.lock().unwrap().add(commit, flag);
            }
            return waits;
        }
        self.waiting
            .lock()
            .unwrap()
            .add_unless(&self.durable, commit, flag)
    }

    /// Called when the commit is on disk.
    fn committed(&self, commit: u64, thread: &Thread) {
        let due = self.waiting.lock().unwrap().publish(&self.durable, commit);
        for flag in due {
            if flag.ring() {
                thread.add(|due| due.mail += 1);
            }
        }
    }
}

/// A connection's large job waits for another's commit, and its socket becomes ready meanwhile.
fn a_large_job_waits(fault: Fault) {
    let (thread, flag, hub) = (Thread::new(), Arc::new(WakeFlag::new()), Hub::new());
    let committer = {
        let (thread, hub) = (Arc::clone(&thread), Arc::clone(&hub));
        thread::spawn(move || hub.committed(1, &thread))
    };
    let mut until_rung = false;
    // The socket is ready once more after the first turn.
    let mut ready = 2;
    loop {
        // A connection that may visit gets another turn.
        let mut in_turn = ready > 0 || !until_rung;
        thread.wait(in_turn);
        ready = usize::from(ready > 1);
        if thread.take().mail > 0 {
            (until_rung, in_turn) = (false, true);
        }
        if !in_turn {
            continue;
        }
        let was_rung = flag.attend();
        until_rung &= fault == Fault::BellForgets || !was_rung;
        if !until_rung {
            if !hub.must_wait(1, &flag, fault) {
                break;
            }
            until_rung = true;
        }
        // Slots of connections in the turn are dropped.
        let _dropped = thread.take();
        until_rung &= !flag.look();
    }
    committer.join().unwrap();
}

#[test]
fn a_large_job_is_never_forgotten() {
    loom::model(|| a_large_job_waits(Fault::None));
}

/// Mailboxes already wait for commit 2, which is not written before the large job of commit 1 has
/// continued.
#[test]
fn a_large_job_behind_a_later_commit_is_not_forgotten() {
    loom::model(|| {
        let (thread, [flag, later, latest], hub) = (
            Thread::new(),
            [(); 3].map(|()| Arc::new(WakeFlag::new())),
            Hub::new(),
        );
        assert!(
            [&later, &latest]
                .iter()
                .all(|flag| hub.must_wait(2, flag, Fault::None))
        );
        let committer = {
            let (thread, hub) = (Arc::clone(&thread), Arc::clone(&hub));
            thread::spawn(move || hub.committed(1, &thread))
        };
        while hub.must_wait(1, &flag, Fault::None) {
            while !flag.look() {
                thread.wait(false);
                let _ = thread.take();
            }
        }
        committer.join().unwrap();
        assert!(!later.look() && !latest.look());
        hub.committed(2, &thread);
        assert!(later.look() && latest.look());
    });
}

macro_rules! faulty {
    ($($name:ident: $run:expr;)*) => {$(
        #[test]
        #[ignore = "it deadlocks, and loom ends the process: another test runs it"]
        fn $name() {
            bounded(|| $run);
        }
    )*};
}

faulty! {
    faulty_bell: a_large_job_waits(Fault::BellForgets);
    faulty_look: a_large_job_waits(Fault::LooksBeforeTheLock);
    faulty_place: moves::a_connection_moves(true);
    faulty_pass_on: commits::a_commit_is_handed_over(commits::Fault::LooksBeforeItLetsGo);
    faulty_rest: commits::commits_are_left(commits::Fault::RestsUnannounced);
    faulty_room: room::a_job_waits_for_room(room::Fault::WaitsTooLate);
}

#[test]
fn the_models_find_steps_in_the_wrong_order() {
    for name in [
        "faulty_bell",
        "faulty_look",
        "faulty_place",
        "faulty_pass_on",
        "faulty_rest",
        "faulty_room",
    ] {
        let mut faulty = Command::new(std::env::current_exe().unwrap());
        let output = faulty
            .args([name, "--exact", "--ignored"])
            .output()
            .unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains("deadlock"),
            "{name}: {said}"
        );
    }
}

/// Mail arrives from two threads; the owner sleeps until it has read all of it.
#[test]
fn no_mail_is_left_unread() {
    bounded(|| {
        let (thread, flag) = (Thread::new(), Arc::new(WakeFlag::new()));
        let queued = Arc::new(AtomicUsize::new(0));
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let (thread, flag, queued) =
                    (Arc::clone(&thread), Arc::clone(&flag), Arc::clone(&queued));
                thread::spawn(move || {
                    queued.fetch_add(1, Ordering::AcqRel);
                    if flag.ring() {
                        thread.add(|due| due.mail += 1);
                    }
                })
            })
            .collect();
        let mut read = 0;
        while read < 2 {
            thread.wait(false);
            if thread.take().mail == 0 {
                continue;
            }
            let _ = flag.attend();
            let _dropped = thread.take();
            let _ = flag.look();
            read += queued.swap(0, Ordering::AcqRel);
        }
        senders
            .into_iter()
            .for_each(|sender| sender.join().unwrap());
    });
}

/// A thread learns that it may commit, and that it must stop, however it falls asleep.
#[test]
fn a_commit_that_is_handed_over_wakes_its_thread() {
    loom::model(|| {
        let (thread, is_done) = (Thread::new(), Arc::new(AtomicBool::new(false)));
        let other = {
            let (thread, is_done) = (Arc::clone(&thread), Arc::clone(&is_done));
            thread::spawn(move || {
                is_done.store(true, Ordering::Release);
                thread.add(|due| due.commit = true);
            })
        };
        loop {
            thread.wait(false);
            if thread.take().commit {
                break;
            }
        }
        assert!(
            is_done.load(Ordering::Acquire),
            "the commit before it is over"
        );
        other.join().unwrap();
    });
}
