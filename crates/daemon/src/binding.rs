//! Binds all addresses before the journal is read, so that early connections wait instead of being
//! refused, and the daemon exits without side effects if an address is in use.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use windlass_config::{Failure, ListenAddress, Unbound};
use windlass_session::Listen;

use crate::config::{Config, Server};
use crate::operator_port::{BoundPort, Entrance, OperatorPort};
use crate::protocols;
use crate::retry::{self, Retry};
use crate::warnings;
use windlass_net::{Acceptor, Bound, listen};
use windlass_net::{Inherited, Served};

/// How often a default address that is in use is retried.
const TRY_LATE_EVERY: Duration = Duration::from_secs(1);

/// All bound sockets, which accept no connections yet.
pub(crate) struct Sockets {
    pub(crate) served: Vec<Served>,
    /// The listeners of the endpoints, with the terms of their addresses.
    pub(crate) bound: Vec<(Bound, Served, Listen)>,
    pub(crate) ports: Vec<BoundPort>,
    /// Addresses in use, which the daemon retries while it runs.
    pub(crate) late: Vec<Late>,
}

/// The owner of an address.
#[derive(Clone)]
enum Owner {
    Endpoint(Served, Listen),
    OperatorPort(Arc<dyn OperatorPort>),
}

/// An address of the configuration.
struct Wanted {
    owner: Owner,
    listen: ListenAddress,
    key: String,
    /// Whether the operator has not chosen the address. If such an address is in use, the others
    /// are served.
    is_default: bool,
    bound: Option<Vec<Bound>>,
}

/// A default address that is in use.
pub(crate) struct Late {
    owner: Owner,
    listen: ListenAddress,
}

impl Sockets {
    /// Binds every address, unless the service manager has passed its socket. An address in use is
    /// retried for `server.in_use_timeout`; a default address is retried while the daemon runs, if
    /// any protocol is served at all.
    ///
    /// # Errors
    ///
    /// All addresses that cannot be bound, with their keys.
    pub(crate) async fn bind(config: &Config) -> Result<Self, Failure> {
        let served = protocols::all(config)?;
        let (mut trying, mut inherited) = (Retry::new(config), Inherited::from_env(&config.server));
        let mut wanted: Vec<Wanted> = served
            .iter()
            .flat_map(|it| Wanted::of_endpoint(it, config))
            .collect();
        wanted.extend(
            config
                .ports
                .iter()
                .flat_map(|it| Wanted::of_port(it, config)),
        );
        loop {
            let tried = wanted
                .iter_mut()
                .map(|it| (it.is_default, it.bind(config, &mut inherited)));
            let failed: Vec<_> = tried
                .filter_map(|(is_default, bound)| Some((is_default, bound.err()?)))
                .collect();
            let may_wait = failed
                .iter()
                .all(|(is_default, why)| *is_default && why.is_in_use());
            if failed.is_empty() || may_wait && wanted.iter().any(Wanted::is_served) {
                break;
            }
            let failed: Vec<Unbound> = failed.into_iter().map(|(_, why)| why).collect();
            match failed.first() {
                Some(first) if failed.iter().all(Unbound::is_in_use) && trying.goes_on(first) => {
                    tokio::time::sleep(retry::TRY_EVERY).await;
                }
                _ => return Err(Failure::Listen(failed)),
            }
        }
        inherited.finish();
        let ports = config
            .ports
            .iter()
            .map(|port| BoundPort::new(Arc::clone(port), Vec::new()))
            .collect();
        let mut sockets = Self {
            served,
            bound: Vec::new(),
            ports,
            late: Vec::new(),
        };
        wanted.into_iter().for_each(|it| sockets.add(it));
        Ok(sockets)
    }

    fn add(
        &mut self,
        Wanted {
            owner,
            listen,
            key,
            bound,
            ..
        }: Wanted,
    ) {
        let Some(bound) = bound else {
            tracing::warn!(%listen, key, "default address in use: starting without it and retrying");
            self.late.push(Late { owner, listen });
            return;
        };
        match owner {
            Owner::Endpoint(served, terms) => {
                self.bound.extend(
                    bound
                        .into_iter()
                        .map(|bound| (bound, served.clone(), terms.clone())),
                );
            }
            Owner::OperatorPort(port) => {
                if let Some(to) = self.ports.iter_mut().find(|it| it.name() == port.name()) {
                    to.add(bound);
                }
            }
        }
    }

    /// Binds the ports' sockets in the data directory. On failure only the operator's commands are
    /// unavailable.
    pub(crate) fn bind_private(&mut self, config: &Config) {
        for port in &mut self.ports {
            let path = config.data_dir.join(port.private_socket());
            match listen::bind_private(&path, &config.server) {
                Ok(bound) => port.add(vec![bound]),
                // The path may be too long.
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "cannot listen for operators' commands");
                }
            }
        }
    }
}

impl Wanted {
    fn of_endpoint(served: &Served, config: &Config) -> Vec<Self> {
        let key = |listen: &ListenAddress| {
            let mut listeners = config.listeners();
            let of =
                listeners.find(|it| it.protocol == served.endpoint.name && it.address == listen);
            of.map_or_else(
                || format!("{}.listen", served.endpoint.name),
                |it| it.key.into_owned(),
            )
        };
        let wanted = |terms: &Listen| Self {
            owner: Owner::Endpoint(served.clone(), terms.clone()),
            listen: terms.address.clone(),
            key: key(&terms.address),
            is_default: config.is_default(&key(&terms.address)),
            bound: None,
        };
        served.endpoint.listen.iter().map(wanted).collect()
    }

    fn of_port(port: &Arc<dyn OperatorPort>, config: &Config) -> Vec<Self> {
        let key = format!("{}.listen", port.name());
        let is_default = config.is_default(&key);
        let wanted = |listen: &ListenAddress| {
            let (owner, listen, key) = (
                Owner::OperatorPort(Arc::clone(port)),
                listen.clone(),
                key.clone(),
            );
            Self {
                owner,
                listen,
                key,
                is_default,
                bound: None,
            }
        };
        port.listen().iter().map(wanted).collect()
    }

    /// Whether it serves clients of a protocol.
    const fn is_served(&self) -> bool {
        self.bound.is_some() && matches!(self.owner, Owner::Endpoint(..))
    }

    /// Binds the address unless it is already bound.
    fn bind(&mut self, config: &Config, inherited: &mut Inherited) -> Result<(), Unbound> {
        if self.bound.is_none() {
            let bound = listen::bind(&self.listen, &config.server, inherited);
            self.bound =
                Some(bound.map_err(|error| Unbound::new(&self.listen, self.key.clone(), error))?);
        }
        Ok(())
    }
}

impl Late {
    /// Serves the address as soon as it is free, until the daemon stops.
    pub(crate) async fn serve(self, server: Server, acceptor: Arc<Acceptor>, ports: Vec<Entrance>) {
        let Some(bound) = self.bind(&server, &acceptor.closed).await else {
            return;
        };
        let mut files = Vec::new();
        for bound in bound {
            match &self.owner {
                Owner::Endpoint(served, terms) => {
                    accept(bound, served.clone(), terms.clone(), &acceptor)
                }
                Owner::OperatorPort(port) => {
                    let port = ports.iter().find(|it| it.name() == port.name());
                    files.extend(port.and_then(|port| port.add(bound).ok().flatten()));
                }
            }
        }
        acceptor.closed.cancelled().await;
    }

    /// Returns `None` if the daemon stops first, or if the address can never be bound.
    async fn bind(&self, server: &Server, closed: &CancellationToken) -> Option<Vec<Bound>> {
        loop {
            tokio::select! {
                () = closed.cancelled() => return None,
                () = tokio::time::sleep(TRY_LATE_EVERY) => {}
            }
            match listen::bind(&self.listen, server, &mut Inherited::default()) {
                Ok(bound) => return Some(bound),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => {
                    tracing::error!(listen = %self.listen, %error, "cannot listen on the default address");
                    return None;
                }
            }
        }
    }
}

/// Starts accepting connections at one address, on its terms.
pub(crate) fn accept(listener: Bound, it: Served, terms: Listen, acceptor: &Arc<Acceptor>) {
    let (protocol, address) = (it.endpoint.name, listener.address());
    let address = address.map_or_else(|_| "?".to_owned(), |address| address.to_string());
    let tls = it.tls.is_some() && matches!(listener, Bound::Tcp(_));
    tracing::info!(protocol, %address, tls, "listening");
    if let Some(address) = listener.open_to_all(&it.endpoint) {
        warnings::open_to_all(protocol, &address);
    }
    acceptor.places.keep_for(protocol);
    tokio::spawn(listener.accept(Arc::clone(acceptor), it, terms));
}

#[cfg(test)]
mod tests {
    use windlass_config::Period;

    use super::*;
    use crate::config::fixture;

    /// The bound addresses, if the only one is free from the second attempt on.
    async fn bind_busy(in_use_timeout: Period) -> Result<Vec<String>, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gearman");
        let busy = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let mut config =
            fixture::config(&format!("gearman.listen = [\"unix:{}\"]", path.display()));
        config
            .protocols
            .retain(|protocol| protocol.name() == "gearman");
        config.server.in_use_timeout = in_use_timeout;
        let (sockets, ()) = tokio::join!(Sockets::bind(&config), async { drop(busy) });
        Ok(sockets?
            .bound
            .iter()
            .map(|(bound, ..)| bound.address().unwrap().to_string())
            .collect())
    }

    /// The protocols that are bound immediately and later, if the address of Gearman is in use, and
    /// was or was not chosen by the operator.
    async fn bind_default(
        protocols: &[&str],
        is_chosen: bool,
    ) -> Result<(Vec<&'static str>, usize), Failure> {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let _busy = std::os::unix::net::UnixListener::bind(path("gearman")).unwrap();
        let (busy, free) = (path("gearman"), path("faktory"));
        let mut config = fixture::config(&format!(
            "gearman.listen = [\"unix:{}\"]\nfaktory.listen = [\"unix:{}\"]",
            busy.display(),
            free.display()
        ));
        config
            .protocols
            .retain(|protocol| protocols.contains(&protocol.name()));
        config
            .values
            .insert("gearman.listen".to_owned(), "here".to_owned());
        let default = if is_chosen { "elsewhere" } else { "here" };
        config
            .defaults
            .insert("gearman.listen".to_owned(), default.to_owned());
        let sockets = Sockets::bind(&config).await?;
        Ok((
            sockets
                .bound
                .iter()
                .map(|(_, served, _)| served.endpoint.name)
                .collect(),
            sockets.late.len(),
        ))
    }

    #[tokio::test]
    async fn a_default_address_in_use_keeps_no_other_from_being_served() {
        let both = &["gearman", "faktory"];
        assert_eq!(
            bind_default(both, false).await.unwrap(),
            (vec!["faktory"], 1)
        );
        for (protocols, is_chosen) in [(&both[..], true), (&["gearman"], false)] {
            let failure = bind_default(protocols, is_chosen)
                .await
                .unwrap_err()
                .to_string();
            assert!(failure.contains("gearman.listen"), "{failure}");
        }
    }

    #[tokio::test]
    async fn an_address_in_use_is_tried_again_for_a_while() {
        let failure = bind_busy(Period::from_secs(0))
            .await
            .unwrap_err()
            .to_string();
        assert!(failure.contains("gearman.listen"), "{failure}");
        let bound = bind_busy(Period::from_secs(3_600)).await.unwrap();
        assert!(
            bound.len() == 1 && bound[0].ends_with("/gearman"),
            "{bound:?}"
        );
    }
}
