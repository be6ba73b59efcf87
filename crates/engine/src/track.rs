//! Tracked jobs: progress by name, in any state.
//!
//! Not here: what is kept of them after their end (`end`).

use bytes::Bytes;

use crate::context::Context;
use crate::engine::Engine;
use crate::event::Notice;
use crate::ids::{ClientId, Tag, Timestamp};
use crate::job::Progress;
use crate::ready::Slot;
use crate::refusal::Refusal;
use crate::request::{JobRef, Note};

impl Engine {
    pub(crate) fn track(
        &mut self,
        client: ClientId,
        tag: Tag,
        job: &JobRef,
        (progress, text): (Option<(u32, u32)>, Option<Bytes>),
        until: Option<Timestamp>,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let slot = self.find(job)?;
        if let Some(until) = until {
            self.move_end(slot, until, true);
        }
        if progress.is_some() || text.is_some() {
            self.set_progress(slot, progress, text.as_ref(), context);
        }
        let now = self.wall();
        if let Some(job) = self.jobs.at_mut(slot) {
            job.touch(now);
        }
        self.remember_move(slot, context);
        self.tell_done(client, tag, context);
        Ok(())
    }

    fn set_progress(&mut self, slot: Slot, so_far: Option<(u32, u32)>, text: Option<&Bytes>, context: &mut Context) {
        let progress = self.jobs.reweigh(slot, |job| {
            let progress = job.extra_mut().progress.get_or_insert_default();
            if let Some((numerator, denominator)) = so_far {
                (progress.numerator, progress.denominator) = (numerator, denominator);
            }
            if let Some(text) = text {
                progress.text = Self::own(text);
            }
            progress.clone()
        });
        let Some(Progress { numerator, denominator, text }) = progress else { return };
        let Some(job) = self.jobs.at(slot).filter(|job| job.lease().is_some()) else { return };
        let note = Note::Progress { numerator, denominator, raw: text };
        for listener in job.listeners().iter().rev() {
            context.notify(*listener, Notice::Progress { job: job.id, note: note.clone() });
        }
    }

    /// Records when a worker reported on a tracked job.
    pub(crate) fn remember_track(&mut self, slot: Slot, context: &mut Context) {
        let now = self.wall();
        let Some(job) = self.jobs.at_mut(slot) else { return };
        if job.extra.as_deref().is_some_and(|extra| extra.track.is_some()) {
            job.touch(now);
            self.remember_move(slot, context);
        }
    }
}
