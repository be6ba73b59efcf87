//! BATCH: groups of jobs, and the callbacks pushed when a group has finished.
//!
//! Rules: the commercial edition's, as its clients' tests show them. A batch that is not committed within half an hour
//! (`faktory.batch_open_max`) is forgotten. A committed batch that is opened again holds its callbacks until the next
//! commit, or for the same time. A callback without a name gets one.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use windlass_engine::{
    BatchCommand, BatchView, CallbackState, NewBatch, NewJob, Protocol, Query, Reply,
};

use super::ask::Ask;
use super::push::{Pushed, new_job};
use super::{FaktorySpeaker, Talk, readable};
use crate::wire::{
    self, BatchText, Unit, batch_name, callback_custom, echo, reply, time_text, time_text_ns,
};

impl FaktorySpeaker {
    pub(super) fn batch(&mut self, verb: &Bytes, rest: &Bytes, talk: &mut Talk<'_>) {
        match verb.as_ref() {
            b"NEW" => match self.new_batch(Pushed::at(talk), rest) {
                Ok(batch) => {
                    let bid = batch.parent.clone().unwrap_or_default();
                    talk.ask(
                        Ask::Batch {
                            bid,
                            said: Some(batch.name.clone()),
                        },
                        BatchCommand::New(batch),
                    );
                }
                Err(error) => reply::error(error, talk.bytes()),
            },
            b"OPEN" => {
                let ask = Ask::Batch {
                    bid: rest.clone(),
                    said: Some(rest.clone()),
                };
                let hold_ms = self.settings.section.batch_open_max.as_ms();
                talk.ask(
                    ask,
                    BatchCommand::Open {
                        batch: rest.clone(),
                        hold_ms,
                    },
                );
            }
            b"COMMIT" => {
                let ask = Ask::Batch {
                    bid: rest.clone(),
                    said: None,
                };
                talk.ask(
                    ask,
                    BatchCommand::Commit {
                        batch: rest.clone(),
                    },
                );
            }
            b"STATUS" => talk.ask(
                Ask::BatchStatus(rest.clone()),
                Query::Batch {
                    batch: rest.clone(),
                },
            ),
            _ => reply::error(
                [b"no such BATCH subcommand: ", echo(verb)].concat(),
                talk.bytes(),
            ),
        }
    }

    fn new_batch(&mut self, at: Pushed, line: &Bytes) -> Result<Box<NewBatch>, String> {
        let text = readable(line);
        let wire::NewBatch {
            parent_bid,
            description,
            success,
            complete,
        } = wire::NewBatch::parse(&text)?;
        let bid = self.next_bid();
        let callback = |unit: Option<Unit<'_>>, role| {
            unit.map(|unit| self.callback(at, line, &unit, &bid, role))
        };
        Ok(Box::new(NewBatch {
            protocol: Protocol::FAKTORY,
            complete: callback(complete, "complete").transpose()?,
            success: callback(success, "success").transpose()?,
            parent: Some(parent_bid)
                .filter(|parent| !parent.is_empty())
                .map(Bytes::from),
            name: bid.clone().into(),
            about: description.into(),
            meta: Bytes::copy_from_slice(&(self.settings.clock_ns)().to_le_bytes()),
            expires_ms: self.settings.section.batch_open_max.as_ms(),
        }))
    }

    /// A callback's job. Its `custom` contains the batch.
    fn callback(
        &self,
        at: Pushed,
        line: &Bytes,
        unit: &Unit<'_>,
        bid: &str,
        role: &str,
    ) -> Result<Box<NewJob>, String> {
        let custom = callback_custom(unit.custom, bid, role);
        let jid = if unit.jid.is_empty() {
            self.callback_jid(bid, role).into()
        } else {
            unit.jid.clone()
        };
        let unit = Unit {
            custom: Some(&custom),
            jid,
            ..unit.clone()
        };
        let job = new_job(&self.settings, at, line, &unit)?;
        Ok(Box::new(NewJob {
            batch: None,
            past: None,
            ..job
        }))
    }

    fn next_bid(&mut self) -> String {
        self.batches += 1;
        let hash = self
            .random()
            .chain_update(self.batches.to_le_bytes())
            .finalize();
        batch_name(&hash.first_chunk().copied().unwrap_or_default())
    }

    /// A random name in the form clients use: 24 hexadecimal digits.
    fn callback_jid(&self, bid: &str, role: &str) -> String {
        let hash = self
            .random()
            .chain_update(bid)
            .chain_update(role)
            .finalize();
        hash.iter()
            .take(12)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    fn random(&self) -> Sha256 {
        let [a, b] = self.rng;
        Sha256::new()
            .chain_update(a.to_le_bytes())
            .chain_update(b.to_le_bytes())
    }

    pub(super) fn batch_looked(reply: &Reply, talk: &mut Talk<'_>) {
        let Reply::Batch(batch) = reply else {
            return reply::null(talk.bytes());
        };
        reply::json(&text(batch), talk.bytes());
    }
}

fn text(batch: &BatchView) -> BatchText<'_> {
    let state = |state: CallbackState| match state {
        CallbackState::None => "",
        CallbackState::Enqueued => "1",
        CallbackState::Ok => "2",
    };
    BatchText {
        bid: readable(&batch.name),
        parent_bid: batch.parent.as_ref().map(|parent| readable(parent)),
        description: readable(&batch.about),
        created_at: created_at(batch),
        total: batch.total,
        pending: batch.pending,
        failed: batch.failed,
        complete_st: state(batch.complete),
        success_st: state(batch.success),
    }
}

/// In nanoseconds where they are known: clients' tests compare the time with their own clock just before and just
/// after.
fn created_at(batch: &BatchView) -> String {
    match <[u8; 8]>::try_from(batch.meta.as_ref()).map(u64::from_le_bytes) {
        Ok(ns @ 1..) => time_text_ns(ns),
        Ok(0) | Err(_) => time_text(batch.created_at.0),
    }
}
