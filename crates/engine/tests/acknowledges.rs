//! Which events acknowledge something, so that they wait for the journal.

use bytes::Bytes;
use windlass_engine::{End, Event, Fate, JobId, Note, Pushed, Refusal, Tag, WorkerState};

const TAG: Tag = Tag(7);
const JOB: JobId = JobId(1);

#[test]
fn acknowledging_events_wait_for_the_journal_and_no_others_do() {
    let pushed = |durable| Event::Pushed { tag: TAG, job: JOB, how: Pushed::New, durable };
    let refused = |tag, why| Event::Refused { tag, why };
    let table = [
        ("a durable push", pushed(true), true),
        ("a push that ends with its client", pushed(false), false),
        ("Finished", Event::Finished { tag: TAG, job: JOB }, true),
        ("Failed", Event::Failed { tag: TAG, job: JOB, fate: Fate::Discarded }, true),
        ("Done", Event::Done { tag: TAG }, true),
        ("Settled", Event::Settled { tag: TAG }, true),
        ("ScheduleSet", Event::ScheduleSet { tag: TAG, schedule: JOB, replaced: false }, true),
        ("Mutated", Event::Mutated { tag: TAG, changed: 1, next: None }, true),
        ("a refusal because the job is gone already", refused(TAG, Refusal::UnknownJob), true),
        ("the same for a command without a tag", refused(Tag::NONE, Refusal::UnknownJob), false),
        ("a refusal because of a limit", refused(TAG, Refusal::Unavailable), false),
        ("Empty", Event::Empty { tag: TAG }, false),
        ("WorkAvailable", Event::WorkAvailable, false),
        ("Progress", Event::Progress { job: JOB, note: Note::Data(Bytes::new()) }, false),
        ("Ended", Event::Ended { job: JOB, end: End::Cancelled }, false),
        ("Looked", Event::Looked { tag: TAG, job: None, schedule: None }, false),
        ("Beaten", Event::Beaten { tag: TAG, state: WorkerState::Running }, false),
        ("Dismissed", Event::Dismissed, false),
    ];
    for (name, event, expected) in table {
        assert_eq!(event.acknowledges(), expected, "{name}");
    }
}
