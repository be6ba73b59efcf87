//! Passwords, given as a value or in a file, and files that hold secrets.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::Error;
use crate::words::system;

/// The directory where a service manager passes credentials, as the first part of a file's name.
const DIRECTORY: &str = "$CREDENTIALS_DIRECTORY";

/// A password. Its `Debug` text omits it, so that it reaches no log.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// No password.
    pub const NONE: &'static Self = &Self(String::new());

    /// The password itself.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Into<String>> From<T> for Secret {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() {
            "no secret"
        } else {
            "a secret"
        })
    }
}

/// One of several passwords: itself, or a file with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Password {
    /// Itself.
    Plain(Secret),
    /// In a file.
    InFile(PasswordFile),
}

/// A file with a password, surrounding blanks ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PasswordFile {
    /// The file.
    #[serde(deserialize_with = "credential")]
    pub file: PathBuf,
}

impl Password {
    /// The password, which is not empty. `key` is its key in the configuration.
    ///
    /// # Errors
    ///
    /// [`Error::Senseless`]: the file cannot be read, or there is no password.
    pub fn read(&self, key: &str) -> Result<Secret, Error> {
        let secret = match self {
            Self::Plain(secret) => secret.clone(),
            Self::InFile(PasswordFile { file }) => {
                let unreadable = |error| {
                    let why = format!("cannot read {}: {}", file.display(), system(&error));
                    Error::senseless(format!("{key}.file"), why)
                };
                secret(Secret::NONE, file).map_err(unreadable)?
            }
        };
        if !secret.is_empty() {
            return Ok(secret);
        }
        Err(match self {
            Self::InFile(PasswordFile { file }) if !file.as_os_str().is_empty() => {
                Error::senseless(
                    format!("{key}.file"),
                    format!("{} is empty", file.display()),
                )
            }
            Self::Plain(_) | Self::InFile(_) => {
                Error::senseless(key.to_owned(), "must not be empty")
            }
        })
    }
}

impl<'de> Deserialize<'de> for Password {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Form)
    }
}

/// Reads either form of a [`Password`].
struct Form;

impl<'de> Visitor<'de> for Form {
    type Value = Password;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a password, or a table with the file that has it")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Password, E> {
        Ok(Password::Plain(text.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Password, A::Error> {
        PasswordFile::deserialize(MapAccessDeserializer::new(map)).map(Password::InFile)
    }
}

/// Whether a key's value is a secret, so that no message may show it.
pub(crate) fn is_secret(key: &str) -> bool {
    let key = key.trim_end_matches(|c: char| c == '"' || c == '\'' || c.is_whitespace());
    key.ends_with("password") || key.ends_with("passwords") || key.contains("passwords.")
}

/// Whether a line is in a section of passwords, where every value is a secret.
pub(crate) fn is_in_passwords(text_before: &str) -> bool {
    let mut headers = text_before
        .lines()
        .rev()
        .filter(|line| line.trim_start().starts_with('['));
    headers.next().is_some_and(|line| {
        line.split(']')
            .next()
            .is_some_and(|name| name.ends_with("passwords"))
    })
}

/// How many bytes of a line of the configuration a message may show: those before the first secret value.
pub(crate) fn shown_bytes(line: &str) -> usize {
    let mut values = line.match_indices('=').map(|(at, _)| at);
    values
        .find(|at| line.get(..*at).is_some_and(is_secret))
        .map_or(line.len(), |at| at + 1)
}

/// The password; or the content of the file, if one is named, without surrounding blanks.
///
/// # Errors
///
/// The file cannot be read.
pub fn secret(password: &Secret, file: &Path) -> io::Result<Secret> {
    if file.as_os_str().is_empty() {
        return Ok(password.clone());
    }
    fs::read_to_string(file).map(|text| Secret::from(text.trim()))
}

/// Reads the password. Refuses a password beside a file, and a file that cannot be read or is empty. The keys
/// of the section are those of the password and of the file; `named` is the name of the second one in messages about the
/// first.
///
/// # Errors
///
/// [`Error::Senseless`], with the key.
pub fn check_secret(
    section: &str,
    [password_key, file_key]: [&str; 2],
    named: &str,
    password: &Secret,
    file: &Path,
) -> Result<Secret, Error> {
    let key = |name| format!("{section}.{name}");
    let in_file = !file.as_os_str().is_empty();
    if in_file && !password.is_empty() {
        return Err(Error::senseless(
            key(password_key),
            format!("must not be given with {named}"),
        ));
    }
    match secret(password, file) {
        Err(error) => Err(Error::senseless(
            key(file_key),
            format!("cannot read {}: {}", file.display(), system(&error)),
        )),
        Ok(secret) if secret.is_empty() && in_file => Err(Error::senseless(
            key(file_key),
            format!("{} is empty", file.display()),
        )),
        Ok(secret) => Ok(secret),
    }
}

/// Reads the name of a file that may be a credential of the service manager: `$CREDENTIALS_DIRECTORY/name`.
///
/// # Errors
///
/// It is not a text, or there are no credentials.
pub fn credential<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    let name = String::deserialize(deserializer)?;
    locate(name, std::env::var_os("CREDENTIALS_DIRECTORY")).map_err(serde::de::Error::custom)
}

fn locate(name: String, directory: Option<OsString>) -> Result<PathBuf, &'static str> {
    let Some(rest) = name.strip_prefix(DIRECTORY) else {
        return Ok(name.into());
    };
    let file = rest.strip_prefix('/').filter(|file| !file.is_empty());
    let file = file.ok_or("a name is expected after $CREDENTIALS_DIRECTORY/")?;
    let directory = directory
        .ok_or("$CREDENTIALS_DIRECTORY is not set: the service manager passes no credentials")?;
    Ok(Path::new(&directory).join(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_secret_does_not_show_it() {
        let secret = Secret::from("hunter2");
        assert_eq!(
            (format!("{secret:?}").as_str(), secret.expose()),
            ("a secret", "hunter2")
        );
        assert_eq!(format!("{:?}", Secret::default()), "no secret");
    }

    #[test]
    fn passwords_are_secrets_and_their_files_are_not() {
        let table = [
            ("faktory.password", true),
            ("  \"password\" ", true),
            ("faktory.passwords.shop", true),
            ("passwords = { shop ", false),
            ("faktory.passwords ", true),
            ("password_file", false),
            ("user", false),
        ];
        assert!(
            table
                .iter()
                .all(|(key, expected)| is_secret(key) == *expected)
        );
        let lines = [
            ("password = \"x\"", 10),
            ("a = { user = \"u\", password=\"x\" }", 27),
            ("user = \"x\"", 10),
        ];
        assert_eq!(
            lines.map(|(line, _)| shown_bytes(line)),
            lines.map(|(_, bytes)| bytes)
        );
    }

    #[test]
    fn lines_of_a_section_of_passwords_are_known() {
        let table = [
            ("[faktory.passwords]\n\na = \"x\"\n", true),
            ("  [faktory.passwords] # of fleets\n", true),
            ("[faktory.passwords]\n[faktory.tls]\n", false),
            ("[faktory]\n", false),
            ("", false),
        ];
        for (before, expected) in table {
            assert_eq!(is_in_passwords(before), expected, "{before}");
        }
    }

    #[test]
    fn one_of_several_passwords_is_itself_or_in_a_file() {
        #[derive(Debug, Serialize, Deserialize)]
        struct Section {
            a: Password,
        }
        let read = |text: &str| toml::from_str::<Section>(text);
        let there = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let in_file = |file: &str| format!("a = {{ file = {file:?} }}");
        let key = "faktory.passwords.a";
        let said = |text: &str| match read(text).unwrap().a.read(key) {
            Ok(secret) => secret.expose().to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(said("a = \"plain\""), "plain");
        let place = "faktory.passwords.a.file";
        let missing = format!("{place}: cannot read /no/such: no such file or directory");
        assert_eq!(said(&in_file("/no/such")), missing);
        let empty = format!("{place}: /dev/null is empty");
        assert_eq!(said(&in_file("/dev/null")), empty);
        assert!(said(&in_file(there)).starts_with("[package]"));
        for empty in ["a = \"\"", "a.file = \"\""] {
            assert_eq!(said(empty), "faktory.passwords.a: must not be empty");
        }
        for text in ["a = \"plain\"", &*in_file(there)] {
            let written = toml::to_string(&read(text).unwrap()).unwrap();
            assert_eq!(
                read(&written).unwrap().a,
                read(text).unwrap().a,
                "{written}"
            );
        }
        for (text, expected) in [
            (
                "a = 7",
                "expected a password, or a table with the file that has it",
            ),
            ("a = { path = \"x\" }", "unknown field `path`"),
        ] {
            let said = read(text).unwrap_err().to_string();
            assert!(said.contains(expected), "{text}: {said}");
        }
    }

    #[test]
    fn files_may_be_credentials() {
        let table = [
            ("", Some("/run/c"), Ok("")),
            ("/etc/key", None, Ok("/etc/key")),
            (
                "$CREDENTIALS_DIRECTORY/key",
                Some("/run/c"),
                Ok("/run/c/key"),
            ),
            (
                "$CREDENTIALS_DIRECTORY/a/key",
                Some("/run/c/"),
                Ok("/run/c/a/key"),
            ),
            (
                "$CREDENTIALS_DIRECTORY/key",
                None,
                Err("$CREDENTIALS_DIRECTORY is not set"),
            ),
            (
                "$CREDENTIALS_DIRECTORY/",
                Some("/run/c"),
                Err("a name is expected"),
            ),
            (
                "$CREDENTIALS_DIRECTORYx",
                Some("/run/c"),
                Err("a name is expected"),
            ),
        ];
        for (name, directory, expected) in table {
            let found = locate(name.to_owned(), directory.map(OsString::from));
            match expected {
                Ok(path) => assert_eq!(found.as_deref(), Ok(Path::new(path)), "{name}"),
                Err(why) => assert!(found.unwrap_err().starts_with(why), "{name}"),
            }
        }
    }
}
