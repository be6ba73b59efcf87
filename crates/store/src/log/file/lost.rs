//! Files of the log that were removed while the daemon is running. Writes to them still succeed, but no start
//! would find them, so nothing in them may be acknowledged. Previous commits can be read as long as the files
//! are open, and are written again to new files of the same names.

use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::room::{allocate, create, put};
use super::super::scan::MARK;
use super::{FileLog, Shared, State};
use crate::files::{at, sync_data, sync_entry};
use crate::store::Error;

impl Shared {
    /// Fails if this open file was removed or replaced.
    pub(super) fn has_name(&self, path: &Path, file: &File) -> Result<(), Error> {
        if is_named(path, file) {
            Ok(())
        } else {
            Err(removed(path))
        }
    }

    /// Writes segments again after the files were removed. Until that succeeds no commit is
    /// accepted.
    pub(super) fn restore_segments(&self) -> Result<(), Error> {
        let restored = self.write_again(&mut self.state());
        self.is_incomplete
            .store(restored.is_err(), Ordering::Release);
        restored
    }

    fn write_again(&self, state: &mut State) -> Result<(), Error> {
        state
            .spares
            .retain(|spare| is_named(&spare.path, &spare.file));
        if state
            .segments
            .back()
            .is_some_and(|last| last.used == 0 && !is_named(&last.path, &last.file))
        {
            state.segments.pop_back();
        }
        let mut buffer = Vec::new();
        for segment in state
            .segments
            .iter_mut()
            .filter(|segment| !is_named(&segment.path, &segment.file))
        {
            let path = &segment.path;
            tracing::error!(file = %path.display(), "a file of the log was removed under the running daemon: it is written again");
            // Every valid entry is verified.
            let _ = self.read_segment(segment, &mut buffer, u64::MAX, &mut |_| {
                ControlFlow::Continue(())
            })?;
            buffer.resize(usize::try_from(segment.bytes).unwrap_or(usize::MAX), 0);
            segment
                .file
                .read_exact_at(&mut buffer, 0)
                .map_err(at("reading", path))?;
            let file = allocate(path, segment.bytes)?;
            put(&file, path, &[&buffer], 0)?;
            sync_data(&file, path)?;
            segment.file = Arc::new(file);
            sync_entry(&self.folder)?;
        }
        Ok(())
    }

    /// Searches for removed files, and writes them again. A removed mark is written again before the next
    /// commit.
    pub(super) fn look_for_lost(&self) -> Result<(), Error> {
        self.is_in_place()?;
        let is_lost = {
            let state = self.state();
            state
                .segments
                .iter()
                .any(|segment| !is_named(&segment.path, &segment.file))
        };
        if is_lost || self.is_incomplete.load(Ordering::Acquire) {
            self.restore_segments()?;
        }
        let mark = self.folder.join(MARK);
        if is_gone(&mark) {
            self.is_incomplete.store(true, Ordering::Release);
            return Err(removed(&mark));
        }
        Ok(())
    }
}

impl FileLog {
    /// Writes removed files again: segments, and the mark.
    pub(super) fn restore(&mut self) -> Result<(), Error> {
        let path = self.shared.folder.join(MARK);
        if !is_named(&path, &self.mark) {
            tracing::error!(file = %path.display(), "a file of the log was removed under the running daemon: it is written again");
            self.mark = create(&path)?;
            self.write_mark(self.last.0, false, true)?;
            sync_entry(&self.shared.folder)?;
        }
        self.shared.restore_segments()
    }
}

/// Returns true if a start would find this file.
fn is_named(path: &Path, file: &File) -> bool {
    let Ok(open) = file.metadata() else {
        return true;
    };
    match fs::symlink_metadata(path) {
        Ok(there) => open.nlink() > 0 || (open.dev(), open.ino()) == (there.dev(), there.ino()),
        Err(why) => why.kind() != io::ErrorKind::NotFound,
    }
}

fn is_gone(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|why| why.kind() == io::ErrorKind::NotFound)
}

pub(super) fn removed(path: &Path) -> Error {
    at("looking for", path)(io::Error::other(
        "the file was removed under the running daemon",
    ))
}
