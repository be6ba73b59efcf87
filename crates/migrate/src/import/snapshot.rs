//! spiderq's snapshot: its whole database in one file.
//!
//! ```text
//! count:u64 { key_len:u32 key value_len:u32 value }*count
//! ```
//!
//! Numbers are in the byte order of the machine that wrote them; this reader assumes the byte order of this machine.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use windlass_config::Failure;

/// A complete file.
#[derive(Debug)]
pub struct Snapshot {
    path: PathBuf,
    digest: Sha256,
}

/// A key and its value.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
}

/// Reads one entry after another, and never past the end of the file.
struct Entries<R> {
    from: R,
    /// Bytes that are not read yet.
    left_bytes: u64,
    count: u64,
    read: u64,
}

/// Why the file is not a snapshot.
type Torn = Box<dyn std::error::Error>;

impl Snapshot {
    /// Reads the whole file once, so that an incomplete file is refused before anything is imported.
    ///
    /// # Errors
    ///
    /// [`Failure::Source`]: it is not a snapshot, or cannot be read.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let mut snapshot = Self {
            path: path.to_owned(),
            digest: Sha256::new(),
        };
        let mut digest = Sha256::new();
        snapshot.each(&mut |Entry { key, value }| {
            for bytes in [key, value] {
                digest.update((bytes.len() as u64).to_be_bytes());
                digest.update(bytes);
            }
            Ok(())
        })?;
        snapshot.digest = digest;
        Ok(snapshot)
    }

    /// Identifies the snapshot together with the queue it goes to.
    pub fn digest(&self, queue: &[u8]) -> String {
        hex::encode(self.digest.clone().chain_update(queue).finalize())
    }

    /// Every entry, in the order of the file.
    ///
    /// # Errors
    ///
    /// [`Failure::Source`], and those of `each`.
    pub fn each(&self, each: &mut dyn FnMut(Entry) -> Result<(), Failure>) -> Result<(), Failure> {
        let refuse = |why: &dyn Display| Failure::unusable(&self.path, why);
        let file = File::open(&self.path).map_err(|why| refuse(&why))?;
        let about = file.metadata().map_err(|why| refuse(&why))?;
        if about.is_dir() {
            return Err(refuse(&"this is a directory; give the file snapshot in it"));
        }
        let mut entries =
            Entries::new(BufReader::new(file), about.len()).map_err(|why| refuse(&why))?;
        while let Some(entry) = entries.next().map_err(|why| refuse(&why))? {
            each(entry)?;
        }
        Ok(())
    }
}

impl<R: Read> Entries<R> {
    fn new(mut from: R, bytes: u64) -> Result<Self, Torn> {
        /// The lengths of an empty key and an empty value.
        const ENTRY_BYTES_MIN: u64 = 8;
        let mut count = [0; 8];
        let Some(left_bytes) = bytes.checked_sub(count.len() as u64) else {
            return Err(
                format!("a snapshot begins with 8 bytes, but this file has {bytes}").into(),
            );
        };
        from.read_exact(&mut count)?;
        let count = u64::from_ne_bytes(count);
        if count > left_bytes / ENTRY_BYTES_MIN {
            let reason = format!(
                "its header promises more entries ({count}) than {bytes} bytes can hold: it is not a snapshot, was cut short, \
                 or comes from a machine of another byte order"
            );
            return Err(reason.into());
        }
        Ok(Self {
            from,
            left_bytes,
            count,
            read: 0,
        })
    }

    fn next(&mut self) -> Result<Option<Entry>, Torn> {
        if self.read == self.count {
            return match (self.left_bytes, self.count) {
                (0, _) => Ok(None),
                (_, count) => Err(format!(
                    "it goes on behind entry {count} of {count}: it is not a snapshot, or was written over another"
                )
                .into()),
            };
        }
        self.read += 1;
        Ok(Some(Entry {
            key: self.vec()?,
            value: self.vec()?,
        }))
    }

    /// A length, and as many bytes.
    fn vec(&mut self) -> Result<Bytes, Torn> {
        let mut length = [0; 4];
        self.claim(length.len() as u64)?;
        self.from.read_exact(&mut length)?;
        let length = u32::from_ne_bytes(length);
        self.claim(length.into())?;
        let mut bytes = Vec::new();
        (&mut self.from)
            .take(length.into())
            .read_to_end(&mut bytes)?;
        // The file was truncated after it was opened.
        if bytes.len() as u64 != u64::from(length) {
            return Err(self.short());
        }
        Ok(bytes.into())
    }

    fn short(&self) -> Torn {
        format!(
            "it ends within entry {} of {}: it was cut short",
            self.read, self.count
        )
        .into()
    }

    fn claim(&mut self, bytes: u64) -> Result<(), Torn> {
        let left = self.left_bytes.checked_sub(bytes);
        self.left_bytes = left.ok_or_else(|| self.short())?;
        Ok(())
    }
}

/// Every entry of a file in memory.
///
/// # Errors
///
/// Why the file is not a snapshot.
pub fn entries(file: &[u8]) -> Result<Vec<Entry>, String> {
    let told = |torn: Torn| torn.to_string();
    let mut entries = Entries::new(file, file.len() as u64).map_err(told)?;
    let mut all = Vec::new();
    while let Some(entry) = entries.next().map_err(told)? {
        all.push(entry);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(count: u64, entries: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut file = count.to_ne_bytes().to_vec();
        for bytes in entries.iter().flat_map(|(key, value)| [key, value]) {
            file.extend(u32::try_from(bytes.len()).unwrap().to_ne_bytes());
            file.extend(*bytes);
        }
        file
    }

    fn read(file: &[u8]) -> Result<usize, String> {
        entries(file).map(|entries| entries.len())
    }

    #[test]
    fn whole_files_are_read() {
        assert_eq!(read(&file(0, &[])), Ok(0));
        let two = file(2, &[(b"", b""), (b"\0\xff", b"value")]);
        assert_eq!(read(&two), Ok(2));
        let mut entries = Entries::new(&two[..], two.len() as u64).unwrap();
        entries.next().unwrap();
        let last = Entry {
            key: Bytes::from_static(b"\0\xff"),
            value: Bytes::from_static(b"value"),
        };
        assert_eq!(entries.next().unwrap(), Some(last));
    }

    #[test]
    fn torn_files_are_refused_wherever_they_are_cut() {
        let whole = file(2, &[(b"one", b"1"), (b"two", b"22")]);
        for cut in 0..whole.len() {
            let said = read(&whole[..cut]).unwrap_err();
            let expected = match cut {
                0..8 => format!("a snapshot begins with 8 bytes, but this file has {cut}"),
                8..24 => format!("its header promises more entries (2) than {cut} bytes can hold"),
                _ => "it ends within entry 2 of 2: it was cut short".to_owned(),
            };
            assert!(said.starts_with(&expected), "{cut}: {said}");
        }
    }

    #[test]
    fn invalid_files_are_refused() {
        let table = [
            (
                file(u64::MAX, &[(b"a", b"b")]),
                "its header promises more entries (18446744073709551615)",
            ),
            (
                file(1_u64.swap_bytes(), &[(b"a", b"b")]),
                "its header promises more entries (72057594037927936)",
            ),
            (
                file(1, &[(b"a", b"b"), (b"c", b"d")]),
                "it goes on behind entry 1 of 1",
            ),
            (
                [&file(1, &[])[..], &u32::MAX.to_ne_bytes(), &[0; 9]].concat(),
                "it ends within entry 1 of 1",
            ),
        ];
        for (bytes, expected) in table {
            let said = read(&bytes).unwrap_err();
            assert!(said.starts_with(expected), "{said}");
        }
    }
}
