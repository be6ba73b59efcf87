//! Reads a table and verifies that it is complete. Pure.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use crate::page::{Item, Key, Large, Page, PageError, Point, items};
use crate::store::{Error, Scan};
use windlass_codec::DecodeError;

/// The result of reading a table.
#[derive(Debug)]
pub(crate) enum Loaded {
    /// All records of this point were passed on.
    Whole(Point),
    /// Part of it is missing or damaged: the records shown do not count.
    Damaged(String),
    /// This candidate does not exist.
    None,
}

/// Receives a record, and where it is in the table's file if it is there in one piece.
pub(crate) type ShowRecord<'a> = dyn FnMut(&[u8], Option<u64>) -> Result<(), DecodeError> + 'a;

/// Passes every record of a table to `show`, in order of pages, and verifies that all of them
/// exist.
///
/// # Errors
///
/// The table cannot be read. A record that `show` rejects is damage.
pub(crate) fn load(
    scan: &dyn Scan,
    candidate: usize,
    show: &mut ShowRecord<'_>,
) -> Result<Loaded, Error> {
    let mut loader = Loader {
        show,
        point: None,
        meta: None,
        census: 0,
        pages: 0,
        waiting: VecDeque::new(),
    };
    let mut damage = None;
    let there = scan.each(
        candidate,
        &mut |key, value, at| match loader.take(key, value, at) {
            Ok(()) => ControlFlow::Continue(()),
            Err(why) => {
                damage = Some(why);
                ControlFlow::Break(())
            }
        },
    )?;
    if !there {
        return Ok(Loaded::None);
    }
    Ok(match damage.map_or_else(|| loader.end(), Err) {
        Ok(point) => Loaded::Whole(point),
        Err(why) => Loaded::Damaged(why),
    })
}

/// A record that cannot be passed on yet, because it or a previous one is incomplete.
enum Waiting {
    Record(Vec<u8>, Option<u64>),
    /// `at` is the position of the first piece.
    Large {
        large: Large,
        bytes: Vec<u8>,
        pieces: u32,
        at: Option<u64>,
    },
}

struct Loader<'a> {
    show: &'a mut ShowRecord<'a>,
    point: Option<Point>,
    /// The engine meta's page, which precedes the point.
    meta: Option<(Vec<u8>, Vec<u8>)>,
    census: u64,
    pages: u64,
    waiting: VecDeque<Waiting>,
}

impl Loader<'_> {
    fn take(&mut self, key: &[u8], value: &[u8], at: Option<u64>) -> Result<(), String> {
        match Key::of(key) {
            Key::Page if self.point.is_none() => self.meta = Some((key.to_vec(), value.to_vec())),
            Key::Point => {
                self.point = Some(
                    Point::decode(value)
                        .map_err(|why| format!("its point cannot be read: {why}"))?,
                );
                if let Some((key, value)) = self.meta.take() {
                    self.page(&key, &value, None)?;
                }
            }
            Key::Page => self.page(key, value, at)?,
            Key::Piece { number, place, n } => self.piece(number, place, n, value, at)?,
            Key::Unknown => return Err(format!("a value has the unknown key {key:02x?}")),
        }
        Ok(())
    }

    fn page(&mut self, key: &[u8], value: &[u8], at: Option<u64>) -> Result<(), String> {
        self.nothing_waits()?;
        let generation = self.point.map_or(0, |point| point.generation);
        let unreadable = |why: PageError| format!("page {key:02x?} cannot be read: {why}");
        let page = Page::open(key, value).map_err(unreadable)?;
        if page.generation > generation + 1 {
            return Err(format!(
                "page {key:02x?} is of checkpoint {}, the table of {generation}",
                page.generation
            ));
        }
        self.census = self.census.wrapping_add(page.weight_at(generation));
        self.pages += 1;
        let place = |record| Some(at? + offset_in(value, record)? as u64);
        for item in items(page.items) {
            let (_, item, _) = item.map_err(|why| unreadable(why.into()))?;
            match item {
                Item::Record(record) if self.waiting.is_empty() => {
                    (self.show)(record, place(record)).map_err(|why| unreadable(why.into()))?;
                }
                Item::Record(record) => self
                    .waiting
                    .push_back(Waiting::Record(record.to_vec(), place(record))),
                Item::Large(large) => {
                    self.waiting.push_back(Waiting::Large {
                        large,
                        bytes: Vec::new(),
                        pieces: 0,
                        at: None,
                    });
                }
            }
        }
        Ok(())
    }

    fn piece(
        &mut self,
        number: u64,
        place: u64,
        n: u32,
        value: &[u8],
        found: Option<u64>,
    ) -> Result<(), String> {
        let here = self.waiting.iter_mut().find_map(|waiting| match waiting {
            Waiting::Large {
                large,
                bytes,
                pieces,
                at,
            } => ((large.number, large.place, *pieces) == (number, place, n))
                .then_some((bytes, pieces, at)),
            Waiting::Record(..) => None,
        });
        // A piece that no page references is left over from a previous checkpoint. The next
        // checkpoint removes it.
        let Some((bytes, pieces, at)) = here else {
            return Ok(());
        };
        bytes.extend_from_slice(value);
        *pieces += 1;
        *at = found.filter(|_| *pieces == 1);
        self.show_complete()
    }

    /// Shows the waiting records that are complete.
    fn show_complete(&mut self) -> Result<(), String> {
        while let Some(waiting) = self.waiting.front() {
            let (record, at) = match waiting {
                Waiting::Record(record, at) => (record, *at),
                Waiting::Large {
                    large, bytes, at, ..
                } if bytes.len() >= large.bytes => {
                    if !large.is(bytes) {
                        return Err(format!(
                            "the large record of number {} is damaged",
                            large.number
                        ));
                    }
                    (bytes, *at)
                }
                Waiting::Large { .. } => break,
            };
            (self.show)(record, at).map_err(|why| format!("a record cannot be read: {why}"))?;
            self.waiting.pop_front();
        }
        Ok(())
    }

    fn nothing_waits(&self) -> Result<(), String> {
        let missing = self.waiting.iter().find_map(|waiting| match waiting {
            Waiting::Large { large, .. } => Some(large.number),
            Waiting::Record(..) => None,
        });
        missing.map_or(Ok(()), |number| {
            Err(format!(
                "a piece of the record of number {number} is missing"
            ))
        })
    }

    fn end(&mut self) -> Result<Point, String> {
        let Some(point) = self.point else {
            return Err("it has no point".to_owned());
        };
        self.nothing_waits()?;
        if self.census == point.census {
            return Ok(point);
        }
        let pages = self.pages;
        Err(format!(
            "some of its {} records are missing or outdated ({pages} pages can be read)",
            point.records
        ))
    }
}

/// The offset of a part within a byte slice.
pub fn offset_in(whole: &[u8], part: &[u8]) -> Option<usize> {
    let begin = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    (begin + part.len() <= whole.len()).then_some(begin)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use windlass_engine::JobId;

    use super::*;
    use crate::memory::MemoryTable;
    use crate::page::{PIECE_BYTES, POINT_KEY, page_key, put_large, put_record, seal_page};
    use crate::record::{Subject, Tag, encode_gone};
    use crate::store::Table as _;

    /// Two pages and a large record in pieces, at checkpoint 3.
    fn values() -> (BTreeMap<Vec<u8>, Vec<u8>>, Large) {
        let (mut values, mut census, mut records) = (BTreeMap::new(), 0_u64, 0);
        let mut large = vec![0xee; 2 * PIECE_BYTES + 1];
        large[..2].copy_from_slice(&[3, 40]);
        let large_of = Large::of(&large, Tag::of(&large).unwrap(), 77);
        for number in [5, 40, 70] {
            let (mut items, key) = (Vec::new(), page_key(Subject::Entity, number));
            if number == 40 {
                put_large(&mut items, large_of);
                values.extend(
                    large_of
                        .keys()
                        .zip(large.chunks(PIECE_BYTES).map(<[u8]>::to_vec)),
                );
            }
            let mut record = Vec::new();
            encode_gone(JobId(number + 1), &mut record);
            put_record(&mut items, &record);
            let (value, weight) = seal_page(&key, 3, 0, &items);
            values.insert(key, value);
            census = census.wrapping_add(weight);
            records += 1;
        }
        let point = Point {
            generation: 3,
            census,
            records,
            ..Point::start(9)
        };
        values.insert(POINT_KEY.to_vec(), point.encode());
        (values, large_of)
    }

    fn loaded(values: BTreeMap<Vec<u8>, Vec<u8>>) -> (Result<u64, String>, Vec<usize>) {
        let mut sizes = Vec::new();
        let scan = MemoryTable::with(values).scan().unwrap();
        let loaded = load(&*scan, 0, &mut |record, _| {
            sizes.push(record.len());
            Ok(())
        });
        assert!(
            matches!(load(&*scan, 1, &mut |_, _| Ok(())), Ok(Loaded::None)),
            "there is one candidate"
        );
        match loaded.unwrap() {
            Loaded::Whole(point) => (Ok(point.generation), sizes),
            Loaded::Damaged(why) => (Err(why), sizes),
            Loaded::None => panic!("it exists"),
        }
    }

    #[test]
    fn records_are_shown_in_order_with_those_in_pieces() {
        let (values, large) = values();
        assert_eq!(loaded(values), (Ok(3), vec![2, large.bytes, 2, 2]));
    }

    #[test]
    fn a_table_that_is_not_complete_is_named() {
        type Change = fn(&mut BTreeMap<Vec<u8>, Vec<u8>>, Large);
        const LAST: fn() -> Vec<u8> = || page_key(Subject::Entity, 70);
        let table: [(&str, Change); 7] = [
            ("it has no point", |values, _| {
                drop(values.remove(POINT_KEY))
            }),
            (
                "some of its 3 records are missing or outdated (2 pages can be read)",
                |values, _| {
                    values.remove(&LAST());
                },
            ),
            (
                "a piece of the record of number 40 is missing",
                |values, large| {
                    values.remove(&large.keys().nth(1).unwrap());
                },
            ),
            (
                "a piece of the record of number 40 is missing",
                |values, large| {
                    values.remove(&large.keys().nth(2).unwrap());
                },
            ),
            (
                "the large record of number 40 is damaged",
                |values, large| {
                    values.get_mut(&large.keys().nth(2).unwrap()).unwrap()[0] ^= 1;
                },
            ),
            ("a value has the unknown key [09]", |values, _| {
                drop(values.insert(vec![9], Vec::new()))
            }),
            (
                "page [02, 00, 00, 00, 00, 00, 00, 00, 02, 00] is of checkpoint 5, the table of 3",
                |values, _| {
                    values.insert(LAST(), seal_page(&LAST(), 5, 0, &[]).0);
                },
            ),
        ];
        for (expected, change) in table {
            let (mut values, large) = values();
            change(&mut values, large);
            assert_eq!(loaded(values).0, Err(expected.to_owned()));
        }
        // A page of an unfinished checkpoint is replaced in the census by the page it overwrote. A piece
        // without a page remains unused.
        let (mut values, large) = values();
        let old = Page::open(&LAST(), &values[&LAST()]).unwrap().weight_at(3);
        values.insert(LAST(), seal_page(&LAST(), 4, old, &[]).0);
        let left = Large::of(&[3, 40], Tag::of(&[3, 40]).unwrap(), 78);
        values.insert(left.keys().next().unwrap(), b"left".to_vec());
        assert_eq!(loaded(values), (Ok(3), vec![2, large.bytes, 2]));
    }
}
