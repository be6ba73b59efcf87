//! `windlass import spiderq-snapshot`: imports the keys and values in spiderq's database file.
//!
//! Reading order: `snapshot` (the file) · here, the import. `windlass-spiderq` interprets an entry.

use std::io::{self, Write};
use std::path::PathBuf;

use crate::intake::{Importer, Outcome, Source};
use clap::Args;
use windlass_server::Failure;
use windlass_spiderq::session::Settings as Spiderq;

use super::options::{Configure, Options, configured, output, print};
use super::report::{cannot_say, outcome, write_before};
use super::snapshot::{Entry, Snapshot};
use windlass_operate::Settings;

const HELP: &str = "\
FILE is the file `snapshot` in the directory given to spiderq's --database. Let
clients send Flush before you stop spiderq: FILE lacks changes since its last
snapshot. FILE is only read, and imported completely or not at all: a truncated
file is refused before anything is imported. Run this as the user the daemon
runs as, and with its configuration: limits, spiderq.* and zmtp.* keys apply as
they do for Add. The daemon must not run.

Every key is queued at the tail, in the order of FILE. spiderq itself does the
same at its start, with dropped tasks too: FILE does not record their order, nor
which were dropped. A key that is in the queue already stays unchanged; the
output names and counts it.

A second import does nothing: the data directory records (in imports/) which
entries of which FILE were imported. Entries that were left are tried again.

Exit codes:
  0   every entry is imported or kept, or was before
  1   the data directory could not be written to; import again
  2   bad usage or configuration, or FILE is not a complete snapshot
  4   the data directory cannot be opened, for instance because a daemon runs
  5   some entries are left; the output names each with its reason";

/// Import the keys and values in a spiderq's snapshot.
#[derive(Debug, Args)]
#[command(after_help = HELP, mut_arg("again", |it| it.help("Import entries again that an earlier import took")))]
pub struct SpiderqSnapshot {
    /// The file `snapshot` in spiderq's database directory.
    #[arg(value_name = "FILE")]
    snapshot: PathBuf,
    /// The queue that the keys go to: spiderq.queue or one under spiderq.more.
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    settings: Settings,
}

/// The outcome for all entries.
#[derive(Debug, Default)]
struct Report {
    entries: u64,
    taken: u64,
    kept: u64,
    before: u64,
    left: u64,
}

impl SpiderqSnapshot {
    pub(super) fn run(&self, configure: Configure<'_>) -> Result<(), Failure> {
        let config = configured(configure, &self.settings)?;
        let spiderq = &config.spiderq;
        let spiderq = spiderq.settings(self.queue.as_deref(), &config.daemon(spiderq)?)?;
        let snapshot = Snapshot::open(&self.snapshot)?;
        let source = || Ok(Source { kind: "spiderq-snapshot", digest: snapshot.digest(&spiderq.queue) });
        let mut importer = self.options.begin(&config, source)?;
        let mut out = output();
        let mut report = Report::default();
        snapshot.each(&mut |entry| report.take(entry, &spiderq, &mut importer, &mut out))?;
        importer.finish()?;
        print(&mut out, |out| report.write(out, self.options.dry_run))?;
        report.outcome()
    }
}

impl Report {
    /// Imports one entry as one job.
    fn take(
        &mut self,
        entry: Entry,
        spiderq: &Spiderq,
        importer: &mut Importer,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let place = self.entries;
        self.entries += 1;
        let number = self.entries;
        if !importer.wants(place) {
            self.before += 1;
            return Ok(());
        }
        let key = entry.key.clone();
        let why = match spiderq.adopt(entry.key, entry.value) {
            Err(why) => {
                importer.leave(place);
                why.to_string()
            }
            Ok(job) => match importer.take(place, job)? {
                Outcome::Taken => {
                    self.taken += 1;
                    return Ok(());
                }
                Outcome::Known => {
                    self.kept += 1;
                    let said = writeln!(out, "entry {number} kept: key \"{}\" is there already", key.escape_ascii());
                    return said.map_err(|why| cannot_say(&why));
                }
                Outcome::Refused(why) => why.to_string(),
            },
        };
        self.left += 1;
        writeln!(out, "entry {number} left: key \"{}\": {why}", key.escape_ascii()).map_err(|why| cannot_say(&why))
    }

    /// Prints the counts.
    fn write(&self, out: &mut dyn Write, dry_run: bool) -> io::Result<()> {
        let Self { entries, taken, kept, before, .. } = self;
        writeln!(out, "{entries} entries: {taken} {}", if dry_run { "would be taken" } else { "taken" })?;
        if *kept > 0 {
            writeln!(out, "{kept} there already, kept as they are")?;
        }
        write_before(out, *before, "file")
    }

    /// The result that determines the exit code: all entries imported, or not.
    fn outcome(&self) -> Result<(), Failure> {
        outcome(self.left, "entry", "entries")
    }
}
