//! Counts for people.

use std::fmt::Display;

/// A whole number with separators: `1,234`.
pub fn grouped(number: impl Display) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How many there are of a thing: `1 job`, `1,234 jobs`, `2 batches`, `3 entries`.
pub fn counted(count: u64, thing: &str) -> String {
    let (stem, ending) = match thing
        .strip_suffix('y')
        .filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']))
    {
        _ if count == 1 => (thing, ""),
        Some(stem) => (stem, "ies"),
        None if thing.ends_with("ch") => (thing, "es"),
        None => (thing, "s"),
    };
    format!("{} {stem}{ending}", grouped(count))
}

/// How many there are of several things: `3 jobs, 1 queue`.
pub fn counted_all<'a>(things: impl IntoIterator<Item = (u64, &'a str)>) -> String {
    things
        .into_iter()
        .map(|(count, thing)| counted(count, thing))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_separators_and_name_one_thing_or_many() {
        let table = [
            (0, "0 jobs"),
            (1, "1 job"),
            (2, "2 jobs"),
            (999, "999 jobs"),
            (1_000, "1,000 jobs"),
        ];
        for (count, expected) in table.into_iter().chain([(1_234_567, "1,234,567 jobs")]) {
            assert_eq!(counted(count, "job"), expected);
        }
        assert_eq!(
            [1, 2].map(|count| counted(count, "batch")),
            ["1 batch", "2 batches"]
        );
        assert_eq!(
            [1, 2].map(|count| counted(count, "entry")),
            ["1 entry", "2 entries"]
        );
        assert_eq!(
            [1, 2].map(|count| counted(count, "key")),
            ["1 key", "2 keys"]
        );
        assert_eq!(counted_all([(3, "job"), (1, "queue")]), "3 jobs, 1 queue");
    }
}
