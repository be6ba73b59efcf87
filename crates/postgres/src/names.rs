//! The names of the tables, and the refusal of a store that is not for this process.

use windlass_store::Error;

use crate::link::Link;

/// The names of the tables, as statements need them.
impl Link {
    pub(crate) fn lease(&self) -> String {
        self.table("lease")
    }

    /// A table of the log.
    pub(crate) fn log(&self, number: usize) -> String {
        self.table(&format!("log_{number}"))
    }

    pub(crate) fn pages(&self) -> String {
        self.table("pages")
    }

    /// The pages while they are written anew.
    pub(crate) fn building(&self) -> String {
        self.table("pages_building")
    }

    /// A table.
    pub(crate) fn table(&self, name: &str) -> String {
        format!("\"{}\".{name}", self.schema)
    }
}

/// The store is not for this process.
pub(crate) fn refused(place: &str, why: String) -> Error {
    Error::Refused {
        place: place.to_owned(),
        why,
    }
}
