//! The settings of queues, repeated in every segment that has jobs of these queues.
//!
//! A record of a job contains only the number of the queue. The queue's settings, including the name, are in
//! a separate record, which may be in a segment that the log has already dropped, and then only the table has
//! it. If the table were destroyed, jobs in the log would have no queue. For this reason the first entry of a
//! segment with jobs of a queue starts with the settings that the queue had before this entry. They are
//! ordinary records for a reader, and have no effect.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use windlass_engine::QueueId;

use crate::commit::Commit;
use windlass_codec::put_bytes;

/// The settings of all queues, as in the log and the table, and the set of those that the present segment
/// contains.
#[derive(Debug, Default)]
pub(super) struct Names {
    all: HashMap<QueueId, Box<[u8]>, FixedState>,
    here: HashSet<QueueId, FixedState>,
}

impl Names {
    /// Adds the settings of a queue, as a record.
    pub(super) fn add(&mut self, queue: QueueId, record: &[u8]) {
        self.all.insert(queue, record.into());
    }

    /// The records that a segment lacks for the jobs of a commit, each after the length. A segment that
    /// `begins` lacks all.
    pub(super) fn lacking(&self, commit: &Commit, begins: bool) -> Vec<u8> {
        let mut records = Vec::new();
        for queue in commit
            .queues
            .iter()
            .filter(|queue| begins || !self.here.contains(*queue))
        {
            if let Some(record) = self
                .all
                .get(queue)
                .filter(|_| commit.settings_of(*queue).is_none())
            {
                put_bytes(&mut records, record);
            }
        }
        records
    }

    /// Records that a commit was written, with the records that the segment lacked.
    pub(super) fn wrote(&mut self, commit: &Commit, begins: bool) {
        if begins {
            self.here.clear();
        }
        for (queue, record) in &commit.settings {
            match record {
                Some(record) => drop(self.all.insert(*queue, record.clone())),
                None => drop(self.all.remove(queue)),
            }
            self.here.remove(queue);
        }
        let set = commit.settings.iter().map(|(queue, _)| queue);
        let there = commit
            .queues
            .iter()
            .chain(set)
            .filter(|queue| self.all.contains_key(*queue));
        self.here.extend(there);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue with the record, unless the queue was deleted.
    type Setting = (u32, Option<&'static [u8]>);
    /// Queues of jobs, settings, `true` if a segment starts, and the records it lacks.
    type Step = (&'static [u32], &'static [Setting], bool, &'static [u8]);

    fn commit(queues: &[u32], settings: &[Setting]) -> Commit {
        let settings = settings
            .iter()
            .map(|(queue, record)| (QueueId(*queue), record.map(Into::into)))
            .collect();
        Commit {
            queues: queues.iter().copied().map(QueueId).collect(),
            settings,
            ..Commit::default()
        }
    }

    #[test]
    fn each_segment_has_the_settings_of_its_queues_once() {
        let mut names = Names::default();
        names.add(QueueId(1), b"one");
        names.add(QueueId(2), b"two");
        let steps: [Step; 8] = [
            (&[1], &[], true, b"\x03one"),
            (&[1], &[], false, b""),
            (&[1, 2, 9], &[], false, b"\x03two"),
            (&[2], &[(2, Some(b"second"))], false, b""),
            (&[2], &[], false, b""),
            (&[1, 2], &[], true, b"\x03one\x06second"),
            (&[1], &[(1, None)], true, b""),
            (&[1, 2], &[], false, b"\x06second"),
        ];
        for (at, (queues, settings, begins, expected)) in steps.into_iter().enumerate() {
            let commit = commit(queues, settings);
            assert_eq!(names.lacking(&commit, begins), expected, "step {at}");
            names.wrote(&commit, begins);
        }
    }
}
