//! `windlass export`: everything that a daemon stores, or a namespace, as lines of JSON, over its HTTP API while it
//! runs, or else from its data directory.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clap::Args;
use http_body_util::BodyExt as _;
use hyper::Method;
use serde_json::Value;
use tempfile::NamedTempFile;
use windlass_config::{Failure, SOCKET};

use crate::arguments::Ask;
use crate::client::{Daemon, DataDir, failure, runtime};
use crate::counter::Counter;
use crate::show::{at, many};
use crate::tls::plain;

/// Bytes of output kept to find the last line. The line that ends an export is shorter.
const LAST_BYTES: usize = 4 << 10;

/// Writes the lines of a data directory that no daemon uses: of the namespace with this name, or of all.
pub type AtRest = fn(&Path, Option<&str>, &mut dyn Write) -> Result<(), Failure>;

/// Where an export goes.
#[derive(Debug, Args)]
#[command(
    after_help = EXPORT_HELP,
    mut_arg("json", |it| it.hide(true))
)]
pub struct Export {
    /// Write to this file, readable only by you, which appears when it is complete [default: standard
    /// output].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    ask: Ask,
}

const EXPORT_HELP: &str = include_str!("help/export.txt").trim_ascii_end();

impl Export {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// The daemon or the directory cannot be read, or the file cannot be written; [`Failure::Incomplete`] if the last
    /// line is missing.
    pub fn run(&self, data_dir: DataDir, at_rest: AtRest) -> Result<(), Failure> {
        let daemon = self.ask.daemon(data_dir)?;
        let output = self.output.as_deref();
        let named = |why: io::Error| {
            failure(format!(
                "{}: {}",
                output.unwrap_or(Path::new("-")).display(),
                plain(&why)
            ))
        };
        let mut lines = Lines::open(output).map_err(named)?;
        match &daemon {
            Daemon::Directory(directory)
            | Daemon::Nowhere {
                here: directory, ..
            } if !is_served(directory) => {
                at_rest(directory, self.ask.namespace.as_deref(), &mut lines)?;
            }
            Daemon::Directory(_) | Daemon::Url(..) | Daemon::Nowhere { .. } => {
                runtime()?.block_on(fetch(&self.ask, &daemon, &mut lines))?;
            }
        }
        let summary = lines.finish()?;
        // Standard error may be closed; the export is already written.
        let _ = writeln!(io::stderr(), "{summary}");
        Ok(())
    }
}

/// Whether a daemon responds at the socket in this directory. Without one, the directory's lock
/// decides.
fn is_served(directory: &Path) -> bool {
    match UnixStream::connect(directory.join(SOCKET)) {
        Ok(_) => true,
        Err(why) => !matches!(
            why.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
        ),
    }
}

/// Writes the lines received from a running daemon.
async fn fetch(ask: &Ask, daemon: &Daemon, lines: &mut Lines) -> Result<(), Failure> {
    let mut body = ask
        .connect_to(daemon)
        .await?
        .stream(Method::GET, "/export")
        .await?;
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|why| Failure::Incomplete(format!("the export was cut short: {why}")))?;
        if let Ok(chunk) = frame.into_data() {
            lines.write_all(&chunk).map_err(|why| cannot_write(&why))?;
        }
    }
    Ok(())
}

fn cannot_write(why: &io::Error) -> Failure {
    failure(format!("cannot write: {why}"))
}

/// Passes lines on, and examines the first and the last one.
struct Lines {
    /// Standard output, a device, a pipe with a name, or the file.
    to: io::BufWriter<Box<dyn Write>>,
    /// It is renamed when complete, so that the final name never has a partial file. Readable only
    /// by its owner.
    file: Option<(NamedTempFile, PathBuf)>,
    /// The part received so far.
    first: Vec<u8>,
    /// The last bytes, which contain the last line.
    last: Vec<u8>,
    counter: Counter,
}

impl Lines {
    fn open(path: Option<&Path>) -> io::Result<Self> {
        let (to, file): (Box<dyn Write>, _) = match path.filter(|path| *path != Path::new("-")) {
            None => (Box::new(io::stdout().lock()), None),
            Some(path) if path.metadata().is_ok_and(|about| !about.is_file()) => {
                (Box::new(File::options().write(true).open(path)?), None)
            }
            Some(path) => {
                let folder = path
                    .parent()
                    .filter(|folder| !folder.as_os_str().is_empty())
                    .unwrap_or(Path::new("."));
                folder.metadata()?;
                let (prefix, mut builder) = (
                    path.file_name().unwrap_or_default(),
                    tempfile::Builder::new(),
                );
                // The error would contain a path that the user has not typed.
                let file = builder
                    .prefix(prefix)
                    .suffix(".part")
                    .tempfile_in(folder)
                    .map_err(|why| why.kind())?;
                (
                    Box::new(file.as_file().try_clone()?),
                    Some((file, path.to_owned())),
                )
            }
        };
        let (first, last) = (Vec::new(), Vec::new());
        Ok(Self {
            to: io::BufWriter::new(to),
            file,
            first,
            last,
            counter: Counter::of("lines exported"),
        })
    }

    fn complete(&mut self) -> io::Result<()> {
        self.to.flush()?;
        if let Some((file, path)) = self.file.take() {
            file.as_file().sync_all()?;
            file.persist(path)?;
        }
        Ok(())
    }

    /// Completes the output. Returns a summary.
    fn finish(mut self) -> Result<String, Failure> {
        let line = |bytes: Option<&[u8]>| {
            serde_json::from_slice::<Value>(bytes.unwrap_or_default()).unwrap_or_default()
        };
        let heading = line(self.first.split(|byte| *byte == b'\n').next());
        let ending = line(
            self.last
                .strip_suffix(b"\n")
                .and_then(|last| last.rsplit(|byte| *byte == b'\n').next()),
        );
        if ending.get("export_end").is_none() {
            return Err(Failure::Incomplete(
                "the export was cut short: its last line is missing".to_owned(),
            ));
        }
        self.complete().map_err(|why| cannot_write(&why))?;
        drop(self.counter);
        let things = [
            ("/jobs", "job"),
            ("/queues", "queue"),
            ("/schedules", "schedule"),
            ("/batches", "batch"),
        ];
        let things = things
            .map(|(place, thing)| many(at(&ending, place), thing))
            .join(", ");
        Ok(format!("{things} as of commit {}", at(&heading, "/commit")))
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write_all(bytes)?;
        if !self.first.contains(&b'\n') {
            self.first.extend_from_slice(bytes);
        }
        self.last.extend_from_slice(
            bytes
                .get(bytes.len().saturating_sub(LAST_BYTES)..)
                .unwrap_or_default(),
        );
        self.last
            .drain(..self.last.len().saturating_sub(LAST_BYTES));
        self.counter
            .add(bytes.iter().filter(|byte| **byte == b'\n').count() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_no_path_that_the_user_has_not_typed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let folders = [
            (dir.path().join("missing"), "no such file or directory"),
            (file, "not a directory"),
        ];
        for (folder, expected) in folders {
            let error = Lines::open(Some(&folder.join("e.jsonl"))).err().unwrap();
            assert_eq!(plain(&error), expected);
        }
    }
}
