//! How a connection reads: small messages through a buffer that the thread's connections share, large ones into their place.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::ReadBuf;

use super::Connection;
use crate::stream::Stream;

/// The most a declared length makes us reserve at once; beyond it, memory grows with what has really come.
const RESERVE_MAX: usize = 1024 * 1024;

const SCRATCH_BYTES: usize = 64 * 1024;

std::thread_local! {
    static SCRATCH: std::cell::RefCell<Box<[u8]>> = std::cell::RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

impl<S: Stream> Connection<S> {
    /// Reads what is there, up to the bound. Small messages go through a buffer shared by the thread, so that a
    /// connection at rest holds none; the rest of a large one is read straight into its place.
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
                // A short read means that there is no more; asking again would only cost a system call.
                if filled < SCRATCH_BYTES || total >= self.bounds.read_bytes_max {
                    return Poll::Ready(Ok(total));
                }
            }
        })
    }
}

/// Makes room for more of a message that needs so many bytes: for all of them at last and for hardly more, because the message may
/// keep this memory, and for as much again as has come until then, because that is all the peer has shown.
fn grow(input: &mut BytesMut, needs: usize) {
    let held = input.len();
    if input.capacity() == held {
        // Not less than a part, or many small steps would copy it as many times.
        let more = needs.clamp(held / 16, RESERVE_MAX.max(held));
        let mut larger = BytesMut::with_capacity(held + more);
        larger.extend_from_slice(input);
        *input = larger;
    }
}
