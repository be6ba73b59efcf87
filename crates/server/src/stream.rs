//! The socket of a connection, of any kind, and one property of TCP that matters to it.
//!
//! A peer without `TCP_NODELAY` (most client libraries) sends its second small write only when the first has been acknowledged
//! (Nagle, RFC 896), and the kernel delays the acknowledgement, so that it can travel with an answer (RFC 9293, 3.8.6.3). If a
//! message gets no answer, that costs time: `WORK_COMPLETE` and `GRAB_JOB` in two writes take 40 ms. So the connection asks for
//! the acknowledgement itself after each read that led to no answer, and only then. A peer that waits for a job (`PRE_SLEEP`,
//! `FETCH`, `READY`) sends nothing more, and the notification it gets carries the acknowledgement.

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::tls::TlsStream;

/// A socket of any kind.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {
    /// Acknowledges the bytes just read at once, where acknowledgements are delayed. The kernel forgets the request, so each read
    /// needs a call.
    fn acknowledge(&self) {}
}

impl Stream for TcpStream {
    fn acknowledge(&self) {
        // If it fails, the peer waits a moment longer.
        let _ = SockRef::from(self).set_tcp_quickack(true);
    }
}

impl Stream for TlsStream {
    fn acknowledge(&self) {
        self.socket().acknowledge();
    }
}

impl Stream for UnixStream {}

#[cfg(test)]
impl Stream for tokio::io::DuplexStream {}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll};

    use bytes::BytesMut;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex};
    use tokio::net::TcpListener;
    use windlass_engine::{
        ClientCommand, ClientId, ClientInfo, Engine, Event, JobCommand, Limits, NewJob, Protocol, Query, Reply, Tag,
        TakeCommand, Timestamp,
    };
    use windlass_session::{Outbox, Session};
    use windlass_store::Journal;

    use super::*;
    use crate::broker::Broker as _;
    use crate::connection::Connection;
    use crate::connection::tests::{BOUNDS, guest, shared};
    use crate::hub::{Durability, Hub};

    #[tokio::test]
    async fn tcp_acknowledges_when_it_is_asked_to() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (peer, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let (_peer, (stream, _)) = (peer.unwrap(), accepted.unwrap());
        // As after an exchange of requests and replies.
        SockRef::from(&stream).set_tcp_quickack(false).unwrap();
        assert!(!SockRef::from(&stream).tcp_quickack().unwrap());
        stream.acknowledge();
        assert!(SockRef::from(&stream).tcp_quickack().unwrap());
    }

    /// Counts the calls of `acknowledge`.
    struct Counting(DuplexStream, Arc<AtomicUsize>);

    impl Stream for Counting {
        fn acknowledge(&self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl AsyncRead for Counting {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Counting {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    /// Answers `?` itself, has the engine answer `!` once it is on the disk, sleeps at `z`, and answers nothing else.
    #[derive(Debug)]
    struct Terse;

    impl Session for Terse {
        fn on_open(&mut self, _: Timestamp, out: &mut Outbox) {
            out.command(Tag::NONE, ClientCommand::Open(ClientInfo::default()));
        }

        fn on_bytes(&mut self, _: Timestamp, input: &mut BytesMut, out: &mut Outbox) {
            for byte in input.split() {
                match byte {
                    b'?' => out.bytes().extend_from_slice(b"."),
                    b'!' => {
                        let job = NewJob::new(Protocol::GEARMAN, "f".into(), "w".into());
                        out.command(Tag(1), JobCommand::Push(Box::new(job)));
                    }
                    b'z' => out.command(Tag::NONE, TakeCommand::WaitForWork),
                    _ => {}
                }
            }
        }

        fn on_event(&mut self, _: Timestamp, event: Event, out: &mut Outbox) {
            if let Event::Reply(_, Reply::Pushed { .. }) = event {
                out.bytes().extend_from_slice(b"+");
            }
        }
    }

    #[tokio::test]
    async fn only_reads_without_an_answer_are_acknowledged_at_once() {
        let hub = Arc::new(Hub::new(Engine::new(Limits::default(), 7), Journal::new(), Durability::Durable, 7));
        let (ours, mut theirs) = duplex(1024);
        let asked = Arc::new(AtomicUsize::new(0));
        let stream = Counting(ours, Arc::clone(&asked));
        let greet = |_| Box::new(Terse) as Box<dyn Session>;
        let connection = Connection::new(stream, greet, ClientId(1), Arc::default(), shared(&hub), BOUNDS, guest());
        let served = tokio::spawn(connection.serve());
        let asked = || asked.load(Ordering::Relaxed);

        theirs.write_all(b"?").await.unwrap();
        assert_eq!(theirs.read_u8().await.unwrap(), b'.');
        assert_eq!(asked(), 0, "an answer at once");
        theirs.write_all(b"!").await.unwrap();
        while !hub.with_journal(|engine, _| engine.job_count() == 1) {
            tokio::task::yield_now().await;
        }
        // The rest of the daemon's turn: nothing else runs on this thread.
        tokio::task::yield_now().await;
        assert_eq!(asked(), 0, "an answer that waits for the disk");
        let acknowledged = hub.committed(hub.cut().unwrap().commit.seq());
        acknowledged.iter().for_each(|mailbox| mailbox.ring());
        assert_eq!(theirs.read_u8().await.unwrap(), b'+');
        for silent in 1..=3 {
            theirs.write_all(b"-").await.unwrap();
            while asked() < silent {
                tokio::task::yield_now().await;
            }
            theirs.write_all(b"-?").await.unwrap();
            assert_eq!(theirs.read_u8().await.unwrap(), b'.');
            assert_eq!(asked(), silent, "once for each read without an answer");
        }
        theirs.write_all(b"z").await.unwrap();
        let list = || hub.ask(Query::Clients { after: windlass_engine::Cursor::default(), limit: 9 }.into());
        while !matches!(list(), Ok(Reply::Clients { rows, .. }) if rows.iter().any(|row| row.waits)) {
            tokio::task::yield_now().await;
        }
        theirs.write_all(b"?").await.unwrap();
        assert_eq!(theirs.read_u8().await.unwrap(), b'.');
        assert_eq!(asked(), 3, "a peer that waits for a job sends nothing more");
        drop(theirs);
        served.await.unwrap();
        assert_eq!(asked(), 3, "at the end it is not needed");
    }
}
