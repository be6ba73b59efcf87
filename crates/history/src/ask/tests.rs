use std::sync::Arc;

use windlass_engine::{
    AttemptEnd, Ended, EndedWorker, Ending, Excerpt, Failure, JobId, Origin, Protocol, Timestamp,
};

use super::*;
use crate::day_file::DayFile;
use crate::folder::DAY_MS;

const STORE: u64 = 7;

/// A job that was pushed, taken and done within a second.
pub(crate) fn ended(job: u64, ended_at: u64) -> Ended {
    Ended {
        job: JobId(job),
        ending: Ending::Done,
        ended_at: Timestamp(ended_at),
        keep_ms: 7 * DAY_MS,
        queue: "mail".into(),
        protocol: Protocol::FAKTORY,
        name: format!("jid-{job}").into(),
        unique: "".into(),
        kind: "SendMail".into(),
        key: "".into(),
        origin: Some(Box::new(Origin {
            pushed_at: Timestamp(ended_at - 1_000),
            due_at: None,
            producer: "127.0.0.1:1".into(),
            schedule: None,
            again_of: None,
        })),
        batch: None,
        submits: 1,
        ready_at: Timestamp(ended_at - 1_000),
        started_at: Some(Timestamp(ended_at - 300)),
        worker: Some(Box::new(EndedWorker {
            protocol: Some(Protocol::GEARMAN),
            name: "w1".into(),
            address: "127.0.0.1:2".into(),
        })),
        deliveries: 1,
        failures: 0,
        attempts: None,
        failure: None,
        progress: None,
        body: None,
        result: None,
        output: None,
    }
}

/// A history of these rows, one in each commit.
fn book(rows: &[Ended]) -> (tempfile::TempDir, Book) {
    let folder = tempfile::tempdir().unwrap();
    for (seq, row) in (1..).zip(rows) {
        let id = FileId::of(row.ended_at.0, row.keep_ms);
        let mut file = DayFile::open(folder.path(), id, STORE).unwrap();
        assert_eq!(file.write([(seq, row)].into_iter(), seq).unwrap(), 1);
    }
    let book = Book::new(folder.path().to_owned());
    (folder, book)
}

fn jobs(answer: &Answer) -> Vec<u64> {
    assert_eq!(answer.unreadable, [""; 0]);
    answer.rows.iter().map(|row| row.job.0).collect()
}

#[test]
fn a_row_is_read_as_the_engine_wrote_it() {
    let mut attempts = windlass_engine::Attempts::default();
    attempts.push(windlass_engine::Attempt {
        number: 1,
        worker: b"w0".as_slice().into(),
        began_at: Timestamp(DAY_MS + 1),
        ended_at: Timestamp(DAY_MS + 2),
        end: AttemptEnd::TimedOut,
        error: None,
    });
    let written = Ended {
        ending: Ending::Dead,
        queue: vec![b'q', 0xff].into(),
        unique: "u%".into(),
        key: "customer".into(),
        batch: Some(JobId(3)),
        origin: Some(Box::new(Origin {
            pushed_at: Timestamp(DAY_MS),
            due_at: Some(Timestamp(DAY_MS + 5)),
            producer: "10.0.0.1:9".into(),
            schedule: Some(JobId(4)),
            again_of: Some(JobId(2)),
        })),
        attempts: Some(Arc::new(attempts)),
        failure: Some(Box::new(Failure {
            kind: "Oops".into(),
            message: "it broke".into(),
            backtrace: vec!["one".into(), "two".into()],
            ..Failure::default()
        })),
        body: Excerpt::of(b"[1,2]", 3),
        result: Excerpt::of(&[0xfe, 1], 9),
        output: Excerpt::of(b"", 9),
        ..ended(12, 2 * DAY_MS - 1)
    };
    let (_folder, book) = book(std::slice::from_ref(&written));
    let answer = book.ask(&Question::default()).unwrap();
    let row = &answer.rows[0];
    assert_eq!(
        (row.job, row.ending, row.ended_at),
        (JobId(12), Ending::Dead, 2 * DAY_MS - 1)
    );
    assert_eq!(
        (&row.queue, &row.unique, &row.key),
        (&written.queue, &written.unique, &written.key)
    );
    assert_eq!(
        (row.pushed_at, row.due_at),
        (Some(DAY_MS), Some(DAY_MS + 5))
    );
    assert_eq!((row.batch, row.schedule), (Some(JobId(3)), Some(JobId(4))));
    assert_eq!(row.again_of, Some(JobId(2)));
    assert_eq!(
        (&*row.protocol, &*row.worker_protocol),
        ("faktory", "gearman")
    );
    assert_eq!(
        (&*row.worker, &*row.worker_address),
        (&b"w1"[..], "127.0.0.1:2")
    );
    assert_eq!(
        (&*row.error, &*row.message),
        (&b"Oops"[..], &b"it broke"[..])
    );
    assert_eq!(&*row.backtrace, b"one\ntwo");
    assert_eq!(
        (row.attempts.len(), &*row.attempts[0].end),
        (1, "timed out")
    );
    assert_eq!(
        (&row.body, &row.result, &row.output),
        (&written.body, &written.result, &written.output)
    );
    assert_eq!(book.row(row.id).unwrap().as_ref(), Some(row));
    let other = RowId { n: 99, ..row.id };
    assert_eq!(book.row(other).unwrap(), None);
}

#[test]
fn each_condition_selects_its_rows() {
    let mut rows: Vec<Ended> = (1..=6).map(|job| ended(job, job * DAY_MS + 500)).collect();
    rows[1].queue = "thumbs".into();
    rows[1].kind = "".into();
    rows[2].ending = Ending::Dead;
    rows[3].started_at = Some(Timestamp(4 * DAY_MS - 5_000));
    rows[3].unique = "order-4".into();
    rows[4].key = "acme".into();
    rows[4].body = Excerpt::of(b"100%_Sure", 99);
    rows[5].worker = None;
    rows[5].batch = Some(JobId(77));
    let (_folder, book) = book(&rows);
    let asked = |question: Question| jobs(&book.ask(&question).unwrap());
    let any = Question::default;
    assert_eq!(asked(any()), [6, 5, 4, 3, 2, 1]);
    let some = |text: &'static str| Some(bytes::Bytes::from(text));
    let table: [(Question, &[u64]); 15] = [
        (
            Question {
                queue: some("thumbs"),
                ..any()
            },
            &[2],
        ),
        (
            Question {
                kind: some("thumbs"),
                ..any()
            },
            &[2],
        ),
        (
            Question {
                kind: some("SendMail"),
                ..any()
            },
            &[6, 5, 4, 3, 1],
        ),
        (
            Question {
                endings: vec![Ending::Dead, Ending::Failed],
                ..any()
            },
            &[3],
        ),
        (
            Question {
                slower_than_ms: Some(300),
                ..any()
            },
            &[4],
        ),
        (
            Question {
                key: some("acme"),
                ..any()
            },
            &[5],
        ),
        (
            Question {
                worker: some("w1"),
                ..any()
            },
            &[5, 4, 3, 2, 1],
        ),
        (
            Question {
                worker: some("127.0.0.1:2"),
                limit: 2,
                ..any()
            },
            &[5, 4],
        ),
        (
            Question {
                name: some("jid-3"),
                ..any()
            },
            &[3],
        ),
        (
            Question {
                name: some("order-4"),
                ..any()
            },
            &[4],
        ),
        (
            Question {
                job: Some(JobId(2)),
                ..any()
            },
            &[2],
        ),
        (
            Question {
                batch: Some(JobId(77)),
                ..any()
            },
            &[6],
        ),
        (
            Question {
                text: Some("0%_sURE".into()),
                ..any()
            },
            &[5],
        ),
        (
            Question {
                text: Some("0_".into()),
                ..any()
            },
            &[],
        ),
        (
            Question {
                from_ms: 2 * DAY_MS,
                until_ms: 4 * DAY_MS,
                ..any()
            },
            &[3, 2],
        ),
    ];
    for (question, expected) in table {
        assert_eq!(asked(question.clone()), expected, "{question:?}");
    }
}

#[test]
fn a_question_goes_on_where_its_limit_or_its_time_ended() {
    let mut rows: Vec<Ended> = (1..=9)
        .map(|job| ended(job, (1 + job / 4) * DAY_MS + job))
        .collect();
    // The files of a day are one list.
    for row in &mut rows {
        row.keep_ms = DAY_MS * (1 + row.job.0 % 3);
    }
    let (_folder, book) = book(&rows);
    for time in [Duration::from_secs(60), Duration::ZERO] {
        let (mut found, mut after) = (Vec::new(), None);
        for _ in 0..20 {
            let question = Question {
                limit: 2,
                after,
                ..Question::default()
            };
            let answer = book.ask_within(&question, time).unwrap();
            found.extend(jobs(&answer));
            after = answer.next.map(|next| next.to_string().parse().unwrap());
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, [9, 8, 7, 6, 5, 4, 3, 2, 1], "{time:?}");
    }
}

#[test]
fn an_answer_with_large_bodies_has_fewer_rows() {
    let large = vec![b'x'; BYTES_MAX / 3];
    let rows: Vec<Ended> = (1..=7)
        .map(|job| Ended {
            body: Excerpt::of(&large, u32::MAX),
            ..ended(job, DAY_MS + job)
        })
        .collect();
    let (_folder, book) = book(&rows);
    let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let question = Question {
            after,
            ..Question::default()
        };
        let answer = book.ask(&question).unwrap();
        found.extend(jobs(&answer));
        pages += 1;
        after = answer.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((&*found, pages), (&[7, 6, 5, 4, 3, 2, 1][..], 2));
}

#[test]
fn a_file_has_each_commit_once_and_begins_anew_with_another_store() {
    let folder = tempfile::tempdir().unwrap();
    let row = ended(1, DAY_MS);
    let id = FileId::of(DAY_MS, row.keep_ms);
    for (store, upto, written) in [(1, 5, 1), (1, 5, 0), (1, 6, 1), (2, 6, 1), (2, 6, 0)] {
        let mut file = DayFile::open(folder.path(), id, store).unwrap();
        let made = file.write([(upto, &row)].into_iter(), upto).unwrap();
        assert_eq!(made, written, "store {store} up to {upto}");
        file.sync().unwrap();
    }
}

#[test]
fn hours_count_what_ended_and_how_long_it_took() {
    let mut rows: Vec<Ended> = (0..4)
        .map(|job| ended(job, DAY_MS + 3_600_000 * (job / 3) + job))
        .collect();
    rows[1].ending = Ending::Dead;
    rows[2].ending = Ending::Expired;
    rows[2].started_at = None;
    let (_folder, book) = book(&rows);
    let hours = book
        .hours(&Hours {
            until_ms: u64::MAX,
            ..Hours::default()
        })
        .unwrap();
    let hours = hours.rows;
    let shown: Vec<_> = hours
        .iter()
        .map(|it| (it.hour_ms, it.done, it.failed, it.other))
        .collect();
    assert_eq!(shown, [(DAY_MS, 1, 1, 1), (DAY_MS + 3_600_000, 1, 0, 0)]);
    let first = &hours[0];
    assert_eq!(
        (first.ran.count(), first.ran.max_ms, first.waited.max_ms),
        (2, 300, 700)
    );
    assert_eq!(&*first.kind, b"SendMail");
    let none = Hours {
        queue: Some("other".into()),
        until_ms: u64::MAX,
        ..Hours::default()
    };
    assert_eq!(book.hours(&none).unwrap().rows, []);
}

#[test]
fn kinds_are_summed_over_days_and_over_fewer_if_there_is_no_time() {
    let mut rows: Vec<Ended> = (1..=6)
        .map(|job| ended(job, (1 + job / 3) * DAY_MS + job))
        .collect();
    rows[0].kind = "Other".into();
    let (_folder, book) = book(&rows);
    let all = Hours {
        until_ms: u64::MAX,
        ..Hours::default()
    };
    let kinds = book.kinds(&all).unwrap();
    let mut shown: Vec<_> = kinds
        .rows
        .iter()
        .map(|row| (row.kind.clone(), row.done, row.ran.count()))
        .collect();
    shown.sort();
    assert_eq!(shown, [("Other".into(), 1, 1), ("SendMail".into(), 5, 5)]);
    assert_eq!((kinds.others.len(), kinds.from_ms), (0, DAY_MS));
    let last = book.kinds_within(&all, Duration::ZERO).unwrap();
    assert_eq!(
        (last.rows.len(), last.rows[0].done, last.from_ms),
        (1, 1, 3 * DAY_MS)
    );
}

#[test]
fn figures_of_a_day_that_cannot_be_read_in_time_are_not_said_to_be_complete() {
    let folder = tempfile::tempdir().unwrap();
    let rows: Vec<Ended> = (0..1_500)
        .map(|job| Ended {
            kind: format!("kind-{job}").into(),
            ..ended(job, DAY_MS + job)
        })
        .collect();
    let id = FileId::of(DAY_MS, rows[0].keep_ms);
    let mut file = DayFile::open(folder.path(), id, STORE).unwrap();
    file.write(rows.iter().map(|row| (1, row)), 1).unwrap();
    let book = Book::new(folder.path().to_owned());
    let hours = Hours {
        until_ms: 2 * DAY_MS,
        ..Hours::default()
    };
    let in_time = book.kinds(&hours).unwrap();
    assert_eq!((in_time.rows.len(), in_time.from_ms), (KINDS_MAX, DAY_MS));
    let too_late = book.kinds_within(&hours, Duration::ZERO).unwrap();
    assert_eq!((too_late.rows.len(), too_late.from_ms), (0, 2 * DAY_MS));
}

#[test]
fn rows_of_a_queue_a_job_and_a_name_are_found_by_an_index() {
    let (folder, _book) = book(&[ended(1, DAY_MS)]);
    let db = open_to_read(folder.path(), FileId::of(DAY_MS, 7 * DAY_MS))
        .unwrap()
        .unwrap();
    let questions = [
        Question {
            queue: Some("mail".into()),
            ..Question::default()
        },
        Question {
            job: Some(JobId(1)),
            ..Question::default()
        },
        Question {
            name: Some("jid-1".into()),
            ..Question::default()
        },
    ];
    for question in questions {
        let conditions = question.conditions();
        assert!(conditions.is_indexed);
        let sql = format!(
            "EXPLAIN QUERY PLAN SELECT {COLUMNS} FROM ended WHERE n BETWEEN 1 AND 9{} ORDER BY n DESC LIMIT 5",
            conditions.sql
        );
        let mut plan = db.prepare(&sql).unwrap();
        let rows = plan.query_map(rusqlite::params_from_iter(conditions.values), |row| {
            row.get::<_, String>("detail")
        });
        let plan: Vec<String> = rows.unwrap().map(Result::unwrap).collect();
        let is_indexed = plan.iter().any(|step| step.contains("USING INDEX ended_"));
        assert!(
            is_indexed && !plan.iter().any(|step| step.contains("PRIMARY KEY")),
            "{plan:?}"
        );
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_the_others_are_read() {
    let (folder, book) = book(&[ended(1, DAY_MS), ended(2, 2 * DAY_MS)]);
    let damaged = FileId::of(2 * DAY_MS, 7 * DAY_MS);
    std::fs::write(damaged.path(folder.path()), [7; 9_000]).unwrap();
    for beside in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{beside}", damaged.path(folder.path()).display()));
    }
    let answer = book.ask(&Question::default()).unwrap();
    assert_eq!(answer.rows.len(), 1);
    assert_eq!(answer.unreadable.len(), 1, "{:?}", answer.unreadable);
    assert!(answer.unreadable[0].starts_with("1970-01-03.7d: "));
}

#[test]
fn a_file_that_was_only_begun_has_no_rows_and_is_readable() {
    let (folder, book) = book(&[ended(1, DAY_MS)]);
    let begun = |day, keep_days| FileId { day, keep_days }.path(folder.path());
    std::fs::write(begun(1, 30), b"").unwrap();
    let db = Connection::open(begun(2, 7)).unwrap();
    db.pragma_update(None, "journal_mode", "WAL").unwrap();
    let answer = book.ask(&Question::default()).unwrap();
    assert_eq!(jobs(&answer), [1]);
    assert_eq!(answer.next, None);
    let hours = book.hours(&Hours {
        until_ms: u64::MAX,
        ..Hours::default()
    });
    assert_eq!(hours.unwrap().rows.len(), 1);
    let id = "1970-01-03.7d.1".parse().unwrap();
    assert_eq!(book.row(id).unwrap(), None);
}

/// The middle and the 95th of a hundred times, in milliseconds.
fn times(label: &str, mut ask: impl FnMut(u64)) {
    let mut times: Vec<Duration> = (0..100)
        .map(|n| {
            let begun = Instant::now();
            ask(n);
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!(
        "{label:<50} p50 {:>9.1?}   p95 {:>9.1?}",
        times[50], times[95]
    );
}

/// Prints how long questions take. One day is written, and copied for the others, so a name is in all of them.
///
/// `WINDLASS_HISTORY_ROWS=1700000 WINDLASS_HISTORY_DAYS=30 cargo test --release -p windlass-history many_rows -- --ignored --nocapture`
#[test]
#[ignore = "needs 15 GB of disk and some minutes"]
fn questions_to_many_rows() {
    let setting =
        |name: &str, default| std::env::var(name).map_or(default, |it| it.parse().unwrap());
    let rows: u64 = setting("WINDLASS_HISTORY_ROWS", 20_000);
    let days: u64 = setting("WINDLASS_HISTORY_DAYS", 3);
    let folder = tempfile::tempdir().unwrap();
    let first = FileId::of(DAY_MS, 7 * DAY_MS);
    let mut file = DayFile::open(folder.path(), first, STORE).unwrap();
    let begun = Instant::now();
    for batch in 0..rows.div_ceil(5_000) {
        let numbers = batch * 5_000..rows.min((batch + 1) * 5_000);
        let made: Vec<Ended> = numbers
            .map(|n| Ended {
                queue: format!("queue-{}", n % 100).into(),
                ending: if n % 50 == 0 {
                    Ending::Dead
                } else {
                    Ending::Done
                },
                body: Excerpt::of(format!("[{n}, \"some argument of a job\"]").as_bytes(), 99),
                ..ended(n, DAY_MS + n * (DAY_MS - 1) / rows)
            })
            .collect();
        file.write(made.iter().map(|row| (batch + 1, row)), batch + 1)
            .unwrap();
    }
    drop(file);
    let bytes = folder::bytes_of(folder.path(), first);
    let each = begun.elapsed() / u32::try_from(rows).unwrap();
    println!(
        "{rows} rows a day, {days} days: {each:?} and {} bytes a row",
        bytes / rows
    );
    for day in 2..=days {
        let other = FileId::of(day * DAY_MS, 7 * DAY_MS);
        std::fs::copy(first.path(folder.path()), other.path(folder.path())).unwrap();
    }
    let book = Book::new(folder.path().to_owned());
    let ask = |question: Question| book.ask(&question).unwrap();
    times("page of a queue and a day", |n| {
        let from_ms = (1 + n % days) * DAY_MS;
        let queue = Some(format!("queue-{n}").into());
        let question = Question {
            queue,
            from_ms,
            until_ms: from_ms + DAY_MS,
            ..Question::default()
        };
        ask(question);
    });
    times("dead jobs of a queue, all days", |n| {
        let queue = Some(format!("queue-{n}").into());
        ask(Question {
            queue,
            endings: vec![Ending::Dead],
            ..Question::default()
        });
    });
    times("a name, all days", |n| {
        let name = Some(format!("jid-{}", n * rows / 100).into());
        assert_eq!(
            ask(Question {
                name,
                ..Question::default()
            })
            .rows
            .len() as u64,
            days.min(100)
        );
    });
    times("a job's number, all days", |n| {
        ask(Question {
            job: Some(JobId(n * rows / 100)),
            ..Question::default()
        });
    });
    times("a text that is nowhere (bounded at 1 s)", |n| {
        if n < 5 {
            ask(Question {
                text: Some("nowhere".into()),
                ..Question::default()
            });
        }
    });
    let begun = Instant::now();
    folder::delete(folder.path(), first).unwrap();
    println!("a day deleted in {:?}", begun.elapsed());
}
