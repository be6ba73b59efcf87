//! Checks that the parts of a store agree with each other.

use std::collections::BTreeMap;

use windlass_engine::{
    Batch, JobId, Namespace, NamespaceImage, QueueId, QueueImage, QueueKind, Stage,
};

/// The maximum that a batch's jobs can still add to the counts: jobs that have not run, and jobs that have
/// not succeeded.
pub(crate) type Open = BTreeMap<JobId, (u64, u64)>;

/// Checks that a batch is consistent.
pub(crate) fn check_batch(batch: &Batch, open: &Open) -> Result<(), String> {
    let id = batch.id;
    let at = &batch.progress;
    let (not_run, not_succeeded) = open.get(&id).copied().unwrap_or_default();
    if not_run > at.total - at.ran || not_succeeded > at.total - at.succeeded {
        return Err(format!("{id:?} has more jobs than it counts"));
    }
    let kept = |stage: Stage, callback: &Option<_>| stage != Stage::Waiting && callback.is_some();
    if kept(at.complete, &batch.complete) || kept(at.success, &batch.success) {
        return Err(format!("{id:?} has a callback that was pushed"));
    }
    if at.success != Stage::Waiting && !at.complete.is_over() {
        return Err(format!("{id:?} succeeded before it was complete"));
    }
    let misplaced = |job: &windlass_engine::NewJob| {
        job.kind != QueueKind::Work || !job.durable || job.listen.is_wanted()
    };
    if [&batch.complete, &batch.success]
        .into_iter()
        .flatten()
        .any(|job| misplaced(job))
    {
        return Err(format!("{id:?} has an invalid callback"));
    }
    Ok(())
}

/// Checks that each name of a namespace occurs once.
pub(crate) fn check_namespaces(
    namespaces: &BTreeMap<Namespace, NamespaceImage>,
) -> Result<(), String> {
    let mut names = BTreeMap::new();
    for (id, image) in namespaces {
        if let Some(other) = names.insert(&image.name, id) {
            return Err(format!("{id:?} and {other:?} have the same name"));
        }
    }
    Ok(())
}

pub(crate) fn check_queues(
    queues: &BTreeMap<QueueId, QueueImage>,
    namespaces: &BTreeMap<Namespace, NamespaceImage>,
    queues_max: u32,
) -> Result<(), String> {
    let mut names = BTreeMap::new();
    let mut indexes = BTreeMap::new();
    for (id, image) in queues {
        let namespace = id.namespace();
        if namespace != Namespace::UNNAMED && !namespaces.contains_key(&namespace) {
            return Err(format!("{id:?} is in {namespace:?}, which does not exist"));
        }
        if id.index() >= queues_max {
            return Err(format!("{id:?} is beyond the limit of {queues_max} queues"));
        }
        if let Some(other) = indexes.insert(id.index(), id) {
            return Err(format!("{id:?} and {other:?} have the same index"));
        }
        if let Some(other) = names.insert((namespace, &image.name), id) {
            return Err(format!("{id:?} and {other:?} have the same name"));
        }
    }
    Ok(())
}
