//! All events of the engine, and which of them acknowledge something.

use bytes::Bytes;
use windlass_engine::{
    BatchView, CallbackState, Codec, End, Event, Fate, JobId, Note, Priority, Protocol, Pushed, Refusal, Stats, Tag,
    Taken, Timestamp, Token, WorkerState,
};

const TAG: Tag = Tag(1);
const JOB: JobId = JobId(1);

/// A table with a line for each event: its name, whether it acknowledges something, and an example. An event without a line does
/// not compile.
macro_rules! events {
    ($($name:ident: $acknowledges:literal, $sample:expr;)*) => {
        /// An event's name.
        pub(super) const fn name(event: &Event) -> &'static str {
            match event {
                $(Event::$name { .. } => stringify!($name),)*
            }
        }

        /// Every event's name, whether it acknowledges something, and an example.
        pub(super) fn all() -> Vec<(&'static str, bool, Event)> {
            vec![$((stringify!($name), $acknowledges, $sample)),*]
        }
    };
}

events! {
    Pushed: true, Event::Pushed { tag: TAG, job: JOB, how: Pushed::New, durable: true };
    Taken: false, Event::Taken { tag: TAG, job: Box::new(taken()) };
    Empty: false, Event::Empty { tag: TAG };
    WorkAvailable: false, Event::WorkAvailable;
    Finished: true, Event::Finished { tag: TAG, job: JOB };
    Failed: true, Event::Failed { tag: TAG, job: JOB, fate: Fate::Discarded };
    Done: true, Event::Done { tag: TAG };
    Settled: true, Event::Settled { tag: TAG };
    Refused: true, Event::Refused { tag: TAG, why: Refusal::UnknownJob };
    Progress: false, Event::Progress { job: JOB, note: Note::Data(Bytes::new()) };
    Ended: false, Event::Ended { job: JOB, end: End::Cancelled };
    Looked: false, Event::Looked { tag: TAG, job: None, schedule: None };
    ScheduleSet: true, Event::ScheduleSet { tag: TAG, schedule: JOB, replaced: false };
    Schedules: false, Event::Schedules { tag: TAG, rows: Vec::new(), next: None };
    BatchLooked: false, Event::BatchLooked { tag: TAG, batch: Box::new(batch()) };
    Queues: false, Event::Queues { tag: TAG, rows: Vec::new(), next: None };
    Jobs: false, Event::Jobs { tag: TAG, rows: Vec::new(), next: None };
    Clients: false, Event::Clients { tag: TAG, rows: Vec::new(), next: None };
    Stats: false, Event::Stats { tag: TAG, stats: Box::new(Stats::default()) };
    Mutated: true, Event::Mutated { tag: TAG, changed: 1, next: None };
    Beaten: false, Event::Beaten { tag: TAG, state: WorkerState::Running };
    Dismissed: false, Event::Dismissed;
}

fn taken() -> Taken {
    Taken {
        id: JOB,
        token: Token(1),
        queue: Bytes::new(),
        protocol: Protocol::GEARMAN,
        priority: Priority::NORMAL,
        body: Bytes::new(),
        codec: Codec::default(),
        name: Bytes::new(),
        meta: Bytes::new(),
        key: Bytes::new(),
        attempts: 1,
        failures: 0,
        failures_max: 0,
        failure: None,
        ready_at: Timestamp(1),
        until: Timestamp::NEVER,
        heard: false,
    }
}

const fn batch() -> BatchView {
    BatchView {
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
    }
}
