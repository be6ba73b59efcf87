//! `[faktory]`: the section, its checks, and the sessions that it makes. `config/windlass.toml` explains each key to
//! the operator.

mod cron;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use windlass_bridge::Origin;
use windlass_config::{
    ByteSize, Error, FRAME_BYTES_CEILING, FRAME_BYTES_MIN, Misplaced, Password, Period, Secret,
    Throttles, Tls, check_secret, credential, positive, secret, senseless, within,
};
use windlass_engine::{Clash, Limits, NewJob, QueueKind, Timestamp};
use windlass_session::Listen;
use windlass_session::protocol::{
    Daemon, EndedJob, Endpoint, ImportTerms, Listener, NamedNamespace, Protocol, Schedules,
    SessionFactory,
};

pub use cron::{Cron, CronJob, NotJson};

use crate::bridge::FwpOrigin;
use crate::session::{FaktorySpeaker, Settings, Shared, pages};
use crate::wire::is_queue_name;

const MIB: u64 = 1 << 20;
const PORT: u16 = 7419;

/// The most passwords: each HELLO costs the hash of every one, thousands of rounds.
const PASSWORDS_MAX: usize = 100;

/// The longest reservation that a job can request.
const DAY_MS: u64 = 86_400_000;

windlass_config::section! {
    /// `[faktory]`
    pub struct Faktory {
        /// Serve the protocol at all.
        pub enabled: bool = true,
        /// Addresses of Faktory; empty for none.
        pub listen: Vec<Listen> = vec![Listen::local(PORT)],
        /// The password that clients must prove; empty for none.
        pub password: Secret,
        /// A file with the password, surrounding blanks ignored; empty for none.
        #[serde(deserialize_with = "credential")]
        pub password_file: PathBuf,
        /// The longest line, and so the largest job.
        pub line_bytes_max: ByteSize = ByteSize(64 * MIB),
        /// Connections; 0 = as many as the daemon allows.
        pub connections_max: usize = 0,
        /// How long a client may take to send HELLO.
        pub hello_timeout: Period = Period::from_secs(30),
        /// How long FETCH waits for a job.
        pub fetch_wait: Period = Period::from_secs(2),
        /// The shortest reservation.
        pub reserve_min: Period = Period::from_secs(60),
        /// The longest reservation.
        pub reserve_max: Period = Period::from_days(1),
        /// How long a batch may be open.
        pub batch_open_max: Period = Period::from_secs(1_800),
        /// The longest arguments that are compared by value for unique jobs.
        pub unique_args_bytes_max: ByteSize = ByteSize(MIB),
        /// Return a dead worker's jobs to their queues at once, instead of when their reservations end.
        pub requeue_on_worker_death: bool = false,
        /// The server's description in INFO.
        pub description: String = "Faktory Enterprise".to_owned(),
        /// Recurring jobs.
        pub cron: Vec<Cron>,
        /// Passwords that tell a client's namespace, by its name.
        pub passwords: BTreeMap<String, Password>,
        /// Limits on the jobs of a queue that are worked on at once.
        pub throttles: Throttles,
        /// TLS for every TCP address in `listen`.
        pub tls: Tls,
    }
}

/// The key of a namespace's password.
fn password_key(namespace: &str) -> String {
    format!("faktory.passwords.{}", namespace.escape_debug())
}

impl Faktory {
    /// The password that clients must prove; empty for none.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn secret(&self) -> std::io::Result<Secret> {
        secret(&self.password, &self.password_file)
    }

    /// The settings of all connections.
    ///
    /// # Errors
    ///
    /// [`Error::Senseless`]: the password's file cannot be read.
    pub fn settings(&self, daemon: &Daemon) -> Result<Settings, Error> {
        let password = self
            .secret()
            .map_err(|error| Error::senseless("faktory.password_file", error))?;
        let read = |(name, password): (&String, &Password)| {
            let secret = password.read(&password_key(name))?;
            Ok((name.clone(), Password::Plain(secret)))
        };
        let passwords = self.passwords.iter().map(read);
        let passwords = passwords.collect::<Result<_, Error>>()?;
        Ok(Settings {
            memory_mb: daemon.memory_mb,
            clock_ns: daemon.wall_ns,
            bridge: Arc::clone(&daemon.bridge),
            ..Settings::new(
                Self {
                    password,
                    passwords,
                    ..self.clone()
                },
                (daemon.now)(),
            )
        })
    }

    /// Checks the passwords of namespaces, beside that of all clients: each must tell a namespace.
    fn check_passwords(&self, password: Secret) -> Result<(), Error> {
        if self.passwords.len() > PASSWORDS_MAX {
            return senseless(
                "faktory.passwords",
                format!(
                    "{} passwords, at most {PASSWORDS_MAX}: give further namespaces an address in faktory.listen",
                    self.passwords.len()
                ),
            );
        }
        let mut known = vec![(password, "faktory.password".to_owned())];
        for (name, password) in &self.passwords {
            let key = password_key(name);
            let secret = password.read(&key)?;
            if let Some((_, other)) = known.iter().find(|(other, _)| *other == secret) {
                let why = format!("must differ from {other}: it tells the namespace of a client");
                return senseless(key, why);
            }
            known.push((secret, key));
        }
        Ok(())
    }

    /// The longest reservation in seconds: of `reserve_for`, and from a TRACK SET on.
    pub(crate) fn reserve_max_s(&self) -> i64 {
        i64::try_from(self.reserve_max.as_ms() / 1_000).unwrap_or(i64::MAX)
    }
}

impl Protocol for Faktory {
    fn id(&self) -> windlass_engine::Protocol {
        windlass_engine::Protocol::FAKTORY
    }

    fn origin(&self) -> Option<Arc<dyn Origin>> {
        Some(Arc::new(FwpOrigin))
    }

    fn import_terms(&self) -> ImportTerms {
        ImportTerms {
            kind: QueueKind::Work,
            clash: Clash::Refuse,
            key_is_identity: false,
        }
    }

    fn check(&self, _daemon: &Daemon) -> Result<(), Error> {
        positive(&[
            ("faktory.hello_timeout", self.hello_timeout.as_ms()),
            ("faktory.fetch_wait", self.fetch_wait.as_ms()),
            ("faktory.reserve_min", self.reserve_min.as_ms()),
            ("faktory.batch_open_max", self.batch_open_max.as_ms()),
        ])?;
        within(
            "faktory.line_bytes_max",
            self.line_bytes_max,
            FRAME_BYTES_MIN,
            FRAME_BYTES_CEILING,
        )?;
        let password = check_secret(
            "faktory",
            ["password", "password_file"],
            "faktory.password_file",
            &self.password,
            &self.password_file,
        )?;
        self.check_passwords(password)?;
        if !self.reserve_min.as_ms().is_multiple_of(1000) || self.reserve_min.as_ms() > DAY_MS {
            return senseless("faktory.reserve_min", "must be whole seconds, at most 1d");
        }
        if !self.reserve_max.as_ms().is_multiple_of(1000) || self.reserve_max < self.reserve_min {
            return senseless(
                "faktory.reserve_max",
                "must be whole seconds, at least faktory.reserve_min",
            );
        }
        if self.description.chars().any(char::is_control) {
            return senseless("faktory.description", "must be one line of text");
        }
        for (queue, throttle) in &self.throttles {
            throttle
                .check(queue)
                .or_else(|reason| senseless("faktory.throttles", reason))?;
        }
        self.schedules().map(drop)
    }

    fn check_text(&self, text: &str) -> Result<(), Misplaced> {
        cron::check_text(&self.cron, text)
    }

    fn listeners(&self) -> Vec<Listener<'_>> {
        Listener::each(self.name(), "faktory.listen", &self.listen, self.tls()).collect()
    }

    fn namespaces(&self) -> Vec<NamedNamespace> {
        NamedNamespace::each("faktory.passwords", self.passwords.keys())
    }

    fn tls(&self) -> Option<&Tls> {
        Some(&self.tls)
    }

    fn message_bytes_max(&self) -> ByteSize {
        self.line_bytes_max
    }

    fn alias_rule(&self) -> Option<fn(&[u8]) -> bool> {
        Some(is_queue_name)
    }

    fn schedules(&self) -> Result<Option<Schedules>, Error> {
        cron::schedules(self).map(Some)
    }

    fn call(&self, queue: &str, jobtype: &str, argument: &str) -> Option<Result<NewJob, String>> {
        let [queue, jobtype] =
            [queue, jobtype].map(|text| serde_json::Value::from(text).to_string());
        let unit = format!(r#"{{"queue":{queue},"jobtype":{jobtype},"args":[{argument}]}}"#);
        Some(Settings::new(self.clone(), Timestamp(0)).template(&unit))
    }

    fn unit(
        &self,
        queue: &str,
        name: &str,
        text: &str,
        wall: Timestamp,
        skew_ms: i64,
    ) -> Option<Result<NewJob, String>> {
        Some(Settings::new(self.clone(), Timestamp(0)).unit(queue, name, text, wall, skew_ms))
    }

    fn again(&self, ended: EndedJob<'_>) -> Result<NewJob, String> {
        Settings::new(self.clone(), Timestamp(0)).again(&ended)
    }

    fn throttles(&self) -> Option<(&'static str, &Throttles)> {
        Some(("faktory.throttles", &self.throttles))
    }

    fn limit(&self, limits: &mut Limits) {
        limits.requeue_dead_workers = self.requeue_on_worker_death;
    }

    fn endpoints(&self, daemon: &Daemon) -> Result<Vec<Endpoint>, Error> {
        let settings = Arc::new(self.settings(daemon)?);
        let asks = |listen: &Listen| settings.asks(listen.namespace.as_deref());
        let guarded = self.listen.iter().all(asks);
        let pages = pages(&settings);
        let shared = Arc::<Shared>::clone(&settings.shared);
        let endpoint = Endpoint::new(
            self.name(),
            self.listen.clone(),
            sessions(settings, daemon),
            shared,
        );
        Ok(vec![Endpoint {
            guarded,
            pages,
            ..endpoint
        }])
    }

    fn renewed(
        &self,
        daemon: &Daemon,
        running: &Endpoint,
    ) -> Result<Option<SessionFactory>, Error> {
        let Ok(shared) = Arc::clone(&running.shared).downcast::<Shared>() else {
            return Ok(None);
        };
        let settings = Settings {
            shared,
            ..self.settings(daemon)?
        };
        Ok(Some(sessions(Arc::new(settings), daemon)))
    }
}

fn sessions(settings: Arc<Settings>, daemon: &Daemon) -> SessionFactory {
    let daemon = daemon.clone();
    Arc::new(move |info, _| {
        let rng = [(daemon.random)(), (daemon.random)()];
        daemon.under_aliases(FaktorySpeaker::session(Arc::clone(&settings), info, rng))
    })
}
