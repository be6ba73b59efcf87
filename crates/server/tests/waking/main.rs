//! Loom tries all orders of the threads that meet at a mailbox's bell and a serving thread's inbox. A lost wake-up is a
//! deadlock here, and loom reports it.
//!
//! The files are the daemon's own, with loom's atomics. Around them stand the smallest parts that can show the protocol:
//! a serving thread with one connection in turns as `serving/turn.rs` takes them, and others that ring it.
#![cfg(test)]

#[path = "../../src/waking/bell.rs"]
#[allow(unreachable_pub, reason = "a file of the library")]
mod bell;
#[path = "../../src/waking/inbox.rs"]
mod inbox;
mod sync {
    pub(crate) use std::sync::PoisonError;

    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

use std::process::Command;

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex, Notify};
use loom::thread;

use self::bell::Bell;
use self::inbox::Inbox;

/// What is due for a thread.
#[derive(Debug, Default)]
struct Due {
    /// Seats of mailboxes that were rung.
    mail: usize,
    /// Connections that move here.
    moved: usize,
    /// It may commit.
    commit: bool,
}

/// A serving thread as others see it: its inbox, and the waker of its `poll`.
struct Thread {
    inbox: Inbox<Due>,
    waker: Notify,
}

impl Thread {
    fn new() -> Arc<Self> {
        Arc::new(Self { inbox: Inbox::new(), waker: Notify::new() })
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

/// How a turn begins: with the daemon's bell, or with the one that forgot.
#[derive(Clone, Copy)]
enum Attend {
    Returns,
    Forgets,
}

/// The hub, as far as a large job goes: its commit is under way, and mailboxes wait for it.
#[derive(Default)]
struct Hub {
    durable: bool,
    waiting: usize,
}

/// A connection's large job waits for the commit of another one, and its socket is ready meanwhile.
fn a_large_job_waits(attend: Attend) {
    let (thread, bell) = (Thread::new(), Arc::new(Bell::new()));
    let hub = Arc::new(Mutex::new(Hub::default()));
    let committer = {
        let (thread, bell, hub) = (Arc::clone(&thread), Arc::clone(&bell), Arc::clone(&hub));
        thread::spawn(move || {
            let waiting = {
                let mut hub = hub.lock().unwrap();
                hub.durable = true;
                std::mem::take(&mut hub.waiting)
            };
            for _ in 0..waiting {
                if bell.ring() {
                    thread.add(|due| due.mail += 1);
                }
            }
        })
    };
    let mut until_rung = false;
    // The socket is ready once more after the first turn.
    let mut ready = 2;
    loop {
        // A connection that may visit has another turn.
        let mut in_turn = ready > 0 || !until_rung;
        thread.wait(in_turn);
        ready = usize::from(ready > 1);
        if thread.take().mail > 0 {
            (until_rung, in_turn) = (false, true);
        }
        if !in_turn {
            continue;
        }
        let was_rung = bell.attend();
        until_rung &= matches!(attend, Attend::Forgets) || !was_rung;
        if !until_rung {
            let mut hub = hub.lock().unwrap();
            if hub.durable {
                break;
            }
            hub.waiting += 1;
            until_rung = true;
        }
        // Seats of connections that are in the turn are dropped.
        let _dropped = thread.take();
        until_rung &= !bell.look();
    }
    committer.join().unwrap();
}

#[test]
fn a_large_job_is_never_forgotten() {
    loom::model(|| a_large_job_waits(Attend::Returns));
}

#[test]
#[ignore = "it deadlocks, and loom ends the process: the next test runs it"]
fn a_bell_that_forgets() {
    loom::model(|| a_large_job_waits(Attend::Forgets));
}

#[test]
fn the_model_finds_the_ring_that_was_lost() {
    let mut faulty = Command::new(std::env::current_exe().unwrap());
    let output = faulty.args(["a_bell_that_forgets", "--exact", "--ignored"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("deadlock"), "{said}");
}

/// Mail arrives from two threads; the owner sleeps until it has read all of it.
#[test]
fn no_mail_is_left_unread() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2); // three threads have too many orders for all of them
    model.check(|| {
        let (thread, bell) = (Thread::new(), Arc::new(Bell::new()));
        let letters = Arc::new(AtomicUsize::new(0));
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let (thread, bell, letters) = (Arc::clone(&thread), Arc::clone(&bell), Arc::clone(&letters));
                thread::spawn(move || {
                    letters.fetch_add(1, Ordering::AcqRel);
                    if bell.ring() {
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
            let _ = bell.attend();
            let _dropped = thread.take();
            let _ = bell.look();
            read += letters.swap(0, Ordering::AcqRel);
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}

/// A connection moves to a helper while it is rung: its first turn there looks at everything.
#[test]
fn a_connection_that_moves_is_rung_at_its_old_or_new_place() {
    loom::model(|| {
        let threads = [Thread::new(), Thread::new()];
        let (bell, letters) = (Arc::new(Bell::new()), Arc::new(AtomicUsize::new(0)));
        let owner = Arc::new(Mutex::new(0));
        let sender = {
            let (threads, bell) = (threads.clone(), Arc::clone(&bell));
            let (letters, owner) = (Arc::clone(&letters), Arc::clone(&owner));
            thread::spawn(move || {
                letters.fetch_add(1, Ordering::AcqRel);
                if bell.ring() {
                    let owner = *owner.lock().unwrap();
                    threads[owner].add(|due| due.mail += 1);
                }
            })
        };
        // The old thread gives the connection away between two turns.
        threads[1].add(|due| due.moved += 1);
        let [_, helper] = &threads;
        let mut has_it = false;
        loop {
            helper.wait(false);
            let due = helper.take();
            if due.moved > 0 {
                *owner.lock().unwrap() = 1;
                has_it = true;
            }
            // A seat of a connection that is not here yet finds nobody.
            if !has_it {
                continue;
            }
            let _ = bell.attend();
            let _ = bell.look();
            if letters.swap(0, Ordering::AcqRel) > 0 {
                break;
            }
        }
        sender.join().unwrap();
    });
}

/// A thread learns that it may commit, and that it must end, however it falls asleep.
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
        assert!(is_done.load(Ordering::Acquire), "the commit before it is over");
        other.join().unwrap();
    });
}
