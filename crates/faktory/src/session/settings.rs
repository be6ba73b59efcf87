//! What all connections of FWP share: the section of the configuration, and the facts of this daemon.

use std::sync::Arc;

use windlass_bridge::Bridge;
use windlass_config::{Password, Secret};
use windlass_engine::Timestamp;

use super::counts::Shared;
use crate::config::Faktory;

/// The version of Faktory that the daemon reports; clients check it.
pub const FAKTORY_VERSION: &str = "1.10.0";

/// What all connections of a listener share.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `[faktory]`, with the password that its file contains.
    pub section: Faktory,
    /// Resident memory of the process, in megabytes.
    pub memory_mb: fn() -> u64,
    /// The wall clock in nanoseconds since the epoch, for times that are more exact than the engine's milliseconds; 0
    /// for unknown.
    pub clock_ns: fn() -> u64,
    /// The counters of all connections.
    pub shared: Arc<Shared>,
    /// All protocols, for jobs that cross.
    pub bridge: Arc<Bridge>,
}

/// A password that a client may have, and the namespace to which it leads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Login<'a> {
    pub(super) password: &'a str,
    /// `None` = the one without a name.
    pub(super) namespace: Option<&'a str>,
}

impl Settings {
    /// The settings under this section, for a server that starts at this time.
    pub fn new(section: Faktory, started_at: Timestamp) -> Self {
        Self {
            section,
            memory_mb: || 0,
            clock_ns: || 0,
            shared: Arc::new(Shared::new(started_at)),
            bridge: Arc::default(),
        }
    }
}

impl Settings {
    /// The passwords that are right at an address. At that of a namespace it is the namespace's own, so that no other
    /// fleet's gets in; that of all clients, if it has none.
    pub(super) fn logins<'a>(&'a self, at: Option<&'a str>) -> Vec<Login<'a>> {
        let section = &self.section;
        let login = |password: &'a Secret, namespace| Login {
            password: password.expose(),
            namespace,
        };
        let own = |(name, password): (&'a String, &'a Password)| match password {
            Password::Plain(secret) => Some(login(secret, Some(name.as_str()))),
            // The settings of connections have the contents of files.
            Password::InFile(_) => None,
        };
        let of_all = login(&section.password, at);
        let mut named = section.passwords.iter().filter_map(own);
        let mut logins: Vec<Login<'a>> = match at {
            Some(at) => vec![named.find(|it| it.namespace == Some(at)).unwrap_or(of_all)],
            None => std::iter::once(of_all).chain(named).collect(),
        };
        logins.retain(|login| !login.password.is_empty());
        logins
    }

    /// Whether clients need a password at an address, of this namespace if it has one.
    pub(crate) fn asks(&self, at: Option<&str>) -> bool {
        !self.logins(at).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_lead_to_namespaces_and_an_address_takes_its_own_only() {
        let settings = |password: &str, named: &[&str]| {
            let named = named.iter().map(|name| {
                (
                    (*name).to_owned(),
                    Password::Plain(format!("of {name}").into()),
                )
            });
            let section = Faktory {
                password: password.into(),
                passwords: named.collect(),
                ..Faktory::default()
            };
            Settings::new(section, Timestamp(0))
        };
        type Case<'a> = (&'a str, &'a [&'a str], Option<&'a str>, &'a [&'a str]);
        let table: [Case<'_>; 8] = [
            ("", &[], None, &[]),
            ("", &[], Some("a"), &[]),
            ("p", &[], None, &["p -"]),
            ("p", &[], Some("a"), &["p a"]),
            ("p", &["a", "b"], None, &["p -", "of a a", "of b b"]),
            ("", &["a", "b"], None, &["of a a", "of b b"]),
            ("p", &["a", "b"], Some("a"), &["of a a"]),
            ("", &["b"], Some("a"), &[]),
        ];
        for (password, named, at, expected) in table {
            let settings = settings(password, named);
            let found: Vec<_> = settings
                .logins(at)
                .into_iter()
                .map(|it| format!("{} {}", it.password, it.namespace.unwrap_or("-")))
                .collect();
            assert_eq!(found, expected, "{password:?} {named:?} {at:?}");
            assert_eq!(settings.asks(at), !expected.is_empty());
        }
    }
}
