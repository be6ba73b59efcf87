//! Binding all addresses at the start: before the journal is read, so that connections that come early wait instead of
//! being refused, and a busy address leaves no trace.

use std::io;
use std::sync::Arc;

use windlass_config::ListenAddress;
use windlass_engine::Rights;
use windlass_session::Listen;

use crate::config::Config;
use crate::door::{BoundDoor, Door};
use crate::failure::{Failure, Unbound};
use crate::handed::Handed;
use crate::listen::{self, Bound};
use crate::protocols::{self, Served};
use crate::trying::{self, Trying};

/// Everything that listens, and accepts nothing yet.
pub(crate) struct Sockets {
    pub(crate) served: Vec<Served>,
    /// The listeners of the endpoints, with what clients may do there.
    pub(crate) bound: Vec<(Bound, Served, Rights)>,
    pub(crate) doors: Vec<BoundDoor>,
}

/// The owner of an address.
#[derive(Clone)]
enum Owner {
    Endpoint(Served, Rights),
    Door(Arc<dyn Door>),
}

/// An address of the configuration.
struct Wanted {
    owner: Owner,
    listen: ListenAddress,
    key: String,
    /// Empty for the default address of a door that is in use.
    bound: Option<Vec<Bound>>,
}

impl Sockets {
    /// Binds every address, unless the service manager has handed its socket over. What is in use is tried again for
    /// `server.in_use_timeout`.
    ///
    /// # Errors
    ///
    /// All addresses that cannot be bound, each with its key.
    pub(crate) async fn bind(config: &Config) -> Result<Self, Failure> {
        let served = protocols::all(config)?;
        let (mut trying, mut handed) = (Trying::new(config), Handed::over(&config.server));
        let mut wanted: Vec<Wanted> = served.iter().flat_map(|it| Wanted::of_endpoint(it, config)).collect();
        wanted.extend(config.doors.iter().flat_map(Wanted::of_door));
        loop {
            let failed: Vec<Unbound> = wanted.iter_mut().filter_map(|it| it.bind(config, &mut handed).err()).collect();
            match failed.first() {
                None => break,
                Some(first) if failed.iter().all(Unbound::is_in_use) && trying.goes_on(first) => {
                    tokio::time::sleep(trying::TRY_EVERY).await;
                }
                Some(_) => return Err(Failure::Listen(failed)),
            }
        }
        handed.finish();
        let doors = config.doors.iter().map(|door| BoundDoor::new(Arc::clone(door), Vec::new())).collect();
        let mut sockets = Self { served, bound: Vec::new(), doors };
        wanted.into_iter().for_each(|it| sockets.add(it));
        Ok(sockets)
    }

    fn add(&mut self, Wanted { owner, bound, .. }: Wanted) {
        let bound = bound.unwrap_or_default();
        match owner {
            Owner::Endpoint(served, rights) => {
                self.bound.extend(bound.into_iter().map(|bound| (bound, served.clone(), rights)));
            }
            Owner::Door(door) => {
                if let Some(to) = self.doors.iter_mut().find(|it| it.name() == door.name()) {
                    to.add(bound);
                }
            }
        }
    }

    /// Binds the doors' sockets in the data directory. Without them, only the commands of the operator are missing.
    pub(crate) fn bind_private(&mut self, config: &Config) {
        for door in &mut self.doors {
            let path = config.data_dir.join(door.private_socket());
            match listen::bind_private(&path, &config.server) {
                Ok(bound) => door.add(vec![bound]),
                // Its path may be too long.
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "commands cannot reach the daemon there");
                }
            }
        }
    }
}

impl Wanted {
    fn of_endpoint(served: &Served, config: &Config) -> Vec<Self> {
        let key = |listen: &ListenAddress| {
            let mut listeners = config.listeners();
            let of = listeners.find(|it| it.protocol == served.endpoint.name && it.address == listen);
            of.map_or_else(|| format!("{}.listen", served.endpoint.name), |it| it.key.to_owned())
        };
        let wanted = |Listen { address, rights }: &Listen| Self {
            owner: Owner::Endpoint(served.clone(), *rights),
            listen: address.clone(),
            key: key(address),
            bound: None,
        };
        served.endpoint.listen.iter().map(wanted).collect()
    }

    fn of_door(door: &Arc<dyn Door>) -> Vec<Self> {
        let key = format!("{}.listen", door.name());
        let owner = Owner::Door(Arc::clone(door));
        let listens = door.listen().iter();
        listens.map(|it| Self { owner: owner.clone(), listen: it.clone(), key: key.clone(), bound: None }).collect()
    }

    /// Binds the address, if it is not bound yet.
    fn bind(&mut self, config: &Config, handed: &mut Handed) -> Result<(), Unbound> {
        if self.bound.is_some() {
            return Ok(());
        }
        let may_be_left_out = matches!(&self.owner, Owner::Door(door) if door.may_be_left_out());
        self.bound = Some(match listen::bind(&self.listen, &config.server, handed) {
            Ok(bound) => bound,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && may_be_left_out => {
                let (listen, key) = (&self.listen, &self.key);
                tracing::warn!(%listen, key, "the default address is in use: starting without it");
                Vec::new()
            }
            Err(error) => return Err(Unbound::new(&self.listen, self.key.clone(), error)),
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use windlass_config::Period;

    use super::*;
    use crate::config::fixture;

    /// The addresses that are bound, if the only one is free from the second attempt on.
    async fn bind_busy(in_use_timeout: Period) -> Result<Vec<String>, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gearman");
        let busy = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let mut config = fixture::config(&format!("gearman.listen = [\"unix:{}\"]", path.display()));
        config.protocols.retain(|protocol| protocol.name() == "gearman");
        config.server.in_use_timeout = in_use_timeout;
        let (sockets, ()) = tokio::join!(Sockets::bind(&config), async { drop(busy) });
        Ok(sockets?.bound.iter().map(|(bound, ..)| bound.address().unwrap().to_string()).collect())
    }

    #[tokio::test]
    async fn an_address_in_use_is_tried_again_for_a_while() {
        let failure = bind_busy(Period::from_secs(0)).await.unwrap_err().to_string();
        assert!(failure.contains("gearman.listen"), "{failure}");
        let bound = bind_busy(Period::from_secs(3_600)).await.unwrap();
        assert!(bound.len() == 1 && bound[0].ends_with("/gearman"), "{bound:?}");
    }
}
