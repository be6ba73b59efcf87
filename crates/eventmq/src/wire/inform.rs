//! A worker's queues in `INFORM`, in two forms: JSON as the released programs send it, and the specification's
//! comma-separated lists, `[40, 'email'],[10, 'default']`.
//!
//! Spec: "eMQP / Worker".

use super::Fault;
use super::headers::number;
use super::scanner::{Scanner, Unexpected};

/// Queues of one worker.
pub const QUEUES_MAX: usize = 1_024;

/// A worker's queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Jobs go to the free worker with the greatest weight for their queue.
    pub weight: i64,
    /// Its name, in any bytes.
    pub name: Vec<u8>,
}

/// Parses the queues of an `INFORM`, in their order. An empty frame is the one queue `default`; `[]` is no queue.
///
/// # Errors
/// The frame is not a list of integers and names, or it has too many of them.
pub fn queues(frame: &[u8]) -> Result<Vec<Queue>, Fault> {
    let mut from = Scanner::new(frame);
    if from.peek().is_none() {
        return Ok(vec![Queue {
            weight: 10,
            name: b"default".to_vec(),
        }]);
    }
    let mut queues = Vec::new();
    let is_full = read(&mut from, &mut queues).map_err(|Unexpected| {
        let at = from.at();
        Fault(format!(
            "the queues are not a list of [weight, \"name\"], from byte {at}"
        ))
    })?;
    if is_full {
        Err(Fault(format!("more than {QUEUES_MAX} queues")))
    } else {
        Ok(queues)
    }
}

/// Returns whether there are too many queues; then the rest is not parsed.
fn read(from: &mut Scanner<'_>, queues: &mut Vec<Queue>) -> Result<bool, Unexpected> {
    from.take(b'[')?;
    // JSON has a list around the lists, the specification's form has not.
    let mut in_list = from.peek() == Some(b'[');
    let is_json = in_list || from.peek() == Some(b']');
    if is_json && !in_list {
        from.take(b']')?;
        return end(from);
    }
    loop {
        if in_list {
            from.take(b'[')?;
        }
        if queues.len() == QUEUES_MAX {
            return Ok(true);
        }
        queues.push(queue(from)?);
        if !from.takes(b',') {
            break;
        }
        // In the specification's form the first bracket has been read before the loop; those of the other lists have
        // not.
        in_list = true;
    }
    if is_json {
        from.take(b']')?;
    }
    end(from)
}

/// `10, "default"]`
fn queue(from: &mut Scanner<'_>) -> Result<Queue, Unexpected> {
    let weight = number(from.word()).ok_or(Unexpected)?;
    from.take(b',')?;
    let quote = from
        .peek()
        .filter(|byte| matches!(byte, b'"' | b'\''))
        .ok_or(Unexpected)?;
    let name = from.string(quote)?;
    from.take(b']')?;
    Ok(Queue { weight, name })
}

fn end(from: &mut Scanner<'_>) -> Result<bool, Unexpected> {
    if from.peek().is_none() {
        Ok(false)
    } else {
        Err(Unexpected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms() {
        type Queues = &'static [(i64, &'static str)];
        let table: [(&str, &str, Queues); 9] = [
            ("nothing", "", &[(10, "default")]),
            ("blanks", " \n", &[(10, "default")]),
            ("none", "[]", &[]),
            ("none, with a blank", " [ ] ", &[]),
            (
                "JSON",
                r#"[[10, "default"], [20, "fast"]]"#,
                &[(10, "default"), (20, "fast")],
            ),
            ("JSON, escapes", r#"[[-1,"\u00e9\""]]"#, &[(-1, "é\"")]),
            (
                "the specification's example",
                "[40, 'email']",
                &[(40, "email")],
            ),
            (
                "the specification's, more",
                "[40,'email'] , [1,\"x\"]",
                &[(40, "email"), (1, "x")],
            ),
            (
                "a name twice stays",
                "[[1,\"a\"],[2,\"a\"]]",
                &[(1, "a"), (2, "a")],
            ),
        ];
        for (name, frame, expected) in table {
            let expected: Vec<_> = expected
                .iter()
                .map(|&(weight, name)| Queue {
                    weight,
                    name: name.as_bytes().to_vec(),
                })
                .collect();
            assert_eq!(queues(frame.as_bytes()), Ok(expected), "{name}");
        }
        assert_eq!(
            queues(b"[[1,\"\xff\"]]"),
            Ok(vec![Queue {
                weight: 1,
                name: vec![0xff]
            }])
        );
    }

    #[test]
    fn invalid_lists_of_queues() {
        let table = [
            (r#"{"a":1}"#, 0),
            ("default", 0),
            ("[", 1),
            ("[[]]", 2),
            ("[[1]]", 3),
            (r#"[["a",1]]"#, 2),
            (r#"[[1.5,"a"]]"#, 5),
            (r#"[[1,"a"]"#, 8),
            (r#"[[1,"a"]]x"#, 9),
            (r#"[1,"a"]]"#, 7),
            (r#"[[1,"a"],]"#, 9),
            ("[[1,null]]", 4),
        ];
        for (frame, at) in table {
            let fault = format!("the queues are not a list of [weight, \"name\"], from byte {at}");
            assert_eq!(queues(frame.as_bytes()), Err(Fault(fault)), "{frame}");
        }
        let many = |count: usize| format!("[{}[1,'q']]", "[1,'q'],".repeat(count - 1));
        assert_eq!(
            queues(many(QUEUES_MAX).as_bytes()).map(|queues| queues.len()),
            Ok(QUEUES_MAX)
        );
        assert_eq!(
            queues(many(QUEUES_MAX + 1).as_bytes()),
            Err(Fault(format!("more than {QUEUES_MAX} queues")))
        );
    }
}
