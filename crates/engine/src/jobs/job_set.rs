//! The jobs of a client, in order of ID.

use std::collections::BTreeSet;

use crate::ids::JobId;

/// The size up to which a linear search is faster than a tree.
const FEW: usize = 64;

/// A set of jobs. Most clients have only a few, for which a tree would allocate each time; a worker that
/// prefetches may have a million.
#[derive(Debug, Default)]
pub(crate) struct JobSet {
    /// All jobs, sorted, unless there are many.
    few: Vec<JobId>,
    many: Option<BTreeSet<JobId>>,
}

impl JobSet {
    /// No jobs.
    pub(super) const NONE: Self = Self {
        few: Vec::new(),
        many: None,
    };

    #[inline]
    pub(super) fn insert(&mut self, id: JobId) {
        if let Some(many) = &mut self.many {
            many.insert(id);
        } else if self.few.last().is_none_or(|last| *last < id) && self.few.len() < FEW {
            self.few.push(id);
        } else {
            self.insert_between(id);
        }
    }

    #[inline(never)]
    fn insert_between(&mut self, id: JobId) {
        let Err(at) = self.few.binary_search(&id) else {
            return;
        };
        if self.few.len() < FEW {
            self.few.insert(at, id);
        } else {
            let mut many: BTreeSet<JobId> = std::mem::take(&mut self.few).into_iter().collect();
            many.insert(id);
            self.many = Some(many);
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, id: JobId) {
        if let Some(many) = &mut self.many {
            many.remove(&id);
            if many.is_empty() {
                self.many = None;
            }
        } else if let Ok(at) = self.few.binary_search(&id) {
            self.few.remove(at);
        }
    }

    /// Number of jobs.
    pub(crate) fn len(&self) -> usize {
        self.few.len() + self.many.as_ref().map_or(0, BTreeSet::len)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_none()
    }

    /// The jobs, lowest ID first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = JobId> {
        self.few.iter().chain(self.many.iter().flatten()).copied()
    }

    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn contains(&self, id: JobId) -> bool {
        self.few.binary_search(&id).is_ok()
            || self.many.as_ref().is_some_and(|many| many.contains(&id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::ids::Timestamp;

    #[test]
    fn it_is_a_sorted_set_however_many_there_are() {
        for seed in 0..50 {
            let mut rng = Context::new(Timestamp(0), seed);
            let (mut set, mut model, most) =
                (JobSet::default(), BTreeSet::new(), 1 + rng.roll(200));
            for step in 0..2_000 {
                let id = JobId(rng.roll(most));
                if rng.roll(5) < if step % 600 < 300 { 4 } else { 1 } {
                    set.insert(id);
                    model.insert(id);
                } else {
                    set.remove(id);
                    model.remove(&id);
                }
                assert_eq!(
                    (set.len(), set.is_empty()),
                    (model.len(), model.is_empty()),
                    "seed {seed}"
                );
                assert_eq!(set.contains(id), model.contains(&id), "seed {seed}");
            }
            assert!(set.iter().eq(model.iter().copied()), "seed {seed}");
            assert!(
                set.iter().rev().eq(model.iter().rev().copied()),
                "seed {seed}"
            );
        }
    }
}
