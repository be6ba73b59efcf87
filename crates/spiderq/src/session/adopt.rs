//! An entry that another spiderq kept: what it becomes here.
//!
//! Not here: where it was kept, and reading it from there. That server's database has keys and values, and nothing of their
//! order, so an entry is as `Add` makes it.

use bytes::Bytes;
use windlass_engine::{Clash, KeyUntil, NewJob, Origin, QueueKind, Unique};

use super::Settings;

/// Why an entry cannot be had as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// No message could bring it, and no `Lend` could hand it out.
    #[error("key and value of {bytes} bytes, zmtp.message_bytes_max is {limit}")]
    TooLarge {
        /// Both together.
        bytes: usize,
        /// The largest message.
        limit: usize,
    },
}

impl Settings {
    /// An entry as `Add` makes it, at the tail.
    ///
    /// # Errors
    ///
    /// No `Add` could have brought it.
    pub fn adopt(&self, key: Bytes, value: Bytes) -> Result<NewJob, Unfit> {
        let (bytes, limit) = (key.len().saturating_add(value.len()), self.frame_bytes_max);
        if bytes > limit {
            return Err(Unfit::TooLarge { bytes, limit });
        }
        Ok(self.entry(key, value))
    }

    /// What `Add` makes, at the tail.
    pub(super) fn entry(&self, key: Bytes, value: Bytes) -> NewJob {
        NewJob {
            kind: QueueKind::Cycle,
            unique: Some(Unique { key, clash: Clash::Keep, until: KeyUntil::End }),
            ..NewJob::new(Origin::SPIDERQ, self.queue.clone(), value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_message_could_bring_is_not_taken() {
        let settings = Settings { frame_bytes_max: 8, ..Settings::new("q".into()) };
        assert!(settings.adopt("cat".into(), "small".into()).is_ok());
        let unfit = settings.adopt("cat".into(), "larger".into()).unwrap_err();
        assert_eq!(unfit.to_string(), "key and value of 9 bytes, zmtp.message_bytes_max is 8");
    }
}
