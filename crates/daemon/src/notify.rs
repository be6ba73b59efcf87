//! What the service manager learns of the daemon (systemd's `sd_notify`). Without a manager that listens, nothing
//! happens.

use std::time::Duration;

use sd_notify::NotifyState;

/// The daemon serves.
pub(crate) fn ready() {
    send(&[NotifyState::Ready, NotifyState::Status("serving")]);
}

/// The daemon reads its configuration again; [`reloaded`] ends that.
pub(crate) fn reloading() {
    // Only systemd's `notify-reload` requires the time; without it the message is of no use there.
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        send(&[NotifyState::Reloading, now]);
    }
}

/// The configuration is read. The status stays: the daemon may be draining.
pub(crate) fn reloaded() {
    send(&[NotifyState::Ready]);
}

/// The daemon is about to stop.
pub(crate) fn stopping() {
    send(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

/// One line for `systemctl status`.
pub(crate) fn status(text: &str) {
    send(&[NotifyState::Status(text)]);
}

/// The start takes at least this much longer.
pub(crate) fn extend_start(by: Duration, text: &str) {
    let by = u32::try_from(by.as_micros()).unwrap_or(u32::MAX);
    send(&[NotifyState::ExtendTimeoutUsec(by), NotifyState::Status(text)]);
}

/// The daemon is alive.
pub(crate) fn watchdog() {
    if sd_notify::watchdog_enabled().is_some() {
        send(&[NotifyState::Watchdog]);
    }
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager cannot be notified");
    }
}
