//! The engine's refusals in Faktory's words.
//!
//! Rules: the texts of deployed servers where they have the same refusal, otherwise the code `ERR`.

use windlass_engine::{Refusal, Thing};

use super::ask::Ask;
use super::{FaktorySpeaker, Talk, readable};
use crate::wire::{echo, reply};

impl FaktorySpeaker {
    /// The reply to a refused command.
    pub(super) fn refuse(&mut self, ask: Ask, why: Refusal, talk: &mut Talk<'_>) {
        let is_unknown = matches!(why, Refusal::NotFound(Thing::Job) | Refusal::NotHeld);
        match (ask, why) {
            (
                Ask::Push { bid: Some(bid) } | Ask::Batch { bid, .. } | Ask::BatchStatus(bid),
                NO_BATCH,
            ) => {
                reply::error(no_such_batch(&bid), talk.bytes());
            }
            (
                Ask::Listed {
                    jid,
                    bid: Some(bid),
                },
                NO_BATCH,
            ) => self.listed(jid, Some(no_such_batch(&bid)), talk),
            (Ask::Listed { jid, .. }, _) => {
                let (code, text) = words(why);
                let wrong = if code == "ERR" {
                    text
                } else {
                    format!("{code} {text}")
                };
                self.listed(jid, Some(wrong), talk);
            }
            // Another client may have finished the job first.
            (Ask::Finish, _) if is_unknown => reply::ok(talk.bytes()),
            (Ask::Report(jid), _) if is_unknown => {
                reply::error([b"Job not found ", echo(&jid)].concat(), talk.bytes());
            }
            // "Unknown" is upper case, as on older servers: Go's client looks for it.
            (Ask::Beat(wid), Refusal::NotFound(Thing::Worker)) => {
                reply::error([b"Unknown worker ", echo(&wid)].concat(), talk.bytes());
            }
            (Ask::Remove(queues, _), Refusal::NotFound(Thing::Queue)) => {
                self.next_queue(queues, talk)
            }
            // Only the first refusal of several questions is the reply.
            (Ask::Pause | Ask::Age(_), _) if self.task.take().is_none() => {}
            (_, why) => {
                let (code, text) = words(why);
                reply::coded_error(code, text, talk.bytes());
            }
        }
    }
}

const NO_BATCH: Refusal = Refusal::NotFound(Thing::Batch);

fn no_such_batch(bid: &[u8]) -> String {
    format!("No such batch {}", readable(echo(bid)))
}

fn words(why: Refusal) -> (&'static str, String) {
    if why == Refusal::NotUnique {
        return ("NOTUNIQUE", "Job not unique".to_owned());
    }
    ("ERR", why.to_string())
}
