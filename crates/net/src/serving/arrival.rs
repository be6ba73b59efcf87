//! A connection on its way from a listener to its serving thread.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Span;
use windlass_engine::ClientId;

use crate::connection::{End, Newcomer};
use windlass_hub::limited::shown;
use windlass_hub::warn_limited;
use windlass_session::Reason;

/// A new connection.
pub(crate) struct Arrival {
    pub(crate) newcomer: Newcomer,
    pub(crate) client: ClientId,
    pub(crate) label: Label,
    pub(crate) debt: Debt,
    /// Keeps the daemon from exiting.
    pub(crate) token: TaskTrackerToken,
}

impl fmt::Debug for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrival")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

/// The name of a connection in the log.
#[derive(Clone, Debug)]
pub(crate) struct Label {
    pub(crate) span: Span,
    pub(crate) protocol: &'static str,
    pub(crate) peer: Arc<str>,
}

impl Label {
    /// Logs the end of the connection.
    pub(super) fn log_end(&self, end: &End) {
        let (protocol, peer) = (self.protocol, &*self.peer);
        let _inside = self.span.enter();
        match end {
            End::Closed(reason) => {
                tracing::debug!(%reason, "closed");
                warn_of_closed(protocol, peer, reason);
            }
            End::NoHandshake(why) => {
                let reason = format!("TLS handshake failed: {why}");
                warn_limited!(reason, protocol, peer, %why, "TLS handshake failed: closed the connection");
            }
        }
    }
}

/// Warns when the daemon closed a connection because of its peer.
fn warn_of_closed(protocol: &'static str, peer: &str, reason: &Reason) {
    let key = match reason {
        Reason::PeerClosed | Reason::Ended | Reason::Shutdown => return,
        Reason::WrongPassword => {
            return warn_limited!(
                "wrong password",
                protocol,
                peer,
                "closed a connection: wrong password"
            );
        }
        Reason::Protocol(_) => format!("closed: {protocol}: protocol error"),
        Reason::TimedOut(_) | Reason::Limit(_) | Reason::ClosedByServer => {
            format!("closed: {protocol}: {reason}")
        }
    };
    let why = shown(reason.to_string().as_bytes());
    warn_limited!(key, protocol, peer, why, "closed a connection");
}

/// How long the address of a namespace accepts nothing, because of connections that have ended: a peer that opens
/// connections only to leave them, or to fill buffers, would take the time of all namespaces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Debt(Arc<AtomicU64>);

impl Debt {
    pub(super) fn add(&self, pause: Duration) {
        let ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        if ms > 0 {
            self.0.fetch_add(ms, Ordering::Relaxed);
        }
    }

    /// The pause, which is then paid.
    pub(crate) fn pay(&self) -> Duration {
        const MOST: Duration = Duration::from_secs(1);
        Duration::from_millis(self.0.swap(0, Ordering::Relaxed)).min(MOST)
    }
}

/// A connection's place on a thread. Frees it when dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<AtomicUsize>);

impl Place {
    pub(super) fn take(taken: &Arc<AtomicUsize>) -> Self {
        taken.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(taken))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debt_is_paid_once_and_is_never_long() {
        let debt = Debt::default();
        let ms = |ms| debt.add(Duration::from_millis(ms));
        assert_eq!(debt.pay(), Duration::ZERO);
        (0..3).for_each(|_| ms(1));
        ms(100);
        ms(0);
        assert_eq!(debt.pay(), Duration::from_millis(103));
        assert_eq!(debt.pay(), Duration::ZERO);
        (0..100).for_each(|_| ms(100));
        assert_eq!(debt.pay(), Duration::from_secs(1));
    }
}
