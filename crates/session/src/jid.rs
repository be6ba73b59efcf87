//! Text names for jobs that have none, or whose name belongs to another protocol.
//!
//! A name is a prefix that no generator of names produces, and the job's number in the engine. Clients must not assign
//! such names.

/// The prefix. The number follows, in Crockford's base 32.
const PREFIX: &str = "01W1ND1ASSJ0B";
const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Digits of a 64-bit number in base 32.
const DIGITS_COUNT: usize = 13;

/// The name of the job with this number.
pub fn jid_of(number: u64) -> String {
    let digit = |n: usize| usize::try_from(number >> (5 * n) & 31).unwrap_or_default();
    let digits = (0..DIGITS_COUNT)
        .rev()
        .filter_map(|n| DIGITS.get(digit(n)).map(|digit| char::from(*digit)));
    PREFIX.chars().chain(digits).collect()
}

/// The job number in a name, if the name is one of ours.
pub fn number_of(jid: &str) -> Option<u64> {
    let digits = jid
        .strip_prefix(PREFIX)
        .filter(|digits| digits.len() == DIGITS_COUNT)?;
    digits.bytes().try_fold(0_u64, |number, byte| {
        let digit = DIGITS.iter().position(|digit| *digit == byte)?;
        number.checked_mul(32)?.checked_add(digit as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_name() {
        let table = [
            (0, "01W1ND1ASSJ0B0000000000000"),
            (1, "01W1ND1ASSJ0B0000000000001"),
            (33, "01W1ND1ASSJ0B0000000000011"),
            (u64::MAX, "01W1ND1ASSJ0BFZZZZZZZZZZZZ"),
        ];
        for (number, jid) in table {
            assert_eq!(
                (jid_of(number).as_str(), number_of(jid)),
                (jid, Some(number))
            );
        }
    }

    #[test]
    fn other_names_have_no_number() {
        let table = [
            "",
            "jid00000001",
            "01W1ND1ASSJ0B",
            "01W1ND1ASSJ0B000000000000",
            "01W1ND1ASSJ0B00000000000000",
            "01W1ND1ASSJ0B000000000000U",
            "01W1ND1ASSJ0B000000000000a",
            "01W1ND1ASSJ0BG000000000000",
            "01W1ND1ASSJ0B00000000000\u{e9}",
        ];
        for jid in table {
            assert_eq!(number_of(jid), None, "{jid}");
        }
    }
}
