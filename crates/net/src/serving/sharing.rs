//! Connections that move between two threads: one serves all of them, the other helps while they are too much for it.
//!
//! Two threads share work well only if each turn has many commands of each connection. With one command at a time the
//! kernel does most of the work, and a second thread costs more than it brings: two turns with half as many sockets, and
//! a wake-up for each job that crosses from one thread to the other. Measured: `docs/decisions/helper-threads.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::arrival::Place;
use super::load::{Kind, Load};
use super::member::Member;
use super::waker::ThreadWaker;

/// The thread with which this one shares its connections.
#[derive(Debug)]
pub(super) struct Partner {
    pub(super) waker: Arc<ThreadWaker>,
    /// How many connections it has.
    pub(super) taken: Arc<AtomicUsize>,
    pub(super) role: Role,
    /// The helper of the two has no time left.
    pub(super) is_helper_full: Arc<AtomicBool>,
}

/// What the partner is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// It helps this thread.
    Helper,
    /// This thread helps it.
    Helped,
}

/// A thread's part in sharing.
#[derive(Debug)]
pub(super) struct Sharing {
    load: Load,
    /// Counts the windows of the load, from 1.
    window: u64,
    partner: Partner,
}

impl Sharing {
    pub(super) fn new(partner: Partner) -> Self {
        Self {
            load: Load::new(Instant::now()),
            window: 1,
            partner,
        }
    }

    /// The thread has waited for work.
    pub(super) fn add_wait(&mut self, waited: Duration) {
        self.load.add_wait(waited);
    }

    /// A turn visits the engine with the commands of these connections.
    pub(super) fn add_turn(&mut self, turn: &mut [Box<Member>]) {
        for member in turn {
            let commands = member.connection.commands();
            if commands > 0 {
                self.load.add_batch(commands);
                member.worked_in = self.window;
            }
        }
    }

    /// Chooses the connections that move to the partner, and returns whether there are any: a thread that is full leaves
    /// every second of those that work to its helper, and a helper whose load is light gives all of them back.
    pub(super) fn choose<'a>(
        &mut self,
        now: Instant,
        members: impl Iterator<Item = &'a mut Box<Member>>,
    ) -> bool {
        let Some(kind) = self.load.look(now) else {
            return false;
        };
        self.window += 1;
        let (mut any, mut working) = (false, 0);
        if self.partner.shares(kind) {
            for member in members {
                let has_worked = member.worked_in + 1 == self.window;
                working += usize::from(has_worked);
                member.leaves = match self.partner.role {
                    Role::Helped => true,
                    Role::Helper => has_worked && working % 2 == 0,
                };
                any |= member.leaves;
            }
        }
        any
    }

    /// The load up to now was of this kind. `None`: the window does not end.
    #[cfg(test)]
    pub(super) fn pretend(&mut self, kind: Option<Kind>) {
        const NEVER: Duration = Duration::from_secs(3_600);
        let now = Instant::now();
        self.load = kind.map_or_else(|| Load::new(now + NEVER), |kind| Load::after(now, kind));
    }

    /// Gives the partner a connection, which is at rest and registered nowhere. It comes back if the partner has ended.
    pub(super) fn give(&self, mut member: Box<Member>) -> Result<(), Box<Member>> {
        member.place = Place::take(&self.partner.taken);
        self.partner.waker.take_over(member)
    }
}

impl Partner {
    fn shares(&self, kind: Kind) -> bool {
        match self.role {
            Role::Helper => kind == Kind::Full && !self.is_helper_full.load(Ordering::Relaxed),
            Role::Helped => {
                self.is_helper_full
                    .store(kind == Kind::Full, Ordering::Relaxed);
                kind == Kind::Light
            }
        }
    }
}
