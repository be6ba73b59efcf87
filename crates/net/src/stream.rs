//! The socket of a connection, of any kind, and a workaround for delayed acknowledgements of TCP.
//!
//! A peer without `TCP_NODELAY`, like most client libraries, delays its second small write until
//! the first is acknowledged (Nagle, RFC 896), and the kernel delays the acknowledgement so that it
//! can accompany a reply (RFC 9293, 3.8.6.3). A message without a reply then costs time:
//! `WORK_COMPLETE` and `GRAB_JOB` in two writes take 40 ms. So the connection requests an immediate
//! acknowledgement after each read that leads to no reply, and only then. A peer that waits for a
//! job (`PRE_SLEEP`, `FETCH`, `READY`) sends nothing more, and the acknowledgement accompanies its
//! notification.

use std::fmt;
use std::io;
use std::os::fd::AsFd;

use mio::event::Source;
use rustix::buffer::spare_capacity;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::SockRef;

/// A non-blocking socket of any kind.
pub(crate) trait Stream: Send + fmt::Debug {
    /// Continues the handshake. Returns whether it is complete.
    ///
    /// # Errors
    ///
    /// It failed, or the peer is gone. [`io::ErrorKind::ConnectionAborted`]: the peer left without
    /// sending a byte.
    fn shake_hands(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    /// The namespace that the handshake has told, if it has.
    fn namespace(&self) -> Option<Box<str>> {
        None
    }

    /// Reads into the buffer, and returns the number of bytes; 0 at the end of the stream.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`]: there are no bytes. Others: the peer is gone.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Appends to a buffer up to its capacity. Otherwise like [`Stream::read`].
    ///
    /// # Errors
    ///
    /// As in [`Stream::read`].
    fn read_behind(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize>;

    /// Whether a read that does not fill its buffer has emptied the socket.
    fn is_drained_by_short_reads(&self) -> bool {
        true
    }

    /// Writes, and returns how many bytes the kernel has accepted. After an error the same bytes
    /// must be offered again, possibly followed by more.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`]: the kernel accepts no more now. Others: the peer is gone.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Acknowledges the bytes just read immediately, where acknowledgements are delayed. The kernel
    /// forgets the request, so each read needs a call.
    fn acknowledge(&self) {}

    /// Whether the kernel must report when it accepts more bytes, although none are offered to
    /// `write`.
    fn has_unwritten(&self) -> bool {
        false
    }

    /// The event source on which a thread waits.
    fn source(&mut self) -> &mut dyn Source;
}

/// A kernel socket: TCP or Unix.
impl<T: Source + AsFd + Send + fmt::Debug + 'static> Stream for T {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self, buffer, RecvFlags::empty())?.1)
    }

    fn read_behind(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        Ok(recv(self, spare_capacity(buffer), RecvFlags::empty())?.1)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self, bytes, SendFlags::NOSIGNAL)?)
    }

    fn acknowledge(&self) {
        // Unix sockets have no delays. If this fails, the peer waits a little longer.
        if std::any::TypeId::of::<T>() == std::any::TypeId::of::<mio::net::TcpStream>() {
            let _ = SockRef::from(self).set_tcp_quickack(true);
        }
    }

    fn source(&mut self) -> &mut dyn Source {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::BytesMut;
    use mio::net::{TcpStream, UnixStream};
    use windlass_engine::{
        ClientCommand, ClientInfo, Engine, Event, JobCommand, Limits, NewJob, Protocol, Query,
        Reply, Tag, TakeCommand, Timestamp,
    };
    use windlass_session::{Outbox, Session};
    use windlass_store::Journal;

    use super::*;
    use crate::connection::tests::shared;
    use crate::serving::tests::ByHand;
    use windlass_hub::{Broker as _, Durability, Hub};

    /// Retries until the kernel has passed the bytes on.
    fn when_there(mut read: impl FnMut() -> io::Result<usize>) -> usize {
        loop {
            match read() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read.unwrap(),
            }
        }
    }

    fn exchange(mut stream: impl Stream, mut peer: impl Read + Write) {
        let (mut some, mut behind) = ([0; 5], Vec::with_capacity(8));
        behind.extend_from_slice(b"> ");
        assert_eq!(
            stream.read(&mut some).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        peer.write_all(b"hello").unwrap();
        assert_eq!(
            (when_there(|| stream.read(&mut some)), &some),
            (5, b"hello")
        );
        peer.write_all(b"world").unwrap();
        assert_eq!(when_there(|| stream.read_behind(&mut behind)), 5);
        assert_eq!(behind, b"> world");
        assert_eq!(stream.write(b"answer").unwrap(), 6);
        let mut answer = [0; 6];
        peer.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer");
        drop(peer);
        assert_eq!(when_there(|| stream.read(&mut some)), 0);
        assert!(stream.is_drained_by_short_reads() && !stream.has_unwritten());
    }

    #[test]
    fn sockets_pass_bytes_on_and_never_block() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = listener.accept().unwrap().0;
        stream.set_nonblocking(true).unwrap();
        exchange(TcpStream::from_std(stream), peer);
        let (stream, peer) = std::os::unix::net::UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        exchange(UnixStream::from_std(stream), peer);
    }

    #[test]
    fn tcp_acknowledges_when_it_is_asked_to() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = TcpStream::from_std(listener.accept().unwrap().0);
        // As after an exchange of requests and replies.
        SockRef::from(&stream).set_tcp_quickack(false).unwrap();
        assert!(!SockRef::from(&stream).tcp_quickack().unwrap());
        stream.acknowledge();
        assert!(SockRef::from(&stream).tcp_quickack().unwrap());
        assert!(!stream.has_unwritten(), "the kernel has all that it took");
    }

    /// Counts the calls of `acknowledge`.
    #[derive(Debug)]
    struct Counting(UnixStream, Arc<AtomicUsize>);

    impl Stream for Counting {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            Stream::read(&mut self.0, buffer)
        }

        fn read_behind(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
            Stream::read_behind(&mut self.0, buffer)
        }

        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Stream::write(&mut self.0, bytes)
        }

        fn acknowledge(&self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }

        fn source(&mut self) -> &mut dyn Source {
            &mut self.0
        }
    }

    /// Replies to `?` itself, to `!` once the engine's change is on disk, sleeps at `z`, and sends
    /// no other replies.
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

    #[test]
    fn only_reads_without_an_answer_are_acknowledged_at_once() {
        let hub = Arc::new(Hub::new(
            Engine::new(Limits::default(), 7),
            Journal::new(),
            Durability::Durable,
            7,
        ));
        let mut thread = ByHand::new(shared(&hub));
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let mut peer = thread.connect_as(
            |socket| Box::new(Counting(socket, counter)),
            |_| Box::new(Terse),
        );
        let asked = || asked.load(Ordering::Relaxed);

        peer.write_all(b"?").unwrap();
        assert_eq!(thread.read(&mut peer, 1), *b".");
        assert_eq!(asked(), 0, "an answer at once");
        peer.write_all(b"!").unwrap();
        thread.until(|| hub.with_journal(|engine, _| engine.job_count() == 1));
        assert_eq!(asked(), 0, "an answer that waits for the disk");
        let acknowledged = hub.committed(hub.cut().unwrap().commit);
        acknowledged.iter().for_each(|mailbox| mailbox.ring());
        assert_eq!(thread.read(&mut peer, 1), *b"+");
        for silent in 1..=3 {
            peer.write_all(b"-").unwrap();
            thread.until(|| asked() == silent);
            peer.write_all(b"-?").unwrap();
            assert_eq!(thread.read(&mut peer, 1), *b".");
            assert_eq!(asked(), silent, "once for each read without an answer");
        }
        peer.write_all(b"z").unwrap();
        let list = || {
            hub.ask(
                Query::Clients {
                    after: windlass_engine::Cursor::default(),
                    limit: 9,
                }
                .into(),
            )
        };
        thread.until(|| matches!(list(), Ok(Reply::Clients { rows, .. }) if rows.iter().any(|row| row.waits)));
        peer.write_all(b"?").unwrap();
        assert_eq!(thread.read(&mut peer, 1), *b".");
        assert_eq!(asked(), 3, "a peer that waits for a job sends nothing more");
        drop(peer);
        thread.until_closed();
        assert_eq!(asked(), 3, "at the end it is not needed");
    }
}
