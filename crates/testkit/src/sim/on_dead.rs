//! The rule of every life: jobs report the dead of some queues.

use windlass_engine::{Job, NewJob, OnDead, Timestamp};

/// Reports the dead of queues whose names end in 1, in those whose names end in 0.
#[derive(Debug)]
pub(crate) struct Reports;

impl OnDead for Reports {
    fn job(&self, dead: &Job, queue: &[u8], _: &[u8], _wall: Timestamp) -> Option<NewJob> {
        let stem = queue.strip_suffix(b"1")?;
        Some(NewJob::new(
            dead.protocol,
            [stem, b"0"].concat().into(),
            dead.id.0.to_string().into(),
        ))
    }
}
