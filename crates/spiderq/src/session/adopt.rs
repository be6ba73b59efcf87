//! Converts an entry of another spiderq server.
//!
//! Not here: reading that server's database. The database has keys and values but not their order, so the entry becomes
//! what `Add` makes.

use bytes::Bytes;
use windlass_engine::{Clash, KeyUntil, NewJob, Protocol, QueueKind, Unique};

use super::Settings;

impl Settings {
    /// An entry as `Add` makes it, at the tail.
    ///
    /// # Errors
    ///
    /// The entry is too large for any `Add`.
    pub fn adopt(&self, key: Bytes, value: Bytes) -> Result<NewJob, String> {
        let (bytes, limit) = (
            key.len().saturating_add(value.len()),
            self.frame_bytes_max(),
        );
        if bytes > limit {
            return Err(format!(
                "key and value of {bytes} bytes, zmtp.message_bytes_max is {limit}"
            ));
        }
        Ok(self.entry(key, value))
    }

    /// An entry as `Add` makes it, at the tail.
    pub(super) fn entry(&self, key: Bytes, value: Bytes) -> NewJob {
        entry(self.queue.clone(), key, value)
    }
}

/// An entry of this queue, at the tail.
pub fn entry(queue: Bytes, key: Bytes, value: Bytes) -> NewJob {
    NewJob {
        kind: QueueKind::Cycle,
        unique: Some(Unique {
            key,
            clash: Clash::Keep,
            until: KeyUntil::End,
        }),
        ..NewJob::new(Protocol::SPIDERQ, queue, value)
    }
}

#[cfg(test)]
mod tests {
    use windlass_config::ByteSize;
    use windlass_zmtp::Zmtp;

    use super::*;
    use crate::config::Spiderq;

    #[test]
    fn an_entry_larger_than_a_message_is_refused() {
        let settings = Settings::new(Spiderq {
            zmtp: Zmtp {
                message_bytes_max: ByteSize(8),
                ..Zmtp::default()
            },
            ..Spiderq::default()
        });
        assert!(settings.adopt("cat".into(), "small".into()).is_ok());
        let unfit = settings.adopt("cat".into(), "larger".into()).unwrap_err();
        assert_eq!(
            unfit,
            "key and value of 9 bytes, zmtp.message_bytes_max is 8"
        );
    }
}
