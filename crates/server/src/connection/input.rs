//! How a connection reads: small messages through a buffer that the thread's connections share, large ones directly into their
//! own memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::ReadBuf;

use super::Connection;
use crate::stream::Stream;

/// The most that a declared length reserves at once. Beyond it, memory grows with the bytes that have really arrived.
const RESERVE_MAX: usize = 1024 * 1024;

const SCRATCH_BYTES: usize = 64 * 1024;

std::thread_local! {
    static SCRATCH: std::cell::RefCell<Box<[u8]>> = std::cell::RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

impl<S: Stream> Connection<S> {
    /// Reads all that is there, up to the bound. Small messages go through a buffer that the thread shares, so that an idle
    /// connection holds none. The rest of a large message goes directly into its own memory.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let needs = self.session.needs_bytes();
        if needs > SCRATCH_BYTES || (needs > 1 && self.input.len() > SCRATCH_BYTES) {
            grow(&mut self.input, needs);
            return tokio_util::io::poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.input);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let mut total = 0;
            loop {
                let mut buffer = ReadBuf::new(scratch);
                match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending if total > 0 => return Poll::Ready(Ok(total)),
                    Poll::Pending => return Poll::Pending,
                }
                let filled = buffer.filled().len();
                self.input.extend_from_slice(buffer.filled());
                total += filled;
                // A short read means that there is no more; reading again would only cost a system call.
                if filled < SCRATCH_BYTES || total >= self.bounds.read_bytes_max {
                    return Poll::Ready(Ok(total));
                }
            }
        })
    }
}

/// Makes room for more of a message that needs this many bytes. The final size is exact, because the message may keep this
/// memory. Before that, the room at most doubles, because the peer has shown no more than that.
fn grow(input: &mut BytesMut, needs: usize) {
    let held = input.len();
    if input.capacity() == held {
        // Not less than a fraction, or many small steps would copy the message many times.
        let more = needs.clamp(held / 16, RESERVE_MAX.max(held));
        let mut larger = BytesMut::with_capacity(held + more);
        larger.extend_from_slice(input);
        *input = larger;
    }
}
