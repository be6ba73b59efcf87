use rusqlite::Connection;
use windlass_engine::{Ended, Ending, Excerpt, JobId};

use super::*;
use crate::cases::{self, OWNER, ended};
use crate::day_file::{DayFile, open_to_read, text};
use crate::file_id::DAY_MS;
use crate::folder::{self, path};
use crate::shelf::Committed;
use crate::sqlite::Folder;

/// A folder, and its shelf.
fn shelf() -> (tempfile::TempDir, Arc<dyn Shelf>) {
    let folder = tempfile::tempdir().unwrap();
    let shelf = Arc::new(Folder::new(folder.path().to_owned()));
    (folder, shelf)
}

/// A history of these rows, one in each commit.
fn book(rows: &[Ended]) -> (tempfile::TempDir, Book) {
    let (folder, shelf) = shelf();
    let book = cases::book(&shelf, rows);
    (folder, book)
}

#[test]
fn a_folder_answers_as_every_shelf_does() {
    for case in cases::ALL {
        let (_folder, shelf) = shelf();
        case(&shelf);
    }
}

#[test]
fn a_question_ends_when_its_asker_leaves() {
    let rows: Vec<Ended> = (1..=9).map(|job| ended(job, job * DAY_MS)).collect();
    let (_folder, book) = book(&rows);
    let hour = Duration::from_secs(3_600);
    let question = Question {
        text: Some("nowhere".into()),
        ..Question::default()
    };
    let asker = Arc::new(());
    let wanted = book.asked_by(&asker);
    assert_eq!(wanted.ask_within(&question, hour).unwrap().next, None);
    drop(asker);
    let answer = wanted.ask_within(&question, hour).unwrap();
    assert!(answer.next.is_some(), "days are left");
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
            found.extend(cases::jobs(&answer));
            after = answer.next.map(|next| next.to_string().parse().unwrap());
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, [9, 8, 7, 6, 5, 4, 3, 2, 1], "{time:?}");
    }
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
    let mut file = DayFile::open(folder.path(), id, OWNER.store).unwrap();
    let rows = rows.into_iter().map(|row| Committed { commit: 1, row });
    file.write(&rows.collect::<Vec<_>>(), 1).unwrap();
    let book = Book::new(Arc::new(Folder::new(folder.path().to_owned())));
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
    let dialect = Folder::new(folder.path().to_owned())
        .reader()
        .unwrap()
        .dialect();
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
        let conditions = question.conditions(&dialect);
        assert!(conditions.is_indexed);
        let sql = format!(
            "EXPLAIN QUERY PLAN SELECT {COLUMNS} FROM ended WHERE n BETWEEN 1 AND 9{} ORDER BY n DESC LIMIT 5",
            conditions.sql.replace('$', "?")
        );
        let values = conditions.values.iter().map(|value| text(value));
        let values = values.map(rusqlite::types::ToSqlOutput::Borrowed);
        let mut plan = db.prepare(&sql).unwrap();
        let rows = plan.query_map(rusqlite::params_from_iter(values), |row| {
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
    std::fs::write(path(folder.path(), damaged), [7; 9_000]).unwrap();
    for beside in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(format!(
            "{}{beside}",
            path(folder.path(), damaged).display()
        ));
    }
    let answer = book.ask(&Question::default()).unwrap();
    assert_eq!(answer.rows.len(), 1);
    assert_eq!(answer.unreadable.len(), 1, "{:?}", answer.unreadable);
    assert!(answer.unreadable[0].starts_with("1970-01-03.7d: "));
}

#[test]
fn a_file_that_was_only_begun_has_no_rows_and_is_readable() {
    let (folder, book) = book(&[ended(1, DAY_MS)]);
    let begun = |day, keep_days| path(folder.path(), FileId { day, keep_days });
    std::fs::write(begun(1, 30), b"").unwrap();
    let db = Connection::open(begun(2, 7)).unwrap();
    db.pragma_update(None, "journal_mode", "WAL").unwrap();
    let answer = book.ask(&Question::default()).unwrap();
    assert_eq!(cases::jobs(&answer), [1]);
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
    let mut file = DayFile::open(folder.path(), first, OWNER.store).unwrap();
    let begun = Instant::now();
    for batch in 0..rows.div_ceil(5_000) {
        let numbers = batch * 5_000..rows.min((batch + 1) * 5_000);
        let made = numbers.map(|n| Committed {
            commit: batch + 1,
            row: Ended {
                queue: format!("queue-{}", n % 100).into(),
                ending: if n % 50 == 0 {
                    Ending::Dead
                } else {
                    Ending::Done
                },
                body: Excerpt::of(format!("[{n}, \"some argument of a job\"]").as_bytes(), 99),
                ..ended(n, DAY_MS + n * (DAY_MS - 1) / rows)
            },
        });
        file.write(&made.collect::<Vec<_>>(), batch + 1).unwrap();
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
        std::fs::copy(path(folder.path(), first), path(folder.path(), other)).unwrap();
    }
    let book = Book::new(Arc::new(Folder::new(folder.path().to_owned())));
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
