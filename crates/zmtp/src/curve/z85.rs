//! Z85: 4 bytes are 5 characters, a number to the base 85.
//!
//! Spec: ZeroMQ RFC 32.

const DIGITS: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/// Bytes beyond the last multiple of 4 are left out.
pub(super) fn encode(bytes: &[u8]) -> String {
    let (chunks, _) = bytes.as_chunks::<4>();
    let digits = chunks.iter().flat_map(|chunk| {
        let number = u32::from_be_bytes(*chunk);
        [85_u32.pow(4), 85_u32.pow(3), 85_u32.pow(2), 85, 1].map(|place| number / place % 85)
    });
    digits
        .filter_map(|digit| DIGITS.get(usize::try_from(digit).ok()?))
        .map(|digit| char::from(*digit))
        .collect()
}

/// `None` if the text is not Z85.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let (chunks, []) = text.as_bytes().as_chunks::<5>() else {
        return None;
    };
    let mut bytes = Vec::with_capacity(4 * chunks.len());
    for chunk in chunks {
        let number = chunk.iter().try_fold(0_u32, |number, digit| {
            let digit = DIGITS.iter().position(|one| one == digit)?;
            number
                .checked_mul(85)?
                .checked_add(u32::try_from(digit).ok()?)
        })?;
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let table: [(&str, Option<&[u8]>); 7] = [
            (
                "HelloWorld",
                Some(&[0x86, 0x4f, 0xd2, 0x6f, 0xb5, 0x59, 0xf7, 0x5b]),
            ), // the example of RFC 32
            ("", Some(&[])),
            ("%nSc0", Some(&[0xff; 4])),
            ("%nSc1", None), // 2^32
            ("#####", None),
            ("Hell", None),
            ("Hell\"", None),
        ];
        for (text, bytes) in table {
            assert_eq!(decode(text).as_deref(), bytes, "{text}");
            if let Some(bytes) = bytes {
                assert_eq!(encode(bytes), text);
            }
        }
    }
}
