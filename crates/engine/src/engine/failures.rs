//! The effects of a failure or of a worker's disappearance: a retry, a delay, or the end.

use bytes::Bytes;

use super::attempts::end_attempt;
use super::away::not_back;
use super::ends::{bury_if_durable, give_up, notify_end};
use super::give_way::pause;
use super::place::{count, count_run};
use super::requeue::{make_ready, return_to_front, void_token};
use super::state::{State, own};
use super::warnings::warn_job;
use crate::context::Context;
use crate::ids::JobId;
use crate::jobs::{AttemptEnd, Backoff, Failure, Holder, Lease, OnExpiry, Slot};
use crate::outcome::{End, Fate};
use crate::warning::WarningKind;

/// The kind of failure recorded when a lease expires and that is treated as a failure.
pub(super) const EXPIRED_KIND: &[u8] = b"ReservationExpired";
const EXPIRED_MESSAGE: &[u8] = b"job reservation expired";

/// The kind of failure if workers disappeared too often.
pub const LOSSES: &[u8] = b"losses";

/// The kind of failure of a job that no worker's protocol could express (conversion error).
pub const MISFIT: &[u8] = b"conversion";

/// The kind of failure if the body cannot be read from the disk.
pub const UNREADABLE: &[u8] = b"unreadable";

const HOUR_MS: u64 = 3_600_000;

/// Records a failure and applies the job's retry policy.
pub(super) fn fail_job(
    state: &mut State,
    slot: Slot,
    mut failure: Box<Failure>,
    end: &End,
    context: &mut Context,
) -> Fate {
    void_token(state, slot, context);
    failure.at = state.wall();
    failure.first_at = state.wall();
    count(state, slot, |totals| totals.failed += 1);
    state.jobs.update(slot, |job| {
        job.failures = job.failures.saturating_add(1);
        let last = &mut job.extra_mut().failure;
        failure.first_at = last.as_ref().map_or(failure.at, |last| last.first_at);
        failure.next_at = last.as_ref().and_then(|last| last.next_at);
        *last = Some(failure);
    });
    count_run(state, slot, context);
    let Some(job) = state.jobs.at(slot) else {
        return Fate::Discarded;
    };
    let retry = job.retry;
    let failures = job.failures;
    if i64::from(failures) > i64::from(retry.failures_max) || job.is_abandoned() {
        return give_up(state, slot, end, context);
    }
    let wait_ms = backoff_ms(retry.backoff, failures - 1, context);
    let at = state.now.after_ms(wait_ms);
    let next_at = state.wall().after_ms(wait_ms);
    state.jobs.update(slot, |job| {
        if let Some(last) = job.extra_mut().failure.as_mut() {
            last.next_at = Some(next_at);
        }
    });
    if wait_ms == 0 {
        let rank = state.meta.rank(false);
        make_ready(state, slot, Some(rank), context);
    } else {
        pause(state, slot, at, context);
    }
    Fate::Retried(at)
}

/// Handles a worker that disappeared during a delivery. The job returns to the original position: immediately
/// the first time, later after a delay, and never if it happened too often.
pub(super) fn lose_job(state: &mut State, id: JobId, context: &mut Context) {
    let Some(slot) = state.jobs.slot(id) else {
        return;
    };
    void_token(state, slot, context);
    count(state, slot, |totals| totals.lost += 1);
    state.jobs.update(slot, |job| {
        let extra = job.extra_mut();
        extra.progress = None;
        extra.losses = extra.losses.saturating_add(1);
    });
    let Some(job) = state.jobs.at(slot) else {
        return;
    };
    let own = job.retry.losses_max;
    let all = state.limits.losses_max;
    let losses = job.extra.as_deref().map_or(0, |extra| extra.losses);
    if own > 0 && losses >= own {
        give_up(state, slot, &End::Lost, context);
    } else if own > 0 || job.cycle().is_some() || job.is_abandoned() {
        make_ready(state, slot, None, context);
    } else if all > 0 && losses >= all {
        bury_lost(state, slot, losses, context);
    } else {
        pause_lost(state, slot, losses, context);
    }
}

/// Buries a job that probably crashes workers. It is retained for an operator, even if the retry policy would
/// discard it on failure.
fn bury_lost(state: &mut State, slot: Slot, losses: u32, context: &mut Context) {
    fail_for_good(
        state,
        slot,
        LOSSES,
        format!("{losses} workers were lost with it").into(),
    );
    let kept = state.jobs.at(slot).is_some_and(|job| job.durable);
    warn_job(
        state,
        if kept {
            WarningKind::Buried
        } else {
            WarningKind::LostForGood
        },
        slot,
        context,
    );
    notify_end(state, slot, &End::Lost, context);
    bury_if_durable(state, slot, context);
}

/// The delay grows with the number of losses. A random share spreads jobs that had the same worker.
fn pause_lost(state: &mut State, slot: Slot, losses: u32, context: &mut Context) {
    let pause_ms = match losses.checked_sub(2) {
        None => 0,
        Some(n) => state
            .limits
            .loss_pause_ms
            .saturating_mul(1 << n.min(32))
            .min(HOUR_MS),
    };
    if pause_ms == 0 {
        return make_ready(state, slot, None, context);
    }
    let at = state.now.after_ms(pause_ms + context.roll(pause_ms));
    pause(state, slot, at, context);
}

/// A lease has run out.
pub(super) fn expire_lease(state: &mut State, slot: Slot, context: &mut Context) {
    let Some(job) = state.jobs.at(slot) else {
        return;
    };
    if job
        .lease()
        .is_some_and(|lease| matches!(lease.holder, Holder::Away(_)))
    {
        end_attempt(state, slot, AttemptEnd::Lost);
        return not_back(state, slot, context);
    }
    let id = job.id;
    let on_expiry = job.lease().map(|lease| lease.on_expiry);
    let is_held = job.lease().is_some_and(Lease::connection_bound);
    let has_limit = job.retry.losses_max > 0 || state.limits.losses_max > 0;
    end_attempt(state, slot, AttemptEnd::TimedOut);
    count(state, slot, |totals| {
        totals.timed_out += u64::from(on_expiry.is_some())
    });
    match on_expiry {
        None => {}
        // The worker is slow and still connected, so the loss is recorded only if there is a limit.
        Some(OnExpiry::Requeue) if is_held && !has_limit => {
            void_token(state, slot, context);
            state.jobs.update(slot, |job| {
                if let Some(extra) = &mut job.extra {
                    extra.progress = None;
                }
            });
            make_ready(state, slot, None, context);
        }
        Some(OnExpiry::Requeue) => lose_job(state, id, context),
        Some(OnExpiry::Front) => return_to_front(state, slot, context),
        Some(OnExpiry::Fail) => {
            let failure = Failure {
                kind: Bytes::from_static(EXPIRED_KIND),
                message: Bytes::from_static(EXPIRED_MESSAGE),
                ..Failure::default()
            };
            fail_job(state, slot, Box::new(failure), &End::TimedOut, context);
        }
    }
}

/// Buries a job that no protocol can express, so that an operator can see the reason.
pub(super) fn bury_unconvertible(
    state: &mut State,
    slot: Slot,
    why: &Bytes,
    context: &mut Context,
) {
    let failure = fail_for_good(state, slot, MISFIT, own(why));
    notify_end(
        state,
        slot,
        &End::Failed(failure.unwrap_or_default()),
        context,
    );
    bury_if_durable(state, slot, context);
}

/// Buries a job that cannot be delivered because of an unreadable body. It is retained for an operator,
/// whatever the retry policy is, because another copy of the store may have the body.
pub(super) fn bury_unreadable(state: &mut State, slot: Slot, context: &mut Context) {
    void_token(state, slot, context);
    let failure = fail_for_good(
        state,
        slot,
        UNREADABLE,
        Bytes::from_static(b"its body cannot be read"),
    );
    warn_job(state, WarningKind::Buried, slot, context);
    notify_end(
        state,
        slot,
        &End::Failed(failure.unwrap_or_default()),
        context,
    );
    bury_if_durable(state, slot, context);
}

/// Records why a job ends without a failed attempt.
fn fail_for_good(
    state: &mut State,
    slot: Slot,
    kind: &'static [u8],
    message: Bytes,
) -> Option<Box<Failure>> {
    let at = state.wall();
    let kind = Bytes::from_static(kind);
    state.jobs.update(slot, |job| {
        let last = &mut job.extra_mut().failure;
        let (first_at, next_at) = last
            .as_ref()
            .map_or((at, None), |last| (last.first_at, last.next_at));
        last.insert(Box::new(Failure {
            at,
            first_at,
            next_at,
            kind,
            message,
            backtrace: Vec::new(),
        }))
        .clone()
    })
}

/// The wait after the `n`th failure, `n` from 0.
fn backoff_ms(backoff: Backoff, n: u32, context: &mut Context) -> u64 {
    match backoff {
        Backoff::None => 0,
        Backoff::Fixed(ms) => ms.into(),
        Backoff::Doubling(ms) => u64::from(ms).saturating_mul(1 << n.min(32)).min(HOUR_MS),
        Backoff::Faktory => {
            let n = u64::from(n);
            let seconds = n
                .saturating_pow(4)
                .saturating_add(15)
                .saturating_add(context.roll(30).saturating_mul(n + 1));
            seconds.saturating_mul(1_000)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Timestamp;

    #[test]
    fn back_off_stays_in_its_bounds() {
        let ms = |backoff, n| backoff_ms(backoff, n, &mut Context::new(Timestamp(0), 1));
        let table = [
            (Backoff::None, 7, 0, 0),
            (Backoff::Fixed(250), 3, 250, 250),
            (Backoff::Doubling(1_000), 0, 1_000, 1_000),
            (Backoff::Doubling(1_000), 3, 8_000, 8_000),
            (Backoff::Doubling(1_000), 4_000_000, 3_600_000, 3_600_000),
            (Backoff::Faktory, 0, 15_000, 15_000 + 29_000),
            (Backoff::Faktory, 2, 31_000, 31_000 + 3 * 29_000),
            (Backoff::Faktory, u32::MAX, u64::MAX, u64::MAX),
        ];
        for (backoff, n, least, most) in table {
            let ms = ms(backoff, n);
            assert!((least..=most).contains(&ms), "{backoff:?} after {n}: {ms}");
        }
    }
}
