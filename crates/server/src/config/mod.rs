//! The configuration: one TOML file, every key optional, overridden by the environment and that by the command line.
//!
//! Reading order: `sections` (what there is, with defaults) · `cron`, `throttle` (lists in it) · `quantity`, `file_mode` and `address` (how values are written) ·
//! `file` (text to [`Config`]) · `overrides` (single keys from elsewhere) · `check` (what no type can say).
//! Nothing here listens or logs, and the only files opened are the configuration and, to check them, those of TLS.

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

/// The configuration that is in force when nothing else is said, with every key explained.
pub const DEFAULTS: &str = include_str!("../../../../config/windlass.toml");
