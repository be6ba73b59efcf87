//! Records with values that the engine never writes: the field with the value must be rejected.

use windlass_engine::{
    BatchProgress, Coalesced, Cycle, DayBegin, EngineMeta, Extra, Job, JobId, LastRun, Listen,
    Member, NewJob, Past, Protocol, QueueImage, Recurrence, Role, RunEnd, Schedule, Stage,
    Timestamp, Totals,
};
use windlass_store::{BatchMoved, DecodeError, MetaRecord, NextRun, Record};

use crate::jobs;

const TOO_MUCH: u64 = 1 << 63;

fn read(record: &Record) -> Result<Record, DecodeError> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    Record::all(&bytes).next().unwrap()
}

fn with(extra: Extra) -> Record {
    Record::Put(Job {
        extra: Some(Box::new(extra)),
        ..jobs::plain()
    })
}

fn behind(job: u64) -> Record {
    with(Extra {
        coalesced: Some(Box::new(Coalesced {
            since: Timestamp(1),
            submits: 2,
            attempts: 0,
            behind: Some(JobId(job)),
            joined: true,
        })),
        ..Extra::default()
    })
}

fn cycle(priority: u64, boost: u32) -> Record {
    with(Extra {
        cycle: Some(Cycle { priority, boost }),
        ..Extra::default()
    })
}

fn member(batch: u64) -> Record {
    with(Extra {
        member: Some(Member {
            batch: JobId(batch),
            role: Role::Job,
            ran: false,
        }),
        ..Extra::default()
    })
}

fn template(change: impl FnOnce(&mut NewJob)) -> Record {
    let mut job = NewJob::new(Protocol::FAKTORY, "q".into(), "body".into());
    change(&mut job);
    Record::Schedule(Box::new(Schedule {
        id: JobId(5),
        key: None,
        job,
        recurrence: Recurrence::Every { interval_ms: 60 },
        anchor: Timestamp(0),
        next_at: Timestamp(1),
        runs_left: None,
        last: None,
    }))
}

fn ran(end: RunEnd, earlier: usize) -> Record {
    Record::NextRun(NextRun {
        schedule: JobId(5),
        next_at: Timestamp(1),
        runs_left: None,
        last: Some(LastRun {
            at: Timestamp(1),
            job: JobId(6),
            end,
            earlier: vec![JobId(6); earlier],
        }),
    })
}

fn left(runs: u64) -> Record {
    Record::NextRun(NextRun {
        schedule: JobId(5),
        next_at: Timestamp(1),
        runs_left: Some(runs),
        last: None,
    })
}

fn progress(progress: BatchProgress) -> Record {
    Record::BatchMoved(BatchMoved {
        batch: JobId(5),
        progress,
    })
}

fn counts(total: u64, ran: u64, succeeded: u64) -> Record {
    progress(BatchProgress {
        total,
        ran,
        succeeded,
        ..BatchProgress::default()
    })
}

fn held(committed: bool, complete: Stage, success: Stage) -> Record {
    progress(BatchProgress {
        committed,
        complete,
        success,
        held_until: Some(Timestamp(1)),
        ..BatchProgress::default()
    })
}

fn child(parent: u64) -> Record {
    let mut batch = jobs::plain_batch(JobId(5), "b", Timestamp(1));
    batch.parent = Some(JobId(parent));
    batch.parent_name = Some("p".into());
    Record::Batch(Box::new(batch))
}

fn queue(serial: u64) -> Record {
    Record::QueueSet(QueueImage {
        serial,
        ..QueueImage::default()
    })
}

fn day(number: u64, day: u64) -> Record {
    let totals = Totals::default();
    Record::Day(DayBegin {
        number,
        day,
        totals,
    })
}

fn meta(change: impl FnOnce(&mut EngineMeta)) -> Record {
    let mut meta = EngineMeta::default();
    change(&mut meta);
    Record::Meta(MetaRecord { meta, clean: false })
}

fn pushed(pushed: u64) -> Totals {
    Totals {
        pushed,
        ..Totals::default()
    }
}

fn protocols(first: u8, second: u8) -> Record {
    let counted = [first, second].map(|number| (Protocol(number), Totals::default()));
    meta(|meta| meta.protocols = counted.to_vec())
}

#[test]
fn a_value_that_the_engine_never_writes_is_refused_by_its_field() {
    let no_parent_name = {
        let mut batch = jobs::plain_batch(JobId(5), "b", Timestamp(1));
        batch.parent = Some(JobId(4));
        Record::Batch(Box::new(batch))
    };
    let table: Vec<(&str, Record)> = vec![
        ("a job's number", Record::Gone(JobId(TOO_MUCH))),
        ("a job's number", behind(0)),
        ("a job's number", behind(TOO_MUCH)),
        ("a cycle's priority", cycle(TOO_MUCH, 0)),
        ("a cycle's boost", cycle(0, 64)),
        ("a batch's number", member(TOO_MUCH)),
        ("a template", template(|job| job.durable = false)),
        ("a template", template(|job| job.listen = Listen::Yes)),
        ("a template", template(|job| job.batch = Some("b".into()))),
        (
            "a template",
            template(|job| job.past = Some(Box::new(Past::default()))),
        ),
        ("a schedule's remaining runs", left(0)),
        ("the end of a run", ran(RunEnd::Forgotten, 0)),
        ("the end of a run", ran(RunEnd::Unserved, 0)),
        ("earlier runs", ran(RunEnd::Done, 33)),
        ("jobs of a batch", counts(TOO_MUCH, 0, 0)),
        ("jobs of a batch that ran", counts(1, 2, 0)),
        ("jobs of a batch that succeeded", counts(2, 1, 2)),
        (
            "a batch's flags",
            held(false, Stage::Waiting, Stage::Waiting),
        ),
        (
            "a batch's flags",
            held(true, Stage::Passed, Stage::Enqueued),
        ),
        ("a batch's parent", child(5)),
        ("a batch's parent", no_parent_name),
        ("a queue's serial", queue(TOO_MUCH)),
        ("a day's number", day(0, 1)),
        ("a day", day(1, TOO_MUCH)),
        ("the boot count", meta(|meta| meta.boot_count = TOO_MUCH)),
        (
            "the next job's number",
            meta(|meta| meta.next_job = TOO_MUCH),
        ),
        (
            "the reserved numbers",
            meta(|meta| meta.reserved = TOO_MUCH),
        ),
        ("a total", meta(|meta| meta.totals = pushed(TOO_MUCH))),
        (
            "a total",
            meta(|meta| meta.protocols = vec![(Protocol(1), pushed(TOO_MUCH))]),
        ),
        ("a protocol", protocols(3, 3)),
        ("a protocol", protocols(3, 2)),
    ];
    for (expected, record) in table {
        let read = read(&record);
        let Err(DecodeError::Range { field, .. }) = read else {
            panic!("{expected}: {read:?}")
        };
        assert_eq!(field, expected, "{record:?}");
    }
    let accepted = [
        cycle(TOO_MUCH - 1, 63),
        member(TOO_MUCH - 1),
        behind(1),
        template(|_| {}),
        left(1),
        ran(RunEnd::Dead, 32),
        counts(2, 2, 2),
        held(true, Stage::Waiting, Stage::Passed),
        held(true, Stage::Passed, Stage::Waiting),
        child(4),
        queue(TOO_MUCH - 1),
        day(1, 0),
        protocols(2, 3),
    ];
    for record in accepted {
        assert_eq!(read(&record).as_ref(), Ok(&record));
    }
}

#[test]
fn types_refuse_what_they_cannot_be() {
    let mut bytes = Vec::new();
    Record::Put(jobs::plain()).encode(&mut bytes);
    let plain = bytes.clone();
    assert!(Record::all(&plain).next().unwrap().is_ok());
    let table: [(&str, usize, u8); 2] = [("a priority of 0", 5, 0), ("a priority of 10", 5, 10)];
    for (name, at, byte) in table {
        let position = plain.iter().position(|it| *it == 5).unwrap_or(at);
        let mut bytes = plain.clone();
        bytes[position] = byte;
        let read = Record::all(&bytes).next().unwrap();
        assert!(
            matches!(read, Err(DecodeError::Refused(_))),
            "{name}: {read:?}"
        );
    }
    for kind in [0, 6, 11, 17, 77] {
        let read = Record::all(&[kind, 0, 0]).next().unwrap();
        assert_eq!(read, Err(DecodeError::Kind(kind)));
    }
    let rank = Record::Put(Job {
        rank: 0,
        ..jobs::plain()
    });
    assert!(matches!(read(&rank), Err(DecodeError::Refused(_))));
}
