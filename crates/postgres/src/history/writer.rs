//! Writing the history: one transaction for the rows of some commits, under the lease.

use windlass_engine::Ended;
use windlass_history::shelf::{Committed, Held, Owner, Rows, Value, Writer};
use windlass_history::{COLUMNS, Error, FileId, HOUR_COLUMNS, HourRow, durations_text, values};
use windlass_store::Error as StoreError;

use super::reader::{DatabaseRow, encoding, files};
use super::tables::{Tables, add_namespaces, indexed, make, make_parts};
use super::text::Encoding;
use crate::address::Target;
use crate::lease::Row;
use crate::link::Link;
use crate::tail::{signed, unsigned};

const WRITING: &str = "writing the history in";
const DELETING: &str = "deleting a day of the history in";

/// A daemon that stops within a transaction, as by SIGSTOP, must not keep its successor from writing. (The session of a
/// link has no such time, because a commit of the log may wait for a standby.)
const SESSION: &str = "SET idle_in_transaction_session_timeout = '10s'";

/// The log keeps what is not written, up to a bound, so nothing may hold the thread up for long.
const BEGIN: &str = "BEGIN; SET LOCAL lock_timeout = '3s'; SET LOCAL statement_timeout = '60s'";

/// A commit may wait for a standby. If it were cancelled then, PostgreSQL would report a commit that no standby has, and the
/// log would forget what a fail-over then loses.
const BEFORE_COMMIT: &str = "SET LOCAL statement_timeout = 0";

/// How long the deletion of a day waits for those who read the tables. Other readers wait behind it meanwhile.
const DROP_LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '1s'";

pub(super) struct DatabaseWriter {
    target: Target,
    owner: Owner,
    open: Option<Opened>,
    /// The last commit up to which all is known to be written.
    written_to: Option<u64>,
}

struct Opened {
    link: Link,
    encoding: Encoding,
}

impl DatabaseWriter {
    pub(super) const fn new(target: Target, owner: Owner) -> Self {
        Self {
            target,
            owner,
            open: None,
            written_to: None,
        }
    }

    /// Does something over the link. After an error it is closed, and with it what was begun over it.
    fn with<T>(&mut self, work: impl FnOnce(&Opened) -> Result<T, Error>) -> Result<T, Error> {
        let open = match self.open.take().filter(|open| !open.link.is_closed()) {
            Some(open) => open,
            None => self.connect()?,
        };
        let done = work(&open)?;
        self.open = Some(open);
        Ok(done)
    }

    fn connect(&self) -> Result<Opened, Error> {
        let link = Link::open(&self.target)?;
        link.batch(WRITING, SESSION)?;
        let tables = Tables::look(&link)?;
        if tables != Tables::Whole {
            link.batch(WRITING, BEGIN)?;
            if tables == Tables::None {
                make(&link)?;
            } else {
                add_namespaces(&link)?;
            }
            commit(&link, self.owner, WRITING)?;
        }
        let encoding = encoding(&link)?;
        Ok(Opened { link, encoding })
    }
}

impl Writer for DatabaseWriter {
    fn position(&mut self) -> Result<u64, Error> {
        let owner = self.owner;
        self.with(|open| position(&open.link, owner, ""))
    }

    fn write(&mut self, rows: &Rows, upto: u64) -> Result<u64, Error> {
        let owner = self.owner;
        let written = self.with(|open| open.write(rows, upto, owner))?;
        self.written_to = Some(upto);
        Ok(written)
    }

    /// Rows are durable when they are written. Commits without rows move the position from time to time.
    fn sync(&mut self, upto: u64) -> Result<(), Error> {
        if self.written_to == Some(upto) {
            return Ok(());
        }
        self.write(&Rows::new(), upto).map(drop)
    }

    fn files(&mut self) -> Result<Vec<Held>, Error> {
        self.with(|open| files(&open.link))
    }

    fn delete(&mut self, file: FileId) -> Result<(), Error> {
        let owner = self.owner;
        self.with(|open| {
            let link = &open.link;
            let [ended, hours] = ["ended", "hours"].map(|table| link.part(table, file));
            link.batch(DELETING, BEGIN)?;
            link.batch(DELETING, DROP_LOCK_TIMEOUT)?;
            link.batch(DELETING, &format!("DROP TABLE IF EXISTS {ended}, {hours}"))?;
            commit(link, owner, DELETING)
        })
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }
}

/// The last commit of this store whose rows are all here. `lock`: how its row is locked.
fn position(link: &Link, owner: Owner, lock: &str) -> Result<u64, Error> {
    let look = format!(
        "SELECT commit_number FROM {} WHERE id = 1 AND store = $1 {lock}",
        link.history_at()
    );
    let rows = link.query(WRITING, &look, &[&name(owner)])?;
    Ok(rows
        .first()
        .map(|row| unsigned(row.get(0)))
        .unwrap_or_default())
}

/// The store as it is named in the row.
fn name(owner: Owner) -> String {
    format!("{:016x}", owner.store)
}

/// Ends a transaction under the lease. Locking its row comes last, so that renewals wait for nothing else.
fn commit(link: &Link, owner: Owner, doing: &'static str) -> Result<(), Error> {
    link.batch(doing, BEFORE_COMMIT)?;
    let lock = format!(
        "SELECT 1 FROM {} WHERE id = 1 AND epoch = $1 FOR SHARE",
        link.lease()
    );
    let epoch = owner.epoch.map(signed);
    if link.query(doing, &lock, &[&epoch])?.is_empty() {
        let holder = Row::read(link)?.map(|row| row.holder);
        return Err(Error::Database(StoreError::Deposed {
            place: link.place().to_owned(),
            holder: holder.unwrap_or_default(),
        }));
    }
    Ok(link.batch(doing, "COMMIT")?)
}

impl Opened {
    /// Rows that are here already are left out: those of a transaction whose answer was lost, too, because the lock on the
    /// position waits for its end.
    fn write(&self, rows: &Rows, upto: u64, owner: Owner) -> Result<u64, Error> {
        let link = &self.link;
        link.batch(WRITING, BEGIN)?;
        let lock = format!(
            "SELECT 1 FROM {} WHERE id = 1 FOR UPDATE",
            link.history_at()
        );
        link.query(WRITING, &lock, &[])?;
        let before = position(link, owner, "")?;
        let mut written = 0;
        for (file, rows) in rows {
            let new = |row: &&Committed| row.commit > before;
            let new: Vec<&Ended> = rows.iter().filter(new).map(|row| &row.row).collect();
            if !new.is_empty() {
                make_parts(link, *file)?;
                self.append(*file, &new)?;
                self.add_hours(*file, HourRow::of(new.iter().copied()))?;
                written += new.len() as u64;
            }
        }
        let set = format!(
            "UPDATE {} SET store = $1, commit_number = $2 WHERE id = 1",
            link.history_at()
        );
        let at = signed(before.max(upto));
        link.execute(WRITING, &set, &[&name(owner), &at])?;
        commit(link, owner, WRITING)?;
        Ok(written)
    }

    /// Appends rows to a file, in the text format of COPY.
    fn append(&self, file: FileId, rows: &[&Ended]) -> Result<(), Error> {
        let part = self.link.part("ended", file);
        let last = format!("SELECT coalesce(max(n), 0) FROM {part}");
        let last = self.link.query(WRITING, &last, &[])?;
        let last: i64 = last.first().map(|row| row.get(0)).unwrap_or_default();
        let mut text = String::new();
        for (n, row) in (last + 1..).zip(rows) {
            text.push_str(&format!("{file}\t{n}"));
            for value in values(row) {
                text.push('\t');
                self.add_field(&value, &mut text);
            }
            text.push('\n');
        }
        let copy = format!("COPY {part} (file, {COLUMNS}) FROM STDIN");
        self.link.copy(WRITING, &copy, text.into())?;
        Ok(())
    }

    fn add_field(&self, value: &Value<'_>, line: &mut String) {
        match value {
            Value::Null => line.push_str("\\N"),
            Value::Number(number) => line.push_str(&number.to_string()),
            Value::Text(bytes) => {
                for c in self.encoding.text(bytes).chars() {
                    match c {
                        '\\' => line.push_str("\\\\"),
                        '\n' => line.push_str("\\n"),
                        '\r' => line.push_str("\\r"),
                        '\t' => line.push_str("\\t"),
                        c => line.push(c),
                    }
                }
            }
        }
    }

    /// Adds what ended in some hours to what is in a file.
    fn add_hours(&self, file: FileId, mut hours: Vec<HourRow>) -> Result<(), Error> {
        let part = self.link.part("hours", file);
        let [queue, kind] = ["queue", "kind"].map(|column| {
            let [old, new] = ["old", "new"].map(|table| format!("{table}.{column}"));
            format!("{} = {} AND {old} = {new}", indexed(&old), indexed(&new))
        });
        let same = format!("old.hour = new.hour AND {queue} AND {kind}");
        let text = |bytes: &[u8]| self.encoding.text(bytes).into_owned();
        let begins: Vec<i64> = hours.iter().map(|hour| signed(hour.hour_ms)).collect();
        let queues: Vec<String> = hours.iter().map(|hour| text(&hour.queue)).collect();
        let kinds: Vec<String> = hours.iter().map(|hour| text(&hour.kind)).collect();
        let look = format!(
            "SELECT place, old.* FROM {part} old
             JOIN unnest($1::bigint[], $2::text[], $3::text[]) WITH ORDINALITY AS new (hour, queue, kind, place) ON {same}"
        );
        for row in self
            .link
            .query(WRITING, &look, &[&begins, &queues, &kinds])?
        {
            let place: i64 = row.get("place");
            let place = usize::try_from(place - 1).unwrap_or_default();
            let before = HourRow::read(&DatabaseRow(&row))?;
            if let Some(hour) = hours.get_mut(place) {
                hour.add(&before);
            }
        }
        let count = |of: fn(&HourRow) -> u64| -> Vec<i64> {
            hours.iter().map(|hour| signed(of(hour))).collect()
        };
        let done = count(|hour| hour.done);
        let failed = count(|hour| hour.failed);
        let other = count(|hour| hour.other);
        let waited: Vec<String> = hours.iter().map(|it| durations_text(&it.waited)).collect();
        let ran: Vec<String> = hours.iter().map(|it| durations_text(&it.ran)).collect();
        let namespaces: Vec<String> = hours.iter().map(|it| text(&it.namespace)).collect();
        let put = format!(
            "WITH new AS (
                 SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[],
                     $7::text[], $8::text[], $9::text[]) AS new ({HOUR_COLUMNS})
             ), changed AS (
                 UPDATE {part} old SET done = new.done, failed = new.failed, other = new.other, waited = new.waited,
                     ran = new.ran
                 FROM new WHERE {same} RETURNING old.hour, old.queue, old.kind
             )
             INSERT INTO {part} (file, {HOUR_COLUMNS}) SELECT '{file}', new.* FROM new
             WHERE NOT EXISTS (SELECT FROM changed old WHERE {same})"
        );
        self.link.execute(
            WRITING,
            &put,
            &[
                &begins,
                &queues,
                &kinds,
                &done,
                &failed,
                &other,
                &waited,
                &ran,
                &namespaces,
            ],
        )?;
        Ok(())
    }
}
