//! Connections move between threads.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::owner::Owner;
use super::{Thread, bounded};

/// A connection moves to a helper while it is woken: its first turn there checks everything.
/// `is_faulty`: it checks before it has moved.
pub(crate) fn a_connection_moves(is_faulty: bool) {
    let threads = [Thread::new(), Thread::new()];
    let (owner, queued) = (Arc::new(Owner::new(0)), Arc::new(AtomicUsize::new(0)));
    let sender = {
        let (threads, owner, queued) = (threads.clone(), Arc::clone(&owner), Arc::clone(&queued));
        thread::spawn(move || {
            queued.fetch_add(1, Ordering::AcqRel);
            owner.ring(|owner| threads[*owner].add(|due| due.mail += 1));
        })
    };
    // The old thread passes the connection on between two turns.
    threads[1].add(|due| due.moved += 1);
    let [_, helper] = &threads;
    let mut has_it = false;
    loop {
        helper.wait(false);
        let due = helper.take();
        let moves = due.moved > 0;
        has_it |= moves;
        if moves && !is_faulty {
            owner.move_to(1);
        }
        // The slot of a connection that is not here yet has no member.
        if !has_it {
            continue;
        }
        let _ = owner.wake_flag().attend();
        let _ = owner.wake_flag().look();
        if queued.swap(0, Ordering::AcqRel) > 0 {
            break;
        }
        if moves && is_faulty {
            owner.move_to(1);
        }
    }
    sender.join().unwrap();
}

#[test]
fn a_connection_that_moves_is_rung_at_its_old_or_new_place() {
    loom::model(|| a_connection_moves(false));
}

/// A thread passes a connection to a helper that is about to stop: either the helper has it then,
/// or the thread gets it back.
#[test]
fn a_connection_moves_to_a_helper_that_ends_or_comes_back() {
    bounded(|| {
        let helper = Thread::new();
        let main = {
            let helper = Arc::clone(&helper);
            thread::spawn(move || {
                let offered = helper.inbox.offer((), |due, ()| due.moved += 1);
                if offered.is_ok_and(|sleeps| sleeps) {
                    helper.waker.notify();
                }
                offered.is_ok()
            })
        };
        let stops = {
            let helper = Arc::clone(&helper);
            thread::spawn(move || {
                if helper.inbox.close(|due| due.stop = true) {
                    helper.waker.notify();
                }
            })
        };
        let (mut moved, mut stop) = (0, false);
        while !stop {
            helper.wait(false);
            let due = helper.take();
            (moved, stop) = (moved + due.moved, due.stop);
        }
        let was_taken = main.join().unwrap();
        stops.join().unwrap();
        assert_eq!(moved, usize::from(was_taken));
    });
}
