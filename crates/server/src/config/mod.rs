//! The configuration: one TOML file with optional keys. The environment overrides the file; the command line overrides both.
//!
//! Reading order: `sections` (all keys with their defaults) · `cron`, `throttle` (lists in them) · `quantity`, `file_mode` and
//! `address` (formats of values) · `file` (text to [`Config`]) · `overrides` (single keys from elsewhere) · `check` (rules that
//! types cannot express). This code does not bind sockets or write to the log. It opens only the configuration file and, to
//! check them, the files of TLS and of passwords.

mod address;
mod check;
mod cron;
mod error;
mod eventmq;
mod file;
mod file_mode;
mod gearman;
mod overrides;
mod quantity;
mod queues;
mod sections;
mod spiderq;
#[cfg(test)]
mod tests;
mod throttle;

pub use address::{Address, AddressError, ListenAddress};
pub use cron::{Cron, CronJob, NotJson};
pub use error::{Error, TlsError};
pub use eventmq::{Eventmq, Order, Scheduler};
pub use file_mode::{FileMode, FileModeError};
pub use gearman::{OnTimeout, TimeoutUnit};
pub use overrides::Override;
pub use quantity::{ByteSize, Period, QuantityError};
pub use queues::{Codec, Names, Queue, Retry, aliases};
pub use sections::{Config, Durability, Faktory, Gearman, Limits, Listener, Log, LogFormat, Server, Store, Tls};
pub use spiderq::{CycleListener, Dialect, Spiderq, SpiderqMore, Zmtp};
pub use throttle::Throttle;

/// The default configuration, with an explanation of every key.
pub const DEFAULTS: &str = include_str!("../../../../config/windlass.toml");
