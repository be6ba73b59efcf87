//! Takes a body apart at its NULs. How many arguments a packet has is the caller's to know.
//!
//! Spec: `PROTOCOL`, "Binary Packet" (the last argument is whatever is left, NULs included).

/// What is left of a body. Every method returns `None` when the NUL it needs is missing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arguments<'a> {
    rest: &'a [u8],
    /// How many arguments there were, the one that has no end included.
    pub(super) found: usize,
}

impl<'a> Arguments<'a> {
    pub(super) const fn new(body: &'a [u8]) -> Self {
        Self { rest: body, found: 1 }
    }

    /// The next argument, which a NUL must end.
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

/// An argument that stands alone in its packet but that peers like to end with a NUL, as C strings.
pub(super) fn until_nul(argument: &[u8]) -> &[u8] {
    argument.split(|byte| *byte == 0).next().unwrap_or_default()
}
