//! Listening sockets passed by a service manager (systemd's `LISTEN_FDS`). The manager keeps them
//! open while the daemon restarts, so that connections wait instead of being refused. The daemon
//! recognizes a socket by its address.

use std::io;

use listenfd::ListenFd;
use tokio::net::{TcpListener, UnixListener};
use windlass_config::Address;

use crate::listen::{self, Bound};
use crate::settings::Server;

/// Sockets that are not assigned yet.
#[derive(Debug, Default)]
pub struct Inherited(Vec<(Address, Bound)>);

impl Inherited {
    /// Takes all inherited sockets.
    pub fn from_env(server: &Server) -> Self {
        let mut sockets = ListenFd::from_env();
        let taken = (0..sockets.len()).filter_map(|index| {
            let taken = take(&mut sockets, index, server);
            taken
                .inspect_err(
                    |error| tracing::warn!(index, %error, "cannot use an inherited socket"),
                )
                .ok()
        });
        Self(taken.collect())
    }

    /// The socket with this address.
    pub fn take(&mut self, address: &Address) -> Option<Bound> {
        let index = self.0.iter().position(|(of, _)| of == address)?;
        Some(self.0.swap_remove(index).1)
    }

    /// Closes the remaining sockets.
    pub fn finish(self) {
        for (address, _) in self.0 {
            tracing::warn!(%address, "inherited a socket for an address that is not configured");
        }
    }
}

/// Must be called within a runtime.
fn take(sockets: &mut ListenFd, index: usize, server: &Server) -> io::Result<(Address, Bound)> {
    if let Ok(Some(listener)) = sockets.take_unix_listener(index) {
        listener.set_nonblocking(true)?;
        let path = listener.local_addr()?.as_pathname().map(ToOwned::to_owned);
        let path = path.ok_or_else(|| io::Error::other("it has no path"))?;
        let bound = Bound::handed_over(UnixListener::from_std(listener)?, path.clone());
        return Ok((Address::Unix(path), bound));
    }
    let gone = || io::Error::other("it is gone");
    let listener = sockets.take_tcp_listener(index)?.ok_or_else(gone)?;
    listener.set_nonblocking(true)?;
    listen::keep_alive(&listener, server)?;
    Ok((
        Address::Tcp(listener.local_addr()?),
        Bound::Tcp(TcpListener::from_std(listener)?),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_recognized_by_its_address() {
        let (mut inherited, mut addresses) = (Inherited::default(), Vec::new());
        for _ in 0..2 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = Address::Tcp(listener.local_addr().unwrap());
            addresses.push(address.clone());
            inherited.0.push((address, Bound::Tcp(listener)));
        }
        assert!(
            inherited
                .take(&Address::Unix("/run/windlass/none".into()))
                .is_none()
        );
        let found = inherited.take(&addresses[1]);
        assert!(
            matches!(found, Some(Bound::Tcp(it)) if Address::Tcp(it.local_addr().unwrap()) == addresses[1])
        );
        assert!(inherited.take(&addresses[1]).is_none());
        assert_eq!(inherited.0.len(), 1);
    }
}
