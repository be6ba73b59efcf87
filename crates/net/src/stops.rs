//! Clients' requests to stop the daemon.

use tokio::sync::watch;
use windlass_session::Stop;

/// Clients' requests to stop the daemon.
#[derive(Debug, Default)]
pub struct StopRequests(watch::Sender<Option<Stop>>);

impl StopRequests {
    /// Records the request of a client.
    pub fn ask(&self, how: Stop) {
        self.0.send_if_modified(|asked| {
            let harder = *asked < Some(how);
            *asked = (*asked).max(Some(how));
            harder
        });
    }

    /// Notifies of requests to stop the daemon.
    pub fn subscribe(&self) -> watch::Receiver<Option<Stop>> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_to_stop_is_reported_if_it_is_harder_than_those_before() {
        let requests = StopRequests::default();
        let mut reported = requests.subscribe();
        for (how, is_reported, asked) in [
            (Stop::Gracefully, true, Stop::Gracefully),
            (Stop::Gracefully, false, Stop::Gracefully),
            (Stop::Now, true, Stop::Now),
            (Stop::Gracefully, false, Stop::Now),
        ] {
            requests.ask(how);
            assert_eq!(reported.has_changed().unwrap(), is_reported, "{how:?}");
            assert_eq!(*reported.borrow_and_update(), Some(asked), "{how:?}");
        }
    }
}
