//! Where the database is, and how to reach it: settings, checked. The password comes from a file and is never shown.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode as LinkSslMode, TargetSessionAttrs};

use crate::tls;

/// The longest password that is read from a file.
const PASSWORD_BYTES_MAX: u64 = 64 << 10;
/// How long sent bytes may stay unacknowledged by the database's machine before a connection counts as dead.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Silence before the system asks whether the other machine is there.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// The settings of a store in a database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// `postgres://USER@HOST:PORT/DATABASE`, or `key=value` pairs as libpq takes them; without a password.
    pub url: String,
    /// The file with the password; empty for none.
    pub password_file: PathBuf,
    /// Whether connections are encrypted.
    pub ssl_mode: SslMode,
    /// The certificates (PEM) of the authorities that may have signed the server's; empty for the system's.
    pub ca_file: PathBuf,
    /// The schema that holds the tables.
    pub schema: String,
    /// How long the store belongs to a daemon that does not renew its lease.
    pub lease: Duration,
    /// How long a connection may take to open.
    pub connect_timeout: Duration,
    /// Where other daemons reach this one while it has the store; empty if they do not.
    pub link: String,
    /// The name of the cluster that this daemon is part of, to which the store belongs from then on; empty if it is alone.
    pub cluster: String,
    /// The version of the links to other daemons that it speaks.
    pub speaks: u8,
}

/// Whether connections are encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SslMode {
    /// They are, and the server's certificate is verified, unless the server is this machine.
    Auto,
    /// They are not.
    Disable,
    /// They are, and the server's certificate and name are verified.
    VerifyFull,
}

/// Why an address cannot be used. The text has no secrets.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text}")]
pub struct AddressError {
    /// The key of `[postgres]` that is wrong.
    pub key: &'static str,
    text: String,
}

impl AddressError {
    const fn of(key: &'static str, text: String) -> Self {
        Self { key, text }
    }
}

/// An address that was checked.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) config: Config,
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
    pub(crate) schema: String,
    pub(crate) lease: Duration,
    /// For messages: without the password.
    pub(crate) place: String,
    pub(crate) link: String,
    pub(crate) cluster: String,
    pub(crate) speaks: u8,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl Address {
    /// Checks the settings and reads the files. Connects to nothing.
    pub(crate) fn target(&self) -> Result<Target, AddressError> {
        let mut config: Config = self.url.parse().map_err(|error| url_error(&error))?;
        if config.get_password().is_some() {
            let what = "contains a password: put it into a file, and name that with postgres.password_file";
            return Err(AddressError::of("url", what.to_owned()));
        }
        if config.get_hosts().is_empty() {
            return Err(AddressError::of("url", "names no host".to_owned()));
        }
        self.check_schema()?;
        self.check_lease()?;
        let place = self.place(&config);
        if let Some(password) = self.password()? {
            config.password(password);
        }
        let tls = if self.wants_tls(&config) {
            Some(
                tls::client_config(&self.ca_file)
                    .map_err(|why| AddressError::of("ca_file", why))?,
            )
        } else {
            None
        };
        config
            .ssl_mode(if tls.is_some() {
                LinkSslMode::Require
            } else {
                LinkSslMode::Disable
            })
            .application_name("windlass")
            .connect_timeout(self.connect_timeout)
            .tcp_user_timeout(SILENCE_MAX)
            .keepalives_idle(KEEPALIVE)
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        let (schema, link, cluster) =
            (self.schema.clone(), self.link.clone(), self.cluster.clone());
        Ok(Target {
            config,
            tls,
            schema,
            lease: self.lease,
            place,
            link,
            cluster,
            speaks: self.speaks,
        })
    }

    fn check_schema(&self) -> Result<(), AddressError> {
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let (first, len) = (self.schema.bytes().next(), self.schema.len());
        let fits = first.is_some_and(|byte| !byte.is_ascii_digit())
            && len <= 48
            && !self.schema.starts_with("pg_");
        if fits && self.schema.bytes().all(is_plain) {
            return Ok(());
        }
        let what = "must be 1 to 48 of a-z, 0-9 and _, without a digit at the start, and not begin with pg_";
        Err(AddressError::of("schema", what.to_owned()))
    }

    fn check_lease(&self) -> Result<(), AddressError> {
        if (Duration::from_millis(400)..=Duration::from_secs(600)).contains(&self.lease) {
            return Ok(());
        }
        Err(AddressError::of(
            "lease",
            "must be from 400ms to 10m".to_owned(),
        ))
    }

    fn password(&self) -> Result<Option<String>, AddressError> {
        let file = &self.password_file;
        if file.as_os_str().is_empty() {
            return Ok(None);
        }
        let failed = |why: &dyn fmt::Display| {
            AddressError::of("password_file", format!("{}: {why}", file.display()))
        };
        if std::fs::metadata(file).map_err(|why| failed(&why))?.len() > PASSWORD_BYTES_MAX {
            return Err(failed(&"is too large for a password"));
        }
        let text = std::fs::read_to_string(file).map_err(|why| failed(&why))?;
        let password = text.lines().next().unwrap_or_default();
        if password.is_empty() {
            Err(failed(&"is empty"))
        } else {
            Ok(Some(password.to_owned()))
        }
    }

    fn wants_tls(&self, config: &Config) -> bool {
        match self.ssl_mode {
            SslMode::Disable => false,
            SslMode::VerifyFull => true,
            SslMode::Auto => !config.get_hosts().iter().all(is_this_machine),
        }
    }

    /// Hosts with their ports, database and schema.
    fn place(&self, config: &Config) -> String {
        let ports = config.get_ports();
        let port = |at: usize| {
            ports
                .get(at)
                .or_else(|| ports.first())
                .map(|port| format!(":{port}"))
                .unwrap_or_default()
        };
        let hosts = config.get_hosts().iter().enumerate();
        let hosts: Vec<String> = hosts
            .map(|(at, host)| host_name(host) + &port(at))
            .collect();
        let name = config
            .get_dbname()
            .or(config.get_user())
            .unwrap_or_default();
        format!(
            "postgres://{}/{name} (schema {})",
            hosts.join(","),
            self.schema
        )
    }
}

/// The library's error has the reason in its source, which quotes no values of passwords.
fn url_error(error: &tokio_postgres::Error) -> AddressError {
    use std::error::Error as _;
    let why = error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string);
    AddressError::of("url", format!("is no address of a database: {why}"))
}

fn host_name(host: &Host) -> String {
    match host {
        Host::Tcp(name) if name.contains(':') => format!("[{name}]"),
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    }
}

fn is_this_machine(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) if name == "localhost" => true,
        Host::Tcp(name) => name
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> Address {
        Address {
            url: url.to_owned(),
            password_file: PathBuf::new(),
            ssl_mode: SslMode::Auto,
            ca_file: PathBuf::new(),
            schema: "windlass".to_owned(),
            lease: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(5),
            link: String::new(),
            cluster: String::new(),
            speaks: 0,
        }
    }

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let password_file = dir.path().join("password");
        std::fs::write(&password_file, "s3cret\n").unwrap();
        let target = Address {
            password_file,
            ..address("postgres://jobs@localhost:5433/queue")
        }
        .target()
        .unwrap();
        assert_eq!(target.config.get_password(), Some(&b"s3cret"[..]));
        assert_eq!(
            target.place,
            "postgres://localhost:5433/queue (schema windlass)"
        );
        assert!(!format!("{target:?}").contains("s3cret"));
    }

    #[test]
    fn several_hosts_are_tried_until_one_accepts_writes() {
        let target =
            address("postgres://u@127.0.0.1:5433,127.0.0.1:5434/d?target_session_attrs=any")
                .target()
                .unwrap();
        assert_eq!(
            target.place,
            "postgres://127.0.0.1:5433,127.0.0.1:5434/d (schema windlass)"
        );
        assert_eq!(
            target.config.get_target_session_attrs(),
            TargetSessionAttrs::ReadWrite
        );
        let target = address("host=/run/one,/run/two port=5433 dbname=d")
            .target()
            .unwrap();
        assert_eq!(
            target.place,
            "postgres:///run/one:5433,/run/two:5433/d (schema windlass)"
        );
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_its_reason() {
        let said = |address: Address| address.target().unwrap_err().to_string();
        assert!(said(address("postgres://u:s3cret@h/d")).contains("password_file"));
        assert!(!said(address("postgres://u:s3cret@h/d")).contains("s3cret"));
        assert!(said(address("postgres:///d")).contains("names no host"));
        assert!(said(address("postgres://h/d?colour=red")).contains("no address"));
        for schema in ["", "1a", "A", "a b", "a\"b", "pg_x"] {
            assert!(
                said(Address {
                    schema: schema.to_owned(),
                    ..address("postgres://h/d")
                })
                .contains("a-z"),
                "{schema}"
            );
        }
        assert!(
            said(Address {
                lease: Duration::from_millis(10),
                ..address("postgres://h/d")
            })
            .contains("400ms")
        );
        let nowhere = Address {
            password_file: "/nowhere/at/all".into(),
            ..address("postgres://h/d")
        };
        assert!(said(nowhere).starts_with("/nowhere/at/all: "));
    }

    #[test]
    fn this_machine_is_reached_without_tls_unless_it_is_wanted() {
        let has_tls = |url: &str, ssl_mode: SslMode| {
            let address = Address {
                ssl_mode,
                ..address(url)
            };
            address.wants_tls(&url.parse().unwrap())
        };
        for url in [
            "postgres://127.0.0.1/d",
            "postgres://localhost/d",
            "host=/run/postgresql user=u",
            "postgres://[::1]/d",
        ] {
            assert!(!has_tls(url, SslMode::Auto), "{url}");
            assert!(has_tls(url, SslMode::VerifyFull), "{url}");
        }
        assert!(has_tls("postgres://127.0.0.1,db.example/d", SslMode::Auto));
        assert!(!has_tls("postgres://db.example/d", SslMode::Disable));
    }
}
