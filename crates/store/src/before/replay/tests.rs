//! Values in the order of their keys, and what is made of them.

use super::super::frame::tests::seal;
use super::*;

/// A value: its key, and its commit, part and number of parts; or it is damaged.
type Value = (u64, Option<(u64, u32, u32)>);

const fn part(key: u64, seq: u64, part: u32, parts: u32) -> Value {
    (key, Some((seq, part, parts)))
}

const fn damaged(key: u64) -> Value {
    (key, None)
}

/// The commits as `number@first key: parts`, then the keys of a torn one, or why the journal is refused.
fn assembled(values: &[Value]) -> String {
    let (mut assembler, mut text) = (Assembler::default(), Vec::new());
    for (key, frame) in values {
        let mut value = vec![0; 25];
        if let Some((seq, part, parts)) = *frame {
            value.push(part.to_le_bytes()[0]);
            seal(*key, seq, (part, parts), 0, &mut value);
        }
        let pushed = assembler.push(*key, &value, |whole| {
            text.push(format!("{}@{}: {:?}", whole.seq, whole.first_key, whole.records));
            Ok(())
        });
        if let Err(why) = pushed {
            text.push(why.to_string());
            return text.join(", ");
        }
    }
    match assembler.finish() {
        Ok(None) => {}
        Ok(Some(Torn { seq, keys })) => text.push(format!("torn {seq:?} {keys:?}")),
        Err(why) => text.push(why.to_string()),
    }
    text.join(", ")
}

fn refused(key: u64, after: u64, why: &str) -> String {
    format!("the journal is damaged at sequence {key}, after commit {after}, and more was written later: {why}")
}

#[test]
fn commits_are_assembled_and_the_last_one_may_be_torn() {
    let table: [(&[Value], &str); 15] = [
        (&[], ""),
        (&[part(1, 1, 0, 1), part(2, 2, 0, 1)], "1@1: [0], 2@2: [0]"),
        (&[part(4, 3, 0, 1), part(5, 4, 0, 1)], "3@4: [0], 4@5: [0]"),
        (
            &[part(1, 1, 0, 2), part(2, 1, 1, 2), part(3, 2, 0, 3), part(4, 2, 1, 3), part(5, 2, 2, 3)],
            "1@1: [0, 1], 2@3: [0, 1, 2]",
        ),
        (&[part(4, 1, 0, 1), part(5, 2, 0, 2)], "1@4: [0], torn Some(2) [5]"),
        (&[part(4, 1, 0, 1), part(5, 2, 0, 3), part(6, 2, 1, 3)], "1@4: [0], torn Some(2) [5, 6]"),
        (&[part(4, 1, 0, 1), part(5, 2, 0, 2), damaged(6)], "1@4: [0], torn Some(2) [5, 6]"),
        (&[part(4, 1, 0, 1), damaged(5)], "1@4: [0], torn None [5]"),
        (&[part(4, 1, 0, 1), damaged(5), damaged(6)], "1@4: [0], torn None [5, 6]"),
        (&[part(4, 1, 0, 1), damaged(5), part(6, 2, 1, 3), part(7, 2, 2, 3)], "1@4: [0], torn Some(2) [5, 6, 7]"),
        (&[part(4, 1, 0, 1), part(5, 2, 0, 3), part(7, 2, 2, 3)], "1@4: [0], torn Some(2) [5, 7]"),
        // The last commit has removed its first parts, or those of earlier ones.
        (&[part(4, 1, 0, 1), part(6, 2, 1, 3), part(7, 2, 2, 3)], "1@4: [0], torn Some(2) [6, 7]"),
        (
            &[part(5, 9, 1, 3), part(6, 9, 2, 3), part(7, 10, 0, 1), part(8, 11, 0, 2)],
            "10@7: [0], torn Some(11) [8, 5, 6]",
        ),
        (&[part(5, 8, 1, 2), part(6, 9, 1, 2), part(7, 10, 0, 1), damaged(8)], "10@7: [0], torn None [8, 5, 6]"),
        (&[part(5, 9, 1, 3), damaged(6)], "torn None [6, 5]"),
    ];
    for (values, expected) in table {
        assert_eq!(assembled(values), expected, "{values:?}");
    }
}

#[test]
fn anything_else_is_refused() {
    let (torn, nonsense) = ("the checksum does not match", "the frame is inconsistent");
    let one = "1@4: [0], ";
    let table: [(&[Value], &str, String); 12] = [
        (&[part(4, 1, 0, 1), damaged(5), part(6, 2, 0, 1)], one, refused(5, 1, torn)),
        (&[part(4, 1, 0, 1), damaged(5), part(6, 2, 1, 3), part(7, 3, 2, 3)], one, refused(5, 1, torn)),
        (&[part(4, 1, 0, 1), damaged(5), part(8, 2, 2, 3)], one, refused(5, 1, torn)),
        (&[part(4, 1, 0, 1), part(5, 2, 0, 3), part(6, 3, 0, 1)], one, refused(5, 1, torn)),
        (&[part(4, 1, 0, 1), part(5, 2, 0, 3), part(6, 3, 1, 3)], one, refused(5, 1, torn)),
        (&[part(4, 1, 0, 1), part(5, 1, 0, 1)], one, refused(5, 1, nonsense)),
        (&[part(4, 1, 0, 1), part(5, 1, 1, 2)], one, refused(5, 1, nonsense)),
        (&[part(4, 9, 0, 1), part(5, 8, 1, 2)], "9@4: [0], ", refused(5, 9, nonsense)),
        (&[part(4, 1, 0, 1), (COUNT_MAX, Some((2, 0, 1)))], one, refused(COUNT_MAX, 1, nonsense)),
        (&[part(5, 9, 1, 3), part(6, 9, 2, 3), part(7, 10, 0, 1)], "10@7: [0], ", refused(5, 10, torn)),
        (&[part(4, 1, 0, 1), part(6, 2, 1, 2), part(8, 3, 1, 2)], one, refused(6, 1, torn)),
        (&[part(5, 1, 1, 2), part(6, 1, 0, 1)], "1@6: [0], ", refused(5, 1, torn)),
    ];
    for (values, before, why) in table {
        assert_eq!(assembled(values), format!("{before}{why}"), "{values:?}");
    }
}
