//! `windlass import spiderq-snapshot`: imports the keys and values in spiderq's database file.
//!
//! Reading order: `snapshot` (the file) · here, the import. `windlass-spiderq` interprets an entry.

use std::path::PathBuf;

use crate::intake::{Line, Outcome, Source};
use clap::Args;
use windlass_config::Failure;
use windlass_engine::NamespaceLimits;

use super::options::{Configure, Options, configured};
use super::report::{Nouns, Report};
use super::snapshot::{Entry, Snapshot};
use windlass_operate::Settings;

const HELP: &str = include_str!("../help/spiderq_snapshot.txt").trim_ascii_end();

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
        let source = || {
            Ok(Source {
                kind: "spiderq-snapshot",
                digest: snapshot.digest(&spiderq.queue),
            })
        };
        let mut importer = self
            .options
            .begin(&config, NamespaceLimits::default(), source)?;
        let mut report = Report::to_stdout(&NOUNS, self.options.dry_run);
        snapshot.each(&mut |Entry { key, value }| {
            let name = format!("entry {}", report.items + 1);
            let shown = format!("key \"{}\"", key.escape_ascii());
            let job = spiderq.adopt(key, value).map(Line::from);
            match report.take(&mut importer, job, &name, &format_args!("{shown}: "))? {
                Some(Outcome::Known) => {
                    report.print(&format_args!("{name} kept: {shown} is there already"))
                }
                Some(Outcome::Taken | Outcome::Refused(_)) | None => Ok(()),
            }
        })?;
        importer.finish()?;
        report.write([], &format!("{} {}", report.taken, report.taken_word))?;
        report.outcome()
    }
}
