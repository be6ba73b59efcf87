//! The state that all handlers share.

use std::io;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use windlass_config::Period;
use windlass_daemon::client::{Clients, Readiness};
use windlass_daemon::control::Control;
use windlass_daemon::export::Exports;
use windlass_daemon::figures::{Counts, Figures};
use windlass_daemon::operator_port::history::Book;
use windlass_daemon::operator_port::{Inside, Masks, Pulse};
use windlass_engine::{
    ClientInfo, Command, Cursor, FiguresRow, KindRow, NamespaceRow, Protocol, Protocols, Query,
    QueueRow, Reading, Refusal, Reply, Stats, Timestamp,
};
use windlass_session::protocol::{self as session, Daemon, Page};

use crate::audit::{Audit, Line};
use crate::body::Bodies;
use crate::by_kind::ByKind;
use crate::client::Client;
use crate::config::{Configured, Http};
use crate::counted::Counted;
use crate::login::Logins;
use crate::metrics::Series;
use crate::namespace;
use crate::places::{Place, Places};
use crate::problem::{Outcome, Problem};
use crate::reasons::Since;
use crate::site::history::History;
use crate::survey::Surveys;
use crate::time::moment_text;

/// Questions to the history at once.
const ASKING_MAX: usize = 4;

/// Readers of events.
const WATCHING_MAX: usize = 16;

/// The daemon as a request sees it: all of it, or one namespace.
#[derive(Clone, Debug)]
pub(crate) struct App {
    common: Arc<Common>,
    /// The name, empty for the namespace without one; `None` for the whole daemon.
    namespace: Option<Box<str>>,
}

/// The state of all handlers, which all requests share.
#[derive(Debug)]
pub(crate) struct Common {
    clients: Clients,
    pub(crate) control: Control,
    pub(crate) exports: Exports,
    /// The history of ended jobs, if there is a place for one.
    pub(crate) book: Option<Book>,
    pub(crate) daemon: Daemon,
    pub(crate) protocols: Vec<Arc<dyn session::Protocol>>,
    pub(crate) pages: Vec<Arc<dyn Page>>,
    /// Names of this machine; `None`: any. A password that pages of other sites do not have is guard enough.
    pub(crate) hosts: Option<Vec<String>>,
    pub(crate) bodies: Bodies,
    /// The logins; `None` if every client that can connect may do everything.
    pub(crate) logins: Option<Logins>,
    pub(crate) audit: Audit,
    /// Limits the number of waiting takes, so that connections remain available for other requests.
    pub(crate) waiting: Arc<Places>,
    /// Places for questions to the history, each of which reads the disk.
    pub(crate) asking: Arc<Places>,
    /// What is hidden from some readers.
    pub(crate) masks: Masks,
    /// Places for readers of events, each of which costs a little with every change of a job.
    pub(crate) watching: Arc<Places>,
    /// The queues with separate series in `/metrics`.
    pub(crate) series: Mutex<Series>,
    /// The data for the plots of the overview.
    pub(crate) history: History,
    /// The figures of kinds.
    pub(crate) by_kind: ByKind,
    /// The combined state of many queues, for the overview.
    pub(crate) surveys: Surveys,
    /// The start of each reason to refuse something.
    pub(crate) refusing: Since,
    /// Counters of recent events that need attention.
    pub(crate) lately: Counted,
    /// The daemon's figures for `/metrics`.
    pub(crate) daemon_figures: Figures,
    /// True if the daemon's threads turn.
    pub(crate) pulse: Arc<Pulse>,
    /// Counters of HTTP connections.
    pub(crate) counts: Arc<Counts>,
    /// The engine's time at the start.
    pub(crate) started_at: Timestamp,
}

/// It, as handlers get it: for the namespace of the request.
#[derive(Clone, Debug)]
pub(crate) struct Shared(pub(crate) App);

impl Deref for Shared {
    type Target = App;

    fn deref(&self) -> &App {
        &self.0
    }
}

impl Deref for App {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

/// The peer of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: Box<str>,
    /// For TCP. A browser cannot connect to a Unix socket.
    pub(crate) ip: Option<IpAddr>,
    /// The name of the user that has connected to the socket in the data directory, which is accessible only
    /// to the daemon's user and that user's group.
    pub(crate) owner: Option<Arc<str>>,
}

/// A page of a listing, and the start of the next one.
type Rows<T> = (Vec<T>, Option<Cursor>);

/// The clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// The engine's time.
    pub(crate) engine: Timestamp,
    /// The wall clock.
    pub(crate) wall: Timestamp,
    skew_ms: i64,
}

/// The limit of waiting requests.
const fn waiting_max(http: &Http) -> usize {
    http.connections_max.div_ceil(2)
}

/// Functions that return all rows of a listing of the engine.
macro_rules! all_of {
    ($($(#[$about:meta])+ $name:ident, $listing:ident, $row:ty;)+) => {$(
        $(#[$about])+
        pub(crate) async fn $name(&self) -> Outcome<Vec<$row>> {
            let ask = |after| Query::$listing { after, limit: u32::MAX };
            let page = |reply| match reply {
                Reply::$listing { rows, next } => Some((rows, next)),
                _ => None,
            };
            self.all(ask, page).await
        }
    )+};
}

impl App {
    pub(crate) fn new(
        Configured { http, metrics, .. }: &Configured,
        Inside {
            clients,
            daemon,
            protocols,
            pages,
            control,
            figures,
            exports,
            history,
            masks,
            pulse,
            ..
        }: Inside,
        counts: Arc<Counts>,
    ) -> io::Result<Self> {
        let started_at = clients.read_clock().now;
        let common = Common {
            clients,
            control,
            exports,
            book: history,
            masks,
            asking: Places::new(ASKING_MAX),
            pulse,
            daemon,
            protocols,
            pages,
            hosts: http.password.is_empty().then(|| http.hosts.clone()),
            bodies: Bodies::new(http.body_bytes_max.bytes()),
            logins: Logins::of(http)?,
            audit: Audit::new(http.audit.clone()),
            waiting: Places::new(waiting_max(http)),
            watching: Places::new(WATCHING_MAX),
            series: Mutex::new(Series::new(metrics.queues_max)),
            history: History::default(),
            by_kind: ByKind::default(),
            refusing: Since::default(),
            lately: Counted::default(),
            surveys: Surveys::default(),
            daemon_figures: figures,
            counts,
            started_at,
        };
        Ok(Self {
            common: Arc::new(common),
            namespace: None,
        })
    }

    /// This daemon, as a request about a namespace sees it.
    pub(crate) fn within(&self, namespace: Option<Box<str>>) -> Self {
        Self {
            common: Arc::clone(&self.common),
            namespace,
        }
    }

    /// The whole daemon.
    pub(crate) fn whole(&self) -> Self {
        self.within(None)
    }

    /// The namespace; `None` for the whole daemon.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Refuses a request about a namespace to ask for what is not kept by namespace, and would show others.
    pub(crate) fn check_whole(&self) -> Outcome<()> {
        match self.namespace {
            None => Ok(()),
            Some(_) => Err(Problem::forbidden(
                "this is about the whole daemon, not about one namespace",
            )),
        }
    }

    /// Checks that the namespace exists.
    ///
    /// # Errors
    ///
    /// It does not, or the engine does not reply.
    pub(crate) async fn check_namespace(&self) -> Outcome<()> {
        match (self.client().confirm().await, self.namespace()) {
            (Err(Refusal::NotFound(_)), Some(name)) => Err(namespace::unknown(name)),
            (confirmed, _) => Ok(confirmed?),
        }
    }

    /// A client of the engine that sees the queues of all protocols.
    pub(crate) fn client(&self) -> Client {
        self.open(ClientInfo::default())
    }

    fn open(&self, info: ClientInfo) -> Client {
        let namespace = self.namespace.clone();
        Client::open(&self.clients, ClientInfo { namespace, ..info })
    }

    /// The state of the daemon.
    pub(crate) fn readiness(&self) -> Readiness {
        self.clients.readiness()
    }

    /// A client of the engine with the view of a protocol's workers.
    pub(crate) fn client_of(&self, protocol: Protocol, address: &str) -> Client {
        self.open(ClientInfo {
            address: address.into(),
            protocol: Some(protocol),
            ..ClientInfo::default()
        })
    }

    /// A client that watches changes: it sees all namespaces that the request is about, which one with a
    /// protocol does not.
    pub(crate) fn watcher(&self, address: &str) -> Client {
        self.open(ClientInfo {
            address: address.into(),
            ..ClientInfo::default()
        })
    }

    /// The daemon as a request about the namespace of a row sees it, where the names in the row are known.
    pub(crate) fn beside(&self, row: &[u8]) -> Self {
        // A request that is limited gets rows of its own namespace only, and must stay in it.
        if self.namespace.is_some() || row.is_empty() {
            return self.clone();
        }
        self.within(Some(String::from_utf8_lossy(row).into()))
    }

    /// Sends a command and returns the reply.
    pub(crate) async fn ask(&self, command: impl Into<Command>) -> Outcome<Reply> {
        Ok(self.client().ask(command).await?)
    }

    /// Writes a line to the audit log: a name and an address, the change and the parameters, the status, and
    /// the number of modified jobs.
    pub(crate) fn record(
        &self,
        who: &str,
        address: &str,
        change: &str,
        parameters: &str,
        status: StatusCode,
        changed: Option<u64>,
    ) {
        let (at, status) = (moment_text(self.now().wall), status.as_u16());
        self.audit.record(&Line {
            at,
            who,
            address,
            change,
            parameters,
            status,
            changed,
        });
    }

    /// Applies the values of `connections_max` and `session_idle`.
    pub(crate) fn renew(&self, http: &Http) {
        self.waiting.limit(waiting_max(http));
        self.logins.iter().for_each(|logins| logins.renew(http));
    }

    /// A place for a request that waits.
    pub(crate) fn place_to_wait(&self) -> Outcome<Place> {
        self.waiting.try_take().ok_or_else(|| {
            let detail = "half of http.connections_max connections are waiting already";
            Problem::unavailable("too_many_waiting", detail)
        })
    }

    pub(crate) fn now(&self) -> Now {
        let Reading { now, clock, .. } = self.clients.read_clock();
        Now {
            engine: now,
            wall: now.shifted(clock.skew_ms),
            skew_ms: clock.skew_ms,
        }
    }

    /// The name of a protocol in requests and responses.
    pub(crate) fn protocol_name(&self, protocol: Protocol) -> &'static str {
        self.daemon.bridge.name(protocol)
    }

    /// The names of a set of protocols; empty if it contains all.
    pub(crate) fn protocol_names(&self, of: Protocols) -> Vec<&'static str> {
        self.daemon.bridge.names(of)
    }

    /// The protocol with this name.
    pub(crate) fn protocol(&self, name: &str) -> Outcome<Protocol> {
        let unknown =
            || Problem::bad_request(format!("protocol {} is unknown", name.escape_debug()));
        self.daemon.bridge.protocol(name).ok_or_else(unknown)
    }

    /// The engine's figures.
    pub(crate) async fn stats(&self) -> Outcome<Box<Stats>> {
        let Reply::Stats(stats) = self.ask(Query::Stats).await? else {
            return Err(Problem::unexpected());
        };
        Ok(stats)
    }

    all_of! {
        /// All queues.
        queues, Queues, QueueRow;
        /// The namespaces that the request sees, with what each uses.
        namespaces, Namespaces, NamespaceRow;
        /// The figures of all kinds of jobs.
        kinds, Kinds, KindRow;
        /// The figures of all queues.
        figures, Figures, FiguresRow;
    }

    /// All rows of a listing, requested a page at a time.
    async fn all<T>(
        &self,
        ask: fn(Cursor) -> Query,
        page: fn(Reply) -> Option<Rows<T>>,
    ) -> Outcome<Vec<T>> {
        let mut client = self.client();
        let (mut all, mut after) = (Vec::new(), Some(Cursor::default()));
        while let Some(from) = after.take() {
            let (rows, next) =
                page(client.ask(ask(from)).await?).ok_or_else(Problem::unexpected)?;
            all.extend(rows);
            after = next;
        }
        Ok(all)
    }

    /// A queue, if it exists.
    pub(crate) async fn queue(&self, queue: bytes::Bytes) -> Outcome<Option<QueueRow>> {
        let Reply::Queues { rows, .. } = self.ask(Query::Queue { queue }).await? else {
            return Err(Problem::unexpected());
        };
        Ok(rows.into_iter().next())
    }
}

impl Now {
    /// The text of a moment given in the engine's time.
    pub(crate) fn text(self, at: Timestamp) -> Option<String> {
        moment_text(self.to_wall(at))
    }

    /// A moment in the engine's time, by the wall clock.
    pub(crate) const fn to_wall(self, at: Timestamp) -> Timestamp {
        at.shifted(self.skew_ms)
    }

    /// The wall clock, and how far it is ahead of the engine's time.
    pub(crate) const fn with_skew(self) -> (Timestamp, i64) {
        (self.wall, self.skew_ms)
    }

    /// This much later in the engine's time.
    pub(crate) const fn after(self, period: Period) -> Timestamp {
        self.engine.after_ms(period.as_ms())
    }
}
