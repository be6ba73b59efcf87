//! The edges of a leader, as text in the row of its lease: a successor waits until they have claimed what they had.
//!
//! The epoch stands before their numbers. Another program may have had the lease since and left the text as it was: then
//! the epoch is another one, and nothing is known.

/// The edges of this epoch as text; empty for edges that are unknown.
pub(crate) fn text(edges: Option<&[u32]>, epoch: i64) -> String {
    let Some(edges) = edges else {
        return String::new();
    };
    let numbers = edges.iter().map(|edge| format!(" {edge}"));
    epoch.to_string() + &numbers.collect::<String>()
}

/// The edges of this epoch in a text; `None`: unknown.
pub(crate) fn read(text: &str, epoch: i64) -> Option<Vec<u32>> {
    let mut words = text.split(' ');
    let of: i64 = words.next()?.parse().ok()?;
    if of == epoch {
        words.map(|word| word.parse().ok()).collect()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edges_of_an_epoch_are_read_back_and_those_of_another_are_unknown() {
        for edges in [&[][..], &[7], &[5_121, 5_122]] {
            let text = text(Some(edges), 5);
            assert_eq!(
                (read(&text, 5).as_deref(), read(&text, 6), read(&text, 4)),
                (Some(edges), None, None),
                "{text}"
            );
        }
        for unknown in [&text(None, 5), "5 x", "5  6", "x"] {
            assert_eq!(read(unknown, 5), None, "{unknown}");
        }
    }
}
