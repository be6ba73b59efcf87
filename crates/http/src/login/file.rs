//! The file of logins. Each line is `KIND NAME ROLE HASH`.
//!
//! KIND is `user` or `token`, ROLE `read`, `operate` or `admin`, HASH the PHC string of an argon2 hash. A ROLE like
//! `shop:operate,mail:read` limits the login to these namespaces, with a role in each. Blank lines, and lines that
//! start with `#`, are skipped. `windlass password` and `windlass token` print such
//! lines.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use argon2::Argon2;
use argon2::password_hash::PasswordHasher as _;
use argon2::password_hash::phc::PasswordHash;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::identity::{Grant, Identity, Kind};

/// The longest name.
const NAME_CHARS_MAX: usize = 64;

/// The shortest password.
const PASSWORD_CHARS_MIN: usize = 8;

/// The name in the audit log for the common password.
const ANY_USER: &str = "password";

/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;

/// All logins of a file, or a common password.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    named: HashMap<(Kind, String), Entry>,
    /// A user with the password of this entry has any name.
    any_user: Option<Entry>,
}

/// A login.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) identity: Identity,
    pub(super) hash: String,
}

/// A line that is not a login.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {number}: {reason}")]
pub struct WrongLine {
    /// The number, from 1.
    number: usize,
    /// The reason.
    reason: &'static str,
}

/// A new login: the line for the file.
#[derive(Clone, Debug)]
pub struct NewLogin {
    /// The line.
    pub line: String,
    /// The token, which is not stored anywhere; `None` for a user.
    pub token: Option<String>,
}

impl Entries {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or a line is invalid. No error contains a hash.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        Self::parse(&fs::read_to_string(path)?)
            .map_err(|wrong| io::Error::new(io::ErrorKind::InvalidData, wrong))
    }

    fn parse(text: &str) -> Result<Self, WrongLine> {
        let mut entries = HashMap::new();
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |reason| WrongLine { number, reason };
            let (kind, name, entry) = entry(line).map_err(wrong)?;
            if entries.insert((kind, name), entry).is_some() {
                return Err(wrong("an earlier line has the same name"));
            }
        }
        Ok(Self {
            named: entries,
            any_user: None,
        })
    }

    /// A common password with which any user may do everything.
    ///
    /// # Errors
    ///
    /// The system has no random numbers.
    pub(super) fn of_password(password: &str) -> io::Result<Self> {
        let identity = Identity {
            name: ANY_USER.into(),
            grant: Grant::ALL,
        };
        Ok(Self {
            named: HashMap::new(),
            any_user: Some(Entry {
                identity,
                hash: hash(password)?,
            }),
        })
    }

    pub(super) fn get(&self, kind: Kind, name: &str) -> Option<&Entry> {
        let any_user = self.any_user.as_ref().filter(|_| kind == Kind::User);
        self.named.get(&(kind, name.to_owned())).or(any_user)
    }
}

fn entry(line: &str) -> Result<(Kind, String, Entry), &'static str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let &[kind, name, role, hash] = words.as_slice() else {
        return Err("KIND NAME ROLE HASH expected");
    };
    let kind = [Kind::User, Kind::Token]
        .into_iter()
        .find(|known| known.to_string() == kind);
    let kind = kind.ok_or("a login must begin with user or token")?;
    if !is_name(name) {
        return Err("a name must have 1 to 64 letters, digits, - and _");
    }
    let grant = role.parse().map_err(
        |_| "the role must be read, operate or admin, or a list like shop:operate,mail:read",
    )?;
    let is_argon2 =
        PasswordHash::new(hash).is_ok_and(|hash| hash.algorithm.as_str().starts_with("argon2"));
    if !is_argon2 {
        return Err("the hash must be one of argon2, in the PHC format");
    }
    Ok((
        kind,
        name.to_owned(),
        Entry {
            identity: Identity {
                name: Arc::from(name),
                grant,
            },
            hash: hash.to_owned(),
        },
    ))
}

/// A name is part of a token and of a line.
fn is_name(name: &str) -> bool {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || char == '-' || char == '_';
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(is_plain)
}

impl NewLogin {
    /// A user with a password.
    ///
    /// # Errors
    ///
    /// The name or the password cannot be used.
    pub fn user(name: &str, grant: &Grant, password: &str) -> io::Result<Self> {
        if password.chars().count() < PASSWORD_CHARS_MIN {
            return Err(io::Error::other(format!(
                "a password must have at least {PASSWORD_CHARS_MIN} characters"
            )));
        }
        Ok(Self {
            line: line(Kind::User, name, grant, password)?,
            token: None,
        })
    }

    /// A program with a random token.
    ///
    /// # Errors
    ///
    /// The name is invalid, or the system has no random numbers.
    pub fn token(name: &str, grant: &Grant) -> io::Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let secret = URL_SAFE_NO_PAD.encode(bytes);
        Ok(Self {
            line: line(Kind::Token, name, grant, &secret)?,
            token: Some(format!("{name}.{secret}")),
        })
    }
}

fn line(kind: Kind, name: &str, grant: &Grant, secret: &str) -> io::Result<String> {
    if !is_name(name) {
        return Err(io::Error::other(
            "a name must have 1 to 64 letters, digits, - and _",
        ));
    }
    Ok(format!("{kind} {name} {grant} {}", hash(secret)?))
}

fn hash(secret: &str) -> io::Result<String> {
    let hash = Argon2::default().hash_password(secret.as_bytes());
    hash.map(|hash| hash.to_string())
        .map_err(|error| io::Error::other(error.to_string()))
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Token => "token",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_logins_are_read_back() {
        let user = NewLogin::user("ada", &Grant::ALL, "engine-number-1").unwrap();
        let token = NewLogin::token("ci_1", &"shop:read,mail:admin".parse().unwrap()).unwrap();
        assert!(token.token.unwrap().starts_with("ci_1."));
        let entries =
            Entries::parse(&format!("# people\n\n{}\n {}\n", user.line, token.line)).unwrap();
        let grant = |kind, name| {
            let entry = entries.get(kind, name);
            entry.map(|entry| entry.identity.grant.to_string())
        };
        assert_eq!(
            (grant(Kind::User, "ada"), grant(Kind::Token, "ci_1")),
            (
                Some("admin".to_owned()),
                Some("mail:admin,shop:read".to_owned())
            )
        );
        assert_eq!(
            (grant(Kind::Token, "ada"), grant(Kind::User, "")),
            (None, None)
        );
    }

    #[test]
    fn wrong_lines_are_named() {
        let line = NewLogin::user("ada", &Grant::ALL, "engine-number-1")
            .unwrap()
            .line;
        let table = [
            (
                "user ada admin".to_owned(),
                "line 2: KIND NAME ROLE HASH expected",
            ),
            (
                line.replace("user", "person"),
                "line 2: a login must begin with user or token",
            ),
            (
                line.replace("ada", "a:da"),
                "line 2: a name must have 1 to 64 letters, digits, - and _",
            ),
            (
                line.replace("admin", "root"),
                "line 2: the role must be read, operate or admin, or a list like shop:operate,mail:read",
            ),
            (
                "user ada admin secret-in-the-clear".to_owned(),
                "line 2: the hash must be one of argon2, in the PHC format",
            ),
            (
                format!("{line}\n{line}"),
                "line 3: an earlier line has the same name",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(
                Entries::parse(&format!("\n{text}"))
                    .unwrap_err()
                    .to_string(),
                expected
            );
        }
        assert!(NewLogin::user("ada", &Grant::ALL, "short").is_err());
        assert!(NewLogin::token("a.b", &Grant::ALL).is_err());
    }
}
