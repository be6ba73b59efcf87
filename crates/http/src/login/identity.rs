//! The user of a request: a role, an identity, and credentials.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use utoipa::ToSchema;
use windlass_engine::is_valid_name;

use crate::problem::Problem;

/// The code of a refusal because there is no password, token or session.
pub(crate) const LOGIN_REQUIRED: &str = "login_required";

/// The code of a refusal because of a wrong password or token.
pub(crate) const LOGIN_WRONG: &str = "login_wrong";

/// The permissions of a login. Each role includes the previous ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read everything, including bodies, except what a mask hides; modify nothing.
    Read,
    /// Push and take jobs; retry, kill and requeue them; pause, throttle and limit queues; quiet and stop workers.
    Operate,
    /// Also operations that lose data, or affect the daemon: delete, cancel and clear, remove schedules,
    /// close connections, reload, drain.
    Admin,
}

/// A text that is not a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a role must be read, operate or admin")]
pub struct UnknownRole;

/// What a login may do, and where: a role (`operate`), or a list of namespaces with a role in each
/// (`shop:operate,mail:read`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grant {
    /// In the whole daemon.
    Everywhere(Role),
    /// In these namespaces only. The empty name is that of the namespace without a name.
    In(BTreeMap<Box<str>, Role>),
}

/// A text that is neither a role nor a list of namespaces with roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a role must be read, operate or admin, or a list like shop:operate,mail:read")]
pub struct UnknownGrant;

/// The one who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) name: Arc<str>,
    pub(crate) grant: Grant,
}

/// The credentials of a request.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) secret: String,
}

/// The two kinds of login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A person: a name and a password (HTTP's basic scheme).
    User,
    /// A program: a token that contains the name (the bearer scheme).
    Token,
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let roles = [Self::Read, Self::Operate, Self::Admin];
        roles
            .into_iter()
            .find(|role| role.to_string() == text)
            .ok_or(UnknownRole)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        })
    }
}

impl Grant {
    /// Everything.
    pub const ALL: Self = Self::Everywhere(Role::Admin);
}

impl FromStr for Grant {
    type Err = UnknownGrant;

    fn from_str(text: &str) -> Result<Self, UnknownGrant> {
        if !text.contains(':') {
            return text.parse().map(Self::Everywhere).map_err(|_| UnknownGrant);
        }
        let mut roles = BTreeMap::new();
        for part in text.split(',') {
            let (name, role) = part.split_once(':').ok_or(UnknownGrant)?;
            let role = role.parse().map_err(|_| UnknownGrant)?;
            let is_name = name.is_empty() || is_valid_name(name.as_bytes());
            if !is_name || roles.insert(Box::from(name), role).is_some() {
                return Err(UnknownGrant);
            }
        }
        Ok(Self::In(roles))
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles = match self {
            Self::Everywhere(role) => return role.fmt(f),
            Self::In(roles) => roles,
        };
        let parts: Vec<_> = roles
            .iter()
            .map(|(name, role)| format!("{name}:{role}"))
            .collect();
        f.write_str(&parts.join(","))
    }
}

impl Identity {
    /// For the socket in the data directory: a user who may connect is an operator.
    pub(crate) fn owner(user: &str) -> Self {
        Self {
            name: format!("{user} (operator.sock)").into(),
            grant: Grant::ALL,
        }
    }

    /// For a daemon without logins.
    pub(crate) fn anyone() -> Self {
        Self {
            name: "-".into(),
            grant: Grant::ALL,
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("kind", &self.kind)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// From the login form.
    pub(crate) fn of_person(name: String, password: String) -> Self {
        Self {
            kind: Kind::User,
            name,
            secret: password,
        }
    }

    /// Reads `Authorization`.
    ///
    /// # Errors
    ///
    /// The header is missing, or has an unknown scheme.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let missing = || {
            Problem::unauthorized(
                LOGIN_REQUIRED,
                "a login is required: a token, or a name and a password",
            )
        };
        let value = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .ok_or_else(missing)?;
        let (scheme, rest) = value.split_once(' ').ok_or_else(missing)?;
        let (kind, pair, separator) = match scheme.to_ascii_lowercase().as_str() {
            "bearer" => (Kind::Token, rest.trim().to_owned(), '.'),
            "basic" => {
                let bytes = STANDARD.decode(rest.trim()).map_err(|_| missing())?;
                (
                    Kind::User,
                    String::from_utf8(bytes).map_err(|_| missing())?,
                    ':',
                )
            }
            _ => return Err(missing()),
        };
        let (name, secret) = pair.split_once(separator).ok_or_else(missing)?;
        Ok(Self {
            kind,
            name: name.to_owned(),
            secret: secret.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Option<(Kind, String, String)> {
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
        let Credentials { kind, name, secret } = Credentials::of(&headers).ok()?;
        Some((kind, name, secret))
    }

    #[test]
    fn a_grant_is_a_role_or_one_in_each_namespace() {
        for text in [
            "read",
            "admin",
            "shop:read",
            "a.b:admin,shop:read",
            ":operate,shop:read",
        ] {
            assert_eq!(text.parse::<Grant>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "root",
            "read,admin",
            "shop:",
            "shop:root",
            "shop:read,",
            "shop:read,shop:admin",
            "a/b:read",
            "shop:read,admin",
        ] {
            assert_eq!(text.parse::<Grant>(), Err(UnknownGrant), "{text}");
        }
    }

    #[test]
    fn both_schemes() {
        let some =
            |kind, name: &str, secret: &str| Some((kind, name.to_owned(), secret.to_owned()));
        assert_eq!(read("Basic YWRhOmE6Yg=="), some(Kind::User, "ada", "a:b"));
        assert_eq!(read("bearer ci.s3cret"), some(Kind::Token, "ci", "s3cret"));
        for wrong in [
            "",
            "Basic",
            "Basic !",
            "Basic YWRh",
            "Bearer ci",
            "Digest a:b",
            "Basic /w==",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert!(Credentials::of(&HeaderMap::new()).is_err());
    }
}
