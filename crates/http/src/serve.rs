//! Connections: a thread with a separate runtime, listeners, and limits of time and number.
//!
//! At the limit, a connection without a request is evicted for a new one (`pool`). A peer that sends no
//! headers, or reads no responses, is disconnected; a peer that is waiting for a job is not.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_io_timeout::TimeoutStream;
use tokio_util::io::{InspectReader, InspectWriter};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;
use windlass_config::SOCKET;
use windlass_daemon::figures::Counts;
use windlass_daemon::operator_port::{Admitted, Connects, Inside, OpenPort, Socket};
use windlass_session::Reason;

use crate::app::{App, Peer};
use crate::config::{Configured, Http};
use crate::guard::PROBES;
use crate::login::user_name;
use crate::pool::{ConnectionPool, Place};
use crate::prefix::{Prefix, below_prefix};
use crate::problem::Problem;
use crate::proxy::passed_on;
use crate::router::router;
use crate::site::watch;

/// The time limit for the headers of the next request, including the idle time before it.
const HEADERS_PATIENCE: Duration = Duration::from_secs(30);

/// How long a peer may read nothing of the response.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);

/// The time limit for connections to finish when the daemon stops.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// Pause after the kernel fails to accept a connection, and while there is no place at all.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bytes of the headers of a request.
const HEADERS_BYTES_MAX: usize = 16 << 10;

const HEADERS_MAX: usize = 64;

/// Starts the thread.
pub(crate) fn start(
    configured: &Configured,
    sockets: UnboundedReceiver<Socket>,
    inside: Inside,
) -> io::Result<OpenPort> {
    let (stop, counts, connects) = (
        inside.stop.clone(),
        inside.figures.counts("http"),
        inside.connects.clone(),
    );
    let app = Arc::new(App::new(configured, inside, Arc::clone(&counts))?);
    let watch = watch(Arc::clone(&app));
    let pool = ConnectionPool::new(connects.most(configured.http.connections_max));
    let shared = Arc::new(Limits {
        app: Arc::clone(&app),
        pool: Arc::clone(&pool),
        connects: connects.clone(),
    });
    let prefix = Prefix::of_config(&configured.http.path_prefix).map_err(io::Error::other)?;
    let trusted_proxies = configured.http.trusted_proxies.as_slice().into();
    let (router, tasks) = (router(app), TaskTracker::new());
    let listeners = Listeners {
        router,
        prefix,
        trusted_proxies,
        pool,
        tasks,
        counts,
        connects,
        stop,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let serve = async move {
        tokio::select! {
            () = listeners.serve(sockets) => {}
            () = watch => {}
        }
    };
    let thread = Builder::new()
        .name("http".to_owned())
        .spawn(move || runtime.block_on(serve))?;
    Ok(OpenPort { thread, shared })
}

/// The limits that a reload modifies.
pub(crate) struct Limits {
    app: Arc<App>,
    pool: Arc<ConnectionPool>,
    connects: Connects,
}

impl Limits {
    /// Applies `connections_max` and `session_idle`. Open connections and sessions in use stay.
    pub(crate) fn renew(&self, http: &Http) {
        self.pool.limit(self.connects.most(http.connections_max));
        self.app.renew(http);
    }
}

/// The resources of a connection until it is closed. A connection to a Unix socket has no address.
type Admission = (Arc<Place>, Option<Admitted>);

/// The state that all connections share.
#[derive(Clone, Debug)]
struct Listeners {
    router: Router,
    prefix: Prefix,
    trusted_proxies: Arc<[IpAddr]>,
    pool: Arc<ConnectionPool>,
    tasks: TaskTracker,
    counts: Arc<Counts>,
    connects: Connects,
    stop: CancellationToken,
}

impl Listeners {
    async fn serve(self, mut sockets: UnboundedReceiver<Socket>) {
        loop {
            let socket = tokio::select! {
                () = self.stop.cancelled() => break,
                Some(socket) = sockets.recv() => socket,
            };
            let listeners = self.clone();
            self.tasks.spawn(async move {
                let outcome = match socket {
                    Socket::Tcp(listener) => {
                        listeners.accept_all(TcpListener::from_std(listener)).await
                    }
                    Socket::Unix(listener) => {
                        listeners.accept_all(UnixListener::from_std(listener)).await
                    }
                };
                if let Err(error) = outcome {
                    tracing::error!(%error, "http: cannot use a listener");
                }
            });
        }
        self.tasks.close();
        if tokio::time::timeout(STOP_PATIENCE, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                open = self.tasks.len(),
                "http: closing connections with requests in progress"
            );
        }
    }

    /// Accepts connections until the daemon stops, and serves each once there is a place for it, usually
    /// immediately.
    async fn accept_all(self, listener: io::Result<impl Accept>) -> io::Result<()> {
        let listener = listener?;
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => return Ok(()),
                accepted = self.accept_one(&listener) => accepted,
            };
            match accepted {
                Ok(Some((stream, peer, (place, admitted)))) => {
                    self.enter(stream, peer, place, admitted)
                }
                Ok(None) => {
                    self.counts.opened();
                    self.counts
                        .closed(Reason::Limit("connections_per_address").code());
                }
                Err(error) => {
                    tracing::debug!(%error, "http: cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Accepts a connection, with a place. `None`: the address has too many connections.
    async fn accept_one<A: Accept>(
        &self,
        listener: &A,
    ) -> io::Result<Option<(A::Stream, Peer, Admission)>> {
        let (stream, peer) = listener.accept(&self.connects).await?;
        let admitted = match peer.ip.map(|ip| self.connects.admit(ip)) {
            Some(None) => return Ok(None),
            admitted => admitted.flatten(),
        };
        // Acquired only after a connection was accepted, because an idle listener would otherwise
        // occupy a place.
        let place = loop {
            match self.pool.enter(&peer.address) {
                Some((place, displaced)) => {
                    displaced.iter().for_each(|peer| {
                        self.warn_full(peer, "closed a connection: incomplete request")
                    });
                    break place;
                }
                None => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        };
        Ok(Some((stream, peer, (place, admitted))))
    }

    fn warn_full(&self, peer: &str, done: &'static str) {
        self.connects.warn_full("http.connections_max", peer, done);
    }

    fn enter<S>(&self, stream: S, peer: Peer, place: Arc<Place>, admitted: Option<Admitted>)
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (stop, leave) = (self.stop.clone(), place.leave.clone());
        let counts = Arc::clone(&self.counts);
        let service = self.clone().service(peer, place);
        self.tasks.spawn(async move {
            counts.opened();
            let stream = InspectReader::new(stream, |bytes: &[u8]| counts.received(bytes.len()));
            let stream = InspectWriter::new(stream, |bytes: &[u8]| counts.sent(bytes.len()));
            let reason = converse(stream, service, stop, leave).await;
            counts.closed(reason.code());
            drop(admitted);
        });
    }

    /// The service for the requests of a connection.
    fn service(
        self,
        peer: Peer,
        place: Arc<Place>,
    ) -> impl Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Send
    + use<> {
        service_fn(move |request: Request<Incoming>| {
            let mut request = below_prefix(request.map(Body::new), &self.prefix);
            let from = passed_on(&peer, request.headers(), &self.trusted_proxies);
            request
                .extensions_mut()
                .insert(from.unwrap_or_else(|| peer.clone()));
            let (work, is_last) =
                place.begin(peer.owner.is_some() || PROBES.contains(&request.uri().path()));
            if work.is_none() {
                self.warn_full(&peer.address, "refused a request");
            }
            let mut router = self.router.clone();
            async move {
                let mut response = match work {
                    Some(_) => router
                        .call(request)
                        .await
                        .unwrap_or_else(|never| match never {}),
                    None => too_many().into_response(),
                };
                if is_last {
                    response
                        .headers_mut()
                        .insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                // The request is in progress until the body was sent.
                Ok(response.map(|body| {
                    Body::new(body.map_err(move |error| {
                        let _ = &work;
                        error
                    }))
                }))
            }
        })
    }
}

fn too_many() -> Problem {
    let detail = "all http.connections_max connections are busy";
    Problem::unavailable("too_many_connections", detail)
}

/// A listener of either kind.
trait Accept: Sync {
    type Stream: AsyncRead + AsyncWrite + Send + 'static;

    fn accept(
        &self,
        connects: &Connects,
    ) -> impl Future<Output = io::Result<(Self::Stream, Peer)>> + Send;
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self, connects: &Connects) -> io::Result<(TcpStream, Peer)> {
        let (stream, address) = Self::accept(self).await?;
        connects.keep_alive(&stream);
        // Only a little slower if the system cannot do this.
        let _ = stream.set_nodelay(true);
        Ok((
            stream,
            Peer {
                address: address.to_string().into(),
                ip: Some(address.ip()),
                owner: None,
            },
        ))
    }
}

impl Accept for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self, _: &Connects) -> io::Result<(UnixStream, Peer)> {
        let (stream, _) = Self::accept(self).await?;
        // The configuration reserves this name for this socket.
        let address = self.local_addr()?;
        let is_private =
            address.as_pathname().and_then(Path::file_name) == Some(OsStr::new(SOCKET));
        let user = || {
            stream
                .peer_cred()
                .map_or_else(|_| "unknown".to_owned(), |peer| user_name(peer.uid()))
        };
        let owner = is_private.then(|| user().into());
        Ok((
            stream,
            Peer {
                address: "".into(),
                ip: None,
                owner,
            },
        ))
    }
}

/// Waits until the daemon stops and the runtime has polled all sockets once more, so that requests that had
/// arrived were started.
async fn last_look(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::task::yield_now().await;
}

/// Serves a connection until it is closed, evicted, or the daemon stops.
async fn converse<S>(
    stream: impl AsyncRead + AsyncWrite,
    service: S,
    stop: CancellationToken,
    leave: CancellationToken,
) -> Reason
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>,
{
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_PATIENCE));
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_PATIENCE);
    builder
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADERS_BYTES_MAX);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(Box::pin(stream)), service));
    let ended = tokio::select! {
        biased;
        () = leave.cancelled() => return Reason::Limit("connections_max"),
        ended = connection.as_mut() => ended,
        () = last_look(&stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    match ended {
        _ if stop.is_cancelled() => Reason::Shutdown,
        Ok(()) => Reason::PeerClosed,
        Err(error) => {
            tracing::debug!(%error, "http: a connection ended");
            match () {
                () if error.is_timeout() => Reason::TimedOut("headers"),
                () if error.is_parse() => Reason::Protocol(error.to_string()),
                () => Reason::PeerClosed,
            }
        }
    }
}
