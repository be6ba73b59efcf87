//! Cuts the stream of one connection into lines. `request` parses them.
//!
//! Spec: "Client Protocol Sender …": commands end with CRLF. Like deployed servers, this accepts a bare LF, which
//! Ruby's clients send. At most one CR belongs to the line end.

use bytes::{Buf, Bytes, BytesMut};

/// A line is longer than the limit. The rest of the stream cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line of more than {line_bytes_max} bytes")]
pub struct LineTooLong {
    /// The limit, line end excluded.
    pub line_bytes_max: usize,
}

/// The decoder of one connection. It remembers how far it has searched the buffer. So the caller must pass the same
/// buffer each time, append bytes only, and remove none.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    scanned: usize,
}

impl Lines {
    /// Takes the next line out of `input`, without its end; `None` if it is incomplete. The line shares `input`'s
    /// memory.
    ///
    /// # Errors
    /// The line is too long. Each further call returns the same error.
    pub fn decode(
        &mut self,
        input: &mut BytesMut,
        line_bytes_max: usize,
    ) -> Result<Option<Bytes>, LineTooLong> {
        // The limit excludes CR and LF.
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

    /// Whether the decoder has seen the beginning of a line but not its end.
    pub const fn is_midway(&self) -> bool {
        self.scanned > 0
    }
}
