//! Logins and roles: `http.logins`, and the verification of a request's credentials.
//!
//! `identity` represents the user, `file` reads and writes the lines, `verify` compares credentials and
//! limits guessing, `session` remembers people who have logged in on a page. Without a file, every client
//! that can connect may do everything, so only addresses of this machine are then permitted.

mod file;
mod identity;
mod session;
mod user;
mod verify;

pub(crate) use self::file::Entries;
pub use self::file::{NewLogin, WrongLine};
pub(crate) use self::identity::{Credentials, Identity, LOGIN_REQUIRED, LOGIN_WRONG};
pub use self::identity::{Grant, Role, UnknownGrant, UnknownRole};
pub(crate) use self::session::Token;
pub(crate) use self::user::user_name;
pub(crate) use self::verify::Logins;
