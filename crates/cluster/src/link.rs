//! The socket of a link, on both sides: frames, TLS and liveness.
//!
//! While one batch is written, the next is collected. A leader never waits for an edge: an edge
//! that does not read is disconnected. While its lease is uncertain, a leader sends heartbeats and
//! nothing else.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use windlass_link::{About, Decoder, Encoder, FRAME_BYTES_MAX, Item, Rejection};

use super::tls::Tls;

mod follow;
mod serve;

pub use follow::follow;
pub use serve::{Kept, Leading, accept, serve};
pub use serve::{number, numbered, welcome};

/// Heartbeat interval: a leader sends at least the time this often.
pub const BEAT: Duration = Duration::from_millis(200);

/// An edge that receives nothing for this long looks for a leader again.
pub const SILENCE_MAX: Duration = Duration::from_secs(2);

/// Timeout of the connection and its greeting.
pub const OPEN_MAX: Duration = Duration::from_secs(2);

/// How long sent bytes may stay unacknowledged by the other machine.
pub const UNANSWERED_MAX: Duration = Duration::from_secs(5);

/// The settings that both sides of a link must agree on, and the encryption.
#[derive(Debug)]
pub struct Terms {
    /// The name of the cluster.
    pub cluster: Box<str>,
    /// This daemon's name, for display.
    pub name: Box<str>,
    /// A digest of the settings that must be equal on all daemons.
    pub settings: [u8; 32],
    /// The encryption of the link.
    pub tls: Option<Tls>,
    /// Maximum bytes buffered for one client.
    pub outbound_bytes_max: usize,
}

/// Why a link was closed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The other daemon closed it.
    #[error("closed by the peer")]
    Closed,
    /// The leader stepped down.
    #[error("leader stepped down")]
    Over,
    /// This daemon closed it.
    #[error("closed locally")]
    Ours,
    /// Another daemon is the leader.
    #[error("{0} is the leader now")]
    Superseded(String),
    /// A newer link of the same daemon exists.
    #[error("replaced by a newer connection of the same daemon")]
    Replaced,
    /// Nothing was received for too long.
    #[error("nothing received for {} s", SILENCE_MAX.as_secs())]
    Silent,
    /// The greeting took too long.
    #[error("no greeting within {} s", OPEN_MAX.as_secs())]
    Slow,
    /// The other daemon does not read.
    #[error("send buffer full: peer is not reading")]
    DoesNotRead,
    /// The limit on edges is reached.
    #[error("too many edges are connected")]
    TooMany,
    /// The database did not record the edge in time.
    #[error("not recorded in the database within {} s", OPEN_MAX.as_secs())]
    NotRecorded,
    /// The other daemon belongs to another cluster.
    #[error("belongs to another cluster, {0:?}")]
    Stranger(Box<str>),
    /// The leader rejected this daemon.
    #[error("rejected by the leader: {0}")]
    Refused(Rejection),
    /// The bytes are not a valid message.
    #[error("malformed message on the link: {0}")]
    Malformed(String),
}

impl LinkError {
    /// Whether the other daemon is up, but closed the connection before any greeting.
    pub fn is_hang_up(&self) -> bool {
        let is_end = |why: &io::Error| {
            matches!(
                why.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
            )
        };
        matches!(self, Self::Closed) || matches!(self, Self::Io(why) if is_end(why))
    }
}

/// Converts information about a daemon for operators.
fn to_view(
    About {
        version,
        cannot_lead,
    }: About,
) -> windlass_hub::About {
    windlass_hub::About {
        version: version.into(),
        cannot_lead: cannot_lead.into(),
    }
}

/// Converts information about a daemon for other daemons.
fn to_link(about: windlass_hub::About) -> About {
    About {
        version: about.version.into(),
        cannot_lead: about.cannot_lead.into(),
    }
}

/// A socket, encrypted or not.
pub trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Socket for T {}

/// A link that reads `I` and writes `O`.
struct Wire<I, O> {
    socket: Box<dyn Socket>,
    decoder: Decoder<I>,
    encoder: Encoder<O>,
    out: Vec<u8>,
    /// The number of bytes of `out` that were written to the socket.
    written: usize,
}

impl<I: Item, O: Item> Wire<I, O> {
    fn new(socket: Box<dyn Socket>) -> Self {
        let (decoder, encoder) = (Decoder::new(FRAME_BYTES_MAX), Encoder::new(FRAME_BYTES_MAX));
        Self {
            socket,
            decoder,
            encoder,
            out: Vec::new(),
            written: 0,
        }
    }

    /// Sends the last item and closes the connection, with a short timeout.
    async fn close(&mut self, last: &O) {
        let end = async {
            if self.push(last).is_ok() {
                self.encoder.take_into(&mut self.out);
                let rest = self.out.get(self.written..).unwrap_or_default();
                self.socket.write_all(rest).await?;
                self.socket.shutdown().await?;
            }
            io::Result::Ok(())
        };
        // The link is closed in any case.
        let _ = timeout(BEAT, end).await;
    }

    /// Queues an item.
    fn push(&mut self, item: &O) -> Result<(), LinkError> {
        self.encoder
            .push(item)
            .map_err(|error| LinkError::Malformed(error.to_string()))
    }

    /// The number of bytes not yet written to the socket.
    fn unsent(&self) -> usize {
        self.encoder.len() + self.out.len() - self.written
    }

    /// Returns the next received item.
    fn next(&mut self) -> Result<Option<I>, LinkError> {
        self.decoder
            .next()
            .map_err(|error| LinkError::Malformed(error.to_string()))
    }

    /// Writes queued bytes until something is received or `rung` resolves. Returns whether
    /// something was received.
    async fn step(&mut self, rung: impl Future<Output = ()>) -> Result<bool, LinkError> {
        let mut rung = pin!(rung);
        let Self {
            socket,
            decoder,
            encoder,
            out,
            written,
        } = self;
        let (mut reader, mut writer) = tokio::io::split(socket);
        loop {
            if out.is_empty() {
                encoder.take_into(out);
            }
            let rest = out.get(*written..).unwrap_or_default();
            tokio::select! {
                read = reader.read_buf(decoder.input()) => return match read {
                    Ok(0) => Err(LinkError::Closed),
                    Ok(_) => Ok(true),
                    // A killed process sends no TLS goodbye. Frames carry their lengths, so a
                    // truncated stream is still detected.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(LinkError::Closed),
                    Err(error) => Err(error.into()),
                },
                wrote = writer.write(rest), if !rest.is_empty() => {
                    *written += wrote?;
                    if *written == out.len() {
                        out.clear();
                        *written = 0;
                        writer.flush().await?;
                    }
                }
                () = &mut rung => return Ok(false),
            }
        }
    }
}

/// Disables Nagle's algorithm and enables detection of unreachable machines.
pub fn set_up(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    SockRef::from(socket).set_tcp_user_timeout(Some(UNANSWERED_MAX))
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use tokio::runtime::Builder;
    use windlass_link::{ToEdge, ToLeader};

    use super::*;

    #[test]
    fn bytes_that_the_socket_has_not_taken_are_unsent() {
        const TAKES_BYTES: usize = 16;
        let (ours, _theirs) = tokio::io::duplex(TAKES_BYTES);
        let mut wire = Wire::<ToLeader, ToEdge>::new(Box::new(ours));
        let more = |wire: &mut Wire<ToLeader, ToEdge>| {
            let text = Box::from("a cluster's name that does not fit into the socket");
            wire.push(&ToEdge::Refused(Rejection::Cluster(text)))
                .unwrap();
            wire.encoder.len()
        };
        let first = more(&mut wire);
        assert_eq!(wire.unsent(), first);
        let step = pin!(wire.step(std::future::pending()))
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready();
        assert!(!step, "the socket is full");
        assert_eq!(wire.unsent(), first - TAKES_BYTES);
        let second = more(&mut wire);
        assert_eq!(wire.unsent(), first - TAKES_BYTES + second);
    }

    #[test]
    fn a_links_socket_sends_small_pieces_at_once_and_notices_that_a_machine_is_gone() {
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        runtime.block_on(async {
            let socket = TcpStream::connect(listener.local_addr().unwrap())
                .await
                .unwrap();
            set_up(&socket).unwrap();
            assert!(socket.nodelay().unwrap());
            assert_eq!(
                SockRef::from(&socket).tcp_user_timeout().unwrap(),
                Some(UNANSWERED_MAX)
            );
        });
    }
}
