//! The history in a folder: a file of SQLite for each day and retention.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::types::ToSqlOutput;

use crate::Error;
use crate::day_file::{
    DayFile, SqliteRow, add_namespaces, has_namespaces, is_damage, open_to_read, text,
};
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
    /// Whether they have a column for the namespace.
    has_namespaces: bool,
}

impl Opened {
    fn new(folder: &Path, file: FileId) -> rusqlite::Result<Self> {
        let db = open_to_read(folder, file)?;
        let has_namespaces = db.as_ref().map_or(Ok(true), has_namespaces)?;
        Ok(Self {
            file,
            db,
            has_namespaces,
        })
    }
}

impl Reader for FolderReader {
    fn dialect(&self) -> Dialect {
        Dialect {
            like: "LIKE",
            equals: |column, mark| format!("{column} = {mark}"),
            own_queue: "CASE namespace WHEN '' THEN queue ELSE substr(queue, length(namespace) + 2) END",
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
            None => Opened::new(&self.folder, file).map_err(failed)?,
        };
        let Opened {
            db: Some(db),
            has_namespaces,
            ..
        } = self.open.insert(open)
        else {
            return Ok(());
        };
        let table = if *has_namespaces {
            Cow::Borrowed(select.table)
        } else {
            Cow::Owned(without_namespaces(select.table))
        };
        let sql = select.sql(&table, "true").replace('$', "?");
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

/// A table of a file of an earlier daemon, as if its rows said that they were of the namespace without a name. If the
/// writer adds the column meanwhile, SQLite takes the first one of this name: that of the table.
fn without_namespaces(table: &str) -> String {
    let none = if table == "hours" { "''" } else { "NULL" };
    format!("(SELECT *, {none} AS namespace FROM {table})")
}

struct FolderWriter {
    folder: PathBuf,
    store: u64,
    open: BTreeMap<FileId, DayFile>,
}

impl Writer for FolderWriter {
    fn position(&mut self) -> Result<u64, Error> {
        make(&self.folder)?;
        self.add_namespaces()?;
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
    /// Files of an earlier daemon get the column that they lack, so that other tools find the same columns in all. One that
    /// cannot be changed is read as it is, and whoever writes to it tries again.
    fn add_namespaces(&self) -> Result<(), Error> {
        for file in folder::list(&self.folder)? {
            if let Err(error) = add_namespaces(&self.folder, file) {
                tracing::debug!(%file, %error, "a file of the history has no column for the namespace");
            }
        }
        Ok(())
    }

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

#[cfg(test)]
mod tests;
