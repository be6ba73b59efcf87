//! Log lines on standard error or in a file, as text or JSON. A separate thread writes them
//! (`sink`), so that no other thread waits for the reader of the log, and an unwritable log stops
//! nothing. Lines that could flood the log go through `limited`.

mod sink;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::env;
use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic::{self, PanicHookInfo};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt as _;
use windlass_config::{Error as ConfigError, Failure};

use self::sink::Sink;
use crate::config::{Log, LogFormat};

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The level is invalid.
    #[error("invalid log level: {0}")]
    Filter(#[from] FilterError),
    /// The file cannot be written to.
    #[error("cannot log to {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        reason: io::Error,
    },
    /// The writer thread cannot be started.
    #[error("cannot start the thread that writes the log: {0}")]
    Thread(io::Error),
    /// This process already has a logger.
    #[error("cannot set up logging: {0}")]
    Taken(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Filter(error) => Self::Config(ConfigError::senseless("log.level", error)),
            Error::File { .. } => Self::Config(ConfigError::senseless("log.file", error)),
            Error::Taken(_) | Error::Thread(_) => Self::Runtime(error.to_string()),
        }
    }
}

/// Why a filter is invalid.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// An unknown level.
    #[error(
        "`{0}` is not one of off, error, warn, info, debug, trace; one module's level is set by `module=level`"
    )]
    Level(String),
    /// An invalid directive.
    #[error("`{directive}`: {reason}")]
    Directive {
        /// The complete filter.
        directive: String,
        /// The error in it.
        reason: String,
    },
}

/// Starts logging, panics included.
///
/// # Errors
///
/// The level is invalid, the file cannot be written to, or logging was already started.
pub fn init(log: &Log) -> Result<(), Error> {
    let filter = filter(&log.level)?;
    let has_file = !log.file.as_os_str().is_empty();
    if has_file {
        let file = LogFile::open(&log.file)?;
        let _ = FILE.set(file);
    }
    let (subscriber, set_filter) =
        subscriber(log, filter, || Line(&SINK), !has_file && wants_colour());
    subscriber
        .try_init()
        .map_err(|error| Error::Taken(error.to_string()))?;
    panic::set_hook(Box::new(log_panic));
    let _ = SET_FILTER.set(set_filter);
    let write = |bytes: &[u8]| match FILE.get() {
        Some(file) => (&*file.current()).write(bytes),
        // Bypasses the standard library's handle, because a thread blocked in it would hold its
        // lock.
        None => Ok(rustix::io::write(rustix::stdio::stderr(), bytes)?),
    };
    thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || SINK.run(write))
        .map_err(Error::Thread)?;
    windlass_hub::flush_log_with(flush);
    Ok(())
}

/// The lines of this process.
static SINK: Sink = Sink::new();

/// Waits until queued lines are written, with a timeout in case the reader has stopped.
pub fn flush() {
    SINK.flush();
}

/// The number of lines dropped because the log was blocked.
pub(crate) fn dropped() -> u64 {
    SINK.dropped()
}

/// Writes to standard error, after any queued log lines that go there. Does not block the daemon
/// for long.
pub fn say(text: &str) {
    const WAIT_MAX: Duration = Duration::from_secs(1);
    match (SET_FILTER.get(), FILE.get()) {
        (Some(_), None) => SINK.push(text.as_bytes()),
        (Some(_), Some(_)) => {
            let ((done, is_done), text) = (channel(), text.to_owned());
            let say = move || drop((io::stderr().write_all(text.as_bytes()), done.send(())));
            if thread::Builder::new().spawn(say).is_ok() {
                let _ = is_done.recv_timeout(WAIT_MAX);
            }
        }
        // A command, without a daemon.
        (None, _) => drop(io::stderr().write_all(text.as_bytes())),
    }
}

/// Accepts one line per write, as the subscriber does.
struct Line(&'static Sink);

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Changes the log level.
///
/// # Errors
///
/// The level is invalid.
pub(crate) fn set_level(level: &str) -> Result<(), Error> {
    let filter = filter(level)?;
    if let Some(set_filter) = SET_FILTER.get() {
        set_filter(filter);
    }
    Ok(())
}

type SetFilter = Box<dyn Fn(EnvFilter) + Send + Sync>;

/// Replaces the filter of the process's logger.
static SET_FILTER: OnceLock<SetFilter> = OnceLock::new();

/// Reopens the log file, so that the daemon stops writing to a file that log rotation has renamed.
/// Does nothing without a file.
///
/// # Errors
///
/// It cannot be opened; the old one remains in use.
pub(crate) fn reopen() -> Result<(), Error> {
    FILE.get().map_or(Ok(()), LogFile::reopen)
}

/// The log file, if any. There is one per process, like the subscriber.
static FILE: OnceLock<LogFile> = OnceLock::new();

/// A file opened for appending, so that several processes may write to it.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    current: RwLock<Arc<File>>,
}

impl LogFile {
    fn open(path: &Path) -> Result<Self, Error> {
        Ok(Self {
            path: path.to_owned(),
            current: RwLock::new(open(path)?),
        })
    }

    fn reopen(&self) -> Result<(), Error> {
        let new = open(&self.path)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    fn current(&self) -> Arc<File> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn open(path: &Path) -> Result<Arc<File>, Error> {
    // The log contains queue names, users and addresses, so it is readable only by the owner and
    // the group.
    let opened = File::options()
        .create(true)
        .append(true)
        .mode(0o640)
        .open(path);
    opened.map(Arc::new).map_err(|reason| Error::File {
        path: path.to_owned(),
        reason,
    })
}

fn subscriber<W>(
    log: &Log,
    filter: EnvFilter,
    to: W,
    colour: bool,
) -> (Box<dyn Subscriber + Send + Sync>, SetFilter)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // The subscriber would print its own error, and panic if that fails.
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(to)
        .log_internal_errors(false);
    // The handle fails only after its logger was dropped.
    match log.format {
        LogFormat::Text => {
            let lines = lines.with_ansi(colour).with_filter_reloading();
            let handle = lines.reload_handle();
            (
                Box::new(lines.finish()),
                Box::new(move |filter| drop(handle.reload(filter))),
            )
        }
        // Log collectors expect an event's fields at the top level.
        LogFormat::Json => {
            let lines = lines
                .json()
                .flatten_event(true)
                .with_span_list(false)
                .with_filter_reloading();
            let handle = lines.reload_handle();
            (
                Box::new(lines.finish()),
                Box::new(move |filter| drop(handle.reload(filter))),
            )
        }
    }
}

/// sled logs each step and each failed write. The store itself logs their consequences.
const QUIET: &str = "sled=off";

/// Parses a level or a list of directives. Lines of sled are off unless a directive names it.
///
/// # Errors
///
/// It is neither. A single word that is not a level is an error too, because it would enable all
/// lines of a module with that name.
pub fn filter(level: &str) -> Result<EnvFilter, FilterError> {
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    let mut words = level
        .split(',')
        .map(str::trim)
        .filter(|word| !word.contains(['=', '[']));
    match words.find(|word| !is_level(word)) {
        Some(word) => Err(FilterError::Level(word.to_owned())),
        // A directive for the same target in `level` overrides this one.
        None => EnvFilter::builder()
            .parse(format!("{QUIET},{level}"))
            .map_err(|error| FilterError::Directive {
                directive: level.to_owned(),
                reason: error.to_string(),
            }),
    }
}

/// <https://no-color.org>
fn wants_colour() -> bool {
    io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let place = panic
        .location()
        .map(ToString::to_string)
        .unwrap_or_default();
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured)
        .then(|| tracing::field::display(backtrace));
    tracing::error!(place, backtrace, "panic: {}", text.unwrap_or("not text"));
    // The process may exit with this panic.
    flush();
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Arc, LazyLock, Mutex};

    use tracing::Dispatch;
    use tracing::subscriber::NoSubscriber;

    use super::*;

    /// With a single subscriber, a thread that has none would disable the callsites that it reaches
    /// first, for all threads.
    static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The text written while `run` runs.
    pub(crate) fn captured(log: &Log, run: impl FnOnce()) -> String {
        LazyLock::force(&SECOND);
        let lines = Lines::default();
        let to = lines.clone();
        let (subscriber, _) =
            subscriber(log, filter(&log.level).unwrap(), move || to.clone(), false);
        tracing::subscriber::with_default(subscriber, run);
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    /// The text written for the lines of one connection.
    fn logged(level: &str, format: LogFormat) -> String {
        let log = Log {
            level: level.to_owned(),
            format,
            ..Log::default()
        };
        captured(&log, || {
            let _span =
                tracing::debug_span!("connection", protocol = "gearman", peer = "127.0.0.1")
                    .entered();
            tracing::info!(address = "127.0.0.1:4730", jobs = 3, "listening");
            tracing::debug!("open");
        })
    }

    #[test]
    fn a_line_of_json_has_its_fields_at_the_top() {
        let text = logged("info", LogFormat::Json);
        assert_eq!(text.lines().count(), 1, "{text}");
        let mut line: serde_json::Value = serde_json::from_str(&text).unwrap();
        let time = line.as_object_mut().unwrap().remove("timestamp").unwrap();
        assert!(
            time.as_str().is_some_and(|time| time.ends_with('Z')),
            "{time}"
        );
        let expected = serde_json::json!({
            "level": "INFO", "target": "windlass_daemon::logging::tests",
            "message": "listening", "address": "127.0.0.1:4730", "jobs": 3,
        });
        assert_eq!(line, expected);
        let line: serde_json::Value =
            serde_json::from_str(logged("debug", LogFormat::Json).lines().last().unwrap()).unwrap();
        assert_eq!(
            line["span"],
            serde_json::json!({"name": "connection", "protocol": "gearman", "peer": "127.0.0.1"})
        );
    }

    #[test]
    fn a_line_of_text_is_plain() {
        let text = logged("debug", LogFormat::Text);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        let rest = "INFO connection{protocol=\"gearman\" peer=\"127.0.0.1\"}: windlass_daemon::logging::tests: listening \
                    address=\"127.0.0.1:4730\" jobs=3";
        assert!(lines[0].ends_with(rest), "{text}");
    }

    #[test]
    fn sleds_own_lines_are_logged_only_on_request() {
        for (level, expected) in [
            ("info", 1),
            ("trace", 1),
            ("off", 0),
            ("info,sled=warn", 2),
            ("info,sled=info", 3),
        ] {
            let lines = Lines::default();
            let to = lines.clone();
            let (subscriber, _) = subscriber(
                &Log::default(),
                filter(level).unwrap(),
                move || to.clone(),
                false,
            );
            tracing::subscriber::with_default(subscriber, || {
                tracing::info!(target: "sled::pagecache::snapshot", "snapshot");
                tracing::error!(target: "sled::pagecache::logger", "a write failed");
                tracing::info!("listening");
            });
            let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
            assert_eq!(text.lines().count(), expected, "{level}: {text}");
        }
    }

    #[test]
    fn levels() {
        let table: [(&str, Result<&str, &str>); 11] = [
            ("info", Ok("sled=off,info")),
            ("INFO", Ok("sled=off,info")),
            ("off", Ok("sled=off,off")),
            ("warn,sled=info", Ok("sled=info,warn")),
            (
                "warn,windlass_daemon=debug",
                Ok("windlass_daemon=debug,sled=off,warn"),
            ),
            (
                "warn, windlass_daemon = debug",
                Err("`warn, windlass_daemon = debug`: "),
            ),
            (
                "info,[connection{protocol=gearman}]=trace",
                Ok("sled=off,info,[connection{protocol=gearman}]=trace"),
            ),
            (
                "inof",
                Err("`inof` is not one of off, error, warn, info, debug, trace"),
            ),
            ("", Err("`` is not one of")),
            ("info,,warn", Err("`` is not one of")),
            ("windlass_daemon=loud", Err("`windlass_daemon=loud`: ")),
        ];
        for (level, expected) in table {
            match (filter(level), expected) {
                (Ok(filter), Ok(written)) => assert_eq!(filter.to_string(), written, "{level}"),
                (Err(error), Err(start)) => {
                    assert!(error.to_string().starts_with(start), "{level}: {error}")
                }
                (got, _) => panic!("{level}: {got:?}"),
            }
        }
    }
}
