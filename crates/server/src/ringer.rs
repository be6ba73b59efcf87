//! Rings mailboxes in bulk: one wake-up for each serving thread instead of one for each mailbox.
//!
//! Waking a task from another thread costs a system call, a write to the eventfd its runtime polls; waking it from its own thread
//! costs none. So the thread that commits passes each serving thread its due mailboxes, and a task on that thread rings them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::commit::Turns;
use crate::mailbox::Mailbox;

/// Rings the mailboxes of one thread. The default one belongs to no thread and rings at once, on whichever thread calls it.
#[derive(Debug, Default)]
pub(crate) struct Ringer {
    /// Mailboxes for the task to ring; `None` if there is no task.
    due: Mutex<Option<Vec<Arc<Mailbox>>>>,
    /// Notified when `due` is not empty.
    wake: Notify,
    turns: Turns,
}

impl Ringer {
    /// Starts the task of a ringer on the thread of this runtime.
    pub(crate) fn start(runtime: &Handle) -> Arc<Self> {
        let ringer = Arc::new(Self { due: Mutex::new(Some(Vec::new())), ..Self::default() });
        let shift = Shift(Arc::clone(&ringer));
        runtime.spawn(async move { shift.ring().await });
        ringer
    }

    /// Rings mailboxes of any number of threads, and wakes each of those threads once.
    pub(crate) fn ring_all(mailboxes: impl IntoIterator<Item = Arc<Mailbox>>) {
        let mut groups: Vec<(Arc<Self>, Vec<Arc<Mailbox>>)> = Vec::new();
        for mailbox in mailboxes {
            // There are as many ringers as threads: few.
            match groups.iter_mut().find(|(ringer, _)| Arc::ptr_eq(ringer, mailbox.ringer())) {
                Some((_, group)) => group.push(mailbox),
                None => groups.push((Arc::clone(mailbox.ringer()), vec![mailbox])),
            }
        }
        groups.into_iter().for_each(|(ringer, group)| ringer.hand_over(group));
    }

    /// This thread's turns.
    pub(crate) const fn turns(&self) -> &Turns {
        &self.turns
    }

    fn hand_over(&self, mut group: Vec<Arc<Mailbox>>) {
        match &mut *self.lock() {
            Some(due) => due.append(&mut group),
            None => return group.iter().for_each(|mailbox| mailbox.ring()),
        }
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Arc<Mailbox>>>> {
        // Nothing that holds this lock can panic half way through a change.
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The running task.
struct Shift(Arc<Ringer>);

impl Shift {
    async fn ring(&self) {
        let mut ringing = Vec::new();
        loop {
            self.0.wake.notified().await;
            if let Some(due) = &mut *self.0.lock() {
                std::mem::swap(due, &mut ringing);
            }
            ringing.drain(..).for_each(|mailbox| mailbox.ring());
        }
    }
}

impl Drop for Shift {
    /// The runtime ends: rings the rest. Later mailboxes are rung at once.
    fn drop(&mut self) {
        let left = self.0.lock().take();
        left.into_iter().flatten().for_each(|mailbox| mailbox.ring());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use tokio::runtime::Builder;

    use super::*;
    use crate::budget::Budget;
    use crate::published::SharedBudget;

    fn mailboxes(ringer: &Arc<Ringer>, count: usize) -> Vec<Arc<Mailbox>> {
        let (shared_budget, budget) = (Arc::new(SharedBudget::new(0)), Arc::new(Budget::new(0)));
        (0..count)
            .map(|_| Arc::new(Mailbox::new(0, Arc::clone(&shared_budget), Arc::clone(&budget), Arc::clone(ringer))))
            .collect()
    }

    async fn all_rung(mailboxes: &[Arc<Mailbox>]) {
        for mailbox in mailboxes {
            mailbox.rung().await;
        }
    }

    #[test]
    fn each_thread_rings_its_own_mailboxes() {
        let (ringers, told) = mpsc::channel();
        let (rung, heard) = mpsc::channel();
        let threads: Vec<_> = (0..2)
            .map(|number| {
                let (ringers, rung) = (ringers.clone(), rung.clone());
                thread::spawn(move || {
                    let runtime = Builder::new_current_thread().build().unwrap();
                    let mailboxes = mailboxes(&Ringer::start(runtime.handle()), 3);
                    ringers.send((number, mailboxes.clone())).unwrap();
                    runtime.block_on(all_rung(&mailboxes));
                    rung.send(number).unwrap();
                })
            })
            .collect();
        let mut all: Vec<_> = told.iter().take(2).flat_map(|(_, mailboxes)| mailboxes).collect();
        // In any order.
        all.swap(1, 4);
        Ringer::ring_all(all);
        let mut numbers: Vec<i32> = heard.iter().take(2).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1]);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn due_mailboxes_wait_for_the_thread() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let ringer = Ringer::start(runtime.handle());
        let mailboxes = mailboxes(&ringer, 5);
        Ringer::ring_all(mailboxes[..2].iter().cloned());
        Ringer::ring_all(mailboxes[2..].iter().cloned());
        assert_eq!(ringer.lock().as_ref().map(Vec::len), Some(5));
        runtime.block_on(all_rung(&mailboxes));
        assert_eq!(ringer.lock().as_ref().map(Vec::len), Some(0));
    }

    #[test]
    fn nothing_is_lost_when_the_runtime_ends() {
        // Before the task has run even once, and after.
        for has_run in [false, true] {
            let runtime = Builder::new_current_thread().build().unwrap();
            let ringer = Ringer::start(runtime.handle());
            if has_run {
                runtime.block_on(tokio::task::yield_now());
            }
            let (before, after) = (mailboxes(&ringer, 2), mailboxes(&ringer, 2));
            Ringer::ring_all(before.clone());
            drop(runtime);
            Ringer::ring_all(after.clone());
            let elsewhere = Builder::new_current_thread().build().unwrap();
            elsewhere.block_on(async { (all_rung(&before).await, all_rung(&after).await) });
            assert!(ringer.lock().is_none());
        }
    }

    #[test]
    fn without_a_thread_it_rings_at_once() {
        let mailboxes = mailboxes(&Arc::default(), 2);
        Ringer::ring_all(mailboxes.clone());
        Builder::new_current_thread().build().unwrap().block_on(all_rung(&mailboxes));
    }
}
