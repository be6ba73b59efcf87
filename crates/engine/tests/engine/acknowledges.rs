//! Which events are acknowledgements, so that they must wait for the journal.

use bytes::Bytes;
use windlass_engine::{
    End, Event, Fate, JobId, Note, Notice, Pushed, Refusal, Reply, Tag, Thing, WorkerState,
};

const TAG: Tag = Tag(7);
const JOB: JobId = JobId(1);

#[test]
fn acknowledging_events_wait_for_the_journal_and_no_others_do() {
    let pushed = |durable| {
        Event::Reply(
            TAG,
            Reply::Pushed {
                job: JOB,
                how: Pushed::New,
                durable,
            },
        )
    };
    let refused = |tag, why| Event::Reply(tag, Reply::Refused(why));
    let table = [
        ("a durable push", pushed(true), true),
        ("a push that ends with its client", pushed(false), false),
        ("Finished", Event::Reply(TAG, Reply::Finished(JOB)), true),
        (
            "Failed",
            Event::Reply(
                TAG,
                Reply::Failed {
                    job: JOB,
                    fate: Fate::Discarded,
                },
            ),
            true,
        ),
        ("Done", Event::Reply(TAG, Reply::Done), true),
        ("Settled", Event::Reply(TAG, Reply::Settled), true),
        (
            "ScheduleSet",
            Event::Reply(
                TAG,
                Reply::ScheduleSet {
                    schedule: JOB,
                    replaced: false,
                },
            ),
            true,
        ),
        (
            "Mutated",
            Event::Reply(
                TAG,
                Reply::Mutated {
                    changed: 1,
                    next: None,
                },
            ),
            true,
        ),
        (
            "a refusal because the job is gone already",
            refused(TAG, Refusal::NotFound(Thing::Job)),
            true,
        ),
        (
            "the same for a command without a tag",
            refused(Tag::NONE, Refusal::NotFound(Thing::Job)),
            false,
        ),
        (
            "a refusal because of a limit",
            refused(TAG, Refusal::Unavailable),
            false,
        ),
        ("Empty", Event::Reply(TAG, Reply::Empty), false),
        ("WorkAvailable", Event::Notice(Notice::WorkAvailable), false),
        (
            "Progress",
            Event::Notice(Notice::Progress {
                job: JOB,
                note: Note::Data(Bytes::new()),
            }),
            false,
        ),
        (
            "Ended",
            Event::Notice(Notice::Ended {
                job: JOB,
                end: End::Cancelled,
            }),
            false,
        ),
        (
            "Looked",
            Event::Reply(
                TAG,
                Reply::Looked {
                    job: None,
                    schedule: None,
                },
            ),
            false,
        ),
        (
            "Beaten",
            Event::Reply(TAG, Reply::Beaten(WorkerState::Running)),
            false,
        ),
        ("Close", Event::Notice(Notice::Close), false),
    ];
    for (name, event, expected) in table {
        assert_eq!(event.acknowledges(), expected, "{name}");
    }
}
