//! `[http]` and `[metrics]`: the sections. `config/windlass.toml` explains each key to
//! the operator.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use windlass_config::{Address, ByteSize, ListenAddress, Period, Secret};

/// The port of Faktory's pages.
const PORT: u16 = 7420;

pub(crate) const MIB: u64 = 1 << 20;

/// Eight hours.
const SESSION_IDLE_MS: u64 = 8 * 60 * 60 * 1_000;

windlass_config::section! {
    /// `[http]`
    pub struct Http {
        /// Addresses; empty for none.
        pub listen: Vec<ListenAddress> = vec![ListenAddress::Tcp { host: "localhost".to_owned(), port: PORT }],
        /// Names of this machine, besides `localhost`, that browsers and proxies may use.
        pub hosts: Vec<String>,
        /// The path of the pages behind a proxy: `/` and names; empty for the root. `X-Script-Name` of a
        /// request takes precedence.
        pub path_prefix: String,
        /// Proxies whose `X-Forwarded-For` is trusted.
        pub trusted_proxies: Vec<IpAddr>,
        /// The longest body of a request, and so the largest job that can be pushed here.
        pub body_bytes_max: ByteSize = ByteSize(MIB),
        /// Connections.
        pub connections_max: usize = 256,
        /// A file with logins; empty for no logins, so that every client that can connect may do
        /// everything.
        #[serde(deserialize_with = "windlass_config::credential")]
        pub logins: PathBuf,
        /// A password for every request, with any user name, if there is no file. It cannot be configured:
        /// only a program that stands in for Faktory sets it.
        #[serde(skip)]
        pub password: Secret,
        /// How long a person who has logged in on a page may be idle before logging in again.
        pub session_idle: Period = Period::from_ms(SESSION_IDLE_MS),
        /// A file for the audit log; empty for the daemon's log.
        pub audit: PathBuf,
    }
}

windlass_config::section! {
    /// `[metrics]`
    pub struct Metrics {
        /// Queues with separate series.
        pub queues_max: usize = 200,
    }
}

/// `[http]` and `[metrics]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Configured {
    /// `[http]`
    pub http: Http,
    /// `[metrics]`
    pub metrics: Metrics,
}

impl Http {
    /// Returns true if only this machine can connect to an address. A name that cannot be resolved now cannot
    /// be bound either.
    pub fn is_local(listen: &ListenAddress) -> bool {
        listen
            .resolve()
            .unwrap_or_default()
            .iter()
            .all(|address| match address {
                Address::Tcp(address) => address.ip().to_canonical().is_loopback(),
                Address::Unix(_) => true,
            })
    }

    /// The file with logins, if there is one.
    pub(crate) fn logins_file(&self) -> Option<&Path> {
        (!self.logins.as_os_str().is_empty()).then_some(&self.logins)
    }

    /// Returns true if requests need a login.
    pub fn has_login(&self) -> bool {
        self.logins_file().is_some() || !self.password.is_empty()
    }
}
