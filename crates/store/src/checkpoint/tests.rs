//! When a table is rebuilt, and from what.

use super::*;
use crate::memory::{MemoryLog, MemoryTable};
use crate::page::{page_key, put_record};
use crate::record::Subject;
use crate::store::Log as _;

/// A table after a tear: the values without a missing write are another candidate.
#[derive(Clone)]
struct Torn(MemoryTable, Option<MemoryTable>);

impl Table for Torn {
    fn scan(&self) -> Result<Box<dyn Scan>, Error> {
        let candidates = std::iter::once(&self.0)
            .chain(&self.1)
            .map(Table::scan)
            .collect::<Result<_, _>>()?;
        Ok(Box::new(Candidates(candidates)))
    }

    fn is_writable(&self) -> bool {
        false
    }

    fn begin_anew(&mut self) -> Result<(), Error> {
        self.0.begin_anew()
    }

    fn end_anew(&mut self) -> Result<(), Error> {
        self.0.end_anew()
    }

    fn abandon(&mut self) {
        self.0.abandon();
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.0.get(key)
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.0.set(key, value)
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), Error> {
        self.0.remove(key)
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.0.sync()
    }

    fn disk_bytes(&self) -> u64 {
        self.0.disk_bytes()
    }
}

struct Candidates(Vec<Box<dyn Scan>>);

impl Scan for Candidates {
    fn each(&self, candidate: usize, each: &mut crate::store::ShowPair<'_>) -> Result<bool, Error> {
        self.0
            .get(candidate)
            .map_or(Ok(false), |scan| scan.each(0, each))
    }
}

fn checkpointer(table: &(impl Table + Clone + 'static), point: Point) -> Checkpointer {
    let start = Start {
        point,
        candidate: 0,
    };
    let limits = StoreLimits::default();
    Checkpointer::new(
        Box::new(table.clone()),
        MemoryLog::new().tail(),
        limits,
        start,
        Arc::default(),
    )
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
        checkpointer.limits = StoreLimits {
            table_floor_bytes,
            table_multiple,
            ..StoreLimits::default()
        };
        checkpointer.held.bytes = records;
        let what =
            format!("a floor of {table_floor_bytes}, {table_multiple} times {records} bytes");
        assert_eq!(checkpointer.is_bloated(), is_bloated, "{what}");
    }
}

/// A page of the first generation with a record: the key, the value and the weight.
fn page(number: u8) -> (Vec<u8>, Vec<u8>, u64) {
    let (key, mut items) = (page_key(Subject::Entity, number.into()), Vec::new());
    put_record(&mut items, &[1, 2, 1, number]);
    let (value, weight) = seal_page(&key, 1, 0, &items);
    (key, value, weight)
}

#[test]
fn a_table_is_built_from_the_candidate_that_has_the_pages_of_the_point() {
    let [(key, value, weight), (other_key, other_value, _)] = [5, 99].map(page);
    let point = Point {
        generation: 1,
        census: weight,
        ..Point::start(1)
    };
    let before = std::collections::BTreeMap::from([
        (key.clone(), value),
        (POINT_KEY.to_vec(), point.encode()),
    ]);
    // Of two writes without a sync only the second has survived.
    let mut after = before.clone();
    after.insert(other_key.clone(), other_value);
    let cut = || {
        Torn(
            MemoryTable::with(after.clone()),
            Some(MemoryTable::with(before.clone())),
        )
    };

    let rebuilt = cut();
    assert!(rebuilt.0.values().contains_key(&other_key));
    let mut maker = checkpointer(&rebuilt, point);
    maker.ask_for_rebuild();
    assert!(maker.run(true).unwrap());
    let values = rebuilt.0.values();
    assert_eq!(values.keys().collect::<Vec<_>>(), [POINT_KEY, &key]);
    let generation = Page::open(&key, &values[&key]).unwrap().generation;
    assert_eq!(
        (generation, maker.point.generation),
        (2, 2),
        "the page is of the checkpoint that wrote it"
    );

    let mut maker = checkpointer(
        &cut(),
        Point {
            census: weight ^ 1,
            ..point
        },
    );
    maker.ask_for_rebuild();
    let why = maker.run(true).unwrap_err().to_string();
    assert!(why.contains("has changed since it was opened"), "{why}");
}
