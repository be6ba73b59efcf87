//! Groups errors that differ only in values and names, because a thousand failures are often only a
//! few different errors.

use crate::jobs::Failure;

/// Characters of an error that are examined.
const PATTERN_MAX: usize = 160;

/// The common part of similar errors: the class and the first line of the message, with `*` in place of words
/// with digits and of quoted text. Two failures with the same result are in the same group.
pub fn error_group(failure: &Failure) -> String {
    let parts = [&failure.kind, &failure.message].map(|part| String::from_utf8_lossy(part));
    let parts: Vec<&str> = parts
        .iter()
        .map(AsRef::as_ref)
        .filter(|part| !part.is_empty())
        .collect();
    pattern(&parts.join(": "))
}

fn pattern(error: &str) -> String {
    let (line, is_cut) = match error.split_once('\n') {
        Some((line, _)) => (line, true),
        None => (error, false),
    };
    let mut pattern = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' | '`' => quoted(rest, first),
            '\'' if !pattern.ends_with(char::is_alphanumeric) => quoted(rest, first),
            _ if is_word(first) => rest.find(|it: char| !is_word(it)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (part, behind) = rest.split_at_checked(length).unwrap_or((rest, ""));
        rest = behind;
        if length > 1 && !is_word(first)
            || part.contains(|it: char| it.is_ascii_digit() || it == '*')
        {
            if !pattern.ends_with('*') {
                pattern.push('*');
            }
        } else {
            pattern.push_str(part);
        }
        if pattern.len() > PATTERN_MAX {
            rest = "";
            pattern.push('*');
        }
    }
    if is_cut && !pattern.ends_with('*') {
        pattern.push('*');
    }
    pattern
}

/// Characters of the words that contain digits, addresses and file names.
fn is_word(it: char) -> bool {
    it.is_alphanumeric() || matches!(it, '-' | '_' | '.' | '@' | '/' | '*')
}

/// The length of the text in quotes, or of the opening quote if nothing closes it. An apostrophe within a
/// word opens no quote.
fn quoted(text: &str, quote: char) -> usize {
    let inner = text.get(1..).unwrap_or_default();
    inner.find(quote).map_or(1, |end| end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_differ_in_numbers_and_names_are_one() {
        let table = [
            ("", ""),
            (
                "Timeout: no answer after 3000 ms",
                "Timeout: no answer after * ms",
            ),
            (
                "Stripe::CardError: card 4242 of 'Ann' was declined",
                "Stripe::CardError: card * of * was declined",
            ),
            ("KeyError: \"user_id\"", "KeyError: *"),
            (
                "cannot open /tmp/x1/y.csv: no such file",
                "cannot open *: no such file",
            ),
            ("can't find it", "can't find it"),
            (
                "Couldn't find Order with 'id'=17",
                "Couldn't find Order with *=*",
            ),
            ("one\ntwo", "one*"),
            ("id 1 2 3", "id * * *"),
            ("*", "*"),
            ("ümlaut 7", "ümlaut *"),
        ];
        for (error, expected) in table {
            assert_eq!(pattern(error), expected, "{error}");
        }
        assert!(pattern(&"word ".repeat(1_000)).len() <= PATTERN_MAX + 8);
        assert_eq!(pattern(&"word ".repeat(1_000)).matches('*').count(), 1);
    }
}
