//! Access to a listener: the keys that the sections of all protocols over ZMTP have, and the mechanism that
//! they make.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use windlass_config::{Error, Password, Secret, check_secret};

use crate::curve::{CurvePublicKey, CurveSecretKey, CurveServer};
use crate::{Guests, Login, Mechanism};

/// The longest user and the longest password: each has a length field of one byte.
const BYTES_MAX: usize = 255;

/// `[PROTOCOL.namespaces.NAME]`: a login that tells the namespace of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NamespaceLogin {
    /// The user that clients send, with `password`; empty if they have keys of CURVE.
    pub user: String,
    /// The password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Password>,
    /// The keys of clients that connect with CURVE.
    pub curve_clients: Vec<CurvePublicKey>,
}

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
    /// The logins that tell a namespace, by its name.
    pub namespaces: &'a BTreeMap<String, NamespaceLogin>,
}

impl Access<'_> {
    /// Who may connect. Reads the files. `random` makes bytes that outsiders cannot guess.
    ///
    /// # Errors
    ///
    /// [`Error::Senseless`], with the key.
    pub fn guests(&self, random: fn() -> u64) -> Result<Guests, Error> {
        let own = match (self.plain()?, self.curve(random)?) {
            (plain, None) => plain,
            (Mechanism::Null, Some(server)) => Mechanism::Curve(Arc::new(server)),
            _ => {
                return Err(self.senseless(
                    "curve_secret_key_file",
                    "must not be given with user: one or the other",
                ));
            }
        };
        let named = |(name, login): (&String, &NamespaceLogin)| {
            Ok((name.as_str().into(), self.of_namespace(name, login, &own)?))
        };
        let named = self.namespaces.iter().map(named);
        let named = named.collect::<Result<_, Error>>()?;
        Guests::new(own, named).map_err(|name| {
            self.senseless(
                &format!("namespaces.{}", name.escape_debug()),
                "has the user or a key of other clients: a login tells one namespace",
            )
        })
    }

    /// The mechanism for clients of a namespace alone.
    fn of_namespace(
        &self,
        name: &str,
        login: &NamespaceLogin,
        own: &Mechanism,
    ) -> Result<Mechanism, Error> {
        let key = |key: &str| format!("namespaces.{}.{key}", name.escape_debug());
        let wrong = |at: &str, why: &str| Err(self.senseless(&key(at), why));
        if login.user.is_empty() == login.curve_clients.is_empty() {
            return wrong("user", "either user or curve_clients must be given");
        }
        if login.user.is_empty() {
            return match own {
                Mechanism::Curve(server) => {
                    let keys = login.curve_clients.clone();
                    Ok(Mechanism::Curve(Arc::new(server.of(keys))))
                }
                Mechanism::Null | Mechanism::Plain(_) => wrong(
                    "curve_clients",
                    "must be given with curve_secret_key_file in the section of the protocol",
                ),
            };
        }
        if matches!(own, Mechanism::Curve(_)) {
            let why = "must not be given with curve_secret_key_file: one or the other";
            return wrong("user", why);
        }
        let Some(password) = &login.password else {
            return wrong("password", "must be given with user");
        };
        let password = password.read(&format!("{}.{}", self.section, key("password")))?;
        self.login(&login.user, &password, &key)
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
            _ => self.login(self.user, &secret, &str::to_owned),
        }
    }

    /// `key` is where a key of this name is, in the section.
    fn login(
        &self,
        user: &str,
        password: &Secret,
        key: &dyn Fn(&str) -> String,
    ) -> Result<Mechanism, Error> {
        for (name, text) in [("user", user), ("password", password.expose())] {
            if text.len() >= BYTES_MAX {
                return Err(self.senseless(&key(name), "must be shorter than 255 bytes"));
            }
        }
        let login = Login {
            user: user.to_owned().into(),
            password: password.expose().to_owned().into(),
        };
        Ok(Mechanism::Plain(vec![login]))
    }
}
