//! What workers and others report about a job that goes on.

use bytes::Bytes;
use windlass_engine::{ClientId, JobRef, Note, Notice, Progress, Proof, Reply, Timestamp};

use super::end::Claim;
use super::{Answer, Oracle};

impl Oracle {
    pub(super) fn track(
        &mut self,
        client: ClientId,
        job: &JobRef,
        (so_far, text): (Option<(u32, u32)>, Option<&Bytes>),
        until: Option<Timestamp>,
    ) -> Answer {
        let (id, now) = (self.find(client, job)?, self.wall());
        if let Some(until) = until {
            self.move_end(id, until, true);
        }
        let memo = self.job_mut(id);
        memo.touch(now);
        if so_far.is_some() || text.is_some() {
            let progress = memo.extra().progress.get_or_insert_default();
            (progress.numerator, progress.denominator) =
                so_far.unwrap_or((progress.numerator, progress.denominator));
            progress.text = text.cloned().unwrap_or_else(|| progress.text.clone());
            let Progress {
                numerator,
                denominator,
                text: raw,
            } = progress.clone();
            let leased = memo.job.lease().is_some();
            for listener in memo.job.listeners().to_vec().into_iter().filter(|_| leased) {
                self.notify(
                    listener,
                    Notice::Progress {
                        job: id,
                        note: Note::Progress {
                            numerator,
                            denominator,
                            raw: raw.clone(),
                        },
                    },
                );
            }
        }
        Ok(Some(Reply::Done))
    }

    pub(super) fn tell(&mut self, client: ClientId, claim: Claim, note: &Note) -> Answer {
        let (id, now) = (self.claimed(client, claim)?, self.wall());
        if claim.1 == Proof::Connection {
            self.come_back(client, id);
        }
        let output_max = self.limits.history.output_max;
        let memo = self.job_mut(id);
        if let Note::Progress {
            numerator,
            denominator,
            ..
        } = note
        {
            let progress = Progress {
                numerator: *numerator,
                denominator: *denominator,
                text: Bytes::new(),
            };
            memo.extra().progress = Some(progress);
            memo.touch(now);
        }
        if let Note::Data(bytes) | Note::Warning(bytes) = note {
            let delivery = memo.job.attempts;
            let output = memo.extra().output.get_or_insert_default();
            output.add(delivery, bytes, output_max);
        }
        for listener in memo.job.listeners().to_vec() {
            self.notify(
                listener,
                Notice::Progress {
                    job: id,
                    note: note.clone(),
                },
            );
        }
        for part in self.parts(id) {
            for listener in self.job_mut(part).job.listeners().to_vec() {
                self.notify(
                    listener,
                    Notice::Progress {
                        job: part,
                        note: note.clone(),
                    },
                );
            }
        }
        Ok(Some(Reply::Done))
    }
}
