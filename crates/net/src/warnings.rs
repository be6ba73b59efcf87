//! Log lines for the operator: closed connections.

use windlass_hub::limited::shown;
use windlass_hub::warn_limited;
use windlass_session::Reason;

/// Warns when the daemon closes a connection because of its peer.
pub(crate) fn closed(protocol: &'static str, peer: &str, reason: &Reason) {
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
