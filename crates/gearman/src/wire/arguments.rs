//! Splits a body at its NULs. The caller determines the number of arguments.
//!
//! Spec: `PROTOCOL`, "Binary Packet" (the last argument is the whole rest, NULs included).

/// The unread rest of a body. A method returns `None` if the NUL it needs is missing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arguments<'a> {
    rest: &'a [u8],
    /// Number of arguments in the body, the last one included.
    pub(super) found: usize,
}

impl<'a> Arguments<'a> {
    pub(super) const fn new(body: &'a [u8]) -> Self {
        Self { rest: body, found: 1 }
    }

    /// The next argument, which a NUL ends.
    pub(super) fn terminated(&mut self) -> Option<&'a [u8]> {
        let end = self.rest.iter().position(|byte| *byte == 0)?;
        let (argument, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest.get(1..).unwrap_or_default();
        self.found += 1;
        Some(argument)
    }

    /// The last argument.
    pub(super) const fn rest(self) -> &'a [u8] {
        self.rest
    }
}

/// The only argument of a packet, up to its first NUL. Some peers send it as a C string.
pub(super) fn until_nul(argument: &[u8]) -> &[u8] {
    argument.split(|byte| *byte == 0).next().unwrap_or_default()
}
