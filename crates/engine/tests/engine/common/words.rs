//! Events as lines of text.

use windlass_engine::{
    Attempt, ClientId, Cursor, End, Event, Fate, JobView, KeyRow, Note, Notice, Pushed, Reply,
    Schedule, Taken, Timestamp, Watched,
};

/// A line per event: the receiving client, and the contents.
pub(crate) fn words(events: &[(ClientId, Event)]) -> Vec<String> {
    events
        .iter()
        .map(|(client, event)| format!("{} {}", client.0, word(event)))
        .collect()
}

fn word(event: &Event) -> String {
    match event {
        Event::Reply(_, Reply::Pushed { job, how, .. }) => {
            let how = match how {
                Pushed::New => "new",
                Pushed::Attached => "attached",
                Pushed::Kept => "kept",
            };
            format!("{how} j{}", job.0)
        }
        Event::Reply(_, Reply::Taken(job)) | Event::Notice(Notice::Delivered(job)) => taken(job),
        Event::Reply(_, Reply::Empty) => "empty".into(),
        Event::Reply(_, Reply::Why(why)) => format!("{why:?}"),
        Event::Reply(_, Reply::Figures { rows, .. }) => format!("figures of {} queues", rows.len()),
        Event::Reply(_, Reply::Namespaces { rows, .. }) => {
            let names = rows.iter().map(|row| String::from_utf8_lossy(&row.name));
            format!("namespaces {:?}", names.collect::<Vec<_>>())
        }
        Event::Reply(_, Reply::Kinds { rows, .. }) => format!("figures of {} kinds", rows.len()),
        Event::Notice(Notice::WorkAvailable) => "woken".into(),
        Event::Reply(_, Reply::Finished(job)) => format!("finished j{}", job.0),
        Event::Reply(_, Reply::Failed { job, fate, .. }) => match fate {
            Fate::Retried(at) => format!("failed j{}, retried {}", job.0, at.0),
            Fate::Buried(until) => format!("failed j{}, buried until {}", job.0, until.0),
            Fate::Discarded => format!("failed j{}, discarded", job.0),
        },
        Event::Reply(_, Reply::Done) => "done".into(),
        Event::Reply(_, Reply::Settled) => "settled".into(),
        Event::Reply(_, Reply::Refused(why)) => format!("refused: {why}"),
        Event::Notice(Notice::Progress { job, note }) => {
            format!("told j{} {}", job.0, note_words(note))
        }
        Event::Notice(Notice::Ended { job, end }) => format!("ended j{} {}", job.0, end_words(end)),
        Event::Reply(
            _,
            Reply::Looked {
                job: None,
                schedule: None,
                ..
            },
        ) => "sees nothing".into(),
        Event::Reply(
            _,
            Reply::Looked {
                job: None,
                schedule: Some(schedule),
                ..
            },
        ) => {
            format!("sees {}", schedule_words(schedule))
        }
        Event::Reply(
            _,
            Reply::ScheduleSet {
                schedule, replaced, ..
            },
        ) => {
            format!(
                "schedule s{}{}",
                schedule.0,
                if *replaced { " replaced" } else { "" }
            )
        }
        Event::Reply(_, Reply::Schedules { rows, next, .. }) => listed(
            "schedules",
            rows.iter().map(|row| format!("s{}", row.id.0)),
            *next,
        ),
        Event::Reply(_, Reply::Batches { rows, next }) => {
            listed("batches", rows.iter().map(|row| text(&row.name)), *next)
        }
        Event::Reply(_, Reply::Batch(batch)) => format!("sees batch {}", text(&batch.name)),
        Event::Reply(
            _,
            Reply::Looked {
                job: Some(view), ..
            },
        ) => format!("sees {}", view_words(view)),
        Event::Reply(_, Reply::Queues { rows, next, .. }) => {
            listed("queues", rows.iter().map(|row| text(&row.name)), *next)
        }
        Event::Reply(_, Reply::Jobs { rows, next, .. }) => listed(
            "jobs",
            rows.iter().map(|row| format!("j{}", row.job.id.0)),
            *next,
        ),
        Event::Reply(_, Reply::Throttles { rows, next }) => {
            listed("throttles", rows.iter().map(|row| text(&row.queue)), *next)
        }
        Event::Reply(_, Reply::Keys { rows, next, .. }) => {
            let key = |row: &KeyRow| format!("{}: {} {}", text(&row.key), row.waiting, row.running);
            listed("keys", rows.iter().map(key), *next)
        }
        Event::Reply(_, Reply::Workers { rows, next }) => listed(
            "workers",
            rows.iter()
                .map(|row| format!("{} {}", text(&row.name), row.held)),
            *next,
        ),
        Event::Reply(_, Reply::Clients { rows, next, .. }) => {
            listed("clients", rows.iter().map(|row| text(&row.label)), *next)
        }
        Event::Reply(_, Reply::Stats(stats)) => format!("stats {} jobs", stats.jobs),
        Event::Reply(_, Reply::Attempts(rows)) => {
            listed("attempts", rows.iter().map(attempt_words), None)
        }
        Event::Reply(_, Reply::Days(days)) => format!("{} days", days.len()),
        Event::Reply(_, Reply::WorkLeft(left)) => format!("left {:?}", left.jobs),
        Event::Reply(_, Reply::Mutated { changed, next, .. }) => {
            listed("mutated", [changed.to_string()].into_iter(), *next)
        }
        Event::Reply(_, Reply::Counted { jobs, next }) => {
            listed("counted", [jobs.to_string()].into_iter(), *next)
        }
        Event::Reply(_, Reply::Beaten(state)) => format!("beaten {state:?}"),
        Event::Notice(Notice::Watched(Watched::Missed(changes))) => format!("missed {changes}"),
        Event::Notice(Notice::Watched(Watched::Queue(queue, change))) => {
            format!("sees {} {change:?}", text(queue))
        }
        Event::Notice(Notice::Watched(Watched::Worker(worker, change))) => {
            format!("sees {} {change:?}", text(worker))
        }
        Event::Notice(Notice::Watched(Watched::Changed(change))) => match change.now {
            Some(now) => format!("sees j{} {now:?}", change.job.0),
            None => format!("sees j{} gone", change.job.0),
        },
        Event::Notice(Notice::Collected { job, key, end }) => {
            let end = end.as_deref().map_or("lives".into(), end_words);
            format!("collected j{} {} {end}", job.0, text(key))
        }
        Event::Notice(Notice::Close) => "closed".into(),
    }
}

fn taken(job: &Taken) -> String {
    let until = match job.until {
        Timestamp::NEVER => String::new(),
        until => format!(" until {}", until.0),
    };
    format!("took j{}.{}{until}", job.id.0, job.token.0)
}

fn note_words(note: &Note) -> String {
    match note {
        Note::Progress {
            numerator,
            denominator,
            ..
        } => format!("{numerator}/{denominator}"),
        Note::Data(data) => format!("data {}", text(data)),
        Note::Warning(warning) => format!("warning {}", text(warning)),
    }
}

fn end_words(end: &End) -> String {
    match end {
        End::Succeeded { result, .. } => format!("succeeded {}", text(result)),
        End::Failed(failure) => format!("failed {}", text(&failure.message)),
        End::Lost => "lost".into(),
        End::TimedOut => "timed out".into(),
        End::Expired => "expired".into(),
        End::Cancelled => "cancelled".into(),
    }
}

fn view_words(view: &JobView) -> String {
    let result = view
        .job
        .extra
        .as_ref()
        .and_then(|extra| extra.result.as_ref());
    let state = format!("{:?}", view.job.state.kind()).to_lowercase();
    let state = result.map_or(state.clone(), |result| format!("{state} {}", text(result)));
    format!("j{} {state} in {}", view.job.id.0, text(&view.queue))
}

fn schedule_words(schedule: &Schedule) -> String {
    let left = schedule
        .runs_left
        .map_or(String::new(), |left| format!(", {left} left"));
    format!(
        "s{} in {} at {}{left}",
        schedule.id.0,
        text(&schedule.job.queue),
        schedule.next_at.0
    )
}

fn listed(what: &str, rows: impl Iterator<Item = String>, next: Option<Cursor>) -> String {
    let rows: Vec<String> = std::iter::once(what.to_owned()).chain(rows).collect();
    let more = if next.is_some() { " and more" } else { "" };
    format!("{}{more}", rows.join(" "))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Number, worker, times, outcome, and the error with the stack trace.
fn attempt_words(attempt: &Attempt) -> String {
    let Attempt {
        number,
        worker,
        began_at,
        ended_at,
        end,
        error,
    } = attempt;
    let error = error.iter().map(|error| {
        format!(
            " {}: {} [{}]",
            text(&error.kind),
            text(&error.message),
            text(&error.backtrace)
        )
    });
    format!(
        "{number} {} {}-{} {end:?}{}",
        text(worker),
        began_at.0,
        ended_at.0,
        error.collect::<String>()
    )
}
