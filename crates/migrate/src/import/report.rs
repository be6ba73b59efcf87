//! What all sources share: each item becomes a line of an export or is left with its reason, one import takes the lines,
//! and a report counts them.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::thread;
use std::time::Duration;

use windlass_config::{Failure, counted};
use windlass_engine::Refusal;

use crate::intake::{Adopted, Importer, Line, Outcome};

/// How a source names its items.
#[derive(Debug)]
pub(super) struct Nouns {
    /// One item.
    pub(super) one: &'static str,
    /// Behind the number of items that the data directory had already.
    pub(super) known: &'static str,
    /// What is the same as in an earlier import.
    pub(super) of: &'static str,
    /// Why the engine refuses one.
    pub(super) reason: fn(Refusal) -> String,
}

impl Nouns {
    pub(super) const fn new(one: &'static str, known: &'static str, of: &'static str) -> Self {
        Self {
            one,
            known,
            of,
            reason: |why| why.to_string(),
        }
    }
}

/// Where a report goes.
type Out = Box<dyn FnMut(&str) -> io::Result<()>>;

/// The items of a source, counted.
pub(super) struct Report {
    nouns: &'static Nouns,
    /// "imported", or "would be imported" in a dry run.
    pub(super) taken_word: &'static str,
    out: Out,
    /// Items looked at.
    pub(super) items: u64,
    /// Items imported.
    pub(super) taken: u64,
    /// Items that the data directory has already.
    pub(super) known: u64,
    /// Items that an earlier import of the same source took.
    pub(super) before: u64,
    /// Items that could not be imported.
    pub(super) left: u64,
}

impl Report {
    pub(super) fn new(nouns: &'static Nouns, dry_run: bool, out: Out) -> Self {
        let taken_word = if dry_run {
            "would be imported"
        } else {
            "imported"
        };
        Self {
            nouns,
            taken_word,
            out,
            items: 0,
            taken: 0,
            known: 0,
            before: 0,
            left: 0,
        }
    }

    /// A report on standard output.
    pub(super) fn to_stdout(nouns: &'static Nouns, dry_run: bool) -> Self {
        let mut out = io::stdout().lock();
        Self::new(
            nouns,
            dry_run,
            Box::new(move |text| out.write_all(text.as_bytes())),
        )
    }

    /// Prints a line.
    pub(super) fn print(&mut self, line: &dyn Display) -> Result<(), Failure> {
        (self.out)(&format!("{line}\n"))
            .map_err(|why| Failure::Runtime(format!("cannot write: {why}")))
    }

    /// Prints at once why something is left: there may be many.
    pub(super) fn leave(&mut self, line: &dyn Display) -> Result<(), Failure> {
        self.left += 1;
        self.print(line)
    }

    /// Imports the next item, or leaves it with its reason. `name` names it, and `about` stands before the reason. `None`:
    /// an earlier import took it, or it is no line.
    pub(super) fn take(
        &mut self,
        importer: &mut Importer,
        item: Result<Line, String>,
        name: &dyn Display,
        about: &dyn Display,
    ) -> Result<Option<Outcome>, Failure> {
        let place = self.items;
        self.items += 1;
        if !importer.wants(place) {
            self.before += 1;
            item.iter().for_each(|line| importer.skip_line(line));
            return Ok(None);
        }
        let (outcome, why) = match item {
            Err(why) => {
                importer.leave(place);
                (None, why)
            }
            Ok(line) => {
                let Adopted { outcome, without } = importer.take_line(place, line)?;
                if let Some(what) = without {
                    self.print(&format_args!("{name} imported without {what}"))?;
                }
                match outcome {
                    Outcome::Taken => self.taken += 1,
                    Outcome::Known => self.known += 1,
                    Outcome::Refused(_) => {}
                }
                let Outcome::Refused(why) = outcome else {
                    return Ok(Some(outcome));
                };
                (Some(outcome), (self.nouns.reason)(why))
            }
        };
        self.leave(&format_args!("{name} left: {about}{why}"))
            .map(|()| outcome)
    }

    /// Prints the counts: the source's own lines, the sum, and the items that were not imported now.
    pub(super) fn write(
        &mut self,
        parts: impl IntoIterator<Item = String>,
        sum: &str,
    ) -> Result<(), Failure> {
        let parts: String = parts.into_iter().collect();
        let Self {
            nouns:
                Nouns {
                    one,
                    known: here,
                    of,
                    ..
                },
            items,
            known,
            before,
            ..
        } = self;
        let mut text = format!("{parts}{}: {sum}", counted(*items, one));
        if *known > 0 {
            text += &format!("\n{known} {here}");
        }
        if *before > 0 {
            text += &format!(
                "\n{before} imported earlier from the same {of}; --again imports them once more"
            );
        }
        self.print(&text)
    }

    /// The result that determines the exit code: nothing is left, or something is.
    pub(super) fn outcome(&self) -> Result<(), Failure> {
        match (self.left, counted(self.left, self.nouns.one)) {
            (0, _) => Ok(()),
            (1, one) => Err(Failure::Incomplete(format!(
                "{one} is left; fix the reason and import again"
            ))),
            (_, many) => Err(Failure::Incomplete(format!(
                "{many} are left; fix the reasons and import again"
            ))),
        }
    }
}

/// What is found each time for a while: connections and files of a process that is just ending do not count.
pub(super) fn lasting<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    const TRIES: u32 = 10;
    const PAUSE: Duration = Duration::from_millis(20);
    for _ in 0..TRIES {
        look()?;
        thread::sleep(PAUSE);
    }
    look()
}
