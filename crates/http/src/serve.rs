//! Connections: a thread with a runtime of its own, listeners, and limits on time and numbers.
//!
//! A connection above the limit waits until another one ends, those behind it in the system's queue. A peer that sends
//! no headers, or reads no answers, is disconnected; a peer that waits for a job may wait.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_io_timeout::TimeoutStream;
use tokio_util::io::{InspectReader, InspectWriter};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;
use windlass_server::door::{Connects, Inside, OpenDoor, Socket};
use windlass_server::figures::Counts;
use windlass_session::Reason;

use crate::api;
use crate::app::{App, Peer};
use crate::config::{Configured, Http, SOCKET};
use crate::places::{Place, Places};
use crate::site::{History, Prefix, below_prefix};
use crate::spans;

/// How long a peer may take for the headers of its next request, and be silent between two.
const HEADERS_PATIENCE: Duration = Duration::from_secs(30);

/// How long a peer may read nothing of its answer.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);

/// How long connections may take to end when the daemon stops.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// Pause after the kernel fails to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bytes of the headers of one request.
const HEADERS_BYTES_MAX: usize = 16 << 10;

const HEADERS_MAX: usize = 64;

/// Starts the thread.
pub(crate) fn start(configured: &Configured, sockets: Vec<Socket>, inside: Inside) -> io::Result<OpenDoor> {
    let (stop, counts, connects) = (inside.stop.clone(), inside.figures.counts("http"), inside.connects.clone());
    let app = Arc::new(App::new(configured, inside, Arc::clone(&counts))?);
    let watch = History::watch(Arc::clone(&app));
    let spans = spans::follow(&configured.telemetry, &app, &stop)?;
    let places = Places::new(configured.http.connections_max);
    let shared = Arc::new(Limits { app: Arc::clone(&app), places: Arc::clone(&places) });
    let prefix = Prefix::of_config(&configured.http.path_prefix).map_err(io::Error::other)?;
    let house = House { router: api::router(app), prefix, places, tasks: TaskTracker::new(), counts, connects, stop };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let spans = spans.map(|spans| runtime.spawn(spans));
    let serve = async move {
        tokio::select! {
            () = house.serve(sockets) => {}
            () = watch => {}
        }
        // The last spans leave, as far as their own patience allows.
        if let Some(spans) = spans {
            let _ = spans.await;
        }
    };
    let thread = Builder::new().name("http".to_owned()).spawn(move || runtime.block_on(serve))?;
    Ok(OpenDoor { thread, shared })
}

/// The limits that a reload changes.
pub(crate) struct Limits {
    app: Arc<App>,
    places: Arc<Places>,
}

impl Limits {
    /// Applies `connections_max` and `session_idle`. Open connections and sessions in use stay.
    pub(crate) fn renew(&self, http: &Http) {
        self.places.limit(http.connections_max);
        self.app.renew(http);
    }
}

/// What all connections share.
#[derive(Clone, Debug)]
struct House {
    router: Router,
    prefix: Prefix,
    places: Arc<Places>,
    tasks: TaskTracker,
    counts: Arc<Counts>,
    connects: Connects,
    stop: CancellationToken,
}

impl House {
    async fn serve(self, sockets: Vec<Socket>) {
        for socket in sockets {
            let house = self.clone();
            self.tasks.spawn(async move {
                let outcome = match socket {
                    Socket::Tcp(listener) => house.accept_all(TcpListener::from_std(listener)).await,
                    Socket::Unix(listener) => house.accept_all(UnixListener::from_std(listener)).await,
                };
                if let Err(error) = outcome {
                    tracing::error!(%error, "http: a listener cannot be used");
                }
            });
        }
        self.stop.cancelled().await;
        self.tasks.close();
        if tokio::time::timeout(STOP_PATIENCE, self.tasks.wait()).await.is_err() {
            tracing::warn!(open = self.tasks.len(), "http: connections are closed although requests are under way");
        }
    }

    /// Accepts connections until the daemon stops, and serves each once there is a place for it.
    async fn accept_all(self, listener: io::Result<impl Accept>) -> io::Result<()> {
        let listener = listener?;
        loop {
            let accepted = async {
                let (stream, peer) = listener.accept(&self.connects).await?;
                // Not before: a listener without connections would hold a place.
                let place = self.places.take().await.ok_or(io::ErrorKind::BrokenPipe)?;
                Ok((stream, peer, place))
            };
            let accepted: io::Result<_> = tokio::select! {
                () = self.stop.cancelled() => return Ok(()),
                accepted = accepted => accepted,
            };
            match accepted {
                Ok((stream, peer, place)) if peer.ip.is_none_or(|ip| self.connects.admit(ip)) => {
                    self.enter(stream, peer, place);
                }
                Ok(_) => {
                    self.counts.opened();
                    self.counts.closed(Reason::Limit("connections_per_address_per_minute").code());
                }
                Err(error) => {
                    tracing::debug!(%error, "http: cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn enter<S>(&self, stream: S, peer: Peer, place: Place)
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (service, stop, counts) = (self.service(peer), self.stop.clone(), Arc::clone(&self.counts));
        self.tasks.spawn(async move {
            counts.opened();
            let stream = InspectReader::new(stream, |bytes: &[u8]| counts.received(bytes.len()));
            let stream = InspectWriter::new(stream, |bytes: &[u8]| counts.sent(bytes.len()));
            let reason = converse(stream, service, stop).await;
            counts.closed(reason.code());
            drop(place);
        });
    }

    /// What answers the requests of one connection.
    fn service(
        &self,
        peer: Peer,
    ) -> impl Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send> + Send + use<>
    {
        let (router, prefix) = (self.router.clone(), self.prefix.clone());
        service_fn(move |request: Request<Incoming>| {
            let mut request = below_prefix(request.map(Body::new), &prefix);
            request.extensions_mut().insert(peer.clone());
            let mut router = router.clone();
            async move { Ok(router.call(request).await.unwrap_or_else(|never| match never {})) }
        })
    }
}

/// A listener of either kind.
trait Accept: Sync {
    type Stream: AsyncRead + AsyncWrite + Send + 'static;

    fn accept(&self, connects: &Connects) -> impl Future<Output = io::Result<(Self::Stream, Peer)>> + Send;
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self, connects: &Connects) -> io::Result<(TcpStream, Peer)> {
        let (stream, address) = Self::accept(self).await?;
        connects.keep_alive(&stream);
        // Only a little slower if the system cannot do this.
        let _ = stream.set_nodelay(true);
        Ok((stream, Peer { address: address.to_string().into(), ip: Some(address.ip()), is_owner: false }))
    }
}

impl Accept for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self, _: &Connects) -> io::Result<(UnixStream, Peer)> {
        let (stream, _) = Self::accept(self).await?;
        // The configuration lets no other socket have this name.
        let address = self.local_addr()?;
        let is_owner = address.as_pathname().and_then(Path::file_name) == Some(OsStr::new(SOCKET));
        Ok((stream, Peer { address: "".into(), ip: None, is_owner }))
    }
}

/// Serves one connection to its end.
async fn converse<S>(stream: impl AsyncRead + AsyncWrite, service: S, stop: CancellationToken) -> Reason
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>,
{
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_PATIENCE));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADERS_PATIENCE);
    builder.max_headers(HEADERS_MAX).max_buf_size(HEADERS_BYTES_MAX);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(Box::pin(stream)), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
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
