//! When a table is rebuilt, and from what.

use super::*;
use crate::log::memory::MemoryLog;
use crate::memory_table::MemoryTable;
use crate::page::{page_key, put_record};
use crate::record::Subject;
use crate::store::Log as _;

fn checkpointer(table: &MemoryTable, point: Point) -> Checkpointer {
    let start = Start { point, candidate: 0 };
    let limits = CheckpointLimits::default();
    Checkpointer::new(Box::new(table.clone()), MemoryLog::new().tail(), limits, start, Arc::default())
}

#[test]
fn a_table_is_too_large_above_a_floor_and_a_multiple_of_its_records() {
    let table = MemoryTable::with([(b"k".to_vec(), vec![0; 99])].into());
    assert_eq!(table.disk_bytes(), 100);
    let cases = [
        (99, 1, 99, true),
        (100, 1, 99, false),
        (101, 1, 99, false),
        (99, 1, 100, false),
        (99, 1, 101, false),
        (0, 2, 49, true),
        (0, 2, 50, false),
        (0, u64::MAX, 2, false),
    ];
    for (table_floor_bytes, table_multiple, records, is_bloated) in cases {
        let mut checkpointer = checkpointer(&table, Point::start(1));
        checkpointer.limits = CheckpointLimits { table_floor_bytes, table_multiple, ..CheckpointLimits::default() };
        checkpointer.held.bytes = records;
        let what = format!("a floor of {table_floor_bytes}, {table_multiple} times {records} bytes");
        assert_eq!(checkpointer.is_bloated(), is_bloated, "{what}");
    }
}

/// A page of the first generation with one record: its key, its value and its weight.
fn page(number: u8) -> (Vec<u8>, Vec<u8>, u64) {
    let (key, mut items) = (page_key(Subject::Entity, number.into()), Vec::new());
    put_record(&mut items, &[1, number, 7]);
    let (value, weight) = seal_page(&key, 1, 0, &items);
    (key, value, weight)
}

#[test]
fn a_table_is_built_from_the_candidate_that_has_the_pages_of_the_point() {
    let [(key, value, weight), (other_key, other_value, _)] = [5, 99].map(page);
    let point = Point { generation: 1, census: weight, ..Point::start(1) };
    let mut table = MemoryTable::new();
    table.begin_anew().unwrap();
    table.set(&key, &value).unwrap();
    table.set(POINT_KEY, &point.encode()).unwrap();
    table.end_anew().unwrap();
    // Of two writes without a sync the second has survived alone.
    table.set(b"lost", b"lost").unwrap();
    table.set(&other_key, &other_value).unwrap();
    let cut = || {
        let mut survives = [false, true].into_iter();
        table.cut(|| survives.next().unwrap())
    };

    let rebuilt = cut();
    assert!(rebuilt.values().contains_key(&other_key));
    let mut maker = checkpointer(&rebuilt, point);
    maker.ask_for_rebuild();
    assert!(maker.run(true).unwrap());
    let values = rebuilt.values();
    assert_eq!(values.keys().collect::<Vec<_>>(), [POINT_KEY, &key]);
    let generation = Page::open(&key, &values[&key]).unwrap().generation;
    assert_eq!((generation, maker.point.generation), (2, 2), "the page is of the checkpoint that wrote it");

    let mut maker = checkpointer(&cut(), Point { census: weight ^ 1, ..point });
    maker.ask_for_rebuild();
    let why = maker.run(true).unwrap_err().to_string();
    assert!(why.contains("has changed since it was opened"), "{why}");
}
