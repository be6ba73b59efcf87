//! Why bytes cannot be read.

use std::fmt::{self, Display};

use serde::de::{Expected, Unexpected};

/// Why bytes are not a value of this format.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end before the value does.
    #[error("the bytes end inside a record")]
    Short,
    /// The kind of record is unknown to this version.
    #[error("unknown record kind {0}")]
    Kind(u8),
    /// A variant of an enum that this version does not know: a newer program has written it.
    #[error("unknown variant {0}")]
    Variant(u64),
    /// A field has a value that is never written.
    #[error("{field} has the invalid value {value}")]
    Range {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A value is refused by its type.
    #[error("{0}")]
    Refused(Box<str>),
}

impl serde::de::Error for DecodeError {
    fn custom<T: Display>(text: T) -> Self {
        Self::Refused(text.to_string().into())
    }

    /// A derived enum reports an index that it does not have in this way.
    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        if let Unexpected::Unsigned(index) = found {
            Self::Variant(index)
        } else {
            Self::custom(format_args!("{found} in place of {expected}"))
        }
    }
}

/// A type asks for what this format has not: a sequence of unknown length, a map, a value that describes itself. No type
/// that is written does, which its tests show.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsupported(pub(crate) Box<str>);

impl Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Unsupported {}

impl serde::ser::Error for Unsupported {
    fn custom<T: Display>(text: T) -> Self {
        Self(text.to_string().into())
    }
}
