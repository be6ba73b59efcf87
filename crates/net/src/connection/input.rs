//! How a connection reads: small messages through a buffer shared by the thread's connections,
//! large ones directly into their own memory.

use std::io;

use bytes::{Bytes, BytesMut};

use super::Connection;
use crate::stream::Stream;

/// Maximum memory reserved for a declared length. Beyond that, memory grows only with the bytes
/// received.
pub(super) const RESERVE_MAX: usize = 1024 * 1024;

pub(super) const SCRATCH_BYTES: usize = 64 * 1024;

/// Maximum bytes of a large message that a connection reads per turn.
pub(super) const LARGE_TURN_BYTES: usize = 1024 * 1024;

std::thread_local! {
    static SCRATCH: std::cell::RefCell<Box<[u8]>> = std::cell::RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

impl Connection {
    /// Reads if the connection may, and passes the bytes to the session. With `is_due`, a deadline
    /// of the session has passed, and bytes may have arrived that the kernel has not reported yet.
    pub(super) fn read_socket(&mut self, is_due: bool) {
        if !self.begin_reading() || !(self.io.readable || is_due) {
            return;
        }
        match self.read() {
            Ok(read) => {
                self.io.was_read = true;
                self.io.eof = read == 0;
                self.received(read);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.lose_peer(),
        }
    }

    /// Handles received bytes, or the end of the stream.
    fn received(&mut self, read: usize) {
        if self.shared.bounds.idle_max.is_some() {
            self.active_at = self.now;
        }
        if let Some(reason) = self.admission.spoke(self.incoming.input.first().copied()) {
            return self.outbox.hang_up(reason);
        }
        self.counts.received(read);
        self.incoming.pending.came(read);
        self.feed();
        self.incoming.waits = self.incoming.input.is_empty() && self.outbox.ends_in_waiting();
        if self.io.eof {
            self.session.on_eof(self.now, &mut self.outbox);
        }
    }

    pub(super) fn wants_to_read(&self) -> bool {
        let room = self.incoming.input.len() < self.shared.bounds.read_bytes_max
            || self.session.needs_bytes() > 0;
        let rests = self.incoming.rests_until.is_some_and(|at| at > self.now);
        room && !rests
            && !self.io.eof
            && !self.is_ending()
            && self.work.items.is_empty()
            && self.has_room()
    }

    /// Returns whether to read now. Time in which nothing is read must not count against the peer.
    pub(super) fn begin_reading(&mut self) -> bool {
        let reading = self.wants_to_read();
        if reading && self.incoming.paused {
            self.session.reset_liveness(self.now);
            self.incoming.pending.resume(self.now);
        }
        self.incoming.paused = !reading && !self.io.eof && !self.is_ending();
        if self.incoming.paused {
            self.incoming.pending.pause(self.now);
        }
        reading
    }

    /// Reads up to the limits of a turn into the input. Small messages go through a buffer shared
    /// by the thread, so that an idle connection needs none. The rest of a large message goes
    /// directly into its own memory.
    pub(super) fn read(&mut self) -> io::Result<usize> {
        let needs = self.session.needs_bytes();
        if needs > SCRATCH_BYTES || (needs > 1 && self.incoming.input.len() > SCRATCH_BYTES) {
            return self.read_large(needs);
        }
        let most = self
            .shared
            .bounds
            .read_bytes_max
            .min(self.incoming.share_bytes.max(needs));
        SCRATCH.with_borrow_mut(|scratch| {
            let scratch = scratch
                .get_mut(..most.min(SCRATCH_BYTES))
                .unwrap_or_default();
            let mut total = 0;
            loop {
                let read = match self.read_once(scratch.len(), |stream| stream.read(scratch)) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && total > 0 => {
                        return Ok(total);
                    }
                    read => read?,
                };
                self.incoming
                    .input
                    .extend_from_slice(scratch.get(..read).unwrap_or_default());
                total += read;
                if read == 0 || !self.io.readable || total >= most {
                    return Ok(total);
                }
            }
        })
    }

    /// Continues to read a message that needs this many bytes.
    fn read_large(&mut self, needs: usize) -> io::Result<usize> {
        let mut input = Vec::from(std::mem::take(&mut self.incoming.input));
        grow(&mut input, needs);
        let most = LARGE_TURN_BYTES.min(self.incoming.large_bytes);
        let mut total = 0;
        let mut read = Ok(1);
        while input.len() < input.capacity()
            && total < most
            && self.io.readable
            && matches!(read, Ok(1..))
        {
            let room = input.capacity() - input.len();
            read = self.read_once(room, |stream| stream.read_behind(&mut input));
            total += read.as_ref().map_or(0, |read| *read);
        }
        self.incoming.input = BytesMut::from(Bytes::from(input));
        if total > 0 { Ok(total) } else { read }
    }

    /// Reads once into a buffer of this size. Records whether the socket may contain more.
    fn read_once(
        &mut self,
        room: usize,
        mut read: impl FnMut(&mut dyn Stream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            let read = read(&mut *self.io.stream);
            match &read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.io.readable = false,
                // Another read would find nothing, except for the end of the stream.
                Ok(read) if *read < room && self.io.stream.is_drained_by_short_reads() => {
                    self.io.readable = self.io.closed
                }
                Ok(_) | Err(_) => {}
            }
            return read;
        }
    }
}

/// Grows the buffer of a message that needs this many bytes. The final size is exact, because the
/// message may keep this memory. Until then the buffer at most doubles, because the declared length
/// may be false.
pub(super) fn grow(input: &mut Vec<u8>, needs: usize) {
    let held = input.len();
    if input.capacity() == held {
        // A minimum step, because many small ones would copy the message many times.
        input.reserve_exact(needs.clamp(held / 16, RESERVE_MAX.max(held)));
    }
}
