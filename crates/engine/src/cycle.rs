//! `cycle` queues: a repaid entry returns to the queue, at a position that its rewards decide.
//!
//! Spec: `spiderq-protocol`, "Repay". With `min` as the head's priority and `region = serial + 1 - min`, a repaid entry goes to
//! `min + (region >> boost)`: the tail for boost 0, half way for 1, a quarter of the way for 2.

use bytes::Bytes;

use crate::context::Context;
use crate::engine::Engine;
use crate::ids::{ClientId, Tag};
use crate::job::{Cycle, JobState};
use crate::ready::Slot;
use crate::refusal::Refusal;
use crate::request::{JobRef, Proof, QueueKind, RepayTo};

impl Engine {
    pub(crate) fn repay(
        &mut self,
        client: ClientId,
        tag: Tag,
        job: &JobRef,
        proof: Proof,
        (body, to): (Bytes, RepayTo),
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let slot = self.leased(client, job, proof)?;
        self.must_be(slot, QueueKind::Cycle)?;
        if let Some(job) = self.jobs.at(slot) {
            self.check_body(job.queue, &body)?;
        }
        self.jobs.reweigh(slot, |job| job.payload = job.payload.with_body(&body));
        self.count(slot, |totals| totals.succeeded += 1);
        if to == RepayTo::Drop && self.is_abandoned(slot) {
            self.remove_job(slot, context);
        } else if to == RepayTo::Drop {
            self.move_job(slot, JobState::Parked);
        } else {
            self.go_round(slot, to, context);
        }
        // Both the value and the sort key have changed.
        self.remember_put(slot, context);
        self.tell_done(client, tag, context);
        Ok(())
    }

    fn go_round(&mut self, slot: Slot, to: RepayTo, context: &mut Context) {
        let Some(job) = self.jobs.at(slot) else { return };
        let (queue_id, boost) = (job.queue, job.cycle().map_or(0, |cycle| cycle.boost));
        let Some(queue) = self.queues.at(queue_id) else { return };
        let min = queue.line.cycle_head();
        let region = (queue.image.serial + 1).saturating_sub(min);
        let boost = match to {
            RepayTo::Penalty => boost.saturating_sub(1),
            RepayTo::Reward if region.checked_shr(boost + 1).unwrap_or(0) != 0 => boost + 1,
            RepayTo::Reward | RepayTo::Front | RepayTo::Drop => boost,
        };
        self.next_serial(queue_id, true, context);
        let priority = match to {
            RepayTo::Front => 0,
            RepayTo::Penalty | RepayTo::Reward | RepayTo::Drop => min + region.checked_shr(boost).unwrap_or(0),
        };
        self.enter_cycle(slot, Cycle { priority, boost }, context);
    }

    /// Returns an entry whose lease ran out to the front, with its boost kept.
    pub(crate) fn return_to_front(&mut self, slot: Slot, context: &mut Context) {
        self.count(slot, |totals| totals.lost += 1);
        let Some(job) = self.jobs.at(slot) else { return };
        match job.cycle() {
            None => {
                let rank = self.rank(true);
                self.make_ready(slot, Some(rank), context);
            }
            Some(cycle) => {
                let queue = job.queue;
                self.next_serial(queue, true, context);
                self.enter_cycle(slot, Cycle { priority: 0, boost: cycle.boost }, context);
            }
        }
    }

    /// A lease of a `cycle` entry ends without a repay. Its token must not be granted again.
    pub(crate) fn void_token(&mut self, slot: Slot, context: &mut Context) {
        if let Some(job) = self.jobs.at(slot).filter(|job| job.cycle().is_some()) {
            self.next_serial(job.queue, true, context);
        }
    }

    /// Puts an entry back into the ready queue with this sort key, behind its equals.
    fn enter_cycle(&mut self, slot: Slot, cycle: Cycle, context: &mut Context) {
        // While the entry is shelved, no index depends on its sort key.
        self.move_job(slot, JobState::Parked);
        self.jobs.reweigh(slot, |job| job.extra_mut().cycle = Some(cycle));
        let rank = self.rank(false);
        self.make_ready(slot, Some(rank), context);
    }
}
