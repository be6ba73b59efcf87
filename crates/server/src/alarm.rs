//! One timer for all deadlines of a connection.
//!
//! Setting a timer costs more than reading a message, and most deadlines move on before they pass. So a timer that is too early
//! stays as it is: when it rings, the connection checks its deadlines and sets it again.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};
use windlass_engine::Timestamp;

/// Rings at a deadline, or earlier.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    timer: Option<Pin<Box<Sleep>>>,
    /// When the timer rings, if it is set.
    at: Option<Timestamp>,
}

impl Alarm {
    /// Rings no later than at this deadline.
    pub(crate) fn set(&mut self, deadline: Option<Timestamp>, now: Timestamp) {
        let Some(deadline) = deadline else { return };
        if self.at.is_some_and(|at| at <= deadline) {
            return;
        }
        let at = Instant::now() + Duration::from_millis(deadline.ms_since(now));
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(at),
            None => self.timer = Some(Box::pin(sleep_until(at))),
        }
        self.at = Some(deadline);
    }

    /// Ready once when it rings.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.timer {
            Some(timer) if self.at.is_some() => timer.as_mut().poll(cx).map(|()| self.at = None),
            Some(_) | None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::runtime::Builder;

    use super::*;

    const NOW: Timestamp = Timestamp(1_000);

    #[test]
    fn it_rings_at_the_earliest_deadline_and_once() {
        const FAR: Option<Timestamp> = Some(NOW.after_ms(3_600_000));
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut alarm = Alarm::default();
            let is_pending = async |alarm: &mut Alarm| poll_fn(|cx| Poll::Ready(alarm.poll(cx))).await.is_pending();
            assert!(is_pending(&mut alarm).await, "it is not set");
            alarm.set(FAR, NOW);
            assert!(is_pending(&mut alarm).await);
            for deadline in [Some(NOW.after_ms(2)), FAR, None] {
                alarm.set(deadline, NOW);
            }
            poll_fn(|cx| alarm.poll(cx)).await;
            assert!(is_pending(&mut alarm).await, "it has rung");
            alarm.set(FAR, NOW);
            assert!(is_pending(&mut alarm).await);
        });
    }
}
