//! Cuts the stream of one connection into lines. What a line says is `request`'s to know.
//!
//! Spec: "Client Protocol Sender …": commands end with CRLF. Deployed servers, and Ruby clients, take a bare LF as well;
//! exactly one CR goes with it.

use bytes::{Buf, Bytes, BytesMut};

/// A line is longer than lines may be: nothing behind its beginning can be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line of more than {line_bytes_max} bytes")]
pub struct LineTooLong {
    /// The limit, line end excluded.
    pub line_bytes_max: usize,
}

/// The decoder of one connection. It remembers how far it has looked into the buffer, so it must be given the same buffer
/// every time, with bytes added at the end and none taken away.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    scanned: usize,
}

impl Lines {
    /// Takes the next line out of `input`, without its end; `None` when there is none yet. It is a view into `input`'s
    /// memory.
    ///
    /// # Errors
    /// The line is too long. Asking again gives the same error again.
    pub fn decode(&mut self, input: &mut BytesMut, line_bytes_max: usize) -> Result<Option<Bytes>, LineTooLong> {
        // CR and LF do not count.
        let end = input.len().min(line_bytes_max.saturating_add(2));
        let unseen = input.get(self.scanned..end).unwrap_or_default();
        let Some(ahead) = memchr::memchr(b'\n', unseen) else {
            if input.len() > line_bytes_max.saturating_add(1) {
                return Err(LineTooLong { line_bytes_max });
            }
            self.scanned = end;
            return Ok(None);
        };
        let bytes = self.scanned + ahead;
        let crlf = bytes > 0 && input.get(bytes - 1) == Some(&b'\r');
        let bytes_of_line = bytes - usize::from(crlf);
        if bytes_of_line > line_bytes_max {
            return Err(LineTooLong { line_bytes_max });
        }
        self.scanned = 0;
        let line = input.split_to(bytes_of_line);
        input.advance(1 + usize::from(crlf));
        Ok(Some(line.freeze()))
    }

    /// Whether a line has begun and not ended, as far as the decoder has looked.
    #[must_use]
    pub const fn is_midway(&self) -> bool {
        self.scanned > 0
    }
}
