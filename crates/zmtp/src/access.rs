//! Access to a listener: the keys that the sections of all protocols over ZMTP have, and the mechanism that
//! they make.

use std::path::Path;
use std::sync::Arc;

use windlass_config::{Error, Secret, check_secret};

use crate::curve::{CurvePublicKey, CurveSecretKey, CurveServer};
use crate::{Login, Mechanism};

/// The longest user and the longest password: each has a length field of one byte.
const BYTES_MAX: usize = 255;

/// The values of a section's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access<'a> {
    /// The section's name.
    pub section: &'static str,
    /// The user that clients must send, with a password; empty for no login.
    pub user: &'a str,
    /// The password.
    pub password: &'a Secret,
    /// A file with the password, surrounding blanks ignored; empty for none.
    pub password_file: &'a Path,
    /// A file with the server's secret key, surrounding blanks ignored; empty for no encryption.
    pub curve_secret_key_file: &'a Path,
    /// The keys of clients that may connect; empty for all.
    pub curve_clients: &'a [CurvePublicKey],
}

impl Access<'_> {
    /// The mechanism. Reads the files. `random` makes bytes that outsiders cannot guess.
    ///
    /// # Errors
    ///
    /// [`Error::Senseless`], with the key.
    pub fn mechanism(&self, random: fn() -> u64) -> Result<Mechanism, Error> {
        match (self.plain()?, self.curve(random)?) {
            (plain, None) => Ok(plain),
            (Mechanism::Null, Some(server)) => Ok(Mechanism::Curve(Arc::new(server))),
            _ => Err(self.senseless(
                "curve_secret_key_file",
                "must not be given with user: one or the other",
            )),
        }
    }

    fn senseless(&self, key: &str, reason: impl ToString) -> Error {
        Error::senseless(format!("{}.{key}", self.section), reason)
    }

    fn curve(&self, random: fn() -> u64) -> Result<Option<CurveServer>, Error> {
        let (key, file) = ("curve_secret_key_file", self.curve_secret_key_file);
        let secret = check_secret(self.section, [key; 2], "", Secret::NONE, file)?;
        if secret.is_empty() && !self.curve_clients.is_empty() {
            return Err(self.senseless("curve_clients", "must be given with curve_secret_key_file"));
        }
        if secret.is_empty() {
            return Ok(None);
        }
        let read = |error| self.senseless(key, format!("{}: {error}", file.display()));
        let secret: CurveSecretKey = secret.expose().parse().map_err(read)?;
        Ok(Some(CurveServer::new(
            secret,
            self.curve_clients.to_vec(),
            random,
        )))
    }

    fn plain(&self) -> Result<Mechanism, Error> {
        let files = ["password", "password_file"];
        let secret = check_secret(
            self.section,
            files,
            "password_file",
            self.password,
            self.password_file,
        )?;
        match (self.user.len(), secret.expose().len()) {
            (0, 0) => Ok(Mechanism::Null),
            (0, _) => Err(self.senseless("user", "must be given with a password")),
            (_, 0) => Err(self.senseless("password", "must be given with user")),
            (BYTES_MAX.., _) => Err(self.senseless("user", "must be shorter than 255 bytes")),
            (_, BYTES_MAX..) => Err(self.senseless("password", "must be shorter than 255 bytes")),
            _ => {
                let login = Login {
                    user: self.user.to_owned().into(),
                    password: secret.expose().to_owned().into(),
                };
                Ok(Mechanism::Plain(vec![login]))
            }
        }
    }
}
