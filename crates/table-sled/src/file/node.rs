//! The contents of pages: the names of trees, nodes, and changes to nodes. Pure: bytes in, slices of them out.
//!
//! Source: sled 0.34.7, `serialization.rs`, `node.rs`, `meta.rs`.
//!
//! A node is `next` and `merging child` (numbers, 0 for none), a byte for `merging`, a byte for the length of the
//! prefix, `lo` and `hi` (strings), a byte for the kind (0 leaf, 1 index), the number of keys, all keys, and then all
//! values: strings in a leaf, pages in an index. It holds keys from `lo` on and below `hi`; an empty `hi` is no limit.
//! All keys, including those of changes, are written without the prefix, which is the start of `lo`.

use super::message::Cursor;

/// sled splits a node long before it has this many entries.
const ENTRIES_MAX: u64 = 1 << 14;

/// The fields of a node that a reader needs.
#[derive(Debug)]
pub(super) struct Node<'a> {
    /// The node to the right.
    pub(super) next: Option<u64>,
    pub(super) lo: &'a [u8],
    pub(super) hi: &'a [u8],
    /// The common start of all keys, not written with each key.
    pub(super) prefix: &'a [u8],
    pub(super) data: Data<'a>,
}

/// The contents of a node.
#[derive(Debug)]
pub(super) enum Data<'a> {
    Leaf(Leaf<'a>),
    /// The leftmost child. sled never merges it into another.
    Index(u64),
}

/// Keys without their prefix, in order, each with its value.
#[derive(Debug, Default)]
pub(super) struct Leaf<'a>(pub(super) Vec<(&'a [u8], &'a [u8])>);

/// A change to a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) enum Link<'a> {
    Set(&'a [u8], &'a [u8]),
    Del(&'a [u8]),
    /// Steps of a merge. In one message the left neighbour takes over the right one's entries and skips it. Until then
    /// both hold their old entries, so a reader that follows neighbours can ignore the merge.
    Merge,
}

impl<'a> Node<'a> {
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor(body);
        let next = Some(cursor.number()?).filter(|next| *next != 0);
        let (_merging_child, _merging) = (cursor.number()?, cursor.byte()?);
        let prefix_bytes = usize::from(cursor.byte()?);
        let (lo, hi) = (cursor.string()?, cursor.string()?);
        let prefix = lo.get(..prefix_bytes)?;
        let (kind, entries) = (
            cursor.byte()?,
            cursor.number().filter(|entries| *entries <= ENTRIES_MAX)?,
        );
        let data = match kind {
            0 => Data::Leaf(Leaf::read(&mut cursor, entries)?),
            1 => Data::Index(leftmost(&mut cursor, entries)?),
            _ => return None,
        };
        cursor.0.is_empty().then_some(Self {
            next,
            lo,
            hi,
            prefix,
            data,
        })
    }

    /// Whether the prefix with this suffix is between `lo` and `hi`.
    pub(super) fn holds(&self, key: &[u8]) -> bool {
        let key = || self.prefix.iter().chain(key);
        key().ge(self.lo) && (self.hi.is_empty() || key().lt(self.hi))
    }
}

impl<'a> Leaf<'a> {
    fn read(cursor: &mut Cursor<'a>, entries: u64) -> Option<Self> {
        let mut leaf = Self::default();
        for _ in 0..entries {
            leaf.0.push((cursor.string()?, &[]));
        }
        for (_, value) in &mut leaf.0 {
            *value = cursor.string()?;
        }
        Some(leaf)
    }

    pub(super) fn apply(&mut self, link: Link<'a>) {
        let place = |key| self.0.binary_search_by(|(old, _)| old.cmp(&key));
        match link {
            Link::Set(key, value) => match place(key) {
                Ok(at) => self
                    .0
                    .get_mut(at)
                    .into_iter()
                    .for_each(|entry| entry.1 = value),
                Err(at) => self.0.insert(at, (key, value)),
            },
            Link::Del(key) => {
                if let Ok(at) = place(key) {
                    self.0.remove(at);
                }
            }
            Link::Merge => {}
        }
    }
}

fn leftmost(cursor: &mut Cursor<'_>, entries: u64) -> Option<u64> {
    for _ in 0..entries {
        cursor.string()?;
    }
    let first = cursor.number()?;
    for _ in 1..entries {
        cursor.number()?;
    }
    Some(first)
}

impl<'a> Link<'a> {
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor(body);
        let link = match cursor.byte()? {
            0 => Self::Set(cursor.string()?, cursor.string()?),
            1 => Self::Del(cursor.string()?),
            2 => cursor.number().map(|_child| Self::Merge)?,
            3 | 4 => Self::Merge,
            _ => return None,
        };
        cursor.0.is_empty().then_some(link)
    }
}

/// The root of a tree, from the page that names the trees. `None`: the page is invalid; `Some(None)`: it names no such
/// tree.
pub(super) fn root(body: &[u8], tree: &[u8]) -> Option<Option<u64>> {
    let (mut cursor, mut root) = (Cursor(body), None);
    while !cursor.0.is_empty() {
        let (name, page) = (cursor.string()?, cursor.number()?);
        if name == tree {
            root = Some(page);
        }
    }
    Some(root)
}
