//! A worker's description of itself: CAN_DO, CAN_DO_TIMEOUT, CANT_DO, RESET_ABILITIES, SET_CLIENT_ID, PRE_SLEEP.
//!
//! Spec: `PROTOCOL`, "Worker Requests". None of these has an answer. PRE_SLEEP is followed by one NOOP, now or later.

use bytes::Bytes;
use windlass_engine::{
    ClientCommand, ClientInfo, JobRef, LeaseCommand, LeaseTerms, OnExpiry, Proof, Subscription,
    TakeCommand, Timestamp,
};

use super::ask::WORKER;
use super::{GearmanSpeaker, NAMELESS, Talk, refusal};
use crate::config::{OnTimeout, TimeoutUnit};

/// gearmand's shortest timeout. Smaller numbers come from old workers that count seconds, and are raised to this.
const TIMEOUT_MS_MIN: u64 = 1_000;

/// Number of functions of one connection whose timeouts are logged. More warnings would not help.
const WARNED_MAX: usize = 16;

/// What log lines contain about a worker.
#[derive(Debug)]
pub(super) struct About {
    address: Box<str>,
    /// The name from SET_CLIENT_ID.
    id: Bytes,
    /// Functions whose timeouts were logged.
    warned: Vec<Bytes>,
}

impl About {
    pub(super) fn new(info: &ClientInfo) -> Self {
        Self {
            address: info.address.clone(),
            id: Bytes::from_static(NAMELESS),
            warned: Vec::new(),
        }
    }

    /// Records that a function's timeout is logged. Returns false if it was before, or if there are too many.
    fn is_new(&mut self, function: &Bytes) -> bool {
        let new = self.warned.len() < WARNED_MAX && !self.warned.contains(function);
        if new {
            self.warned.push(Bytes::copy_from_slice(function));
        }
        new
    }
}

impl GearmanSpeaker {
    /// The specification counts milliseconds, Perl's workers count seconds. The operator configures the unit.
    pub(super) fn can_do_timeout(&mut self, function: Bytes, given: u64, talk: &mut Talk<'_>) {
        let timeout_ms = match self.settings.section.timeout_unit {
            TimeoutUnit::Milliseconds => given,
            TimeoutUnit::Seconds => given.saturating_mul(1_000),
        };
        if (1..TIMEOUT_MS_MIN).contains(&timeout_ms) && self.about.is_new(&function) {
            tracing::warn!(
                worker = %self.about.id.escape_ascii(),
                address = &*self.about.address,
                function = %function.escape_ascii(),
                timeout_ms,
                "CAN_DO_TIMEOUT of less than 1000 ms counts as 1000 ms; if this worker means seconds, set \
                 gearman.timeout_unit = \"s\""
            );
        }
        self.can_do(function, timeout_ms, talk);
    }

    /// `timeout_ms` 0 means no timeout.
    pub(super) fn can_do(&self, function: Bytes, timeout_ms: u64, talk: &mut Talk<'_>) {
        if function.contains(&0) {
            return refusal::FUNCTION_WITH_NUL.encode(talk.bytes());
        }
        let on_expiry = match self.settings.section.on_timeout {
            OnTimeout::Auto | OnTimeout::Fail => OnExpiry::Fail,
            OnTimeout::Requeue => OnExpiry::Requeue,
        };
        let lease = match timeout_ms {
            0 => LeaseTerms::CONNECTION,
            ms => LeaseTerms {
                connection_bound: true,
                lease_ms: Some(ms.max(TIMEOUT_MS_MIN)),
                on_expiry,
                wish: None,
            },
        };
        talk.send_as(
            WORKER,
            ClientCommand::Serve(Subscription {
                queue: function,
                weight: 0,
                lease,
                unclaimed: None,
            }),
        );
    }

    /// Requeues the function's jobs that the worker holds: it will not finish them.
    pub(super) fn cant_do(function: Bytes, talk: &mut Talk<'_>) {
        talk.send_as(
            WORKER,
            ClientCommand::Unserve {
                queue: function,
                requeue: true,
            },
        );
    }

    pub(super) fn reset_abilities(talk: &mut Talk<'_>) {
        talk.send_as(WORKER, ClientCommand::UnserveAll { requeue: true });
    }

    pub(super) fn set_client_id(&mut self, id: Bytes, talk: &mut Talk<'_>) {
        self.about.id = Bytes::copy_from_slice(&id);
        talk.send_as(WORKER, ClientCommand::SetName(id));
    }

    pub(super) fn pre_sleep(&mut self, talk: &mut Talk<'_>) {
        self.sleeps = true;
        self.lift_limit(talk);
        talk.send_as(WORKER, TakeCommand::WaitForWork);
    }

    /// A worker that sleeps has no job, or took a late answer for the one it got last. With `on_timeout = "requeue"` it
    /// may finish that one late, as in gearmand, which forgets its timer.
    pub(super) fn lift_limit(&mut self, talk: &mut Talk<'_>) {
        if let (OnTimeout::Requeue, Some(job)) =
            (self.settings.section.on_timeout, self.limited.take())
        {
            let (job, proof, until) = (JobRef::Id(job), Proof::Connection, Timestamp::NEVER);
            talk.send(LeaseCommand::Extend {
                job,
                proof,
                until,
                only_later: true,
            });
        }
    }
}
