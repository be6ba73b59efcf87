//! All events of the engine, and which of them acknowledge something.

use std::collections::BTreeMap;

use bytes::Bytes;
use windlass_engine::Event::{self, Notice as N, Reply as R};
use windlass_engine::{
    BatchView, CallbackState, End, Fate, JobId, Note, Notice, Protocol, Pushed, Refusal, Reply,
    Tag, Thing, Timestamp, Watched, Why, WorkerState,
};
use windlass_hub::testing::taken;

const TAG: Tag = Tag(1);
const JOB: JobId = JobId(1);

/// A table with one line per event: its name, its pattern, whether it is an acknowledgement, and an
/// example. An event without a line does not compile.
macro_rules! events {
    ($($name:ident: $pattern:pat, $acknowledges:literal, $sample:expr;)*) => {
        /// An event's name.
        pub(super) const fn name(event: &Event) -> &'static str {
            match event {
                $($pattern => stringify!($name),)*
            }
        }

        /// The name of every event, whether it is an acknowledgement, and an example.
        pub(super) fn all() -> Vec<(&'static str, bool, Event)> {
            vec![$((stringify!($name), $acknowledges, $sample)),*]
        }
    };
}

events! {
    Pushed: R(_, Reply::Pushed { .. }), true, R(TAG, Reply::Pushed { job: JOB, how: Pushed::New, durable: true });
    Taken: R(_, Reply::Taken(_)), false, R(TAG, Reply::Taken(Box::new(taken())));
    Empty: R(_, Reply::Empty), false, R(TAG, Reply::Empty);
    Finished: R(_, Reply::Finished(_)), true, R(TAG, Reply::Finished(JOB));
    Failed: R(_, Reply::Failed { .. }), true, R(TAG, Reply::Failed { job: JOB, fate: Fate::Discarded });
    Done: R(_, Reply::Done), true, R(TAG, Reply::Done);
    Settled: R(_, Reply::Settled), true, R(TAG, Reply::Settled);
    Refused: R(_, Reply::Refused(_)), true, R(TAG, Reply::Refused(Refusal::NotFound(Thing::Job)));
    Looked: R(_, Reply::Looked { .. }), false, R(TAG, Reply::Looked { job: None, schedule: None });
    ScheduleSet: R(_, Reply::ScheduleSet { .. }), true, R(TAG, Reply::ScheduleSet { schedule: JOB, replaced: false });
    Schedules: R(_, Reply::Schedules { .. }), false, R(TAG, Reply::Schedules { rows: Vec::new(), next: None });
    Batch: R(_, Reply::Batch(_)), false, R(TAG, Reply::Batch(Box::new(batch())));
    Batches: R(_, Reply::Batches { .. }), false, R(TAG, Reply::Batches { rows: Vec::new(), next: None });
    Queues: R(_, Reply::Queues { .. }), false, R(TAG, Reply::Queues { rows: Vec::new(), next: None });
    Namespaces: R(_, Reply::Namespaces { .. }), false, R(TAG, Reply::Namespaces { rows: Vec::new(), next: None });
    Throttles: R(_, Reply::Throttles { .. }), false, R(TAG, Reply::Throttles { rows: Vec::new(), next: None });
    Jobs: R(_, Reply::Jobs { .. }), false, R(TAG, Reply::Jobs { rows: Vec::new(), next: None });
    Workers: R(_, Reply::Workers { .. }), false, R(TAG, Reply::Workers { rows: Vec::new(), next: None });
    Clients: R(_, Reply::Clients { .. }), false, R(TAG, Reply::Clients { rows: Vec::new(), next: None });
    Keys: R(_, Reply::Keys { .. }), false, R(TAG, Reply::Keys { policy: None, rows: Vec::new(), next: None });
    Why: R(_, Reply::Why(_)), false, R(TAG, Reply::Why(Why::NotReady));
    Figures: R(_, Reply::Figures { .. }), false, R(TAG, Reply::Figures { rows: Vec::new(), next: None });
    Kinds: R(_, Reply::Kinds { .. }), false, R(TAG, Reply::Kinds { rows: Vec::new(), next: None });
    Stats: R(_, Reply::Stats(_)), false, R(TAG, Reply::Stats(Box::default()));
    Days: R(_, Reply::Days(_)), false, R(TAG, Reply::Days(BTreeMap::new()));
    WorkLeft: R(_, Reply::WorkLeft(_)), false, R(TAG, Reply::WorkLeft(Box::default()));
    Attempts: R(_, Reply::Attempts(_)), false, R(TAG, Reply::Attempts(Vec::new()));
    Mutated: R(_, Reply::Mutated { .. }), true, R(TAG, Reply::Mutated { changed: 1, next: None });
    Counted: R(_, Reply::Counted { .. }), false, R(TAG, Reply::Counted { jobs: 1, next: None });
    Beaten: R(_, Reply::Beaten(_)), false, R(TAG, Reply::Beaten(WorkerState::Running));
    Delivered: N(Notice::Delivered(_)), false, N(Notice::Delivered(Box::new(taken())));
    WorkAvailable: N(Notice::WorkAvailable), false, N(Notice::WorkAvailable);
    Progress: N(Notice::Progress { .. }), false, N(Notice::Progress { job: JOB, note: Note::Data(Bytes::new()) });
    Ended: N(Notice::Ended { .. }), false, N(Notice::Ended { job: JOB, end: End::Cancelled });
    Collected: N(Notice::Collected { .. }), false, N(Notice::Collected { job: JOB, key: Bytes::new(), end: None });
    Watched: N(Notice::Watched(_)), false, N(Notice::Watched(Watched::Missed(1)));
    Close: N(Notice::Close), false, N(Notice::Close);
}

const fn batch() -> BatchView {
    BatchView {
        namespace: bytes::Bytes::new(),
        name: Bytes::new(),
        protocol: Protocol::FAKTORY,
        parent: None,
        about: Bytes::new(),
        meta: Bytes::new(),
        created_at: Timestamp(1),
        committed: false,
        total: 0,
        pending: 0,
        failed: 0,
        complete: CallbackState::None,
        success: CallbackState::None,
        id: JobId(1),
    }
}
