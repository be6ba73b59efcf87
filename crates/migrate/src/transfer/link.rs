//! One connection of TCP, with or without TLS: bytes out, bytes in, each within a time.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use windlass_operate::tls::{is_refusal, is_unwelcome};

use super::place::Place;

/// The largest job, which is the daemon's own default.
pub(super) const JOB_BYTES_MAX: usize = 64 << 20;

/// How long a peer may take to answer: a daemon whose disk is slow needs longer than one that is well.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

const CONNECT: Duration = Duration::from_secs(10);

/// Room for one read.
const CHUNK_BYTES: usize = 64 << 10;

/// Why a connection is of no more use.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Another connection may do better.
    Lost(String),
    /// Another connection would end the same way: a person must act.
    Fatal(String),
}

impl Trouble {
    pub(super) fn lost(why: impl ToString) -> Self {
        Self::Lost(why.to_string())
    }

    pub(super) fn into_text(self) -> String {
        match self {
            Self::Lost(why) | Self::Fatal(why) => why,
        }
    }

    /// The peer sends what its protocol does not permit.
    pub(super) fn strange(sent: &[u8]) -> Self {
        let shown = sent.get(..60).unwrap_or(sent);
        Self::Lost(format!("unexpected answer `{}`", shown.escape_ascii()))
    }
}

/// A connection and the bytes that have come but are not read.
#[derive(Debug)]
pub(super) struct Link {
    stream: Box<dyn Stream>,
    pub(super) input: BytesMut,
}

/// TCP, or TLS over it.
trait Stream: AsyncRead + AsyncWrite + Unpin + Debug {}
impl<T: AsyncRead + AsyncWrite + Unpin + Debug> Stream for T {}

impl Link {
    pub(super) async fn connect(place: &Place) -> Result<Self, Trouble> {
        let stream = within(CONNECT, "the connection", async {
            let stream = TcpStream::connect((place.host.as_str(), place.port))
                .await
                .map_err(Trouble::lost)?;
            stream.set_nodelay(true).map_err(Trouble::lost)?;
            let Some(tls) = &place.tls else {
                return Ok(Box::new(stream) as Box<dyn Stream>);
            };
            match tls.connect(&place.host, stream).await {
                Ok(stream) => Ok(Box::new(stream) as _),
                Err(why) if is_refusal(&why) => Err(Trouble::Fatal(format!("TLS: {why}"))),
                Err(why) => Err(Trouble::lost(why)),
            }
        });
        Ok(Self {
            stream: stream.await?,
            input: BytesMut::new(),
        })
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        let sent = async {
            self.stream.write_all(bytes).await.map_err(Trouble::lost)?;
            self.stream.flush().await.map_err(Trouble::lost)
        };
        within(PATIENCE, "a peer that reads nothing", sent).await
    }

    /// Waits for more bytes. Cancelling loses none.
    pub(super) async fn more(&mut self) -> Result<(), Trouble> {
        if self.input.capacity() - self.input.len() < CHUNK_BYTES / 4 {
            self.input.reserve(CHUNK_BYTES);
        }
        match self.stream.read_buf(&mut self.input).await {
            Ok(0) => Err(Trouble::lost("the peer closed the connection")),
            Ok(_) => Ok(()),
            // With TLS 1.3 a peer refuses our certificate only now.
            Err(why) if is_unwelcome(&why) => Err(Trouble::Fatal(format!("TLS: {why}"))),
            Err(why) => Err(Trouble::lost(why)),
        }
    }

    /// Waits this long for more bytes. Returns whether any came.
    pub(super) async fn more_within(&mut self, time: Duration) -> Result<bool, Trouble> {
        timeout(time, self.more())
            .await
            .map_or(Ok(false), |read| read.map(|()| true))
    }
}

/// The outcome of something that must not take longer than this.
pub(super) async fn within<T>(
    time: Duration,
    what: &str,
    future: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Trouble> {
    let late = |_| Trouble::Lost(format!("{what}: nothing within {} s", time.as_secs()));
    timeout(time, future).await.map_err(late)?
}

/// Bytes that outsiders cannot guess.
pub(super) fn random<const BYTES: usize>() -> Result<[u8; BYTES], Trouble> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|why| Trouble::Fatal(why.to_string()))?;
    Ok(bytes)
}
