//! `windlass import spiderq-snapshot`: the keys and values that a spiderq kept in its database.
//!
//! Reading order: `snapshot` (the file) · here, what becomes of it. What an entry comes to is for `windlass-spiderq` to say.

mod snapshot;

use std::env;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use windlass_server::Failure;
use windlass_server::import::{self, Importer, Outcome, Source};
use windlass_spiderq::session::Settings as Spiderq;

use self::snapshot::{Entry, Snapshot};
use super::report::{cannot_say, log_aside, outcome, write_before};
use crate::settings::Settings;

const HELP: &str = "\
FILE is the file `snapshot` in the directory that spiderq's --database named. Let
clients send Flush before spiderq is stopped: what changed since its last
snapshot is not in it. FILE is only read, and taken whole or not at all: one that
was cut short is refused before anything is taken. Run this as the user the
daemon runs as, and with its configuration: limits, spiderq.* and zmtp.* keys
count as they do for Add. The daemon must not run.

Every key is queued at the tail, in the order of FILE; that is what spiderq does
with it when it starts, tasks that had been dropped included, because FILE says
nothing of order or of what was dropped. A key that is in the queue already is
kept as it is, named, and counted.

A second time does nothing: the data directory remembers (in imports/) which
entries of which FILE it has taken. Entries that were left are tried again.

Exit codes:
  0   every entry is taken or kept, or was before
  1   the data directory could not be written to; do it again
  2   bad usage or configuration, or FILE is no whole snapshot
  4   the data directory cannot be opened, for instance because of a daemon
  5   entries are left, each named with its reason";

/// Take over the keys and values in a spiderq's snapshot.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct SpiderqSnapshot {
    /// The file `snapshot` in spiderq's database directory.
    #[arg(value_name = "FILE")]
    snapshot: PathBuf,
    /// The queue they go to; one of those that are served (spiderq.queue, and those under spiderq.more).
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Say what would be taken into an empty data directory, and take nothing.
    #[arg(long)]
    dry_run: bool,
    /// Take entries that an earlier import took once more.
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    settings: Settings,
}

/// What became of the entries.
#[derive(Debug, Default)]
struct Report {
    entries: u64,
    taken: u64,
    kept: u64,
    before: u64,
    left: u64,
}

impl SpiderqSnapshot {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut config = self.settings.resolve(env::vars_os())?;
        let spiderq = import::spiderq(&config, self.queue.as_deref())?;
        let snapshot = Snapshot::open(&self.snapshot)?;
        log_aside(&mut config)?;
        let mut importer = if self.dry_run {
            Importer::rehearse(&config)
        } else {
            let source = Source { kind: "spiderq-snapshot", digest: snapshot.digest(&spiderq.queue) };
            Importer::open(&config, &source, self.again)?
        };
        let mut out = BufWriter::new(io::stdout().lock());
        let mut report = Report::default();
        snapshot.each(&mut |entry| report.take(entry, &spiderq, &mut importer, &mut out))?;
        importer.finish()?;
        report.write(&mut out, self.dry_run).and_then(|()| out.flush()).map_err(|why| cannot_say(&why))?;
        report.outcome()
    }
}

impl Report {
    /// One entry, one job.
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

    /// The counts, in words.
    fn write(&self, out: &mut dyn Write, dry_run: bool) -> io::Result<()> {
        let Self { entries, taken, kept, before, .. } = self;
        writeln!(out, "{entries} entries: {taken} {}", if dry_run { "would be taken" } else { "taken" })?;
        if *kept > 0 {
            writeln!(out, "{kept} there already, kept as they are")?;
        }
        write_before(out, *before, "file")
    }

    /// All or not all: what the process exits with.
    fn outcome(&self) -> Result<(), Failure> {
        outcome(self.left, "entry", "entries")
    }
}
