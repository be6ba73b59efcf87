//! File operations of a log: allocating, writing and removing files.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::FallocateFlags;

use crate::files::{FILE_MODE, Step, at, step, sync};
use crate::store::Error;

/// Maximum slices in a write.
const SLICES_MAX: usize = 1024;

/// Writes bytes, and reports the step to a test.
pub(super) fn put(file: &File, path: &Path, parts: &[&[u8]], from: u64) -> Result<(), Error> {
    write_all_at(file, parts, from).map_err(at("writing", path))?;
    step(
        Step::Put(from, parts.iter().map(|part| part.len() as u64).sum()),
        path,
    );
    Ok(())
}

fn write_all_at(file: &File, parts: &[&[u8]], mut from: u64) -> io::Result<()> {
    if let [part] = parts {
        return file.write_all_at(part, from);
    }
    for chunk in parts.chunks(SLICES_MAX) {
        let mut slices: Vec<IoSlice<'_>> = chunk.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest = slices.as_mut_slice();
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match rustix::io::pwritev(file, rest, from) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    from += written as u64;
                    IoSlice::advance_slices(&mut rest, written);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
    }
    Ok(())
}

pub(super) fn create(path: &Path) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE);
    options.open(path).map_err(at("making", path))
}

pub(super) fn open(path: &Path) -> Result<File, Error> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(at("opening", path))
}

/// Creates a file of `bytes` bytes, filled with zeros. On failure it removes the file.
///
/// Zeros are written because blocks that are only allocated are attached to the file by a metadata change
/// with the first commit in them, which can fail together with a later write.
pub(super) fn allocate(path: &Path, bytes: u64) -> Result<File, Error> {
    let file = create(path)?;
    let allocated = match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        // The file system cannot allocate.
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        allocated => allocated.map_err(io::Error::from),
    };
    let allocated = allocated.and_then(|()| write_zeros(&file, bytes));
    match allocated
        .map_err(at("allocating", path))
        .and_then(|()| sync(&file, path))
    {
        Ok(()) => Ok(file),
        Err(why) => {
            drop(remove(path));
            Err(why)
        }
    }
}

/// Writes zeros over the first bytes of a file.
fn write_zeros(file: &File, bytes: u64) -> io::Result<()> {
    let zeros = vec![0; 1 << 18];
    let mut done = 0;
    while done < bytes {
        let left = usize::try_from(bytes - done).unwrap_or(usize::MAX);
        let part = zeros.get(..left.min(zeros.len())).unwrap_or_default();
        file.write_all_at(part, done)?;
        done += part.len() as u64;
    }
    Ok(())
}

pub(super) fn remove(path: &Path) -> Result<(), Error> {
    match std::fs::remove_file(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => {
            step(Step::Written, path);
            removed.map_err(at("removing", path))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_parts_are_written_one_after_the_other() {
        let file = tempfile::tempfile().unwrap();
        let parts: Vec<Vec<u8>> = (0..2 * SLICES_MAX + 7)
            .map(|n| vec![n.to_le_bytes()[0]; n % 5])
            .collect();
        let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        write_all_at(&file, &[b"before"], 0).unwrap();
        write_all_at(&file, &slices, 6).unwrap();
        let expected = [b"before".as_slice(), &parts.concat()].concat();
        let mut written = vec![0; expected.len()];
        file.read_exact_at(&mut written, 0).unwrap();
        assert!(written == expected && file.metadata().unwrap().len() == expected.len() as u64);
    }

    #[test]
    fn zeros_are_written_to_the_last_byte() {
        for bytes in [0, 1, 1 << 18, (1 << 18) + 1, 3 << 18] {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&[7; 9], 0).unwrap();
            write_zeros(&file, bytes).unwrap();
            assert_eq!(file.metadata().unwrap().len(), bytes.max(9));
            let mut first = [1; 9];
            file.read_exact_at(&mut first, 0).unwrap();
            assert_eq!(
                first.iter().filter(|byte| **byte == 0).count() as u64,
                bytes.min(9)
            );
        }
    }

    #[test]
    fn a_file_may_be_gone_already_when_it_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        drop(allocate(&path, 5_000).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 5_000);
        remove(&path).unwrap();
        assert!(!path.exists());
        remove(&path).unwrap();
        assert!(remove(home.path()).is_err(), "a folder");
    }
}
