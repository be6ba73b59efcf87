//! How long a peer may take to finish a message that it has begun.
//!
//! The time grows with the received bytes, so that slow messages succeed and stalled ones fail.
//! Bytes that do not finish a message, and control messages between its parts, gain nothing else.
//! Time in which nothing was read from the peer does not count.

use windlass_engine::Timestamp;

/// The timeout of a message.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// In milliseconds; 0 = no timeout.
    pub timeout_ms: u64,
    /// This many bytes add one second; 0 = bytes add nothing.
    pub bytes_per_s: u64,
}

/// The peer's incomplete message, if any.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    since: Option<Timestamp>,
    /// Complete messages received when it began.
    messages: u64,
    /// Bytes received since.
    bytes: u64,
    /// When reading was paused.
    paused_at: Option<Timestamp>,
}

impl Pending {
    /// Records more bytes.
    pub(crate) const fn came(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Updates the state: whether the peer is inside a message, and how many it has finished.
    pub(crate) fn look(&mut self, amid: bool, messages: u64, now: Timestamp) {
        if !amid {
            (self.since, self.bytes) = (None, 0);
        } else if self.since.is_none() || messages != self.messages {
            (self.since, self.bytes) = (Some(now), 0);
        }
        self.messages = messages;
    }

    /// Reading pauses.
    pub(crate) fn pause(&mut self, now: Timestamp) {
        self.paused_at.get_or_insert(now);
    }

    /// Reading resumes.
    pub(crate) fn resume(&mut self, now: Timestamp) {
        if let (Some(paused), Some(since)) = (self.paused_at.take(), &mut self.since) {
            *since = since.after_ms(now.ms_since(paused));
        }
    }

    /// When the message must be complete.
    pub(crate) fn deadline(&self, patience: Patience) -> Option<Timestamp> {
        let since = self.since.filter(|_| patience.timeout_ms > 0)?;
        let more_ms = self
            .bytes
            .saturating_mul(1000)
            .checked_div(patience.bytes_per_s)
            .unwrap_or_default();
        Some(since.after_ms(patience.timeout_ms.saturating_add(more_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        timeout_ms: 30_000,
        bytes_per_s: 1000,
    };

    fn deadline_s(pending: &Pending) -> Option<u64> {
        pending.deadline(PATIENCE).map(|at| at.0 / 1000)
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * 1000)
    }

    #[test]
    fn the_time_grows_with_the_bytes_that_arrive() {
        let mut pending = Pending::default();
        pending.came(10);
        pending.look(true, 0, at(100));
        assert_eq!(deadline_s(&pending), Some(130));
        for second in 101..110 {
            pending.came(100);
            pending.look(true, 0, at(second));
        }
        assert_eq!(
            deadline_s(&pending),
            Some(130),
            "900 bytes are less than a second"
        );
        pending.came(60_000);
        assert_eq!(deadline_s(&pending), Some(190));
        pending.look(false, 1, at(120));
        assert_eq!(deadline_s(&pending), None);
    }

    #[test]
    fn each_message_has_its_own_time() {
        let mut pending = Pending::default();
        pending.look(true, 0, at(100));
        pending.came(5000);
        pending.look(true, 1, at(110));
        assert_eq!(
            deadline_s(&pending),
            Some(140),
            "the end of one and the beginning of another came together"
        );
        pending.look(true, 1, at(120));
        assert_eq!(deadline_s(&pending), Some(140));
    }

    #[test]
    fn time_without_reading_does_not_count() {
        let mut pending = Pending::default();
        pending.look(true, 0, at(100));
        pending.pause(at(110));
        pending.pause(at(150));
        pending.resume(at(210));
        pending.resume(at(220));
        assert_eq!(deadline_s(&pending), Some(230));
    }

    #[test]
    fn it_can_be_turned_off() {
        let mut pending = Pending::default();
        pending.look(true, 0, at(100));
        pending.came(1_000_000);
        assert_eq!(
            pending.deadline(Patience {
                timeout_ms: 0,
                ..PATIENCE
            }),
            None
        );
        assert_eq!(
            pending.deadline(Patience {
                bytes_per_s: 0,
                ..PATIENCE
            }),
            Some(at(130))
        );
    }
}
