//! Files of earlier daemons, whose tables have no column for the namespace.

use std::ops::ControlFlow;
use std::sync::Arc;

use windlass_engine::Ended;

use super::*;
use crate::ask::Book;
use crate::cases::{OWNER, ended, in_commit, jobs};
use crate::file_id::{DAY_MS, RowId};
use crate::question::{Hours, Question};
use crate::shelf::Conditions;

/// A file as it was, with job 1 in commit 1 of the store.
const EARLIER: &str = "
PRAGMA journal_mode = WAL;
BEGIN;
CREATE TABLE about (version INTEGER NOT NULL, store TEXT NOT NULL, commit_number INTEGER NOT NULL);
CREATE TABLE ended (
  n INTEGER PRIMARY KEY, job INTEGER NOT NULL, ending TEXT NOT NULL, ended_at INTEGER NOT NULL, queue TEXT NOT NULL,
  protocol TEXT NOT NULL, name TEXT, unique_id TEXT, kind TEXT, key TEXT, pushed_at INTEGER, due_at INTEGER,
  ready_at INTEGER, started_at INTEGER, producer TEXT, worker TEXT, worker_address TEXT, worker_protocol TEXT,
  deliveries INTEGER NOT NULL, failures INTEGER NOT NULL, submits INTEGER NOT NULL, batch INTEGER, schedule INTEGER,
  again_of INTEGER,
  error TEXT, message TEXT, backtrace TEXT, attempts TEXT, progress_done INTEGER, progress_of INTEGER,
  body TEXT, body_bytes INTEGER, result TEXT, result_bytes INTEGER, output TEXT, output_bytes INTEGER);
CREATE INDEX ended_queue ON ended (queue);
CREATE INDEX ended_job ON ended (job);
CREATE INDEX ended_name ON ended (name) WHERE name IS NOT NULL;
CREATE INDEX ended_unique ON ended (unique_id) WHERE unique_id IS NOT NULL;
CREATE TABLE hours (
  hour INTEGER NOT NULL, queue TEXT NOT NULL, kind TEXT NOT NULL, done INTEGER NOT NULL, failed INTEGER NOT NULL,
  other INTEGER NOT NULL, waited TEXT NOT NULL, ran TEXT NOT NULL, PRIMARY KEY (hour, queue, kind)) WITHOUT ROWID;
INSERT INTO about VALUES (1, '0000000000000007', 1);
INSERT INTO ended (job, ending, ended_at, queue, protocol, name, kind, ready_at, deliveries, failures, submits)
  VALUES (1, 'done', 86400001, 'mail', 'faktory', 'jid-1', 'SendMail', 86400000, 1, 0, 1);
INSERT INTO hours VALUES (86400000, 'mail', 'SendMail', 1, 0, 0, '', '');
COMMIT;
";

struct Place {
    folder: tempfile::TempDir,
    shelf: Arc<dyn Shelf>,
}

impl Place {
    /// A folder with a file of an earlier daemon for each of these days.
    fn with(days: &[FileId]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for file in days {
            let db = Connection::open(folder::path(folder.path(), *file)).unwrap();
            db.execute_batch(EARLIER).unwrap();
        }
        let shelf = Arc::new(Folder::new(folder.path().to_owned()));
        Self { folder, shelf }
    }

    fn book(&self) -> Book {
        Book::new(Arc::clone(&self.shelf))
    }

    fn has_column(&self, file: FileId) -> bool {
        let db = open_to_read(self.folder.path(), file).unwrap().unwrap();
        has_namespaces(&db).unwrap()
    }

    fn write(&self, commit: u64, row: &Ended) {
        let rows = in_commit(commit, std::slice::from_ref(row));
        let mut writer = self.shelf.writer(OWNER).unwrap();
        assert_eq!(writer.write(&rows, commit).unwrap(), 1);
    }

    /// The jobs and the number of ends, of all namespaces and of one.
    fn found(&self, namespace: Option<&'static str>) -> (Vec<u64>, u64) {
        let question = Question {
            namespace: namespace.map(Into::into),
            queue: Some("mail".into()),
            ..Question::default()
        };
        let found = jobs(&self.book().ask(&question).unwrap());
        let hours = Hours {
            until_ms: u64::MAX,
            namespace: question.namespace,
            ..Hours::default()
        };
        let hours = self.book().hours(&hours).unwrap().rows;
        (found, hours.iter().map(|hour| hour.done).sum())
    }
}

fn first() -> FileId {
    FileId::of(DAY_MS, 7 * DAY_MS)
}

fn of_shop(job: u64) -> Ended {
    Ended {
        namespace: "shop".into(),
        ..ended(job, DAY_MS + job)
    }
}

#[test]
fn a_file_without_namespaces_is_read_and_then_written() {
    let place = Place::with(&[first()]);
    assert_eq!(place.found(None), (vec![1], 1));
    assert_eq!(place.found(Some("")), (vec![1], 1));
    assert_eq!(place.found(Some("shop")), (vec![], 0));
    let id = RowId {
        file: first(),
        n: 1,
    };
    let row = place.book().row(id).unwrap().unwrap();
    assert_eq!((&*row.queue, &*row.namespace), (&b"mail"[..], &b""[..]));
    assert!(!place.has_column(first()), "a reader changes nothing");

    place.write(1 + 1, &of_shop(2));
    place.write(1 + 2, &ended(3, DAY_MS + 3));
    assert!(place.has_column(first()));
    assert_eq!(place.found(None), (vec![3, 2, 1], 3));
    assert_eq!(place.found(Some("")), (vec![3, 1], 2));
    assert_eq!(place.found(Some("shop")), (vec![2], 1));
}

#[test]
fn a_writer_adds_the_column_to_all_files_before_it_writes_to_one() {
    let [second, third, damaged] = [2, 3, 4].map(|day| FileId::of(day * DAY_MS, 7 * DAY_MS));
    let place = Place::with(&[first(), second, third]);
    let at = |file| folder::path(place.folder.path(), file);
    std::fs::write(at(damaged), [7; 9_000]).unwrap();
    let unknown = Connection::open(at(third)).unwrap();
    unknown.execute("UPDATE about SET version = 2", []).unwrap();
    let mut writer = place.shelf.writer(OWNER).unwrap();
    assert_eq!(writer.position().unwrap(), 0);
    assert!(place.has_column(first()) && place.has_column(second));
    assert!(!place.has_column(third), "a file of a later daemon");
    assert_eq!(
        writer.position().unwrap(),
        0,
        "nothing is left to be changed"
    );
}

#[test]
fn a_file_may_get_the_column_while_it_is_read() {
    let place = Place::with(&[first()]);
    let mut reader = place.shelf.reader().unwrap();
    let mut namespaces = || {
        let select = Select {
            columns: "n, namespace",
            table: "ended",
            conditions: &Conditions::default(),
            rest: " ORDER BY n".to_owned(),
        };
        let mut found = Vec::new();
        let read = reader.select(first(), &select, &mut |row| {
            found.push(row.bytes("namespace")?);
            Ok(ControlFlow::Continue(()))
        });
        read.unwrap();
        found
    };
    assert_eq!(namespaces(), [None]);
    place.write(2, &of_shop(2));
    assert_eq!(namespaces(), [None, Some("shop".into())]);
}

#[test]
fn indexes_lead_to_the_rows_of_a_file_without_namespaces_too() {
    let place = Place::with(&[first()]);
    let db = open_to_read(place.folder.path(), first()).unwrap().unwrap();
    let table = without_namespaces("ended");
    for (condition, expected) in [
        (
            "queue = 'mail' AND namespace IS NULL",
            "USING INDEX ended_queue",
        ),
        ("job = 1", "USING INDEX ended_job"),
        ("n BETWEEN 1 AND 9", "USING INTEGER PRIMARY KEY"),
    ] {
        let sql = format!("EXPLAIN QUERY PLAN SELECT * FROM {table} WHERE true AND {condition}");
        let mut plan = db.prepare(&sql).unwrap();
        let rows = plan.query_map([], |row| row.get::<_, String>("detail"));
        let plan: Vec<String> = rows.unwrap().map(Result::unwrap).collect();
        assert!(
            matches!(&*plan, [step] if step.contains(expected)),
            "{plan:?}"
        );
    }
}
