//! A connection's job waits for memory that two threads free: one whose commit is on disk, and one
//! that moves bodies out. Neither frees enough alone.

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::Thread;
use super::for_room::ForRoom;
use super::wake_flag::WakeFlag;

/// A step in the wrong order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The connection joins the list after it has released the hub's lock.
    WaitsTooLate,
}

const LIMIT: u64 = 4;
const JOB: u64 = 2;

/// The state guarded by the hub's lock: memory in use, and who waits for it.
struct Memory {
    used: u64,
    for_room: ForRoom<Arc<WakeFlag>>,
}

type Hub = Mutex<Memory>;

/// Whether the owner must wait for memory.
fn must_wait(hub: &Hub, flag: &Arc<WakeFlag>, fault: Fault) -> bool {
    let mut memory = hub.lock().unwrap();
    if memory.used + JOB <= LIMIT {
        memory.used += JOB;
        return false;
    }
    if fault == Fault::WaitsTooLate {
        drop(memory);
        memory = hub.lock().unwrap();
    }
    memory
        .for_room
        .add(JOB, flag, |other| Arc::ptr_eq(other, flag));
    true
}

fn leave_room(hub: &Hub, thread: &Thread) {
    let mut memory = hub.lock().unwrap();
    memory.used -= 1;
    let room = LIMIT - memory.used;
    let rung = memory.for_room.take(room, LIMIT);
    drop(memory);
    for flag in rung {
        if flag.ring() {
            thread.add(|due| due.mail += 1);
        }
    }
}

pub(crate) fn a_job_waits_for_room(fault: Fault) {
    let (thread, flag) = (Thread::new(), Arc::new(WakeFlag::new()));
    let hub = Arc::new(Mutex::new(Memory {
        used: LIMIT,
        for_room: ForRoom::new(),
    }));
    let others: Vec<_> = (0..2)
        .map(|_| {
            let (thread, hub) = (Arc::clone(&thread), Arc::clone(&hub));
            thread::spawn(move || leave_room(&hub, &thread))
        })
        .collect();
    while must_wait(&hub, &flag, fault) {
        while !flag.look() {
            thread.wait(false);
            let _ = thread.take();
        }
    }
    others.into_iter().for_each(|other| other.join().unwrap());
}

#[test]
fn a_job_that_waits_for_room_is_not_forgotten() {
    super::bounded(|| a_job_waits_for_room(Fault::None));
}
