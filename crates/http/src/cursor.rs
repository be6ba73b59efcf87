//! The position in a listing, as an opaque text.

use std::fmt;
use std::str::FromStr;

use utoipa::ToSchema;
use windlass_engine::Cursor;

/// A cursor in an answer or a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ToSchema)]
#[schema(value_type = String)]
pub(crate) struct CursorText(pub(crate) Cursor);

/// A text that is not a cursor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor from an earlier response")]
pub(crate) struct CursorError;

impl FromStr for CursorText {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let number = |digits: &str| u64::from_str_radix(digits, 16).map_err(|_| CursorError);
        let (first, second) = text.split_once('.').ok_or(CursorError)?;
        Ok(Self(Cursor(number(first)?, number(second)?)))
    }
}

impl fmt::Display for CursorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cursor(first, second) = self.0;
        write!(f, "{first:x}.{second:x}")
    }
}

windlass_config::as_text!(CursorText);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_read_and_written() {
        for cursor in [Cursor(0, 0), Cursor(u64::MAX, 1), Cursor(17, u64::MAX)] {
            assert_eq!(
                CursorText(cursor).to_string().parse(),
                Ok(CursorText(cursor))
            );
        }
        for text in [
            "",
            ".",
            "1",
            "1.",
            "x.1",
            "1.10000000000000000",
            "1.1.1",
            "-1.0",
        ] {
            assert_eq!(text.parse::<CursorText>(), Err(CursorError), "{text}");
        }
    }
}
