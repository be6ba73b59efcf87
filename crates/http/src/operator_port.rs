//! The interface of the port for the server: protocol, addresses, checks of the section, and opening.

use std::any::Any;
use std::io;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;
use windlass_bridge::{Opaque, Origin};
use windlass_config::{
    ByteSize, Error, ListenAddress, SOCKET, positive, senseless, system, within,
};
use windlass_daemon::operator_port::{Inside, OpenPort, OperatorPort, Socket};
use windlass_engine::{Clash, NewJob, QueueKind, Rights};
use windlass_session::protocol::{Daemon, EndedJob, Endpoint, ImportTerms, Listener, Protocol};

use crate::api::push::plain;
use crate::config::{Configured, Http, MIB};
use crate::login::Entries;
use crate::prefix::Prefix;
use crate::serve::{self, Limits};

const NAME: &str = "http";

impl Http {
    /// Without a login, only this machine may connect, and the name of the daemon's socket is reserved.
    fn check_addresses(&self) -> Result<(), Error> {
        if let Some(listen) = self
            .listen
            .iter()
            .find(|listen| !self.has_login() && !Self::is_local(listen))
        {
            let reason = format!(
                "{listen} is reachable from other machines without a login: set http.logins"
            );
            return senseless("http.listen", reason);
        }
        let is_private =
            |listen: &&ListenAddress| listen.to_string().ends_with(&format!("/{SOCKET}"));
        match self.listen.iter().find(is_private) {
            Some(listen) => senseless(
                "http.listen",
                format!("{listen} has the name of the socket in the data directory"),
            ),
            None => Ok(()),
        }
    }

    fn check_logins(&self) -> Result<(), Error> {
        match self.logins_file().map(Entries::read).transpose() {
            Ok(_) => Ok(()),
            Err(error) => senseless(
                "http.logins",
                format!("cannot read {}: {}", self.logins.display(), system(&error)),
            ),
        }
    }
}

/// HTTP's jobs are jobs of a protocol. HTTP connections are not sessions, so it has no endpoints.
impl Protocol for Configured {
    fn id(&self) -> windlass_engine::Protocol {
        windlass_engine::Protocol::HTTP
    }

    fn origin(&self) -> Option<Arc<dyn Origin>> {
        Some(Arc::new(Opaque))
    }

    fn import_terms(&self) -> ImportTerms {
        ImportTerms {
            kind: QueueKind::Work,
            clash: Clash::Refuse,
            key_is_identity: false,
        }
    }

    fn check(&self, _daemon: &Daemon) -> Result<(), Error> {
        let positives = [
            ("http.connections_max", self.http.connections_max as u64),
            ("http.session_idle", self.http.session_idle.as_ms()),
        ];
        positive(&positives)?;
        within(
            "http.body_bytes_max",
            self.http.body_bytes_max,
            1024,
            1024 * MIB,
        )?;
        if let Some(host) = self
            .http
            .hosts
            .iter()
            .find(|host| host.is_empty() || host.contains([':', '/', ' ']))
        {
            return senseless(
                "http.hosts",
                format!("{} is not a host's name", host.escape_debug()),
            );
        }
        Prefix::of_config(&self.http.path_prefix)?;
        self.http.check_logins()?;
        self.http.check_addresses()
    }

    fn listeners(&self) -> Vec<Listener<'_>> {
        let (rights, tls, queue) = (Rights::ALL, false, None);
        let of = |address| Listener {
            protocol: NAME,
            key: "http.listen".into(),
            address,
            rights,
            namespace: None,
            tls,
            queue,
        };
        self.http.listen.iter().map(of).collect()
    }

    fn message_bytes_max(&self) -> ByteSize {
        self.http.body_bytes_max
    }

    fn again(&self, ended: EndedJob<'_>) -> Result<NewJob, String> {
        Ok(plain(ended.queue, ended.body))
    }

    fn endpoints(&self, _daemon: &Daemon) -> Result<Vec<Endpoint>, Error> {
        Ok(Vec::new())
    }
}

impl OperatorPort for Configured {
    fn name(&self) -> &'static str {
        NAME
    }

    fn listen(&self) -> &[ListenAddress] {
        &self.http.listen
    }

    fn private_socket(&self) -> &'static str {
        SOCKET
    }

    fn open(&self, sockets: UnboundedReceiver<Socket>, inside: Inside) -> io::Result<OpenPort> {
        serve::start(self, sockets, inside)
    }

    fn renewable(&self) -> &'static [&'static str] {
        &["connections_max", "session_idle"]
    }

    fn renew(&self, shared: &(dyn Any + Send + Sync)) {
        if let Some(limits) = shared.downcast_ref::<Limits>() {
            limits.renew(&self.http);
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_testkit::protocol::daemon;

    use super::*;
    use crate::config::Metrics;

    fn checked(text: &str) -> Result<(), String> {
        let configured = Configured {
            http: toml::from_str(text).unwrap(),
            metrics: Metrics::default(),
        };
        configured
            .check(&daemon())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn only_this_machine_may_connect_without_a_login() {
        for listen in [
            "127.0.0.1:0",
            "[::1]:7420",
            "127.8.0.1:1",
            "unix:/run/windlass.http",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert_eq!(
                checked(&format!("listen = [\"{listen}\"]")),
                Ok(()),
                "{listen}"
            );
        }
        for listen in [
            "0.0.0.0:7420",
            "[::]:7420",
            "192.0.2.1:7420",
            "tcp://*:7420",
            "[::ffff:192.0.2.1]:1",
        ] {
            let said = checked(&format!("listen = [\"127.0.0.1:1\", \"{listen}\"]")).unwrap_err();
            assert!(
                said.starts_with("http.listen: ") && said.contains("without a login"),
                "{listen}: {said}"
            );
        }
    }

    #[test]
    fn other_machines_may_connect_with_a_login() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("logins");
        let with = |listen: &str| {
            checked(&format!(
                "logins = {:?}\nlisten = [{listen:?}]",
                file.display()
            ))
        };
        assert!(
            with("0.0.0.0:7420")
                .unwrap_err()
                .starts_with("http.logins: cannot read ")
        );
        std::fs::write(&file, "# none yet\n").unwrap();
        assert_eq!(with("0.0.0.0:7420"), Ok(()));
        std::fs::write(&file, "user ada\n").unwrap();
        assert!(
            with("127.0.0.1:1")
                .unwrap_err()
                .ends_with("line 1: KIND NAME ROLE HASH expected")
        );
    }

    #[test]
    fn senseless_values_name_their_key() {
        let table = [
            ("listen = [\"unix:/run/operator.sock\"]", "http.listen: "),
            ("connections_max = 0", "http.connections_max: "),
            ("body_bytes_max = 1023", "http.body_bytes_max: "),
            ("body_bytes_max = \"2GiB\"", "http.body_bytes_max: "),
            ("hosts = [\"a\", \"http://b\"]", "http.hosts: "),
            ("hosts = [\"\"]", "http.hosts: "),
            ("path_prefix = \"ops\"", "http.path_prefix: "),
            ("path_prefix = \"//evil.example\"", "http.path_prefix: "),
            ("path_prefix = \"/jobs\"", "http.path_prefix: "),
        ];
        for (text, expected) in table {
            let said = checked(text).unwrap_err();
            assert!(said.starts_with(expected), "{text}: {said}");
        }
    }
}
