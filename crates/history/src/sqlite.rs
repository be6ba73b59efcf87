//! The history in a folder: a file of SQLite for each day and retention.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::types::ToSqlOutput;

use crate::Error;
use crate::day_file::{DayFile, SqliteRow, is_damage, open_to_read, text};
use crate::file_id::FileId;
use crate::folder;
use crate::position;
use crate::shelf::{Committed, Dialect, Held, Owner, Reader, Rows, Select, Shelf, ShowRow, Writer};

/// Files that stay open for writing.
const OPEN_MAX: usize = 4;

/// A folder, which need not exist.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// The history in this folder.
    pub const fn new(path: PathBuf) -> Self {
        Self(path)
    }
}

impl Shelf for Folder {
    fn reader(&self) -> Result<Box<dyn Reader>, Error> {
        let folder = self.0.clone();
        Ok(Box::new(FolderReader { folder, open: None }))
    }

    fn writer(&self, owner: Owner) -> Result<Box<dyn Writer>, Error> {
        Ok(Box::new(FolderWriter {
            folder: self.0.clone(),
            store: owner.store,
            open: BTreeMap::new(),
        }))
    }

    fn keep_from(&self) -> u64 {
        position::read(&self.0).map_or(0, |position| position.commit)
    }
}

/// Makes the folder, durably: a power cut that took its name would take all files in it.
fn make(folder: &Path) -> Result<(), Error> {
    let made = std::fs::create_dir_all(folder).and_then(|()| match folder.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    });
    made.map_err(|why| folder::io(folder, why))
}

/// Reads one file after the other.
struct FolderReader {
    folder: PathBuf,
    open: Option<Opened>,
}

struct Opened {
    file: FileId,
    /// `None`: the file has no tables yet.
    db: Option<Connection>,
}

impl Reader for FolderReader {
    fn dialect(&self) -> Dialect {
        Dialect {
            like: "LIKE",
            equals: |column, mark| format!("{column} = {mark}"),
        }
    }

    fn files(&mut self) -> Result<Vec<FileId>, Error> {
        folder::list(&self.folder)
    }

    fn select(
        &mut self,
        file: FileId,
        select: &Select<'_>,
        each: &mut ShowRow<'_>,
    ) -> Result<(), Error> {
        let place = folder::path(&self.folder, file);
        if !place.exists() {
            return Ok(());
        }
        let place = place.display().to_string();
        let failed = |why| Error::File {
            place: place.clone(),
            why,
        };
        let open = match self.open.take().filter(|open| open.file == file) {
            Some(open) => open,
            None => Opened {
                file,
                db: open_to_read(&self.folder, file).map_err(failed)?,
            },
        };
        let Some(db) = &self.open.insert(open).db else {
            return Ok(());
        };
        let sql = select.sql(select.table, "true").replace('$', "?");
        let values = select.conditions.values.iter();
        let values = values.map(|value| ToSqlOutput::Borrowed(text(value)));
        let mut statement = db.prepare(&sql).map_err(failed)?;
        let mut rows = statement
            .query(rusqlite::params_from_iter(values))
            .map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let row = SqliteRow { row, place: &place };
            if each(&row)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

struct FolderWriter {
    folder: PathBuf,
    store: u64,
    open: BTreeMap<FileId, DayFile>,
}

impl Writer for FolderWriter {
    fn position(&mut self) -> Result<u64, Error> {
        make(&self.folder)?;
        let position = position::read(&self.folder).filter(|it| it.store == self.store);
        Ok(position.map_or(0, |position| position.commit))
    }

    /// A file gets its rows in one transaction.
    fn write(&mut self, rows: &Rows, upto: u64) -> Result<u64, Error> {
        let mut written = 0;
        for (id, rows) in rows {
            written += self.write_to(*id, rows, upto)?;
        }
        Ok(written)
    }

    fn sync(&mut self, upto: u64) -> Result<(), Error> {
        for file in self.open.values() {
            file.sync()?;
        }
        position::write(&self.folder, self.store, upto)
    }

    fn files(&mut self) -> Result<Vec<Held>, Error> {
        let files = folder::list(&self.folder)?.into_iter();
        let held = |file| Held {
            file,
            bytes: folder::bytes_of(&self.folder, file),
        };
        Ok(files.map(held).collect())
    }

    fn delete(&mut self, file: FileId) -> Result<(), Error> {
        self.open.remove(&file);
        folder::delete(&self.folder, file)
    }

    fn free_bytes(&self) -> Option<u64> {
        let about = rustix::fs::statvfs(&self.folder).ok()?;
        Some(about.f_bavail.saturating_mul(about.f_frsize))
    }
}

impl FolderWriter {
    fn write_to(&mut self, id: FileId, rows: &[Committed], upto: u64) -> Result<u64, Error> {
        let written = self.try_write_to(id, rows, upto);
        let Err(error) = written else { return written };
        if !is_damage(&error) {
            self.close(id);
            return Err(error);
        }
        self.open.remove(&id);
        let aside = folder::set_aside(&self.folder, id)?;
        tracing::error!(%error, aside = %aside.display(), "a file of the history is damaged and was set aside: a new one takes its place");
        let written = self.try_write_to(id, rows, upto);
        written.inspect_err(|_| self.close(id))
    }

    /// After an error a file is opened anew, but not before the position may pass what it has.
    fn close(&mut self, id: FileId) {
        if self.open.get(&id).is_some_and(|file| file.sync().is_ok()) {
            self.open.remove(&id);
        }
    }

    fn try_write_to(&mut self, id: FileId, rows: &[Committed], upto: u64) -> Result<u64, Error> {
        self.file(id)?.write(rows, upto)
    }

    fn file(&mut self, id: FileId) -> Result<&mut DayFile, Error> {
        // Somebody may have deleted it: what is written to it then would be lost.
        if !folder::path(&self.folder, id).exists() {
            self.open.remove(&id);
        }
        // Those of the oldest days are done with.
        if !self.open.contains_key(&id)
            && self.open.len() >= OPEN_MAX
            && let Some(oldest) = self.open.first_entry()
        {
            oldest.get().sync()?;
            oldest.remove();
        }
        match self.open.entry(id) {
            Entry::Occupied(file) => Ok(file.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(DayFile::open(&self.folder, id, self.store)?)),
        }
    }
}
