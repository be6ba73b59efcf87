//! The address of a broker: a scheme, with or without TLS, a host, a port, and for Faktory a password.

use std::fmt;
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::str::FromStr;

use windlass_config::Failure;
use windlass_operate::tls::{Identity, Tls};
use windlass_zmtp::curve::CurvePublicKey;

use super::guard::Login;

/// The protocol in front of `://`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Gearman,
    Faktory,
    Eventmq,
}

impl Scheme {
    const ALL: [Self; 3] = [Self::Gearman, Self::Faktory, Self::Eventmq];

    const fn name(self) -> &'static str {
        match self {
            Self::Gearman => "gearman",
            Self::Faktory => "faktory",
            Self::Eventmq => "eventmq",
        }
    }

    /// Where the daemon listens by default.
    const fn port(self) -> u16 {
        match self {
            Self::Gearman => 4730,
            Self::Faktory => 7419,
            Self::Eventmq => 47291,
        }
    }
}

/// What one side demands, as the operator gives it.
#[derive(Clone, Copy, Default)]
pub(super) struct Files<'a> {
    /// A password.
    pub(super) password: Option<&'a Path>,
    /// The broker's key for CURVE, and a secret key of one's own.
    pub(super) curve: Option<CurvePublicKey>,
    pub(super) curve_secret: Option<&'a Path>,
    /// The authorities that may have signed the peer's certificate.
    pub(super) ca: Option<&'a Path>,
    /// A certificate of one's own, if the peer demands one.
    pub(super) certificate: Option<&'a Path>,
    /// Its key.
    pub(super) key: Option<&'a Path>,
}

/// An address. Its `Display` text omits the password.
#[derive(Clone)]
pub(crate) struct Place {
    pub(super) scheme: Scheme,
    pub(super) host: String,
    pub(super) port: u16,
    /// The user of an EventMQ address; Faktory has none.
    user: Option<String>,
    pub(super) password: Option<String>,
    /// What an EventMQ address demands: see [`Place::with_login`].
    pub(super) login: Option<Login>,
    /// The scheme ends in `+tls`.
    is_tls: bool,
    /// How to speak TLS, if the scheme requires it: see [`Place::with_tls`].
    pub(super) tls: Option<Tls>,
}

impl Place {
    /// The daemon on this machine, with its defaults.
    pub(super) fn local(scheme: Scheme) -> Self {
        let host = "127.0.0.1".to_owned();
        let port = scheme.port();
        Self {
            scheme,
            host,
            port,
            user: None,
            password: None,
            login: None,
            is_tls: false,
            tls: None,
        }
    }

    /// The same address, with all of this.
    pub(super) fn with(self, files: Files<'_>) -> Result<Self, Failure> {
        self.with_password(files.password)?
            .with_tls(files)?
            .with_login(files.curve, files.curve_secret)
    }

    /// The same address with the password in this file, whose line end does not count.
    fn with_password(mut self, file: Option<&Path>) -> Result<Self, Failure> {
        let Some(file) = file else { return Ok(self) };
        let source = |reason: String| Failure::unusable(file, reason);
        match self.scheme {
            Scheme::Faktory => {}
            Scheme::Eventmq if self.user.is_some() => {}
            Scheme::Eventmq => {
                return Err(source(format!(
                    "{self} has no user: eventmq://USER@HOST:PORT expected"
                )));
            }
            Scheme::Gearman => return Err(source("gearman has no password".to_owned())),
        }
        let text = fs::read_to_string(file)
            .map_err(|why| source(format!("cannot read the password: {why}")))?;
        self.password = Some(text.trim_end_matches(['\r', '\n']).to_owned());
        Ok(self)
    }

    /// The same address, ready to speak TLS if it asks for it, with the authorities of these files or those of the system.
    pub(super) fn with_tls(mut self, files: Files<'_>) -> Result<Self, Failure> {
        let Files {
            ca,
            certificate,
            key,
            ..
        } = files;
        match ca.or(certificate) {
            Some(file) if !self.is_tls => {
                let expected = self.scheme.name();
                return Err(Failure::unusable(
                    file,
                    format_args!("{self} is without TLS: {expected}+tls:// expected"),
                ));
            }
            _ => {}
        }
        let identity = certificate
            .zip(key)
            .map(|(certificate, key)| Identity { certificate, key });
        self.tls = self.is_tls.then(|| Tls::new(ca, identity)).transpose()?;
        Ok(self)
    }

    /// The same address, ready to log in: by its user and password, or by CURVE with the broker's key and, if it knows its
    /// clients by theirs, with the secret key in a file.
    fn with_login(
        mut self,
        curve: Option<CurvePublicKey>,
        own: Option<&Path>,
    ) -> Result<Self, Failure> {
        let usage = |reason: String| Failure::unusable(Path::new("windlass bridge"), reason);
        self.login = match (self.scheme, curve, &self.user, &self.password) {
            (Scheme::Eventmq, Some(broker), None, _) => Some(Login::curve(broker, own)?),
            (Scheme::Eventmq, Some(_), Some(_), _) => {
                return Err(usage(format!("{self}: a user or CURVE, one or the other")));
            }
            (_, Some(_), ..) => return Err(usage(format!("{self}: only EventMQ has CURVE"))),
            (Scheme::Eventmq, None, Some(user), Some(password)) => Some(Login::Plain {
                user: user.clone(),
                password: password.clone().into(),
            }),
            (Scheme::Eventmq, None, Some(_), None) => {
                return Err(usage(format!("{self}: a password expected")));
            }
            (_, None, ..) => None,
        };
        Ok(self)
    }

    /// Fails if jobs could not go from here to there: another protocol, or the same address.
    pub(super) fn check_apart(&self, to: &Self) -> Result<(), Failure> {
        let usage = |reason: String| Failure::unusable(Path::new("windlass bridge"), reason);
        if self.scheme != to.scheme {
            return Err(usage(format!(
                "--from {self} and --to {to}: one protocol expected"
            )));
        }
        // A name that cannot be resolved now may be later.
        let resolve = |place: &Self| -> Vec<SocketAddr> {
            let found = (place.host.as_str(), place.port).to_socket_addrs();
            found.map(Iterator::collect).unwrap_or_default()
        };
        let there = resolve(to);
        match resolve(self).iter().any(|address| there.contains(address)) {
            true => Err(usage(format!(
                "--from {self} and --to {to} are the same address"
            ))),
            false => Ok(()),
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || {
            "expected gearman://HOST:PORT, faktory://[:PASSWORD@]HOST:PORT or eventmq://[USER:PASSWORD@]HOST:PORT, \
             with +tls:// for TLS"
                .to_owned()
        };
        let (name, rest) = text.split_once("://").ok_or_else(form)?;
        let (name, is_tls) = name
            .strip_suffix("+tls")
            .map_or((name, false), |name| (name, true));
        let scheme = Scheme::ALL
            .into_iter()
            .find(|scheme| scheme.name() == name)
            .ok_or_else(form)?;
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, rest),
        };
        let (user, password) = match (scheme, login, login.and_then(|login| login.split_once(':')))
        {
            (_, None, _) => (None, None),
            (Scheme::Gearman, ..) => return Err(format!("{name} has no password")),
            // Faktory has no users: the part in front of the colon does not count.
            (Scheme::Faktory, _, Some((_, password))) => (None, Some(password)),
            (Scheme::Faktory, Some(password), None) => (None, Some(password)),
            (Scheme::Eventmq, _, Some((user, password))) if !user.is_empty() => {
                (Some(user), Some(password))
            }
            (Scheme::Eventmq, Some(user), None) if !user.is_empty() => (Some(user), None),
            (Scheme::Eventmq, ..) => return Err(form()),
        };
        let [user, password] = [user, password].map(|text| text.map(str::to_owned));
        let place = place.strip_suffix('/').unwrap_or(place);
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().map_err(|_| form())?),
            _ => (place, scheme.port()),
        };
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        if host.is_empty() || port == 0 {
            return Err(form());
        }
        Ok(Self {
            scheme,
            host: host.to_owned(),
            port,
            user,
            password,
            login: None,
            is_tls,
            tls: None,
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scheme, host, port, ..
        } = self;
        let (name, tls) = (scheme.name(), if self.is_tls { "+tls" } else { "" });
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.clone()
        };
        write!(f, "{name}{tls}://{host}:{port}")
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let table = [
            ("gearman://old:4730", "gearman://old:4730", None),
            ("gearman://old", "gearman://old:4730", None),
            (
                "faktory://:se:cr@et@h:1/",
                "faktory://h:1",
                Some("se:cr@et"),
            ),
            ("faktory://user:pw@h", "faktory://h:7419", Some("pw")),
            ("faktory://[::1]", "faktory://[::1]:7419", None),
            ("eventmq://[::1]:47290", "eventmq://[::1]:47290", None),
            ("faktory+tls://:pw@h", "faktory+tls://h:7419", Some("pw")),
            ("faktory://pw@h", "faktory://h:7419", Some("pw")),
            ("eventmq://user:p:w@h", "eventmq://h:47291", Some("p:w")),
            ("eventmq://user@h", "eventmq://h:47291", None),
        ];
        for (text, shown, password) in table {
            let place: Place = text.parse().unwrap();
            assert_eq!(
                (place.to_string().as_str(), place.password.as_deref()),
                (shown, password),
                "{text}"
            );
            assert!(!format!("{place:?}").contains("se:cr"), "{text}");
        }
        for text in [
            "",
            "old:4730",
            "http://h:1",
            "gearman://",
            "gearman://h:x",
            "gearman://h:0",
            "eventmq://:p@h:1",
        ] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_bridge_joins_two_brokers_of_one_protocol() {
        let place = |text: &str| text.parse::<Place>().unwrap();
        let local = Place::local(Scheme::Gearman);
        assert!(
            place("gearman://127.0.0.1:4731")
                .check_apart(&local)
                .is_ok()
        );
        assert!(
            place("gearman://127.0.0.1:4730")
                .check_apart(&local)
                .is_err()
        );
        assert!(
            place("faktory://127.0.0.1:4731")
                .check_apart(&local)
                .is_err()
        );
    }

    #[test]
    fn passwords_in_files_end_at_the_end_of_the_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        fs::write(&file, "secret \r\n").unwrap();
        let place = Place::local(Scheme::Faktory);
        assert_eq!(
            place
                .clone()
                .with_password(Some(&file))
                .unwrap()
                .password
                .as_deref(),
            Some("secret ")
        );
        assert!(
            place
                .clone()
                .with_password(Some(&dir.path().join("none")))
                .is_err()
        );
        let files = Files {
            ca: Some(&file),
            ..Files::default()
        };
        assert!(
            place
                .with_tls(files)
                .unwrap_err()
                .to_string()
                .contains("faktory+tls:// expected")
        );
        assert!(
            Place::local(Scheme::Gearman)
                .with_password(Some(&file))
                .is_err()
        );
        assert!(
            Place::local(Scheme::Eventmq)
                .with_password(Some(&file))
                .is_err(),
            "without a user"
        );
    }

    #[test]
    fn an_eventmq_address_has_a_user_or_keys() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        fs::write(&file, "secret").unwrap();
        let place = |text: &str| text.parse::<Place>().unwrap();
        let key = CurvePublicKey::from([7; 32]);
        let logged_in = place("eventmq://ada@h")
            .with_password(Some(&file))
            .unwrap()
            .with_login(None, None)
            .unwrap();
        assert!(
            matches!(logged_in.login, Some(Login::Plain { user, password }) if user == "ada" && password.expose() == "secret")
        );
        assert!(
            place("eventmq://h")
                .with_login(None, None)
                .unwrap()
                .login
                .is_none()
        );
        assert!(matches!(
            place("eventmq://h")
                .with_login(Some(key), None)
                .unwrap()
                .login,
            Some(Login::Curve { .. })
        ));
        assert!(
            place("eventmq://ada@h").with_login(None, None).is_err(),
            "without a password"
        );
        assert!(
            place("eventmq://ada:pw@h")
                .with_login(Some(key), None)
                .is_err(),
            "both"
        );
        assert!(
            place("gearman://h").with_login(Some(key), None).is_err(),
            "another protocol"
        );
    }
}
