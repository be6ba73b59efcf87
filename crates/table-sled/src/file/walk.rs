//! Reads a tree in order of keys: down to its leftmost leaf, and from there along the neighbours.

use std::ops::Range;

use super::index::{Fragment, Index, Page};
use super::message::{Flaw, Kind, Message};
use super::node::{Data, Link, Node, root};
use super::{Each, PAGE_BYTES_MAX, SledFile};
use windlass_store::{Error, offset_in};

/// The page that names the trees.
const META: u64 = 0;
/// Levels of a tree: an index has dozens of children.
const LEVELS_MAX: usize = 32;

/// A missing part of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gap {
    /// The page that names the trees is missing in the log.
    NoMeta,
    /// The log does not name the tree.
    NoTree,
    /// This page is referenced but missing in the log.
    Lost(u64),
    /// A page cannot be read, at this byte of the file.
    Unreadable { page: u64, offset: u64, flaw: Flaw },
    /// This page does not begin where its neighbour ends.
    Misplaced(u64),
    /// This page holds a key outside its range.
    UnclaimedJob(u64),
    /// The tree has too many levels.
    Deep,
}

#[derive(derive_more::From)]
enum Stop {
    Io(Error),
    Gap(Gap),
}

/// The messages of one page: their contents one after the other. The rest of the buffer is left from earlier pages.
#[derive(Debug, Default)]
struct Contents {
    bytes: Vec<u8>,
    image: (Option<Kind>, Range<usize>),
    links: Vec<Range<usize>>,
    /// Where each message begins in the buffer, and in the file.
    places: Vec<(usize, Option<u64>)>,
    blob: Vec<u8>,
}

impl Contents {
    fn image(&self) -> &[u8] {
        self.bytes.get(self.image.1.clone()).unwrap_or_default()
    }

    /// Where a part of a message is in the file.
    fn place_of(&self, part: &[u8]) -> Option<u64> {
        let at = offset_in(&self.bytes, part)?;
        let (begin, place) = self.places.iter().rfind(|(begin, _)| *begin <= at)?;
        Some((*place)? + (at - begin) as u64)
    }

    fn links(&self) -> impl Iterator<Item = Option<Link<'_>>> {
        self.links
            .iter()
            .map(|link| self.bytes.get(link.clone()).and_then(Link::read))
    }
}

impl SledFile {
    /// Shows every entry of a tree, in order of keys, until `each` breaks.
    ///
    /// # Errors
    ///
    /// If the file cannot be read. If it can and the tree is incomplete, the walk ends with the gap.
    pub(crate) fn for_each(
        &self,
        index: &Index,
        tree: &[u8],
        each: &mut Each<'_>,
    ) -> Result<Option<Gap>, Error> {
        match self.walk(index, tree, each) {
            Ok(()) => Ok(None),
            Err(Stop::Gap(gap)) => Ok(Some(gap)),
            Err(Stop::Io(why)) => Err(why),
        }
    }

    fn walk(&self, index: &Index, tree: &[u8], each: &mut Each<'_>) -> Result<(), Stop> {
        let (mut contents, mut key, mut hi) = (Contents::default(), Vec::new(), Vec::new());
        let mut next = Some(self.leftmost_leaf(index, tree, &mut contents)?);
        while let Some(pid) = next {
            let page = index.pages.get(&pid).ok_or(Gap::Lost(pid))?;
            self.read_page(pid, page, &mut contents)?;
            let nonsense = Gap::Unreadable {
                page: pid,
                offset: page.image.offset,
                flaw: Flaw::Nonsense,
            };
            let mut node = node(&contents).ok_or(nonsense)?;
            // Every leaf begins where the previous one ends, and ends after its own start. So a leaf never comes twice.
            let last = node.hi.is_empty();
            if node.lo != hi || node.next.is_none() != last || !(last || node.hi > node.lo) {
                return Err(Gap::Misplaced(pid).into());
            }
            let Data::Leaf(leaf) = &mut node.data else {
                return Err(nonsense.into());
            };
            for link in contents.links() {
                leaf.apply(link.ok_or(nonsense)?);
            }
            let Data::Leaf(leaf) = &node.data else {
                return Err(nonsense.into());
            };
            if ![leaf.0.first(), leaf.0.last()]
                .into_iter()
                .flatten()
                .all(|(key, _)| node.holds(key))
            {
                return Err(Gap::UnclaimedJob(pid).into());
            }
            for (suffix, value) in &leaf.0 {
                key.clear();
                key.extend_from_slice(node.prefix);
                key.extend_from_slice(suffix);
                if each(&key, value, contents.place_of(value)).is_break() {
                    return Ok(());
                }
            }
            hi.clear();
            hi.extend_from_slice(node.hi);
            next = node.next;
        }
        Ok(())
    }

    fn leftmost_leaf(
        &self,
        index: &Index,
        tree: &[u8],
        contents: &mut Contents,
    ) -> Result<u64, Stop> {
        let meta = index.pages.get(&META).ok_or(Gap::NoMeta)?;
        self.read_page(META, meta, contents)?;
        let nonsense = |page: u64, image: &Fragment| Gap::Unreadable {
            page,
            offset: image.offset,
            flaw: Flaw::Nonsense,
        };
        let meta = Some(contents.image())
            .filter(|_| contents.image.0 == Some(Kind::Meta))
            .ok_or(Gap::NoMeta)?;
        let mut pid = root(meta, tree).ok_or(Gap::NoMeta)?.ok_or(Gap::NoTree)?;
        for _ in 0..LEVELS_MAX {
            let page = index.pages.get(&pid).ok_or(Gap::Lost(pid))?;
            self.read_page(pid, page, contents)?;
            let node = node(contents).ok_or(nonsense(pid, &page.image))?;
            match node.data {
                Data::Leaf(_) => return Ok(pid),
                Data::Index(leftmost) => pid = leftmost,
            }
        }
        Err(Gap::Deep.into())
    }

    /// Reads the messages of a page, each of which must still match the index.
    fn read_page(&self, pid: u64, page: &Page, contents: &mut Contents) -> Result<(), Stop> {
        contents.links.clear();
        contents.places.clear();
        let mut used = 0;
        for fragment in std::iter::once(&page.image).chain(&page.links) {
            let read = self.read_fragment(pid, fragment, used, contents)?;
            let unreadable = |flaw| Gap::Unreadable {
                page: pid,
                offset: fragment.offset,
                flaw,
            };
            let (kind, range) = read.map_err(unreadable)?;
            used = range.end;
            if fragment.lsn == page.image.lsn {
                contents.image = (Some(kind), range);
            } else {
                contents.links.push(range);
            }
        }
        Ok(())
    }

    /// Reads a message to an offset in the buffer, and returns the range of its contents there.
    fn read_fragment(
        &self,
        pid: u64,
        fragment: &Fragment,
        at: usize,
        contents: &mut Contents,
    ) -> Result<Result<(Kind, Range<usize>), Flaw>, Error> {
        let Contents {
            bytes,
            blob,
            places,
            ..
        } = contents;
        let end = at.saturating_add(fragment.bytes);
        if end > PAGE_BYTES_MAX {
            return Ok(Err(Flaw::Large));
        }
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        let place = bytes.get_mut(at..end).unwrap_or_default();
        let read = self
            .read(fragment.offset, place)
            .map_err(|why| self.failed(why))?;
        let message = match Message::read(read) {
            Ok(message) if message.segment != fragment.lsn / self.segment_bytes as u64 => {
                return Ok(Err(Flaw::Segment(message.segment)));
            }
            Ok(message) if message.page != pid => return Ok(Err(Flaw::Page(message.page))),
            Ok(message) => message,
            Err(flaw) => return Ok(Err(flaw)),
        };
        let (kind, tag) = (message.kind, message.tag);
        let id = match message.blob() {
            None => {
                places.push((at, Some(fragment.offset)));
                return Ok(Ok((kind, end - message.body.len()..end)));
            }
            Some(Ok(id)) => id,
            Some(Err(flaw)) => return Ok(Err(flaw)),
        };
        let body = match self.blob(id, tag, blob)? {
            Ok(body) if at + body.len() > PAGE_BYTES_MAX => return Ok(Err(Flaw::Large)),
            Ok(body) => body,
            Err(flaw) => return Ok(Err(flaw)),
        };
        places.push((at, None));
        bytes.truncate(at);
        bytes.extend_from_slice(body);
        Ok(Ok((kind, at..bytes.len())))
    }
}

/// The image of a page as a node, if it is valid.
fn node(contents: &Contents) -> Option<Node<'_>> {
    Some(contents.image())
        .filter(|_| contents.image.0 == Some(Kind::Node))
        .and_then(Node::read)
}
