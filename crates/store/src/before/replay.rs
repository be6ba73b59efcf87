//! Assembles commits from values in order of their keys. Anything but a torn last commit is an error.

use super::frame::{Frame, FrameError, open};
use crate::record::COUNT_MAX;
use crate::sled_file::Gap;

/// Why a journal of version 0.1.0 is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// A commit that was on the disk is damaged.
    #[error("the journal is damaged at sequence {key}, after commit {after}, and more was written later: {why}")]
    Damaged {
        /// The key of the first damaged value.
        key: u64,
        /// The last whole commit before it.
        after: u64,
        /// Its damage.
        why: FrameError,
    },
    /// Commits are missing without a trace.
    #[error("the journal has lost commits: found {found} of {expected}, or unexpected ones")]
    Lost {
        /// Number of commits according to the last one.
        expected: u64,
        /// Number of commits found.
        found: u64,
    },
    /// Part of sled's tree cannot be read.
    #[error("the journal is damaged: {0}")]
    Gap(Gap),
}

/// The remains of the last commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Torn {
    /// Its number, if it can still be read.
    pub(super) seq: Option<u64>,
    /// The keys of its existing values, and of the values that it had begun to remove.
    pub(super) keys: Vec<u64>,
}

/// A complete commit.
#[derive(Debug)]
pub(crate) struct Whole<'a> {
    pub(crate) seq: u64,
    pub(crate) first_key: u64,
    pub(crate) records: &'a [u8],
}

/// Assembles commits from their parts.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    open: Option<Open>,
    torn: Option<Torn>,
    /// Commits without their first parts, and the keys of the others: an interrupted commit may have been removing
    /// them, first parts first.
    remains: Vec<(u64, Vec<u64>)>,
    remain_seq: u64,
    last_seq: u64,
    records: Vec<u8>,
}

/// A commit whose first parts have been read.
#[derive(Clone, Copy, Debug)]
struct Open {
    seq: u64,
    first_key: u64,
    parts: u32,
    next_part: u32,
}

impl Assembler {
    /// Takes the next value, and shows the commit that it completes.
    pub(crate) fn push(
        &mut self,
        key: u64,
        value: &[u8],
        show: impl FnOnce(&Whole<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        if key >= COUNT_MAX {
            return Err(self.damaged(key, FrameError::Nonsense));
        }
        let frame = match open(key, value) {
            Ok(frame) => frame,
            Err(FrameError::Torn) => {
                self.tear(Some(key), None);
                return Ok(());
            }
            Err(why @ (FrameError::Nonsense | FrameError::Record(_) | FrameError::Version(_))) => {
                return Err(self.damaged(key, why));
            }
        };
        if self.torn.is_some() {
            return self.push_behind_tear(key, &frame);
        }
        let whole = match self.open {
            Some(open) if open.continues(key, &frame) => open,
            Some(open) => {
                // A part is missing. The remaining parts may be the journal's last values.
                self.tear(None, Some(open.seq));
                return self.push_behind_tear(key, &frame);
            }
            None if frame.part > 0 && frame.seq > self.last_seq => {
                self.remain(key, frame.seq);
                return Ok(());
            }
            None if frame.seq <= self.last_seq => return Err(self.damaged(key, FrameError::Nonsense)),
            None => Open { seq: frame.seq, first_key: key, parts: frame.parts, next_part: 0 },
        };
        self.extend(whole, &frame, show)
    }

    fn extend(
        &mut self,
        open: Open,
        frame: &Frame<'_>,
        show: impl FnOnce(&Whole<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let Open { seq, first_key, parts, next_part } = open;
        if next_part + 1 < parts {
            self.records.extend_from_slice(frame.slice);
            self.open = Some(Open { next_part: next_part + 1, ..open });
            return Ok(());
        }
        (self.open, self.last_seq) = (None, seq);
        if parts == 1 {
            return show(&Whole { seq, first_key, records: frame.slice });
        }
        self.records.extend_from_slice(frame.slice);
        let shown = show(&Whole { seq, first_key, records: &self.records });
        self.records.clear();
        shown
    }

    /// Ends the input. A torn commit is now the last one, which was never acknowledged.
    pub(crate) fn finish(mut self) -> Result<Option<Torn>, Refusal> {
        if let Some(open) = self.open {
            self.tear(None, Some(open.seq));
        }
        let mut remains = std::mem::take(&mut self.remains).into_iter();
        let mut torn = match (self.torn.take(), remains.len()) {
            (None, 0) => return Ok(None),
            (Some(torn), _) => torn,
            // The last commit itself, without its first parts.
            (None, 1) if self.remain_seq > self.last_seq => Torn { seq: Some(self.remain_seq), keys: Vec::new() },
            (None, _) => {
                let key = remains.next().and_then(|(_, keys)| keys.first().copied()).unwrap_or_default();
                return Err(self.damaged(key, FrameError::Torn));
            }
        };
        torn.keys.extend(remains.flat_map(|(_, keys)| keys));
        Ok(Some(torn))
    }

    fn remain(&mut self, key: u64, seq: u64) {
        self.remain_seq = seq;
        match self.remains.last_mut() {
            Some((last, keys)) if *last == seq => keys.push(key),
            Some(_) | None => self.remains.push((seq, vec![key])),
        }
    }

    pub(crate) const fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Marks a commit as torn: the value of `key` is damaged, or a part is missing.
    fn tear(&mut self, key: Option<u64>, seq: Option<u64>) {
        self.records.clear();
        let mut keys = Vec::new();
        let mut torn_seq = seq;
        if let Some(open) = self.open.take() {
            keys.extend(open.first_key..open.first_key + u64::from(open.next_part));
            torn_seq = Some(open.seq);
        }
        keys.extend(key);
        match &mut self.torn {
            Some(torn) => torn.keys.append(&mut keys),
            None => self.torn = Some(Torn { seq: torn_seq, keys }),
        }
    }

    /// An intact value after a tear: another part of the torn commit, or proof that the tear is not the end.
    fn push_behind_tear(&mut self, key: u64, frame: &Frame<'_>) -> Result<(), Refusal> {
        let Some(torn) = &mut self.torn else { return Ok(()) };
        let first_torn = torn.keys.first().copied().unwrap_or(key);
        let same = key - u64::from(frame.part) <= first_torn && torn.seq.is_none_or(|seq| seq == frame.seq);
        if frame.part > 0 && same {
            torn.seq = Some(frame.seq);
            torn.keys.push(key);
            return Ok(());
        }
        Err(self.damaged(first_torn, FrameError::Torn))
    }

    const fn damaged(&self, key: u64, why: FrameError) -> Refusal {
        Refusal::Damaged { key, after: self.last_seq, why }
    }
}

impl Open {
    fn continues(&self, key: u64, frame: &Frame<'_>) -> bool {
        let here = self.first_key.checked_add(self.next_part.into());
        (self.seq, self.parts, self.next_part, here) == (frame.seq, frame.parts, frame.part, Some(key))
    }
}

#[cfg(test)]
mod tests;
