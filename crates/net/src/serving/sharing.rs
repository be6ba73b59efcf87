//! Moves connections between a thread and its helper while they are too much for one thread.
//!
//! Two threads share work well only if each turn has many commands per connection. With one command
//! at a time the kernel does most of the work, and a second thread costs more than it brings: two
//! turns with half as many sockets each, and a wake-up for each job that crosses threads. Measured
//! in `docs/decisions/helper-threads.md`.

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
    /// The number of its connections.
    pub(super) taken: Arc<AtomicUsize>,
    pub(super) role: Role,
    /// Whether the helper has no spare time.
    pub(super) is_helper_full: Arc<AtomicBool>,
}

/// The role of the partner.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// It helps this thread.
    Helper,
    /// This thread helps it.
    Helped,
}

/// A thread's side of the sharing.
#[derive(Debug)]
pub(super) struct Sharing {
    load: Load,
    /// The number of the current load window, from 1.
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

    /// Records time spent waiting for work.
    pub(super) fn add_wait(&mut self, waited: Duration) {
        self.load.add_wait(waited);
    }

    /// Records a turn that visits the engine with the commands of these connections.
    pub(super) fn add_turn(&mut self, turn: &mut [Box<Member>]) {
        for member in turn {
            let commands = member.connection.commands();
            if commands > 0 {
                self.load.add_batch(commands);
                member.worked_in = self.window;
            }
        }
    }

    /// Chooses the connections to move to the partner, and returns whether there are any: a full
    /// thread moves every second active connection to its helper, and a lightly loaded helper
    /// returns all of them.
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

    /// Sets the result of the load windows for a test. `None`: no window ends.
    #[cfg(test)]
    pub(super) fn pretend(&mut self, kind: Option<Kind>) {
        const NEVER: Duration = Duration::from_secs(3_600);
        let now = Instant::now();
        self.load = kind.map_or_else(|| Load::new(now + NEVER), |kind| Load::after(now, kind));
    }

    /// Passes a connection, which must be deregistered, to the partner. Returns it if the partner
    /// has stopped.
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
