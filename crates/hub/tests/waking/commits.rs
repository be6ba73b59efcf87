//! Serving threads and the committing thread pass commits on.

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex, Notify};
use loom::thread;

use super::bounded;
use super::hand_over::{Asked, HandOver, Idle};

/// A step in the wrong order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// A thread that has written checks for changes before others can write.
    LooksBeforeItLetsGo,
    /// The committing thread checks for changes before it announces that it parks.
    RestsUnannounced,
}

/// The clients' changes, one per serving thread.
const CHANGES: usize = 2;

struct Commits {
    fault: Fault,
    /// Changes that are not in a commit, guarded by the hub's lock.
    pending: Mutex<usize>,
    /// Changes on disk.
    durable: AtomicUsize,
    hand_over: HandOver<(), usize>,
    idle: Idle,
    committing: Notify,
    serving: [Serving; 2],
}

/// A sleeping serving thread. Other models cover its inbox.
struct Serving {
    may_commit: AtomicBool,
    waker: Notify,
}

impl Serving {
    fn new() -> Self {
        Self {
            may_commit: AtomicBool::new(false),
            waker: Notify::new(),
        }
    }
}

impl Commits {
    fn is_urgent(&self) -> bool {
        *self.pending.lock().unwrap() > 0
    }

    fn is_done(&self) -> bool {
        self.durable.load(Ordering::Acquire) == CHANGES
    }

    /// Cuts the pending commit, and writes it. Returns whether there was one.
    fn write(&self) -> bool {
        let cut = std::mem::take(&mut *self.pending.lock().unwrap());
        self.durable.fetch_add(cut, Ordering::AcqRel);
        cut > 0
    }

    /// Wakes all clients whose changes are durable.
    fn ring(&self) {
        if self.is_done() {
            self.serving.iter().for_each(|thread| thread.waker.notify());
            self.committing.notify();
        }
    }

    /// As `Commits::pass_on` in `commit/turn.rs`.
    fn pass_on(&self, is_urgent: impl FnOnce() -> bool) -> bool {
        match self.hand_over.pass_on(is_urgent) {
            Ok(next) => {
                if let Some(next) = next.map(|next| &self.serving[next]) {
                    next.may_commit.swap(true, Ordering::AcqRel);
                    next.waker.notify();
                }
                true
            }
            Err(_) => false,
        }
    }

    /// As `TurnCommits::commit` and `end_turn` there.
    fn end_turn(&self, name: usize) {
        let is_passed_on = match self.hand_over.ask(|| name) {
            Asked::Queued => true,
            Asked::Broken => unreachable!("no thread panics"),
            Asked::Granted(writer) => {
                let any = self.write();
                let early = (self.fault == Fault::LooksBeforeItLetsGo).then(|| self.is_urgent());
                // Loom runs no other thread at the release of a lock, but it does here.
                self.durable.load(Ordering::Acquire);
                drop(writer);
                if any {
                    self.ring();
                }
                self.pass_on(|| early.unwrap_or_else(|| self.is_urgent()))
            }
        };
        if !is_passed_on {
            self.wake_committing();
        }
    }

    /// As `Hub::wake_committer`.
    fn wake_committing(&self) {
        if self.idle.must_wake() {
            self.committing.notify();
        }
    }

    /// A serving thread whose client changes something, and waits for the disk. The thread lives as
    /// long as the daemon.
    fn serve(&self, name: usize) {
        *self.pending.lock().unwrap() += 1;
        self.end_turn(name);
        while !self.is_done() {
            let thread = &self.serving[name];
            thread.waker.wait();
            if thread.may_commit.swap(false, Ordering::AcqRel) {
                self.end_turn(name);
            }
        }
    }

    /// The committing thread parks, as `rest` in `commit/mod.rs`.
    fn rest(&self) {
        let early = (self.fault == Fault::RestsUnannounced).then(|| self.is_urgent());
        let has_work = || early.unwrap_or_else(|| self.is_urgent());
        if self.idle.may_park(has_work) && !self.is_done() {
            self.committing.wait();
        }
    }

    /// The committing thread: `run` there.
    fn run(&self) {
        while !self.is_done() {
            self.rest();
            loop {
                let writer = self.hand_over.lock();
                let any = self.write();
                drop(writer);
                if any {
                    self.ring();
                }
                if self.pass_on(|| self.is_urgent()) || !any {
                    break;
                }
            }
        }
    }
}

fn commits(fault: Fault) -> Arc<Commits> {
    Arc::new(Commits {
        fault,
        pending: Mutex::new(0),
        durable: AtomicUsize::new(0),
        hand_over: HandOver::new(()),
        idle: Idle::new(),
        committing: Notify::new(),
        serving: [Serving::new(), Serving::new()],
    })
}

/// Two serving threads commit, and the committing thread does what they leave.
pub(crate) fn a_commit_is_handed_over(fault: Fault) {
    let commits = commits(fault);
    let run = |run: fn(&Commits)| {
        let commits = Arc::clone(&commits);
        thread::spawn(move || run(&commits))
    };
    let threads = [run(|commits| commits.serve(1)), run(Commits::run)];
    commits.serve(0);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

/// Holds for any writing thread and any time of arrival.
#[test]
fn every_change_is_committed() {
    bounded(|| a_commit_is_handed_over(Fault::None));
}

/// A serving thread leaves its commits to the committing thread, because they are large or the disk
/// is slow.
pub(crate) fn commits_are_left(fault: Fault) {
    let commits = commits(fault);
    let committing = {
        let commits = Arc::clone(&commits);
        thread::spawn(move || {
            while !commits.is_done() {
                commits.rest();
                while commits.write() {}
            }
        })
    };
    for _ in 0..CHANGES {
        *commits.pending.lock().unwrap() += 1;
        commits.wake_committing();
    }
    committing.join().unwrap();
}

#[test]
fn the_committing_thread_misses_nothing_while_it_falls_asleep() {
    loom::model(|| commits_are_left(Fault::None));
}
