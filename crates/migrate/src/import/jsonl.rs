//! `windlass import jsonl`: imports the output of `windlass export` or `windlass salvage`, or lines written by hand.
//!
//! `windlass-daemon` interprets a line; this module reads the lines and reports on them. It reads a file twice: first
//! to identify it and to verify that it is complete, then to import it.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::intake::{Completeness, Fleets, Line, Outcome, Ranks, Restorer, Source, Survey};
use clap::Args;
use sha2::{Digest, Sha256};
use windlass_config::{Failure, counted_all};
use windlass_engine::NamespaceLimits;
use windlass_session::protocol::Protocol;

use super::options::{Configure, Options, configured};
use super::report::{Nouns, Report};
use crate::configured::Configured;
use windlass_operate::Settings;

const HELP: &str = include_str!("../help/jsonl.txt").trim_ascii_end();

/// With more unreadable lines than this, the file is rejected as something else.
const UNREADABLE_MAX: u64 = 1_000;

/// Import the output of `windlass export` or `windlass salvage`, or jobs of your own, one line of JSON each.
#[derive(Debug, Args)]
#[command(after_help = HELP, mut_arg("again", |it| it.help("Import lines again that an earlier import took")))]
pub struct Jsonl {
    /// The output of `windlass export` or `windlass salvage`; - is standard input.
    #[arg(value_name = "FILE")]
    lines: PathBuf,
    /// Import also an export that is cut short or changed, or of another version.
    #[arg(long)]
    incomplete: bool,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    settings: Settings,
}

const NOUNS: Nouns = Nouns::new("line", "here already, kept as they are", "file");
impl Jsonl {
    pub(super) fn run(&self, configure: Configure<'_>) -> Result<(), Failure> {
        let config = configured(configure, &self.settings)?;
        let mut lines = Lines::open(&self.lines, &config)?;
        let Surveyed {
            digest,
            ranks,
            fleets,
            completeness,
        } = lines.survey()?;
        if let (Completeness::Broken(why), false) = (&completeness, self.incomplete) {
            return Err(Failure::unusable(
                &self.lines,
                format!("{why}; --incomplete imports what is there"),
            ));
        }
        let limits = match &self.options.namespace {
            Some(_) => fleets.limits_of_one(),
            None => Ok(NamespaceLimits::default()),
        };
        let limits = limits.map_err(|why| Failure::unusable(&self.lines, why))?;
        let source = Source {
            kind: "jsonl",
            digest,
        };
        let is_whole = matches!(completeness, Completeness::Whole(_));
        if is_whole
            && !self.options.dry_run
            && self.options.namespace.is_none()
            && let Some(restorer) = Restorer::begin(&config.server, &source)?
        {
            return self.restore(&mut lines, restorer);
        }
        let mut importer = self.options.begin(&config, limits, || Ok(source))?;
        importer.expect(ranks);
        let (mut report, mut counts) = (Report::to_stdout(&NOUNS, self.options.dry_run), [0; 4]);
        lines.each(&mut |number, _, line| {
            let kind = line.as_ref().ok().and_then(kind);
            let taken = report.take(&mut importer, line, &format_args!("line {number}"), &"")?;
            count(&mut counts, kind.filter(|_| taken == Some(Outcome::Taken)));
            Ok(())
        })?;
        importer.finish()?;
        report.write([], &sum(counts, report.taken_word))?;
        if is_whole && !self.options.dry_run && report.before < report.items {
            report.print(
                &"without counters: only a new data directory gets them, from a whole export",
            )?;
        }
        report.outcome()
    }

    /// Restores a whole export: every line, or nothing.
    fn restore(&self, lines: &mut Lines, mut restorer: Restorer) -> Result<(), Failure> {
        let (mut report, mut counts) = (Report::to_stdout(&NOUNS, false), [0; 4]);
        lines.each(&mut |number, _, line| {
            let wrong = |why: &str| Failure::unusable(&self.lines, format!("line {number}: {why}"));
            let line = line.map_err(|why| wrong(&why))?;
            report.items += 1;
            count(&mut counts, kind(&line));
            restorer.take(line).map_err(wrong)
        })?;
        restorer.finish()?;
        report.write([], &sum(counts, report.taken_word))
    }
}

/// What a line is, of [`sum`]'s four.
fn kind(line: &Line) -> Option<usize> {
    match line {
        Line::Job(..) | Line::New(_) => Some(0),
        Line::Schedule(_) => Some(1),
        Line::Batch(_) => Some(2),
        Line::Queue(_) => Some(3),
        Line::NextNumber(_)
        | Line::Engine(_)
        | Line::Day(_)
        | Line::Namespace(_)
        | Line::Heading(_)
        | Line::Ending(_) => None,
    }
}

fn count(counts: &mut [u64; 4], kind: Option<usize>) {
    kind.and_then(|kind| counts.get_mut(kind))
        .into_iter()
        .for_each(|count| *count += 1);
}

fn sum(counts: [u64; 4], verb: &str) -> String {
    let things = counts
        .into_iter()
        .zip(["job", "schedule", "batch", "queue"])
        .filter(|(count, _)| *count > 0);
    let things = Some(counted_all(things)).filter(|things| !things.is_empty());
    format!("{} {verb}", things.as_deref().unwrap_or("nothing"))
}

// ---- reading ---------------------------------------------------------------------------------------------------------

/// A file of lines.
struct Lines {
    path: PathBuf,
    from: BufReader<File>,
    /// The maximum length of a line: the largest message as a body and as a result, in base64, and room for the rest.
    longest: u64,
    protocols: Vec<Arc<dyn Protocol>>,
}

/// What the first reading of a file finds.
struct Surveyed {
    /// The file's identity.
    digest: String,
    /// The order of its jobs.
    ranks: Ranks,
    /// The namespaces of its lines.
    fleets: Fleets,
    completeness: Completeness,
}

/// A parsed line, or why it cannot be parsed.
type Read = Result<Line, String>;

/// Called with each line's number, bytes and content.
type See<'a> = dyn FnMut(u64, &[u8], Read) -> Result<(), Failure> + 'a;

impl Lines {
    fn open(path: &Path, config: &Configured) -> Result<Self, Failure> {
        let refuse = |why: io::Error| Failure::unusable(path, why);
        let file = if path == Path::new("-") {
            // The input is read twice.
            let mut file = tempfile::tempfile().map_err(refuse)?;
            io::copy(&mut io::stdin().lock(), &mut file).map_err(refuse)?;
            file
        } else {
            let file = File::open(path).map_err(refuse)?;
            if file.metadata().map_err(refuse)?.is_dir() {
                return Err(Failure::unusable(path, "this is a directory"));
            }
            file
        };
        let protocols = config.server.protocols.clone();
        let message_bytes_max = protocols
            .iter()
            .map(|protocol| protocol.message_bytes_max().0)
            .max()
            .unwrap_or(0);
        let longest = message_bytes_max.saturating_mul(4).saturating_add(1 << 20);
        Ok(Self {
            path: path.to_owned(),
            from: BufReader::new(file),
            longest,
            protocols,
        })
    }

    /// Reads the file once.
    fn survey(&mut self) -> Result<Surveyed, Failure> {
        let (mut digest, mut ranks, mut unreadable, mut readable) =
            (Sha256::new(), Ranks::default(), 0, 0);
        let (mut survey, mut fleets) = (Survey::default(), Fleets::default());
        let path = self.path.clone();
        self.each(&mut |number, line, content| {
            digest.update((line.len() as u64).to_be_bytes());
            digest.update(line);
            survey.see(line, content.as_ref().ok());
            match content {
                Ok(line) => {
                    readable += 1;
                    ranks.see(&line);
                    fleets.see(&line);
                }
                Err(why) => {
                    unreadable += 1;
                    if unreadable > UNREADABLE_MAX || (readable == 0 && unreadable > 9) {
                        let why = format!(
                            "line {number}: {why}: this and {} more lines are not an export",
                            unreadable - 1
                        );
                        return Err(Failure::unusable(&path, why));
                    }
                }
            }
            Ok(())
        })?;
        Ok(Surveyed {
            digest: hex::encode(digest.finalize()),
            ranks,
            fleets,
            completeness: survey.completeness(),
        })
    }

    /// Visits every line that is not blank, from the beginning. One that is too long has no bytes.
    fn each(&mut self, each: &mut See<'_>) -> Result<(), Failure> {
        let Self {
            path,
            from,
            longest,
            protocols,
        } = self;
        let refuse = |why: io::Error| Failure::unusable(path, why);
        from.rewind().map_err(refuse)?;
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let read = from
                .by_ref()
                .take(*longest + 1)
                .read_until(b'\n', &mut line)
                .map_err(refuse)?;
            if read == 0 {
                break;
            }
            let text = line.trim_ascii();
            if read as u64 > *longest {
                line = Vec::new();
                from.skip_until(b'\n').map_err(refuse)?;
                let why = "it is longer than any job can be, as this daemon is configured";
                each(number, &[], Err(why.to_owned()))?;
            } else if !text.is_empty() {
                each(number, text, Line::read(text, protocols))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_whatever_they_contain() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        std::fs::write(
            &path,
            [
                b"one\n\n  \nfour\r\n",
                [b'x'; 300].as_slice(),
                b"\n\xff\0\nlast",
            ]
            .concat(),
        )
        .unwrap();
        let mut lines = Lines::open(&path, &crate::fixture::configured(Path::new(""))).unwrap();
        lines.longest = 100;
        for _ in 0..2 {
            let mut seen = Vec::new();
            let mut see = |number, line: &[u8], content: Read| {
                seen.push((
                    number,
                    line.to_vec(),
                    content.unwrap_err().contains("longer"),
                ));
                Ok(())
            };
            lines.each(&mut see).unwrap();
            let some = |number, text: &[u8]| (number, text.to_vec(), text.is_empty());
            let expected = [
                some(1, b"one"),
                some(4, b"four"),
                some(5, b""),
                some(6, b"\xff\0"),
                some(7, b"last"),
            ];
            assert_eq!(seen, expected);
        }
    }
}
