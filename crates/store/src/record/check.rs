//! Rejects values that the engine never writes, because they would overflow counters or corrupt an index.

use windlass_codec::DecodeError;
use windlass_engine::{
    Batch, BatchProgress, Cycle, DayBegin, EARLIER_RUNS_MAX, Extra, Job, JobId, LastRun, Listen,
    Namespace, NamespaceImage, NewJob, Protocol, RunEnd, Schedule, Stage, Totals, is_valid_name,
};

use super::{COUNT_MAX, MetaRecord, Moved, NextRun, Record};

/// The number of halvings that reduce a 64-bit number to zero.
const BOOST_MAX: u64 = 64;

pub(super) fn below(field: &'static str, value: u64, limit: u64) -> Result<(), DecodeError> {
    if value < limit {
        Ok(())
    } else {
        Err(DecodeError::Range { field, value })
    }
}

fn id(field: &'static str, id: JobId) -> Result<(), DecodeError> {
    below(field, id.0, COUNT_MAX)
}

/// Fails unless `there` is true.
fn is(there: bool, field: &'static str) -> Result<(), DecodeError> {
    if there {
        Ok(())
    } else {
        Err(DecodeError::Range { field, value: 0 })
    }
}

impl Record {
    pub(super) fn check(&self) -> Result<(), DecodeError> {
        match self {
            Self::Put(it) => job(it),
            Self::Moved(it) => moved(it),
            Self::Gone(number) => id("a job's number", *number),
            Self::QueueSet(image) => below("a queue's serial", image.serial, COUNT_MAX),
            Self::QueueGone(_) | Self::NamespaceGone(_) => Ok(()),
            Self::Namespace(it) => namespace(it),
            Self::Schedule(it) => schedule(it),
            Self::NextRun(it) => next_run(it),
            Self::Batch(it) => batch(it),
            Self::BatchMoved(it) => {
                id("a batch's number", it.batch)?;
                progress(&it.progress)
            }
            Self::Day(it) => day(it),
            Self::Ended(row) => id("a job's number", row.job),
            Self::Meta(it) => meta(it),
        }
    }
}

fn job(job: &Job) -> Result<(), DecodeError> {
    id("a job's number", job.id)?;
    job.extra.as_deref().map_or(Ok(()), extra)
}

fn extra(extra: &Extra) -> Result<(), DecodeError> {
    extra.cycle.map_or(Ok(()), cycle)?;
    if let Some(member) = extra.member {
        id("a batch's number", member.batch)?;
    }
    if let Some(behind) = extra.coalesced.as_deref().and_then(|it| it.behind) {
        below("a job's number", behind.0.wrapping_sub(1), COUNT_MAX - 1)?;
    }
    Ok(())
}

fn cycle(cycle: Cycle) -> Result<(), DecodeError> {
    below("a cycle's priority", cycle.priority, COUNT_MAX)?;
    below("a cycle's boost", cycle.boost.into(), BOOST_MAX)
}

fn moved(moved: &Moved) -> Result<(), DecodeError> {
    id("a job's number", moved.job)?;
    moved.cycle.map_or(Ok(()), cycle)
}

/// The jobs of schedules and batches have no listener, and join no batch by name.
fn template(job: &NewJob) -> Result<(), DecodeError> {
    let waits = job.listen != Listen::No || !job.durable;
    let belongs = job.batch.is_some() || job.past.is_some();
    is(!waits && !belongs, "a template")
}

fn schedule(schedule: &Schedule) -> Result<(), DecodeError> {
    id("a schedule's number", schedule.id)?;
    template(&schedule.job)?;
    runs(schedule.runs_left, schedule.last.as_ref())
}

fn next_run(next: &NextRun) -> Result<(), DecodeError> {
    id("a schedule's number", next.schedule)?;
    runs(next.runs_left, next.last.as_ref())
}

/// A schedule is deleted after the last occurrence, and the outcome of an unfinished job is not
/// recorded.
fn runs(left: Option<u64>, last: Option<&LastRun>) -> Result<(), DecodeError> {
    is(left != Some(0), "a schedule's remaining runs")?;
    let Some(last) = last else { return Ok(()) };
    let is_recorded = matches!(
        last.end,
        RunEnd::Running | RunEnd::Done | RunEnd::Failed | RunEnd::Dead
    );
    is(is_recorded, "the end of a run")?;
    let count = last.earlier.len() as u64;
    below("earlier runs", count, EARLIER_RUNS_MAX as u64 + 1)?;
    last.earlier
        .iter()
        .chain([&last.job])
        .try_for_each(|job| id("a job's number", *job))
}

fn batch(batch: &Batch) -> Result<(), DecodeError> {
    id("a batch's number", batch.id)?;
    if let Some(parent) = batch.parent {
        // A batch is younger than the parent.
        below("a batch's parent", parent.0, batch.id.0)?;
    }
    is(
        batch.parent.is_some() == batch.parent_name.is_some(),
        "a batch's parent",
    )?;
    for callback in [&batch.complete, &batch.success].into_iter().flatten() {
        template(callback)?;
    }
    progress(&batch.progress)
}

/// Each count is a part of the previous one.
fn progress(progress: &BatchProgress) -> Result<(), DecodeError> {
    below("jobs of a batch", progress.total, COUNT_MAX)?;
    below("jobs of a batch that ran", progress.ran, progress.total + 1)?;
    below(
        "jobs of a batch that succeeded",
        progress.succeeded,
        progress.ran + 1,
    )?;
    let waits = progress.complete == Stage::Waiting || progress.success == Stage::Waiting;
    let may_be_held = progress.committed && waits;
    is(
        progress.held_until.is_none() || may_be_held,
        "a batch's flags",
    )
}

fn day(day: &DayBegin) -> Result<(), DecodeError> {
    below("a day's number", day.number.wrapping_sub(1), COUNT_MAX - 1)?;
    below("a day", day.day, COUNT_MAX)?;
    totals(&day.totals)
}

fn meta(MetaRecord { meta, .. }: &MetaRecord) -> Result<(), DecodeError> {
    below("the boot count", meta.boot_count, COUNT_MAX)?;
    below("the next job's number", meta.next_job, COUNT_MAX)?;
    below("the reserved numbers", meta.reserved, COUNT_MAX)?;
    totals(&meta.totals)?;
    counted(&meta.protocols)
}

fn namespace(image: &NamespaceImage) -> Result<(), DecodeError> {
    let number = u64::from(image.id.0);
    // 0 is the namespace without a name, which has no record.
    below(
        "a namespace's number",
        number.wrapping_sub(1),
        Namespace::MAX.0.into(),
    )?;
    is(is_valid_name(&image.name), "a namespace's name")?;
    counted(&image.protocols)
}

fn counted(protocols: &[(Protocol, Totals)]) -> Result<(), DecodeError> {
    let in_order = protocols.is_sorted_by(|one, next| one.0 < next.0);
    is(in_order, "a protocol")?;
    protocols
        .iter()
        .try_for_each(|(_, counted)| totals(counted))
}

fn totals(totals: &Totals) -> Result<(), DecodeError> {
    totals
        .values()
        .into_iter()
        .try_for_each(|total| below("a total", total, COUNT_MAX))
}
