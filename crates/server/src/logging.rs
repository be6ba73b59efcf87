//! Log lines on standard error, as text or JSON. What is logged where is each module's business; nothing here is about it.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::env;
use std::io::{self, IsTerminal as _};
use std::panic::{self, PanicHookInfo};

use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{Log, LogFormat};

/// Why nothing can be logged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The level is no level.
    #[error("bad log level: {0}")]
    Filter(#[from] FilterError),
    /// Somebody else has set up logging in this process.
    #[error("cannot set up logging: {0}")]
    Taken(String),
}

/// Why a text says nothing about what is to be logged.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// A word that is no level.
    #[error("`{0}` is not one of off, error, warn, info, debug, trace; one module's level is set by `module=level`")]
    Level(String),
    /// A directive that cannot be read.
    #[error("`{directive}`: {reason}")]
    Directive {
        /// All of what was given.
        directive: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Logs from here on, panics included.
///
/// # Errors
///
/// The level cannot be understood, or logging was set up before.
pub fn init(log: &Log) -> Result<(), Error> {
    let subscriber = subscriber(log, filter(&log.level)?, io::stderr, wants_colour());
    subscriber.try_init().map_err(|error| Error::Taken(error.to_string()))?;
    panic::set_hook(Box::new(log_panic));
    Ok(())
}

fn subscriber<W>(log: &Log, filter: EnvFilter, to: W, colour: bool) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(to);
    match log.format {
        LogFormat::Text => Box::new(lines.with_ansi(colour).finish()),
        // An event's own fields stand at the top, where log collectors look.
        LogFormat::Json => Box::new(lines.json().flatten_event(true).with_span_list(false).finish()),
    }
}

/// What a level or a list of directives lets through.
///
/// # Errors
///
/// It is neither. A word alone that is no level is refused too: it would turn on everything from a module of that name.
pub fn filter(level: &str) -> Result<EnvFilter, FilterError> {
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    let mut words = level.split(',').map(str::trim).filter(|word| !word.contains(['=', '[']));
    match words.find(|word| !is_level(word)) {
        Some(word) => Err(FilterError::Level(word.to_owned())),
        None => EnvFilter::builder()
            .parse(level)
            .map_err(|error| FilterError::Directive { directive: level.to_owned(), reason: error.to_string() }),
    }
}

/// <https://no-color.org>
fn wants_colour() -> bool {
    io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| tracing::field::display(backtrace));
    tracing::error!(place, backtrace, "panic: {}", text.unwrap_or("not text"));
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

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

    /// What is written for the lines of one connection.
    fn logged(level: &str, format: LogFormat) -> String {
        let lines = Lines::default();
        let log = Log { level: level.to_owned(), format };
        let to = lines.clone();
        let subscriber = subscriber(&log, filter(level).unwrap(), move || to.clone(), false);
        tracing::subscriber::with_default(subscriber, || {
            let _span = tracing::debug_span!("connection", protocol = "gearman", peer = "127.0.0.1").entered();
            tracing::info!(address = "127.0.0.1:4730", jobs = 3, "listening");
            tracing::debug!("open");
        });
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_line_of_json_has_its_fields_at_the_top() {
        let text = logged("info", LogFormat::Json);
        assert_eq!(text.lines().count(), 1, "{text}");
        let mut line: serde_json::Value = serde_json::from_str(&text).unwrap();
        let time = line.as_object_mut().unwrap().remove("timestamp").unwrap();
        assert!(time.as_str().is_some_and(|time| time.ends_with('Z')), "{time}");
        let expected = serde_json::json!({
            "level": "INFO", "target": "windlass_server::logging::tests",
            "message": "listening", "address": "127.0.0.1:4730", "jobs": 3,
        });
        assert_eq!(line, expected);
        let line: serde_json::Value =
            serde_json::from_str(logged("debug", LogFormat::Json).lines().last().unwrap()).unwrap();
        assert_eq!(line["span"], serde_json::json!({"name": "connection", "protocol": "gearman", "peer": "127.0.0.1"}));
    }

    #[test]
    fn a_line_of_text_is_plain() {
        let text = logged("debug", LogFormat::Text);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        let rest = "INFO connection{protocol=\"gearman\" peer=\"127.0.0.1\"}: windlass_server::logging::tests: listening \
                    address=\"127.0.0.1:4730\" jobs=3";
        assert!(lines[0].ends_with(rest), "{text}");
    }

    #[test]
    fn levels() {
        let table: [(&str, Result<&str, &str>); 10] = [
            ("info", Ok("info")),
            ("INFO", Ok("info")),
            ("off", Ok("off")),
            ("warn,windlass_server=debug", Ok("windlass_server=debug,warn")),
            ("warn, windlass_server = debug", Err("`warn, windlass_server = debug`: ")),
            ("info,[connection{protocol=gearman}]=trace", Ok("info,[connection{protocol=gearman}]=trace")),
            ("inof", Err("`inof` is not one of off, error, warn, info, debug, trace")),
            ("", Err("`` is not one of")),
            ("info,,warn", Err("`` is not one of")),
            ("windlass_server=loud", Err("`windlass_server=loud`: ")),
        ];
        for (level, expected) in table {
            match (filter(level), expected) {
                (Ok(filter), Ok(written)) => assert_eq!(filter.to_string(), written, "{level}"),
                (Err(error), Err(start)) => assert!(error.to_string().starts_with(start), "{level}: {error}"),
                (got, _) => panic!("{level}: {got:?}"),
            }
        }
    }
}
