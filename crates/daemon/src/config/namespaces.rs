//! `[namespaces.NAME]`: a namespace that listeners and logins can name, and what its clients may use together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use windlass_config::{ByteSize, Error, Period, Tls, senseless};
use windlass_engine::{NamespaceLimits, PushRate, is_valid_name};
use windlass_net::tls::CertificateNames;
use windlass_session::protocol::NamedNamespace;

use super::sections::Config;

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Namespace {
    /// What its clients may use together.
    pub limits: Limits,
    /// Names of the certificates of its TLS clients: a common name or a DNS name.
    pub certificates: Vec<String>,
}

/// Limits of a namespace; `None` = no more than the daemon's own limits allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Maximum number of jobs in all states together.
    pub jobs: Option<u64>,
    /// Maximum accounted bytes of these jobs.
    pub jobs_bytes: Option<ByteSize>,
    /// Maximum number of queues.
    pub queues: Option<u32>,
    /// Maximum number of connections, of all protocols together.
    pub connections: Option<u32>,
    /// Maximum rate of pushes.
    pub pushes: Option<Pushes>,
}

/// A rate of pushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pushes {
    /// Pushes in each period.
    pub jobs: u32,
    /// The period.
    pub per: Period,
}

impl Limits {
    /// The limits in the engine's units.
    pub(crate) fn for_engine(self) -> NamespaceLimits {
        NamespaceLimits {
            jobs_max: self.jobs,
            job_bytes_max: self.jobs_bytes.map(|bytes| bytes.0),
            queues_max: self.queues,
            clients_max: self.connections,
            pushes: self.pushes.map(|Pushes { jobs, per }| PushRate {
                jobs,
                per_ms: per.as_ms(),
            }),
        }
    }

    /// The name of a limit that lets nothing pass, if there is one.
    fn zero(self) -> Option<&'static str> {
        let zeros = [
            ("jobs", self.jobs == Some(0)),
            ("jobs_bytes", self.jobs_bytes == Some(ByteSize(0))),
            ("queues", self.queues == Some(0)),
            ("connections", self.connections == Some(0)),
            ("pushes.jobs", self.pushes.is_some_and(|it| it.jobs == 0)),
            (
                "pushes.per",
                self.pushes.is_some_and(|it| it.per.as_ms() == 0),
            ),
        ];
        let zero = zeros.into_iter().find(|(_, is_zero)| *is_zero);
        zero.map(|(key, _)| key)
    }
}

impl Config {
    /// Checks the sections, and that each namespace that a listener or a login names has one: after a slip of the pen
    /// clients would share an empty namespace that nobody looks at.
    pub(super) fn check_namespaces(&self) -> Result<(), Error> {
        for (name, Namespace { limits, .. }) in &self.namespaces {
            let key = format!("namespaces.{}", name.escape_debug());
            if !is_valid_name(name.as_bytes()) {
                return senseless(
                    key,
                    "a name is 1 to 64 of the characters A-Z, a-z, 0-9, `-`, `_` and `.`, and begins with a letter or a digit",
                );
            }
            if let Some(zero) = limits.zero() {
                return senseless(
                    format!("{key}.limits.{zero}"),
                    "must be more than 0; without the key there is no limit",
                );
            }
        }
        self.check_certificates()?;
        let listeners = self.listeners().filter_map(|it| {
            Some(NamedNamespace {
                key: it.key,
                name: it.namespace?.to_owned(),
            })
        });
        let logins = self.protocols.iter().flat_map(|it| it.namespaces());
        let mut named = listeners.chain(logins);
        match named.find(|it| !self.namespaces.contains_key(&it.name)) {
            Some(NamedNamespace { key, name }) => {
                let name = name.escape_debug();
                senseless(
                    key,
                    format!(
                        "no namespace {name}: add a section [namespaces.{name}], or correct the name"
                    ),
                )
            }
            None => Ok(()),
        }
    }
}

impl Config {
    /// Checks that the certificates of namespaces are asked for, and that each tells one namespace.
    fn check_certificates(&self) -> Result<(), Error> {
        let mut known = BTreeMap::new();
        for (name, namespace) in &self.namespaces {
            let key = || format!("namespaces.{}.certificates", name.escape_debug());
            for certificate in &namespace.certificates {
                if let Some(other) = known.insert(certificate, name) {
                    let certificate = certificate.escape_debug();
                    let why = format!("{certificate} is also of the namespace {other}");
                    return senseless(key(), why);
                }
            }
            let tls = || self.protocols.iter().filter_map(|it| it.tls());
            if !namespace.certificates.is_empty() && !tls().any(Tls::asks_for_certificates) {
                return senseless(
                    key(),
                    "no client shows a certificate: set client_ca in the TLS section of a protocol",
                );
            }
        }
        Ok(())
    }

    /// The namespaces that certificates tell.
    pub fn certificate_names(&self) -> CertificateNames {
        let of = |(name, namespace): (&String, &Namespace)| {
            let certificates = namespace.certificates.clone().into_iter();
            let name: Box<str> = name.as_str().into();
            certificates.map(move |certificate| (certificate, name.clone()))
        };
        self.namespaces.iter().flat_map(of).collect()
    }
}

/// Namespaces by name.
pub type Namespaces = BTreeMap<String, Namespace>;

#[cfg(test)]
mod tests {
    use super::super::fixture::config;
    use super::*;

    #[test]
    fn limits_are_converted_to_the_engines_units() {
        let text = r#"[namespaces.shop]
            limits = { jobs = 7, jobs_bytes = "2KiB", queues = 3, connections = 4, pushes = { jobs = 5, per = "1s" } }
            [namespaces.staging]"#;
        let config = config(text);
        config.check_namespaces().unwrap();
        let limits = |name: &str| config.namespaces.get(name).unwrap().limits.for_engine();
        let expected = NamespaceLimits {
            jobs_max: Some(7),
            job_bytes_max: Some(2_048),
            queues_max: Some(3),
            clients_max: Some(4),
            pushes: Some(PushRate {
                jobs: 5,
                per_ms: 1_000,
            }),
        };
        assert_eq!(limits("shop"), expected);
        assert_eq!(limits("staging"), NamespaceLimits::default());
    }

    #[test]
    fn mistakes_are_named_with_their_keys() {
        let listen =
            |key: &str| format!("{key} = [{{ address = \"127.0.0.1:1\", namespace = \"shop\" }}]");
        let unknown = "no namespace shop: add a section [namespaces.shop]";
        let table = [
            ("[namespaces.\"a b\"]".to_owned(), "namespaces.a b: a name is"),
            (
                format!("[namespaces.{}]", "n".repeat(65)),
                "a name is 1 to 64",
            ),
            (
                "[namespaces.a]\nlimits.connections = 0".to_owned(),
                "namespaces.a.limits.connections: must be more than 0",
            ),
            (
                "[namespaces.a]\nlimits.pushes = { jobs = 1, per = 0 }".to_owned(),
                "namespaces.a.limits.pushes.per: must be more than 0",
            ),
            (listen("gearman.listen"), unknown),
            (listen("faktory.listen"), "faktory.listen: no namespace"),
            (listen("spiderq.listen"), unknown),
            (
                "spiderq.more = [{ queue = \"q\", listen = [{ address = \"127.0.0.1:1\", namespace = \"b\" }] }]"
                    .to_owned(),
                "spiderq.more.1.listen: no namespace b",
            ),
            (listen("eventmq.listen"), unknown),
            (listen("eventmq.admin_listen"), unknown),
            (listen("eventmq.publish_listen"), unknown),
            (
                listen("eventmq.subscribe_listen"),
                "eventmq.subscribe_listen: no namespace shop",
            ),
        ];
        for (text, expected) in table {
            let error = config(&text).check_namespaces().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
            let declared = format!("{text}\n[namespaces.shop]\n[namespaces.b]\n");
            if error.contains("no namespace") {
                config(&declared).check_namespaces().unwrap();
            }
        }
    }
}
