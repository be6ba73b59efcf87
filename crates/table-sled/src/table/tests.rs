//! A table in files: its only writer, the folders that it replaces, its syncs, and its candidates after a tear.

use std::cell::Cell;
use std::rc::Rc;

use windlass_store::{Step, watch_steps};

use super::*;

const CONFIG: SledTables = SledTables {
    segment_bytes: 512 << 10,
    cache_bytes: 1 << 20,
};

fn create(home: &Path) {
    CONFIG.create(home, b"point", b"nothing").unwrap();
}

fn open(home: &Path) -> Option<SledTable> {
    SledTable::open(&CONFIG, home).unwrap()
}

/// A new table in the place of one that has only its point.
fn begun_anew(home: &Path) -> SledTable {
    create(home);
    let mut table = open(home).unwrap();
    table.begin_anew().unwrap();
    table
}

fn shown(table: &SledTable) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let each = &mut |key: &[u8], _: &[u8], _: Option<u64>| {
        keys.push(key.to_vec());
        ControlFlow::Continue(())
    };
    assert!(table.scan().unwrap().each(0, each).unwrap());
    keys
}

#[test]
fn the_headers_of_messages_lead_to_all_values() {
    let home = tempfile::tempdir().unwrap();
    let mut table = begun_anew(home.path());
    (0..2_000_u32).for_each(|n| table.set(&n.to_be_bytes(), &[7; 1_000]).unwrap());
    table.sync().unwrap();
    table.end_anew().unwrap();
    let mut found = Vec::new();
    let each = &mut |key: &[u8], value: &[u8], _: Option<u64>| {
        found.push(key.to_vec());
        assert_eq!(value, [7; 1_000]);
        ControlFlow::Continue(())
    };
    assert!(table.scan().unwrap().each(UNVERIFIED, each).unwrap());
    assert!(found.len() == 2_000 && found == shown(&table));
}

#[test]
fn a_table_is_written_only_by_the_process_that_has_completed_it() {
    let home = tempfile::tempdir().unwrap();
    assert!(open(home.path()).is_none());
    create(home.path());
    let mut table = open(home.path()).unwrap();
    assert_eq!(
        (table.folder(), table.is_writable()),
        (home.path().join("table-1"), false)
    );
    assert!(matches!(table.set(b"key", b"value"), Err(Error::Closed)));
    assert!(matches!(table.get(b"key"), Err(Error::Closed)));

    table.begin_anew().unwrap();
    assert!(!table.is_writable() && home.path().join(BUILDING).exists());
    table.set(b"key", b"value").unwrap();
    assert_eq!(
        table.get(b"key").unwrap().as_deref(),
        Some(&b"value"[..]),
        "it waits to be written"
    );
    table.sync().unwrap();
    assert_eq!(
        shown(&table),
        [b"point"],
        "the old table is not replaced yet"
    );
    table.end_anew().unwrap();
    assert_eq!(
        (table.folder(), table.is_writable()),
        (home.path().join("table-2"), true)
    );
    assert_eq!(shown(&table), [b"key"]);
    assert_eq!(numbers(home.path()).unwrap(), [2]);
    let file = fs::metadata(table.folder().join(DB)).unwrap().len();
    assert!(file > 1 && table.disk_bytes() >= file, "{file} bytes");

    table.remove(b"key").unwrap();
    assert_eq!(table.get(b"key").unwrap(), None);
    table.abandon();
    assert!(!table.is_writable());
    assert!(matches!(table.set(b"key", b"value"), Err(Error::Closed)));
}

#[test]
fn an_abandoned_table_leaves_the_one_before_it() {
    let home = tempfile::tempdir().unwrap();
    let mut table = begun_anew(home.path());
    table.set(b"key", b"value").unwrap();
    table.abandon();
    assert!(!table.is_writable() && !home.path().join(BUILDING).exists());
    assert_eq!(
        (table.folder(), shown(&table)),
        (home.path().join("table-1"), vec![b"point".to_vec()])
    );
    table.begin_anew().unwrap();
    table.end_anew().unwrap();
    assert!(table.is_writable(), "the next one is complete");
}

#[test]
fn tables_that_do_not_count_are_removed() {
    let home = tempfile::tempdir().unwrap();
    create(home.path());
    for folder in ["table-0", BUILDING, "table-x"].map(|name| home.path().join(name)) {
        fs::create_dir(folder).unwrap();
    }
    let mut table = open(home.path()).unwrap();
    table.tidy().unwrap();
    let exist = |names: [&str; 4]| names.map(|name| home.path().join(name).exists());
    let names = ["table-0", "table-1", BUILDING, "table-x"];
    assert_eq!(exist(names), [false, true, false, true]);
    table.begin_anew().unwrap();
    table.end_anew().unwrap();
    assert_eq!(exist(names), [false, false, false, true]);
}

#[test]
fn the_files_of_a_table_are_private() {
    let home = tempfile::tempdir().unwrap();
    create(home.path());
    for path in entries(&home.path().join("table-1")).unwrap() {
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            mode,
            if path.is_dir() {
                FOLDER_MODE
            } else {
                FILE_MODE
            },
            "{}",
            path.display()
        );
    }
}

/// How often the file of a table is made durable.
fn syncs(work: impl FnOnce()) -> usize {
    let syncs = Rc::new(Cell::new(0));
    let seen = Rc::clone(&syncs);
    watch_steps(Some(Box::new(move |step, path| {
        seen.set(seen.get() + usize::from(step == Step::Synced && path.ends_with(DB)));
        Ok(())
    })));
    work();
    watch_steps(None);
    syncs.get()
}

#[test]
fn less_than_a_segment_of_log_is_written_between_two_syncs() {
    let home = tempfile::tempdir().unwrap();
    assert_eq!(CONFIG.segment_bytes, 8 * LOG_PER_VALUE);
    create(home.path());
    let mut table = open(home.path()).unwrap();
    for (changes, bytes, expected) in [
        (8, 0, 0),
        (9, 0, 1),
        (16, 0, 1),
        (17, 0, 2),
        (1, 1 << 20, 0),
        (2, 1 << 20, 1),
    ] {
        table.begin_anew().unwrap();
        let synced = syncs(|| (0..changes).for_each(|_| table.change(bytes, |_| Ok(())).unwrap()));
        assert_eq!(synced, expected, "{changes} changes of {bytes} bytes");
    }
}

#[test]
fn values_wait_until_they_are_some_megabytes() {
    let home = tempfile::tempdir().unwrap();
    let mut table = begun_anew(home.path());
    let (value, waiting) = (vec![7; 64 << 10], |table: &SledTable| {
        table.writer.as_ref().unwrap().waiting.len()
    });
    for _ in 0..WAITING_BYTES_MAX / value.len() {
        table.set(b"key", &value).unwrap();
        assert_eq!(waiting(&table), 1);
    }
    table.set(b"other", b"v").unwrap();
    assert_eq!(waiting(&table), 0);
}

#[test]
fn the_file_up_to_each_tear_is_a_candidate() {
    let home = tempfile::tempdir().unwrap();
    create(home.path());
    let table = open(home.path()).unwrap();
    let path = table.folder().join(DB);
    // A later segment behind one that is missing.
    let mut bytes = fs::read(&path).unwrap();
    bytes.resize(bytes.len().next_multiple_of(CONFIG.segment_bytes), 0);
    let place = i64::try_from(bytes.len() + CONFIG.segment_bytes).unwrap();
    let header = [place, 0].map(|at| (at ^ i64::MAX).to_le_bytes()).concat();
    bytes.extend((!crc32fast::hash(&header)).to_le_bytes());
    bytes.extend(header);
    fs::write(&path, bytes).unwrap();
    let tears = SledFile::open(&path, CONFIG.segment_bytes)
        .unwrap()
        .index(None)
        .unwrap()
        .tears()
        .len();
    assert!(tears >= 2, "{tears}");
    let scan = table.scan().unwrap();
    for candidate in 0..tears + 3 {
        let exists = scan
            .each(candidate, &mut |_, _, _| ControlFlow::Continue(()))
            .unwrap();
        assert_eq!(
            exists,
            candidate <= tears,
            "candidate {candidate} with {tears} tears"
        );
    }
}
