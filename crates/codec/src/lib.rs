//! One format for what is written to the disk and for what daemons send each other, derived from the types themselves
//! (serde), so that a field is described once.
//!
//! ```text
//! number      LEB128: seven bits a byte, the low ones first; a signed number is zigzagged first; a bool is 0 or 1; a
//!             number of 8 bits is a byte
//! text, bytes length, bytes
//! option      0, or 1 and the value
//! sequence    count, values           map = count, keys and values      tuple = values
//! enum        the variant's index, its content
//! struct      length of what follows; if it is not 0: a number with a bit for each field, the lowest for the first;
//!             then the fields whose bit is set
//! ```
//!
//! **A field that would be one zero byte is not written**: 0, `false`, `None`, an empty text, the first variant of an enum, a
//! struct without fields that are set. A reader takes a field that is missing for that value.
//!
//! **Versions differ freely.** A reader skips fields that it does not know, and takes those that the writer did not know for
//! zero. So a new field of a struct comes last (or last before one that must end the record), its zero means "not told", and
//! a field that is no longer used keeps its place. A new variant of an enum comes last; a reader that does not know it reports
//! [`DecodeError::Variant`]. Tuples and tuple variants never change.
//!
//! **Hostile bytes** are refused, bounded: a length or a count reaches no further than the bytes that are there, the values of
//! sequences take a small multiple of these in memory, and values nest at most [`DEPTH_MAX`] deep.

mod decode;
mod encode;
mod error;
mod number;
mod reader;

pub use decode::{DEPTH_MAX, decode};
pub use encode::{Encoded, TAIL, encode, encode_sharing};
pub use error::{DecodeError, Unsupported};
pub use number::{Number, put_bytes, put_u32, put_u64};
pub use reader::Reader;

#[cfg(test)]
mod tests;
