//! The functions of an old job server.

use std::cell::{Cell, Ref, RefCell};
use std::collections::HashSet;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::link::Trouble;

/// Time between two looks for new functions.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Functions of one worker, and the bytes of their names.
const FUNCTIONS_MAX: usize = 65_536;
const NAMES_BYTES_MAX: usize = 8 << 20;

/// The functions that all lanes register, in the order in which they were found.
#[derive(Debug)]
pub(super) struct Functions {
    names: RefCell<Vec<Bytes>>,
    known: RefCell<HashSet<Bytes>>,
    bytes: Cell<usize>,
    /// When the next look for others is due; `None` if they were named by the operator.
    look_at: Cell<Option<Instant>>,
}

impl Functions {
    /// Those that the operator has named; without any, all that the job server names.
    pub(super) fn new(named: &[String]) -> Result<Self, Trouble> {
        let functions = Self {
            names: RefCell::default(),
            known: RefCell::default(),
            bytes: Cell::default(),
            look_at: Cell::new(named.is_empty().then(Instant::now)),
        };
        named
            .iter()
            .try_for_each(|name| functions.add(name.as_bytes()))?;
        Ok(functions)
    }

    /// In the order in which they were found.
    pub(super) fn names(&self) -> Ref<'_, Vec<Bytes>> {
        self.names.borrow()
    }

    pub(super) fn add(&self, name: &[u8]) -> Result<(), Trouble> {
        if self.known.borrow().contains(name) {
            return Ok(());
        }
        self.bytes.set(self.bytes.get() + name.len());
        let mut names = self.names.borrow_mut();
        if names.len() >= FUNCTIONS_MAX || self.bytes.get() > NAMES_BYTES_MAX {
            let count = names.len();
            return Err(Trouble::Fatal(format!(
                "more than {count} functions are too many: name some with --queue"
            )));
        }
        let name = Bytes::copy_from_slice(name);
        self.known.borrow_mut().insert(name.clone());
        names.push(name);
        Ok(())
    }

    /// Whether it is time to look for others. Then the caller must look.
    pub(super) fn is_stale(&self) -> bool {
        let now = Instant::now();
        let is_stale = self.look_at.get().is_some_and(|at| at <= now);
        if is_stale {
            self.look_at.set(Some(now + LOOK_EVERY));
        }
        is_stale
    }
}

/// The name in a row of `status`, which may itself contain tabs.
pub(super) fn function_of(row: &[u8]) -> Option<&[u8]> {
    let mut fields = row.rsplitn(4, |byte| *byte == b'\t');
    let is_number = |field: &[u8]| !field.is_empty() && field.iter().all(u8::is_ascii_digit);
    let numbers = [fields.next()?, fields.next()?, fields.next()?];
    if numbers.into_iter().all(is_number) {
        fields.next()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_in_rows_of_status() {
        let table: [(&[u8], Option<&[u8]>); 7] = [
            (b"mail\t3\t1\t2", Some(b"mail")),
            (b"a\tb\t3\t1\t2", Some(b"a\tb")),
            (b"\t0\t0\t0", Some(b"")),
            (b"\xff\t0\t0\t0", Some(b"\xff")),
            (b"", None),
            (b"mail\t3\t1", None),
            (b"ERR unknown_command Unknown+server+command", None),
        ];
        for (row, name) in table {
            assert_eq!(function_of(row), name, "{}", row.escape_ascii());
        }
    }

    #[test]
    fn functions_are_found_once_and_are_bounded() {
        let functions = Functions::new(&[]).unwrap();
        assert!(functions.is_stale() && !functions.is_stale());
        [&b"a"[..], b"b", b"a", b""]
            .iter()
            .for_each(|name| functions.add(name).unwrap());
        assert_eq!(*functions.names(), ["a", "b", ""]);
        let long = vec![b'x'; NAMES_BYTES_MAX];
        assert!(matches!(functions.add(&long), Err(Trouble::Fatal(_))));
    }
}
