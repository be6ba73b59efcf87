//! Detects unresponsive threads. The main thread sends each serving thread a probe once a second,
//! and wakes it if it sleeps. The thread responds at the start of its next turn, so one stuck
//! thread is found although others respond.
//!
//! A thread that waits for the disk is not stuck: commits are supervised separately, and their
//! timeout stops the daemon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::waker::ThreadWaker;

/// Unanswered probes, one per second, after which a thread counts as stuck. On a busy machine a
/// thread may wait for seconds.
const UNANSWERED_MAX: u32 = 30;

/// The same for the main thread, which sends the probes.
const SILENCE_MAX: Duration = Duration::from_secs(UNANSWERED_MAX as u64);

/// A serving thread's responses.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Probes since the first unanswered one.
    unanswered: AtomicU32,
    is_at_disk: AtomicBool,
}

impl Answers {
    /// Counts a probe. Returns whether to send it, which is not needed while an earlier one is
    /// unanswered.
    pub(super) fn ask(&self, waits_for_store: bool) -> bool {
        let asked = self.unanswered.load(Ordering::Acquire);
        if asked > 0 && (waits_for_store || self.is_at_disk.load(Ordering::Acquire)) {
            return false;
        }
        // A response that arrives in between counts.
        let is_counted = self.unanswered.compare_exchange(
            asked,
            asked.saturating_add(1),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        asked == 0 && is_counted.is_ok()
    }

    /// Called by the thread at the start of a turn.
    pub(super) fn answer(&self) {
        self.unanswered.store(0, Ordering::Release);
    }

    /// Records whether the thread may be waiting for the disk.
    pub(super) fn at_disk(&self, is_at_disk: bool) {
        self.is_at_disk.store(is_at_disk, Ordering::Release);
    }

    fn is_stuck(&self) -> bool {
        self.unanswered.load(Ordering::Acquire) > UNANSWERED_MAX
    }
}

/// Probes the serving threads, and knows which do not respond.
#[derive(Debug)]
pub struct Pulse {
    threads: Vec<Arc<ThreadWaker>>,
    begun: Instant,
    /// When the main thread has last sent probes, in milliseconds since `begun`.
    asked_ms: AtomicU64,
    /// Whether the daemon is stopping and no more probes are sent.
    has_ended: AtomicBool,
}

impl Pulse {
    pub(super) fn new(threads: Vec<Arc<ThreadWaker>>) -> Self {
        let (asked_ms, has_ended) = (AtomicU64::new(0), AtomicBool::new(false));
        Self {
            threads,
            begun: Instant::now(),
            asked_ms,
            has_ended,
        }
    }

    /// Probes all threads. The main thread calls this once a second. If the store fails, threads
    /// may wait for it.
    pub fn ask(&self, waits_for_store: bool) {
        let ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.asked_ms.store(ms, Ordering::Release);
        self.threads
            .iter()
            .for_each(|thread| thread.ask(waits_for_store));
    }

    /// Stops probing. Nothing counts as stuck then, because a stop has its own timeout.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    /// Describes an unresponsive thread.
    pub fn stuck(&self) -> Option<String> {
        if self.has_ended.load(Ordering::Acquire) {
            return None;
        }
        let asked = Duration::from_millis(self.asked_ms.load(Ordering::Acquire));
        if self.begun.elapsed().saturating_sub(asked) > SILENCE_MAX {
            return Some(format!(
                "the main thread has been unresponsive for {UNANSWERED_MAX} s"
            ));
        }
        let number = self
            .threads
            .iter()
            .position(|thread| thread.answers().is_stuck())?;
        Some(format!(
            "serving thread {number} has been unresponsive for {UNANSWERED_MAX} s"
        ))
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::{Engine, Limits};
    use windlass_hub::{Durability, Hub};
    use windlass_store::Journal;

    use super::*;
    use crate::connection::tests::shared;
    use crate::serving::tests::ByHand;

    #[test]
    fn a_thread_is_stuck_until_it_has_a_turn() {
        let hub = Arc::new(Hub::new(
            Engine::new(Limits::default(), 7),
            Journal::new(),
            Durability::Soon,
            7,
        ));
        let mut thread = ByHand::new(shared(&hub));
        let pulse = thread.pulse();
        (0..UNANSWERED_MAX).for_each(|_| pulse.ask(false));
        assert_eq!(pulse.stuck(), None);
        pulse.ask(false);
        assert_eq!(
            pulse.stuck().unwrap(),
            "serving thread 0 has been unresponsive for 30 s"
        );
        thread.turns(1);
        assert_eq!(pulse.stuck(), None);
        (0..=UNANSWERED_MAX).for_each(|_| pulse.ask(false));
        assert!(pulse.stuck().is_some());
        pulse.end();
        assert_eq!(pulse.stuck(), None, "it stops");
    }

    #[test]
    fn a_thread_that_does_not_answer_is_stuck_unless_it_waits_for_the_disk() {
        let answers = Answers::default();
        let ask = |times: u32, waits_for_store: bool| {
            (0..times).filter(|_| answers.ask(waits_for_store)).count()
        };
        assert_eq!(ask(UNANSWERED_MAX, false), 1, "it is asked once");
        assert!(!answers.is_stuck());
        assert_eq!(ask(1, false), 0);
        assert!(answers.is_stuck());
        answers.answer();
        assert!(!answers.is_stuck());
        assert_eq!(ask(2, false), 1);
        answers.at_disk(true);
        assert_eq!(ask(10 * UNANSWERED_MAX, false), 0);
        answers.at_disk(false);
        assert_eq!(ask(10 * UNANSWERED_MAX, true), 0);
        assert!(!answers.is_stuck());
        ask(UNANSWERED_MAX, false);
        assert!(answers.is_stuck());
    }
}
