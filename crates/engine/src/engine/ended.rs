//! Outcomes of finished jobs that still exist.

use super::failures::{EXPIRED_KIND, LOSSES};
use crate::jobs::{Job, JobState};
use crate::outcome::End;

/// The outcome of a dead or done job.
pub(super) fn end_of(job: &Job) -> End {
    let extra = job.extra.as_deref();
    if let Some(result) = extra.and_then(|extra| extra.result.clone()) {
        return End::Succeeded {
            result,
            by: extra
                .and_then(|extra| extra.result_by)
                .or(Some(job.protocol)),
        };
    }
    match extra.and_then(|extra| extra.failure.as_ref()) {
        Some(failure) if failure.kind == EXPIRED_KIND => End::TimedOut,
        Some(failure) if failure.kind == LOSSES => End::Lost,
        Some(failure) => End::Failed(failure.clone()),
        None if extra.is_some_and(|extra| extra.losses > 0) => End::Lost,
        None if matches!(job.state, JobState::Dead(_)) => End::Cancelled,
        None => End::Expired,
    }
}
