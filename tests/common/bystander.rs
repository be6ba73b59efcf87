//! A client that is served all the while, whatever hostile peers do.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use super::wait_until;

/// Jobs that must be done before a bystander counts as served.
const MANY: u64 = 20;

/// A client in a thread of its own. Its drop fails if it was not served.
pub struct Bystander {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    fresh: Box<dyn Fn()>,
}

impl Bystander {
    /// `job` is what it does again and again, with the number of times before; `fresh` is the same on a new connection.
    /// Both panic if they are not served.
    pub fn new(mut job: impl FnMut(u64) + Send + 'static, fresh: impl Fn() + 'static) -> Self {
        let (stop, served) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&served));
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                job(count.load(Ordering::Relaxed));
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self {
            stop,
            served,
            thread: Some(thread),
            fresh: Box::new(fresh),
        }
    }

    /// Waits until it has been served many more times, and a new connection too.
    pub fn is_served(&self) {
        let goal = self.served.load(Ordering::Relaxed) + MANY;
        wait_until("a bystander is served", || {
            self.served.load(Ordering::Relaxed) >= goal || self.has_failed()
        });
        assert!(!self.has_failed(), "a bystander was hung up on");
        (self.fresh)();
    }

    fn has_failed(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl fmt::Debug for Bystander {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bystander")
            .field("served", &self.served)
            .finish_non_exhaustive()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join();
            assert!(
                outcome.is_ok() || thread::panicking(),
                "a bystander was hung up on"
            );
        }
    }
}
