//! Reads a whole table and verifies that it is complete. Pure.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use crate::codec::DecodeError;
use crate::page::{Item, Key, Large, Page, PageError, Point, items};
use crate::store::{Error, Scan};

/// The result of reading a table.
#[derive(Debug)]
pub(crate) enum Loaded {
    /// All records of this point were shown.
    Whole(Point),
    /// Part of it is missing or damaged: the records shown do not count.
    Damaged(String),
    /// This candidate does not exist.
    None,
}

/// Shows every record of a table, in order of pages, and verifies that all of them exist.
///
/// # Errors
///
/// If the table cannot be read. A record that `show` rejects is damage.
pub(crate) fn load(
    scan: &dyn Scan,
    candidate: usize,
    show: &mut dyn FnMut(&[u8]) -> Result<(), DecodeError>,
) -> Result<Loaded, Error> {
    let mut loader = Loader { show, point: None, meta: None, census: 0, pages: 0, waiting: VecDeque::new() };
    let mut damage = None;
    let there = scan.each(candidate, &mut |key, value| match loader.take(key, value) {
        Ok(()) => ControlFlow::Continue(()),
        Err(why) => {
            damage = Some(why);
            ControlFlow::Break(())
        }
    })?;
    if !there {
        return Ok(Loaded::None);
    }
    Ok(match damage.map_or_else(|| loader.end(), Err) {
        Ok(point) => Loaded::Whole(point),
        Err(why) => Loaded::Damaged(why),
    })
}

/// A record that cannot be shown yet: it or an earlier one is incomplete.
enum Waiting {
    Record(Vec<u8>),
    Large { large: Large, bytes: Vec<u8>, pieces: u32 },
}

struct Loader<'a> {
    show: &'a mut dyn FnMut(&[u8]) -> Result<(), DecodeError>,
    point: Option<Point>,
    /// The engine meta's page, which precedes the point.
    meta: Option<(Vec<u8>, Vec<u8>)>,
    census: u64,
    pages: u64,
    waiting: VecDeque<Waiting>,
}

impl Loader<'_> {
    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        match Key::of(key) {
            Key::Page if self.point.is_none() => self.meta = Some((key.to_vec(), value.to_vec())),
            Key::Point => {
                self.point = Some(Point::decode(value).map_err(|why| format!("its point cannot be read: {why}"))?);
                if let Some((key, value)) = self.meta.take() {
                    self.page(&key, &value)?;
                }
            }
            Key::Page => self.page(key, value)?,
            Key::Piece { number, place, n } => self.piece((number, place, n), value)?,
            Key::Unknown => return Err(format!("a value has the unknown key {key:02x?}")),
        }
        Ok(())
    }

    fn page(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        self.nothing_waits()?;
        let generation = self.point.map_or(0, |point| point.generation);
        let unreadable = |why: PageError| format!("page {key:02x?} cannot be read: {why}");
        let page = Page::open(key, value).map_err(unreadable)?;
        if page.generation > generation + 1 {
            return Err(format!("page {key:02x?} is of checkpoint {}, the table of {generation}", page.generation));
        }
        self.census = self.census.wrapping_add(page.weight_at(generation));
        self.pages += 1;
        for item in items(page.items) {
            let (_, item, _) = item.map_err(|why| unreadable(why.into()))?;
            match item {
                Item::Record(record) if self.waiting.is_empty() => {
                    (self.show)(record).map_err(|why| unreadable(why.into()))?;
                }
                Item::Record(record) => self.waiting.push_back(Waiting::Record(record.to_vec())),
                Item::Large(large) => {
                    self.waiting.push_back(Waiting::Large { large, bytes: Vec::new(), pieces: 0 });
                }
            }
        }
        Ok(())
    }

    fn piece(&mut self, (number, place, n): (u64, u64, u32), value: &[u8]) -> Result<(), String> {
        let here = self.waiting.iter_mut().find_map(|waiting| match waiting {
            Waiting::Large { large, bytes, pieces } => {
                ((large.number, large.place, *pieces) == (number, place, n)).then_some((bytes, pieces))
            }
            Waiting::Record(_) => None,
        });
        // A piece that no page names was left by an earlier checkpoint. The next one removes it.
        let Some((bytes, pieces)) = here else { return Ok(()) };
        bytes.extend_from_slice(value);
        *pieces += 1;
        self.show_complete()
    }

    /// Shows the waiting records that are complete.
    fn show_complete(&mut self) -> Result<(), String> {
        while let Some(waiting) = self.waiting.front() {
            let record = match waiting {
                Waiting::Record(record) => record,
                Waiting::Large { large, bytes, .. } if bytes.len() >= large.bytes => {
                    if !large.is(bytes) {
                        return Err(format!("the large record of number {} is damaged", large.number));
                    }
                    bytes
                }
                Waiting::Large { .. } => break,
            };
            (self.show)(record).map_err(|why| format!("a record cannot be read: {why}"))?;
            self.waiting.pop_front();
        }
        Ok(())
    }

    fn nothing_waits(&self) -> Result<(), String> {
        let missing = self.waiting.iter().find_map(|waiting| match waiting {
            Waiting::Large { large, .. } => Some(large.number),
            Waiting::Record(_) => None,
        });
        missing.map_or(Ok(()), |number| Err(format!("a piece of the record of number {number} is missing")))
    }

    fn end(&mut self) -> Result<Point, String> {
        let Some(point) = self.point else { return Err("it has no point".to_owned()) };
        self.nothing_waits()?;
        if self.census == point.census {
            return Ok(point);
        }
        let pages = self.pages;
        Err(format!("some of its {} records are missing or outdated ({pages} pages can be read)", point.records))
    }
}
