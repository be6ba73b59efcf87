//! Exports: the contents of the store, or of one namespace in it, at one commit, as lines of JSON.
//!
//! While a daemon runs, the checkpoint thread takes a snapshot of the store, and a separate thread
//! reads it and writes the lines. Neither visits the engine, and commits do not wait for them.
//! Lines are produced as fast as the client reads them, and one export runs at a time.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread::Builder;
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use bytes::{Bytes, BytesMut};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use windlass_config::Failure;
use windlass_hub::Requests;
use windlass_store::{Checkpointer, ExportError, Exported, Picture, Salvage};

use crate::config::Config;
use crate::data::{self, about};

/// Size of a chunk of lines.
const CHUNK_BYTES: usize = 64 << 10;

/// Maximum number of chunks buffered for the client.
const CHUNKS_MAX: usize = 4;

/// The file whose modification time is that of the daemon's last complete export. An offline export,
/// or one of a namespace, does not touch it.
const MARK: &str = "last-export";

/// Records that an export is complete. If this fails, only the reminder to operators is affected.
fn mark(file: &Path) {
    if let Err(why) = fs::write(file, b"") {
        tracing::warn!(%why, file = %file.display(), "cannot record the time of the export");
    }
}

/// Why an export failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoExport {
    /// Another export is running.
    #[error("another export is running")]
    Busy,
    /// The daemon is stopping.
    #[error("the daemon is stopping")]
    Stopping,
    /// Another daemon of the cluster has the store.
    #[error("this daemon is not the leader: ask the leader")]
    Elsewhere,
    /// The store cannot be read or written.
    #[error("export failed: {0}")]
    Failed(String),
}

/// Starts exports, for use by operator ports.
#[derive(Clone, Debug)]
pub struct Exports {
    /// Empty while another daemon has the store.
    source: Arc<ArcSwapOption<Source>>,
    /// The file whose modification time is that of the last export.
    mark: Arc<Path>,
}

impl Default for Exports {
    fn default() -> Self {
        Self {
            source: Arc::default(),
            mark: Path::new(MARK).into(),
        }
    }
}

/// The source of exports.
#[derive(Debug)]
struct Source {
    requests: Requests,
    place: Arc<Semaphore>,
}

/// The lines of an export, in chunks. Dropping it cancels the export.
#[derive(Debug)]
pub struct Export {
    chunks: mpsc::Receiver<Result<Bytes, NoExport>>,
}

impl Exports {
    /// The exports of a daemon with this data directory.
    pub(crate) fn of(data_dir: &Path) -> Self {
        Self {
            mark: data_dir.join(MARK).into(),
            ..Self::default()
        }
    }

    /// When the last export was completed, if any.
    pub fn last(&self) -> Option<SystemTime> {
        fs::metadata(&self.mark)
            .and_then(|file| file.modified())
            .ok()
    }

    /// Connects it to the checkpoint thread, which serves the requests.
    pub(crate) fn come_from(&self, requests: Requests) {
        self.source.store(Some(Arc::new(Source {
            requests,
            place: Arc::new(Semaphore::new(1)),
        })));
    }

    /// Disconnects it, because another daemon has the store.
    pub(crate) fn end(&self) {
        self.source.store(None);
    }

    /// Starts an export, which contains all changes acknowledged before: of the namespace with this name, empty
    /// for the one without a name, or of all. If there is no such namespace, it has no lines but the first and the
    /// last.
    ///
    /// # Errors
    ///
    /// Another export is running, the daemon is stopping, or another daemon has the store.
    pub fn begin(&self, namespace: Option<&str>) -> Result<Export, NoExport> {
        let source = self.source.load();
        let Source { requests, place } = source.as_deref().ok_or(NoExport::Elsewhere)?;
        let place = Arc::clone(place)
            .try_acquire_owned()
            .map_err(|_| NoExport::Busy)?;
        let (to, chunks) = mpsc::channel(CHUNKS_MAX);
        let request = Request {
            to,
            place,
            mark: Arc::clone(&self.mark),
            namespace: namespace.map(Box::from),
        };
        if !requests.send(|checkpointer| request.serve(checkpointer)) {
            return Err(NoExport::Stopping);
        }
        Ok(Export { chunks })
    }
}

impl Export {
    /// The next chunk; `None` after the last line.
    ///
    /// # Errors
    ///
    /// The export failed, and its last line is missing.
    pub async fn next(&mut self) -> Result<Option<Bytes>, NoExport> {
        match self.chunks.recv().await {
            Some(Ok(chunk)) if chunk.is_empty() => Ok(None),
            Some(chunk) => chunk.map(Some),
            None => Err(NoExport::Stopping),
        }
    }
}

/// A request to the checkpoint thread.
struct Request {
    to: mpsc::Sender<Result<Bytes, NoExport>>,
    /// Released for the next export when this one ends.
    place: OwnedSemaphorePermit,
    mark: Arc<Path>,
    namespace: Option<Box<str>>,
}

impl Request {
    /// Takes the snapshot, and starts a thread that writes its lines.
    fn serve(self, checkpointer: &mut Checkpointer) {
        let to = self.to.clone();
        let begun = checkpointer
            .picture()
            .map_err(|why| why.to_string())
            .and_then(|picture| {
                let thread = Builder::new()
                    .name("export".to_owned())
                    .spawn(move || self.write(&picture));
                thread.map(drop).map_err(|why| why.to_string())
            });
        if let Err(why) = begun {
            tracing::warn!(why, "export failed");
            // The client may have disconnected.
            let _ = to.try_send(Err(NoExport::Failed(why)));
        }
    }

    fn write(self, picture: &Picture) {
        let Self {
            to,
            place,
            mark: file,
            namespace,
        } = self;
        let mut chunks = Chunks {
            to,
            chunk: BytesMut::new(),
        };
        let outcome = picture.export(about(namespace.as_deref()), &mut chunks);
        // Must precede the end of the stream, because the client may start another export then.
        drop(place);
        match outcome {
            Ok(Exported {
                jobs,
                queues,
                schedules,
                batches,
                ..
            }) => {
                tracing::info!(
                    commit = picture.commit(),
                    namespace,
                    jobs,
                    queues,
                    schedules,
                    batches,
                    "exported"
                );
                if namespace.is_none() {
                    mark(&file);
                }
                drop(chunks.to.blocking_send(Ok(Bytes::new())));
            }
            Err(ExportError::Writer(_)) => {
                tracing::info!("export aborted: the client disconnected")
            }
            Err(ExportError::Store(why)) => {
                tracing::warn!(%why, "export failed");
                drop(
                    chunks
                        .to
                        .blocking_send(Err(NoExport::Failed(why.to_string()))),
                );
            }
        }
    }
}

/// Writes the lines of a store that no daemon uses, without modifying it: of the namespace with this name, empty for
/// the one without a name, or of all.
///
/// # Errors
///
/// [`Failure::Data`]: there is no store, a daemon uses it, or something is missing or damaged.
/// [`Failure::Runtime`]: there is no such namespace, or `out` cannot be written.
pub fn export(
    config: &Config,
    namespace: Option<&str>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut found = data::read(config)?;
    is_whole(config, &found)?;
    let is_there = |name: &&str| {
        let mut namespaces = found.namespaces.values();
        name.is_empty() || namespaces.any(|image| *image.name == *name.as_bytes())
    };
    if let Some(name) = namespace.filter(|name| !is_there(name)) {
        return Err(Failure::Runtime(format!("there is no namespace {name}")));
    }
    let exported = found.export(about(namespace), out);
    exported.map_err(|error| Failure::Runtime(format!("cannot write: {error}")))?;
    is_whole(config, &found)
}

fn is_whole(config: &Config, found: &Salvage) -> Result<(), Failure> {
    if !found.is_whole() {
        let place = data::place(config);
        let why = found
            .unreadable
            .first()
            .map_or("commits are missing", String::as_str);
        let advice = format!("`windlass salvage {place}` writes what can be read");
        return Err(Failure::data_at(place, format!("{why}; {advice}")));
    }
    Ok(())
}

/// Passes lines on in chunks, at the client's pace.
struct Chunks {
    to: mpsc::Sender<Result<Bytes, NoExport>>,
    chunk: BytesMut,
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let chunk = std::mem::take(&mut self.chunk).freeze();
        if chunk.is_empty() {
            return Ok(());
        }
        self.to
            .blocking_send(Ok(chunk))
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_pass_in_chunks() {
        let (to, mut chunks) = mpsc::channel(CHUNKS_MAX);
        let mut lines = Chunks {
            to,
            chunk: BytesMut::new(),
        };
        let mut passed = || chunks.try_recv().map(|chunk| chunk.unwrap().len()).ok();
        lines.write_all(&[b'x'; CHUNK_BYTES - 1]).unwrap();
        assert_eq!(passed(), None);
        lines.write_all(b"yz").unwrap();
        assert_eq!(passed(), Some(CHUNK_BYTES + 1));
        lines.write_all(b"rest").unwrap();
        assert_eq!(passed(), None);
        lines.flush().unwrap();
        assert_eq!(passed(), Some(4));
        lines.flush().unwrap();
        assert_eq!(passed(), None, "an empty chunk is the end of an export");
        drop(chunks);
        lines.write_all(b"more").unwrap();
        assert_eq!(lines.flush().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn an_export_begins_at_the_daemon_that_has_the_store() {
        let exports = Exports::default();
        assert!(matches!(exports.begin(None), Err(NoExport::Elsewhere)));
        exports.come_from(Requests::to_no_thread());
        let first = exports.begin(None).unwrap();
        assert!(
            matches!(exports.begin(None), Err(NoExport::Busy)),
            "{first:?}"
        );
        exports.end();
        assert!(matches!(exports.begin(None), Err(NoExport::Elsewhere)));
    }
}
