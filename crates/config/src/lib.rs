//! What configuration sections are made of: formats of values, errors that name their place, and overrides of single
//! keys.
//!
//! Every protocol's crate and the server define their own sections of the one TOML file; the binary puts them together.
//! No section and no protocol is named here.
//!
//! Reading order: `section` (how a section is written) · `text`, `quantity` and `address` (formats of values) · `tls`, `throttle` and `secret` (keys that several
//! sections have) · `rules` (checks that several sections need) · `file` (text to a configuration) · `overrides`
//! (single keys from elsewhere) · `error` · `failure` (how a process ends) · `count` (numbers for people) ·
//! `words` (reasons for people). This code opens only the configuration file and files of passwords.

mod address;
mod count;
mod error;
mod failure;
mod file;
mod overrides;
mod quantity;
mod rules;
mod secret;
mod section;
mod text;
mod throttle;
mod tls;
mod words;

/// The directory of a daemon's data, unless it is configured; relative to the working directory.
pub const DATA_DIR: &str = "windlass-data";

/// The name of the Unix socket in that directory, for commands.
pub const SOCKET: &str = "operator.sock";

pub use address::{Address, AddressError, ListenAddress};
pub use count::{counted, counted_all, grouped};
pub use error::{Error, TlsError};
pub use failure::{Failure, Unbound};
pub use file::{Misplaced, parse, places, read};
pub use overrides::{Document, Override, keys, path_as_text, values, variable, with};
pub use quantity::{ByteSize, Period, QuantityError};
pub use rules::{FRAME_BYTES_CEILING, FRAME_BYTES_MIN, positive, senseless, within};
pub use secret::{Password, PasswordFile, Secret, check_secret, credential, secret};
pub use throttle::{Throttle, Throttles};
pub use tls::Tls;
pub use words::{Words, is_near, json, nearest, system};
