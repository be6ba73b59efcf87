//! `windlass import spiderq-snapshot`: imports the keys and values in spiderq's database file.
//!
//! Reading order: `snapshot` (the file) · here, the import. `windlass-spiderq` interprets an entry.

use std::path::PathBuf;

use crate::intake::{Line, Outcome, Source};
use clap::Args;
use windlass_daemon::Failure;

use super::options::{Configure, Options, configured};
use super::report::{Nouns, Report};
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

const NOUNS: Nouns = Nouns::new("entry", "there already, kept as they are", "file");
impl SpiderqSnapshot {
    pub(super) fn run(&self, configure: Configure<'_>) -> Result<(), Failure> {
        let config = configured(configure, &self.settings)?;
        let spiderq = &config.spiderq;
        let spiderq = spiderq.settings(self.queue.as_deref(), &config.daemon(spiderq)?)?;
        let snapshot = Snapshot::open(&self.snapshot)?;
        let source = || Ok(Source { kind: "spiderq-snapshot", digest: snapshot.digest(&spiderq.queue) });
        let mut importer = self.options.begin(&config, source)?;
        let mut report = Report::to_stdout(&NOUNS, self.options.dry_run);
        snapshot.each(&mut |Entry { key, value }| {
            let name = format!("entry {}", report.items + 1);
            let shown = format!("key \"{}\"", key.escape_ascii());
            let job = spiderq.adopt(key, value).map(Line::from);
            match report.take(&mut importer, job, &name, &format_args!("{shown}: "))? {
                Some(Outcome::Known) => report.print(&format_args!("{name} kept: {shown} is there already")),
                Some(Outcome::Taken | Outcome::Refused(_)) | None => Ok(()),
            }
        })?;
        importer.finish()?;
        report.write([], &format!("{} {}", report.taken, report.taken_word))?;
        report.outcome()
    }
}
