//! `windlass import`: imports other servers' files, and checks that a daemon then has their jobs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rusqlite::Connection;

use crate::common::{Peer, daemon};

/// The table as gearmand 1.1.20 creates it.
const TABLE: &str = "CREATE TABLE gearman_queue ( unique_key TEXT, function_name TEXT, priority INTEGER, data BLOB, \
                     when_to_run INTEGER, PRIMARY KEY (unique_key, function_name))";

/// Rows as gearmand 1.1.20 wrote them for twelve submits: names as text whatever their bytes, empty data as NULL, 64
/// bytes of unique id with a NUL for the last, one row for two jobs with an empty id (5, 6), and one for two with `-`
/// (7, 8).
const ROWS: &str = "
    INSERT INTO gearman_queue(rowid, unique_key, function_name, priority, data, when_to_run) VALUES
    (1, 'u1', 'norm', 1, x'6e6f726d616c2000ff2064617461', 0),
    (2, CAST(x'01fffe75' AS TEXT), CAST(x'68696768fffe' AS TEXT), 0, x'68696768', 0),
    (3, 'u3', 'low', 2, x'6c6f77', 0),
    (4, 'u4', 'epoch', 1, x'6c61746572', 4102444800),
    (6, '', 'empty', 1, x'74776f', 0),
    (8, '-', 'dash', 1, x'6432', 0),
    (9, 'u6', 'norm', 1, NULL, 0),
    (10, 'q''uote', 'norm', 0, x'78', 0),
    (11, 'noname', '', 1, x'78', 0),
    (12, replace(hex(zeroblob(31)) || '0', '0', 'y') || char(0), 'long', 1, x'78', 0);";

fn queue(dir: &Path) -> PathBuf {
    let path = dir.join("queue.sqlite3");
    Connection::open(&path)
        .unwrap()
        .execute_batch(&format!("{TABLE};{ROWS}"))
        .unwrap();
    path
}

fn execute(queue: &Path, sql: &str) {
    Connection::open(queue).unwrap().execute_batch(sql).unwrap();
}

fn import(dir: &Path, file: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command
        .args(["import", "gearmand-sqlite", "--data-dir"])
        .arg(dir.join("data"))
        .arg(file)
        .args(more);
    command
        .env_clear()
        .env("TMPDIR", dir)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Its output, after checking the exit code.
fn printed(output: &Output, code: i32) -> String {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    format!("{out}{err}")
}

fn status(peer: &mut Peer, function: &str) -> Option<String> {
    peer.listing("status")
        .unwrap()
        .into_iter()
        .find(|line| line.split('\t').next() == Some(function))
}

#[test]
fn all_jobs_of_gearmand_are_imported() {
    let dir = tempfile::tempdir().unwrap();
    let file = queue(dir.path());
    let before = fs::read(&file).unwrap();
    let said = printed(&import(dir.path(), &file, &[]), 0);
    let expected = "2 imported: function \"\"";
    assert!(
        !said.contains(expected) && said.contains("3 imported: function \"norm\"\n"),
        "{said}"
    );
    assert!(
        said.contains("1 imported: function \"high\\xff\\xfe\"\n"),
        "{said}"
    );
    assert!(
        said.ends_with("10 rows: 10 imported (1 to run later, 1 without a unique id)\n"),
        "{said}"
    );
    assert_eq!(fs::read(&file).unwrap(), before, "the file is only read");

    let daemon = daemon(dir.path()).start();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    let mut uniques = peer.listing("show unique jobs").unwrap();
    uniques.sort_unstable();
    let long = "y".repeat(63);
    assert_eq!(
        uniques,
        [
            "",
            "\u{1}\u{fffd}\u{fffd}u",
            "-",
            "noname",
            "q'uote",
            "u1",
            "u3",
            "u4",
            "u6",
            &long
        ]
    );
    let priorities = peer.listing("prioritystatus").unwrap();
    for line in ["norm\t1\t2\t0\t0", "low\t0\t0\t1\t0", "empty\t0\t1\t0\t0"] {
        assert!(
            priorities.iter().any(|it| it == line),
            "{line}: {priorities:?}"
        );
    }
    // High priority first, then in the order of submission; empty and binary data are unchanged.
    peer.can_do("norm").unwrap();
    for expected in [&b"x"[..], b"normal \0\xff data", b""] {
        let job = peer.grab().unwrap().unwrap();
        assert_eq!(&job.workload[..], expected);
        peer.complete(&job.handle).unwrap();
    }
    // A job that is not due is not handed out, but counts.
    peer.can_do("epoch").unwrap();
    assert!(peer.grab().unwrap().is_none());
    assert_eq!(
        status(&mut peer, "epoch").as_deref(),
        Some("epoch\t1\t0\t1")
    );
}

#[test]
fn a_second_import_takes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = queue(dir.path());
    printed(&import(dir.path(), &file, &[]), 0);
    let mut daemon = daemon(dir.path()).start();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    peer.can_do("empty").unwrap();
    let job = peer.grab().unwrap().unwrap();
    peer.complete(&job.handle).unwrap();
    assert_eq!(
        status(&mut peer, "empty").as_deref(),
        Some("empty\t0\t0\t1")
    );
    let busy = printed(&import(dir.path(), &file, &[]), 4);
    assert!(busy.contains("is in use by another process"), "{busy}");
    daemon.signal("TERM");
    daemon.wait();

    let said = printed(&import(dir.path(), &file, &[]), 0);
    assert!(
        said.contains("10 rows: 0 imported") && said.contains("10 imported earlier from"),
        "{said}"
    );
    // With `--again` they are imported once more, except those that are still queued.
    let said = printed(&import(dir.path(), &file, &["--again"]), 0);
    assert!(
        said.contains("10 rows: 1 imported") && said.contains("9 queued already"),
        "{said}"
    );
    // A changed file counts as another file; jobs that are queued already coalesce.
    execute(
        &file,
        "DELETE FROM gearman_queue WHERE unique_key = ''; UPDATE gearman_queue SET data = 'other' WHERE unique_key <> '-'",
    );
    let said = printed(&import(dir.path(), &file, &[]), 0);
    assert!(
        said.contains("9 rows: 0 imported") && said.contains("9 queued already"),
        "{said}"
    );
}

#[test]
fn rows_go_into_a_namespace_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = queue(dir.path());
    for expected in ["10 rows: 10 imported", "10 imported earlier from"] {
        let said = printed(&import(dir.path(), &file, &["-n", "shop"]), 0);
        assert!(said.contains(expected), "{said}");
    }
    let said = printed(&import(dir.path(), &file, &["-n", "mail"]), 0);
    assert!(said.contains("10 rows: 10 imported"), "{said}");
    let listen = "[\"127.0.0.1:0\", { address = \"127.0.0.1:0\", namespace = \"shop\" }]";
    let set = format!("[namespaces.shop]\n[gearman]\nlisten = {listen}\n");
    let daemon = daemon(dir.path()).set(&set).start();
    let found = daemon.addresses("gearman").into_iter().map(|at| {
        let mut peer = Peer::connect(at).unwrap();
        (status(&mut peer, "norm"), peer)
    });
    let [(of_none, _), (of_shop, mut shop)] = found.collect::<Vec<_>>().try_into().unwrap();
    assert_eq!((of_none, of_shop.as_deref()), (None, Some("norm\t3\t0\t0")));
    shop.submit("norm", "u1", "again").unwrap();
    let again = status(&mut shop, "norm");
    assert_eq!(
        again.as_deref(),
        Some("norm\t3\t0\t0"),
        "unique ids are there"
    );
}

#[test]
fn rows_that_cannot_be_taken_are_named_and_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = queue(dir.path());
    execute(
        &file,
        "INSERT INTO gearman_queue VALUES ('p', 'odd', 7, 'x', 0), ('q', 'odd', 'high', 'x', 0), ('n', 'a' || char(0), 1, \
         'x', 0), ('big', 'large', 1, zeroblob(5000), 0)",
    );
    let small = ["--set", "gearman.frame_bytes_max=1KiB"];
    let said = printed(&import(dir.path(), &file, &small), 5);
    for line in [
        "row 13 left: function \"odd\", unique id \"p\": invalid priority 7: 0, 1 or 2 expected\n",
        "row 14 left: function \"odd\", unique id \"q\": the priority is not a number: 0, 1 or 2 expected\n",
        "row 15 left: function \"a\\x00\", unique id \"n\": a NUL in the function name\n",
        "row 16 left: function \"large\", unique id \"big\": workload of 5000 bytes, gearman.frame_bytes_max is 1024\n",
        "14 rows: 10 imported",
        "windlass: 4 rows are left",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let said = printed(&import(dir.path(), &file, &[]), 5);
    assert!(
        said.contains("1 imported: function \"large\"")
            && said.contains("windlass: 3 rows are left"),
        "{said}"
    );
    // The limits of a submit apply.
    let dir = tempfile::tempdir().unwrap();
    let said = printed(
        &import(dir.path(), &file, &["--set", "limits.jobs_max=4"]),
        5,
    );
    assert!(
        said.contains("daemon is full: jobs 4, limit 4") && said.contains("14 rows: 4 imported"),
        "{said}"
    );
    assert!(printed(&import(dir.path(), &file, &[]), 5).contains("14 rows: 7 imported"));
}

#[test]
fn a_dry_run_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let file = queue(dir.path());
    let _gearmand = Connection::open(&file).unwrap();
    let said = printed(&import(dir.path(), &file, &["--dry-run"]), 0);
    assert!(
        said.contains("10 rows: 10 would be imported (1 to run later, 1 without a unique id)"),
        "{said}"
    );
    assert!(!dir.path().join("data").exists());
}

#[test]
fn a_half_written_transaction_is_not_imported() {
    for mode in ["DELETE", "WAL"] {
        let dir = tempfile::tempdir().unwrap();
        let live = queue(dir.path());
        let connection = Connection::open(&live).unwrap();
        connection
            .execute_batch(&format!(
                "PRAGMA journal_mode = {mode}; PRAGMA cache_size = 1; PRAGMA cache_spill = 1"
            ))
            .unwrap();
        connection
            .execute_batch("INSERT INTO gearman_queue VALUES ('whole', 'f', 1, 'x', 0)")
            .unwrap();
        // So large a transaction that some of it is written before it is complete.
        connection.execute_batch("BEGIN").unwrap();
        for n in 0..200 {
            let row =
                format!("INSERT INTO gearman_queue VALUES ('half{n}', 'f', 1, zeroblob(1000), 0)");
            connection.execute_batch(&row).unwrap();
        }
        // The state after `kill -9`: the files as they are now, not open in any process.
        let killed = dir.path().join("killed.sqlite3");
        fs::copy(&live, &killed).unwrap();
        let suffix = if mode == "WAL" { "-wal" } else { "-journal" };
        let beside = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        fs::copy(beside(&live), beside(&killed)).unwrap();
        let before = [
            fs::read(&killed).unwrap(),
            fs::read(beside(&killed)).unwrap(),
        ];

        let said = printed(&import(dir.path(), &killed, &[]), 0);
        assert!(said.contains("11 rows: 11 imported"), "{mode}: {said}");
        assert_eq!(
            [
                fs::read(&killed).unwrap(),
                fs::read(beside(&killed)).unwrap()
            ],
            before,
            "{mode}: only read"
        );
    }
}

#[test]
fn invalid_queues_are_reported_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = queue(dir.path());
    let noise = dir.path().join("noise");
    fs::write(&noise, [7; 5000]).unwrap();
    let other = dir.path().join("other");
    execute(
        &other,
        "CREATE TABLE gearman_queue (x); CREATE TABLE \"my \"\"queue\" AS SELECT 'u' AS unique_key, 'f' AS \
                     function_name, 1 AS priority, 'x' AS data",
    );
    let table: [(&Path, &[&str], &str); 5] = [
        (
            &dir.path().join("nothing"),
            &[],
            "No such file or directory",
        ),
        (dir.path(), &[], "is a directory"),
        (&noise, &[], "file is not a database"),
        (
            &file,
            &["--table", "jobs"],
            "there is no table \"jobs\" in it; --table names another",
        ),
        (
            &other,
            &[],
            "\"gearman_queue\" is not a queue of gearmand: it has no column unique_key",
        ),
    ];
    for (file, more, reason) in table {
        let said = printed(&import(dir.path(), file, more), 2);
        assert!(
            said.starts_with(&format!("windlass: {}: ", file.display())) && said.contains(reason),
            "{reason}: {said}"
        );
    }
    let open = Connection::open(&file).unwrap();
    let said = printed(&import(dir.path(), &file, &[]), 2);
    assert!(
        said.contains(&format!(
            "process {} has it open: stop gearmand first",
            std::process::id()
        )),
        "{said}"
    );
    drop(open);
    assert!(!dir.path().join("data").exists(), "nothing was begun");
    // Another table, with a name that must be quoted, and without times, as old gearmands created it.
    let said = printed(&import(dir.path(), &other, &["--table", "my \"queue"]), 0);
    assert!(said.contains("1 row: 1 imported"), "{said}");
}
