//! Ctrl-c and SIGTERM as a flag that every wait checks, so that the program always unwinds and stops every server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;

/// A flag raised by SIGINT and SIGTERM. Cheap to clone and to check.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Registers the flag with both signals. [`Error::Io`] if the system refuses.
    pub(crate) fn install() -> Result<Self, Error> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .map_err(Error::io("register a signal"))?;
        }
        Ok(Self(flag))
    }

    /// Raises the flag.
    pub(crate) fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Fails once the flag is up. [`Error::Interrupted`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.0.load(Ordering::Relaxed) {
            Err(Error::Interrupted)
        } else {
            Ok(())
        }
    }
}
