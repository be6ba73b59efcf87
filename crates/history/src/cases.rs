//! What every shelf must answer, whatever keeps it.

use std::sync::Arc;

use bytes::Bytes;
use windlass_engine::{
    Attempt, AttemptEnd, Attempts, Ended, EndedWorker, Ending, Excerpt, Failure, JobId, Origin,
    Protocol, Timestamp,
};
use windlass_history::shelf::{Committed, Owner, Rows, Shelf};
use windlass_history::{Answer, Book, DAY_MS, FileId, Hours, Question};

pub(crate) const OWNER: Owner = Owner {
    store: 7,
    epoch: Some(1),
};

/// Each takes an empty shelf.
pub(crate) const ALL: [fn(&Arc<dyn Shelf>); 7] = [
    a_row_is_read_as_the_engine_wrote_it,
    bytes_and_long_names_are_found_as_they_were_sent,
    each_condition_selects_its_rows,
    namespaces_are_told_apart_also_where_queues_have_one_name,
    an_answer_with_large_bodies_has_fewer_rows,
    hours_count_what_ended_and_how_long_it_took,
    each_commit_is_written_once_and_another_store_begins_anew,
];

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
        namespace: "".into(),
    }
}

/// These rows in a commit, by their files.
pub(crate) fn in_commit(commit: u64, rows: &[Ended]) -> Rows {
    let mut files = Rows::new();
    for row in rows {
        let file = FileId::of(row.ended_at.0, row.keep_ms);
        let row = row.clone();
        files
            .entry(file)
            .or_default()
            .push(Committed { commit, row });
    }
    files
}

/// A history of these rows, one in each commit.
pub(crate) fn book(shelf: &Arc<dyn Shelf>, rows: &[Ended]) -> Book {
    let mut writer = shelf.writer(OWNER).unwrap();
    for (commit, row) in (1..).zip(rows) {
        let rows = in_commit(commit, std::slice::from_ref(row));
        assert_eq!(writer.write(&rows, commit).unwrap(), 1);
    }
    Book::new(Arc::clone(shelf))
}

/// The jobs of an answer.
pub(crate) fn jobs(answer: &Answer) -> Vec<u64> {
    assert_eq!(answer.unreadable, [""; 0]);
    answer.rows.iter().map(|row| row.job.0).collect()
}

fn a_row_is_read_as_the_engine_wrote_it(shelf: &Arc<dyn Shelf>) {
    let mut attempts = Attempts::default();
    attempts.push(Attempt {
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
        namespace: "shop".into(),
        ..ended(12, 2 * DAY_MS - 1)
    };
    let book = book(shelf, std::slice::from_ref(&written));
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
    assert_eq!(row.namespace, written.namespace);
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
    for other in ["1970-01-02.7d.99", "1970-01-02.8d.1"] {
        assert_eq!(book.row(other.parse().unwrap()).unwrap(), None, "{other}");
    }
}

fn each_condition_selects_its_rows(shelf: &Arc<dyn Shelf>) {
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
    let book = book(shelf, &rows);
    let asked = |question: Question| jobs(&book.ask(&question).unwrap());
    let any = Question::default;
    assert_eq!(asked(any()), [6, 5, 4, 3, 2, 1]);
    let some = |text: &'static str| Some(Bytes::from(text));
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

fn namespaces_are_told_apart_also_where_queues_have_one_name(shelf: &Arc<dyn Shelf>) {
    const OTHER: &[u8] = &[b'q', 0xff];
    let mut rows: Vec<Ended> = (1..=8).map(|job| ended(job, DAY_MS + job)).collect();
    for (row, namespace) in rows.iter_mut().zip(["", "shop", "shop", "lab", ""]) {
        row.namespace = namespace.into();
    }
    // Looks like a queue of another namespace.
    rows[7].queue = "shop/mail".into();
    for row in &mut rows[4..7] {
        row.queue = OTHER.into();
        row.kind = "".into();
    }
    rows[5].namespace = "shop".into();
    rows[6].namespace = "lab".into();
    let book = book(shelf, &rows);
    let some = |text: &'static [u8]| Some(Bytes::from(text));
    type Case = (Option<&'static [u8]>, Option<&'static [u8]>, &'static [u64]);
    let table: [Case; 13] = [
        (None, None, &[8, 7, 6, 5, 4, 3, 2, 1]),
        (None, Some(b"mail"), &[4, 3, 2, 1]),
        (None, Some(OTHER), &[7, 6, 5]),
        (Some(b""), None, &[8, 5, 1]),
        (Some(b""), Some(b"shop/mail"), &[8]),
        (Some(b""), Some(b"mail"), &[1]),
        (Some(b""), Some(OTHER), &[5]),
        (Some(b"shop"), None, &[6, 3, 2]),
        (Some(b"shop"), Some(b"mail"), &[3, 2]),
        (Some(b"shop"), Some(OTHER), &[6]),
        (Some(b"lab"), Some(b"mail"), &[4]),
        (Some(b"shop"), Some(b"shop/mail"), &[]),
        (Some(b"nowhere"), None, &[]),
    ];
    for (namespace, queue, expected) in table {
        let question = Question {
            namespace: namespace.and_then(some),
            queue: queue.and_then(some),
            ..Question::default()
        };
        let found = jobs(&book.ask(&question).unwrap());
        assert_eq!(found, expected, "{question:?}");
        let hours = Hours {
            until_ms: u64::MAX,
            namespace: question.namespace,
            queue: question.queue,
            ..Hours::default()
        };
        let rows = book.hours(&hours).unwrap().rows;
        let done: u64 = rows.iter().map(|row| row.done).sum();
        assert_eq!(done, expected.len() as u64, "{hours:?}");
    }
    let all = Hours {
        until_ms: u64::MAX,
        ..Hours::default()
    };
    let rows = book.hours(&all).unwrap().rows;
    let shown: Vec<_> = rows
        .iter()
        .map(|row| (row.name(), &*row.namespace, row.done))
        .collect();
    let [mail, other] = [Bytes::from("mail"), Bytes::from(OTHER)];
    let expected: [(Bytes, &[u8], u64); 7] = [
        (mail.clone(), b"lab", 1),
        (other.clone(), b"lab", 1),
        (mail.clone(), b"", 1),
        (other.clone(), b"", 1),
        (mail, b"shop", 2),
        (other, b"shop", 1),
        (Bytes::from("shop/mail"), b"", 1),
    ];
    assert_eq!(shown, expected);
    // A queue stands for the kind of jobs without one.
    let of = |namespace: Option<&'static str>, queue, kind| {
        let hours = Hours {
            until_ms: u64::MAX,
            namespace: namespace.map(Into::into),
            queue,
            kind,
            ..Hours::default()
        };
        let kinds = book.kinds(&hours).unwrap().rows.into_iter();
        kinds.map(|row| row.done).collect::<Vec<_>>()
    };
    assert_eq!(of(None, some(b"shop/mail"), None), [1]);
    assert_eq!(of(None, some(b"mail"), None), [2, 1, 1]);
    assert_eq!(of(None, None, some(OTHER)), [1, 1, 1]);
    assert_eq!(of(Some("shop"), None, some(OTHER)), [1]);
    assert_eq!(of(Some("shop"), None, some(b"SendMail")), [2]);
    assert_eq!(of(Some(""), some(OTHER), some(OTHER)), [1]);
}

fn an_answer_with_large_bodies_has_fewer_rows(shelf: &Arc<dyn Shelf>) {
    /// The bytes of one answer, about.
    const BYTES_MAX: usize = 4 << 20;
    let large = vec![b'x'; BYTES_MAX / 3];
    let rows: Vec<Ended> = (1..=7)
        .map(|job| Ended {
            body: Excerpt::of(&large, u32::MAX),
            ..ended(job, DAY_MS + job)
        })
        .collect();
    let book = book(shelf, &rows);
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

fn hours_count_what_ended_and_how_long_it_took(shelf: &Arc<dyn Shelf>) {
    let mut rows: Vec<Ended> = (0..4)
        .map(|job| ended(job, DAY_MS + 3_600_000 * (job / 3) + job))
        .collect();
    rows[1].ending = Ending::Dead;
    rows[2].ending = Ending::Expired;
    rows[2].started_at = None;
    let book = book(shelf, &rows);
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

fn each_commit_is_written_once_and_another_store_begins_anew(shelf: &Arc<dyn Shelf>) {
    let row = ended(1, DAY_MS);
    for (store, upto, written) in [(7, 5, 1), (7, 5, 0), (7, 6, 1), (8, 6, 1), (8, 6, 0)] {
        let mut writer = shelf.writer(Owner { store, ..OWNER }).unwrap();
        let rows = in_commit(upto, std::slice::from_ref(&row));
        let made = writer.write(&rows, upto).unwrap();
        assert_eq!(made, written, "store {store} up to {upto}");
        writer.sync(upto).unwrap();
        assert_eq!(writer.position().unwrap(), upto);
    }
    let mut other = shelf.writer(Owner { store: 9, ..OWNER }).unwrap();
    assert_eq!(other.position().unwrap(), 0, "nothing is known of it");
    let files = other.files().unwrap();
    assert_eq!(files.len(), 1);
    assert!(files[0].bytes > 0);
    other.delete(files[0].file).unwrap();
    assert_eq!(other.files().unwrap().len(), 0);
    let book = Book::new(Arc::clone(shelf));
    assert_eq!(jobs(&book.ask(&Question::default()).unwrap()), [0; 0]);
}

/// Clients may send anything, and names of several kilobytes. No index refuses them.
fn bytes_and_long_names_are_found_as_they_were_sent(shelf: &Arc<dyn Shelf>) {
    let names: [Vec<u8>; 6] = [
        b"a\0b".to_vec(),
        vec![0xff, b'\\', 0xfe],
        b"App\\Jobs\\Mail\t\r\n".to_vec(),
        b"\\N".to_vec(),
        "\u{e9}\u{1f600}".repeat(1_300).into_bytes(),
        (0..8_192_u32)
            .map(|n| (n * n % 65_521).to_le_bytes()[0])
            .collect(),
    ];
    let rows = names.iter().zip(1..).map(|(name, job)| Ended {
        queue: name.clone().into(),
        name: name.clone().into(),
        unique: name.clone().into(),
        kind: name.clone().into(),
        key: name.clone().into(),
        body: Excerpt::of(name, u32::MAX),
        ..ended(job, DAY_MS + job)
    });
    let book = book(shelf, &rows.collect::<Vec<_>>());
    for (name, job) in names.iter().zip(1..) {
        let some = || Some(Bytes::from(name.clone()));
        let any = Question::default;
        let questions = [
            Question {
                queue: some(),
                ..any()
            },
            Question {
                name: some(),
                ..any()
            },
            Question {
                kind: some(),
                key: some(),
                ..any()
            },
        ];
        for question in questions {
            let answer = book.ask(&question).unwrap();
            assert_eq!(jobs(&answer), [job]);
            let row = &answer.rows[0];
            for found in [&row.queue, &row.name, &row.unique, &row.kind, &row.key] {
                assert_eq!(found, name);
            }
            assert_eq!(row.body.as_ref().unwrap().bytes, name);
        }
        let hours = Hours {
            until_ms: u64::MAX,
            queue: some(),
            kind: some(),
            ..Hours::default()
        };
        let hours = book.hours(&hours).unwrap().rows;
        assert_eq!(hours.len(), 1);
        assert_eq!((&hours[0].queue, hours[0].done), (&some().unwrap(), 1));
    }
}
