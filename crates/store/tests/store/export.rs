//! The lines of an export: the order of entities, the places of jobs with their times, and the counts.

use bytes::Bytes;
use windlass_engine::{
    DayBegin, Holder, Job, JobId, JobState, Lease, NewJob, OnExpiry, Protocol, Recurrence,
    Schedule, Timestamp, Token, Totals,
};
use windlass_store::{About, Exported, Salvage};

use crate::jobs;

const ABOUT: About<'static> = About {
    daemon: "0.1.0",
    written_at: Timestamp(1),
    namespace: None,
};

fn lines(found: &mut Salvage) -> (Vec<String>, Exported) {
    let mut out = Vec::new();
    let exported = found.export(ABOUT, &mut out).unwrap();
    (
        String::from_utf8(out)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect(),
        exported,
    )
}

#[test]
fn a_job_is_shown_with_its_place_and_the_end_of_it() {
    let at = Timestamp(50);
    let lease = |until| {
        let lease = Lease::new(
            Holder::Named(b"w"[..].into()),
            Token(1),
            Timestamp(9),
            until,
            OnExpiry::Fail,
        );
        JobState::Leased(Box::new(lease))
    };
    let table = [
        (JobState::Ready, "ready", None),
        (lease(at), "leased", Some(50)),
        (lease(Timestamp::NEVER), "leased", None),
        (JobState::Scheduled(at), "scheduled", Some(50)),
        (JobState::Retrying(at), "retrying", Some(50)),
        (JobState::Dead(at), "dead", Some(50)),
        (JobState::Dead(Timestamp::NEVER), "dead", None),
        (JobState::Parked, "shelved", None),
        (JobState::Done(at), "done", Some(50)),
    ];
    for (state, place, due) in table {
        let mut found = Salvage::default();
        found.put(Job {
            state,
            ..jobs::plain()
        });
        let (lines, _) = lines(&mut found);
        let due = due.map_or(String::new(), |at: u64| format!("\"due_at_ms\":{at},"));
        let expected = format!(
            "\"place\":\"{place}\",\"ready_at_ms\":{},{due}\"attempts\"",
            jobs::plain().ready_at.0
        );
        assert!(lines[1].contains(&expected), "{expected} in {}", lines[1]);
        assert!(
            lines[1].starts_with("{\"job\":7,\"queue_number\":"),
            "its queue has no name: {}",
            lines[1]
        );
    }
}

#[test]
fn entities_are_in_the_order_of_their_numbers_and_counted() {
    let mut found = Salvage::default();
    let job = NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"q"), Bytes::new());
    for id in [2, 3, 9].map(JobId) {
        found.put(Job {
            id,
            ..jobs::plain()
        });
    }
    for id in [1, 4, 10].map(JobId) {
        let recurrence = Recurrence::Every { interval_ms: 60 };
        let (anchor, next_at) = (Timestamp(0), Timestamp(60));
        let job = job.clone();
        found.schedules.insert(
            id,
            Schedule {
                id,
                key: None,
                job,
                recurrence,
                anchor,
                next_at,
                runs_left: None,
                last: None,
            },
        );
    }
    for id in [5, 11].map(JobId) {
        found
            .batches
            .insert(id, jobs::plain_batch(id, "b", Timestamp(0)));
    }
    for number in 3..7 {
        found.days.insert(
            number,
            DayBegin {
                number,
                day: 20_000 + number,
                totals: Totals::default(),
            },
        );
    }
    let (lines, exported) = lines(&mut found);
    assert_eq!(
        exported,
        Exported {
            namespaces: 0,
            jobs: 3,
            queues: 0,
            schedules: 3,
            batches: 2,
            days: 4
        }
    );
    let first = |line: &String| line.split(',').next().unwrap().replace(['{', '"'], "");
    let is: Vec<String> = lines[1..lines.len() - 1].iter().map(first).collect();
    let entities = [
        "schedule:1",
        "job:2",
        "job:3",
        "schedule:4",
        "batch:5",
        "job:9",
        "schedule:10",
        "batch:11",
    ];
    let days = ["day:20003", "day:20004", "day:20005", "day:20006"];
    assert_eq!(is, [&entities[..], &days].concat());
    assert!(
        lines[0].contains("\"records\":12,\"whole\":1}"),
        "{}",
        lines[0]
    );
    let end = "{\"export_end\":13,\"jobs\":3,\"queues\":0,\"schedules\":3,\"batches\":2,\"days\":4,\"sha256\":";
    assert!(lines[13].starts_with(end), "{}", lines[13]);
}
