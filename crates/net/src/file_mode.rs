//! File permissions in the notation of `chmod`: `0660`.

use serde::{Deserialize, Serialize};

/// Nine permission bits, written as three octal digits with an optional leading 0. Empty: as the
/// umask allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FileMode(pub Option<u32>);

/// A text that is not a file mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a file mode, expected three octal digits, as in \"0660\"")]
pub struct FileModeError(String);

impl TryFrom<String> for FileMode {
    type Error = FileModeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let digits = match text.len() {
            0 => return Ok(Self(None)),
            4 => text.strip_prefix('0'),
            _ => Some(&*text),
        };
        let is_octal = |digits: &&str| {
            digits.len() == 3 && digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit))
        };
        let mode = digits
            .filter(is_octal)
            .and_then(|digits| u32::from_str_radix(digits, 8).ok());
        mode.map_or(Err(FileModeError(text)), |mode| Ok(Self(Some(mode))))
    }
}

impl From<FileMode> for String {
    fn from(FileMode(mode): FileMode) -> Self {
        mode.map(|mode| format!("{mode:04o}")).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_and_written() {
        let table = [
            ("", Some("")),
            ("0660", Some("0660")),
            ("777", Some("0777")),
            ("000", Some("0000")),
        ];
        let wrong = [
            "0",
            "66",
            "1660",
            "00660",
            "0688",
            "+66",
            "rw-rw----",
            " 660",
            "0x1",
        ];
        for (text, expected) in table.into_iter().chain(wrong.map(|text| (text, None))) {
            let parsed = FileMode::try_from(text.to_owned());
            assert_eq!(parsed.ok().map(String::from).as_deref(), expected, "{text}");
        }
        assert_eq!(
            FileMode::try_from("0640".to_owned()),
            Ok(FileMode(Some(0o640)))
        );
    }
}
