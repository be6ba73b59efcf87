//! What a worker says of itself: CAN_DO, CAN_DO_TIMEOUT, CANT_DO, RESET_ABILITIES, SET_CLIENT_ID, PRE_SLEEP.
//!
//! Spec: `PROTOCOL`, "Worker Requests". None of these is answered; PRE_SLEEP is followed by one NOOP, now or later.

use bytes::Bytes;
use windlass_engine::{Ability, Command, LeaseTerms, OnExpiry};
use windlass_session::Outbox;

use super::ask::Ask;
use super::{GearmanSession, OnTimeout, refusal};

/// gearmand's shortest timeout: smaller ones are meant in seconds by old workers, and become this.
const TIMEOUT_MS_MIN: u64 = 1_000;

impl GearmanSession {
    /// `timeout_ms` 0 is no timeout.
    pub(super) fn can_do(&self, function: Bytes, timeout_ms: u64, out: &mut Outbox) {
        if function.contains(&0) {
            return refusal::FUNCTION_WITH_NUL.encode(out.bytes());
        }
        let on_expiry = match self.settings.on_timeout {
            OnTimeout::Fail => OnExpiry::Fail,
            OnTimeout::Requeue => OnExpiry::Requeue,
        };
        let lease = match timeout_ms {
            0 => LeaseTerms::CONNECTION,
            ms => LeaseTerms { connection_bound: true, lease_ms: Some(ms.max(TIMEOUT_MS_MIN)), on_expiry, wish: None },
        };
        out.command(Ask::Worker.tag(), Command::Serve(Ability { queue: function, weight: 0, lease, strays: None }));
    }

    /// What it holds of the function is requeued: a worker that cannot do it will not finish it.
    pub(super) fn cant_do(function: Bytes, out: &mut Outbox) {
        out.command(Ask::Worker.tag(), Command::Unserve { queue: function, requeue: true });
    }

    pub(super) fn reset_abilities(out: &mut Outbox) {
        out.command(Ask::Worker.tag(), Command::UnserveAll { requeue: true });
    }

    pub(super) fn set_client_id(id: Bytes, out: &mut Outbox) {
        out.command(Ask::Worker.tag(), Command::Label(id));
    }

    pub(super) fn pre_sleep(out: &mut Outbox) {
        out.command(Ask::Worker.tag(), Command::Sleep);
    }
}
