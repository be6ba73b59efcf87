//! Tables and jobs, as text.

use serde_json::json;

use super::*;

#[test]
fn ages() {
    let table = [
        (0.0, ""),
        (0.4, "<1s"),
        (1.0, "1s"),
        (59.9, "59s"),
        (60.0, "1m"),
        (7_199.0, "1h"),
        (200_000.0, "2d"),
    ];
    for (seconds, text) in table {
        assert_eq!(age(&json!(seconds)), text);
    }
}

#[test]
fn a_table_is_aligned_and_harmless() {
    let row = |id: u64, queue: &str| json!({"id": id, "state": "dead", "queue": queue, "failure": {"message": "a\nb"}});
    let shown = table(
        JOBS,
        &[row(7, "\u{1b}[2Jq"), row(1234, "mails")],
        usize::MAX / 2,
    );
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("  ID  STATE  QUEUE"), "{shown}");
    assert!(lines[1].starts_with("   7  dead   \u{fffd}[2Jq"), "{shown}");
    assert!(
        lines[2].starts_with("1234  dead   mails") && lines[2].ends_with('a'),
        "{shown}"
    );
}

#[test]
fn a_narrow_terminal_shows_figures_beside_a_long_name() {
    let rows = [
        json!({"name": "a-long-name-of-a-queue", "states": {"ready": 1234567, "dead": 2}, "workers": 3}),
    ];
    let shown = |width| table(QUEUES, &rows, width);
    assert!(
        shown(200)
            .lines()
            .next()
            .is_some_and(|line| line.ends_with("NOTES")),
        "{}",
        shown(200)
    );
    assert_eq!(
        shown(60),
        "QUEUE                       READY  LEASED  DEAD  WORKERS\na-long-name-of-a-queue  1,234,567             2        3\n"
    );
    assert_eq!(
        shown(10).lines().last(),
        Some("a-lon…ueue"),
        "a name alone is cut at last"
    );
}

#[test]
fn numbers_and_sizes_are_for_people() {
    let table = [
        (0_u64, "0", "0 bytes"),
        (999, "999", "999 bytes"),
        (1_234_567, "1,234,567", "1.1 MiB"),
    ];
    for (value, shown, bytes) in table {
        assert_eq!(
            (number(&json!(value)).as_str(), size(value).as_str()),
            (shown, bytes)
        );
    }
}

#[test]
fn workers_show_their_labels() {
    let shown = table(
        WORKERS,
        &[json!({"name": "wid-1", "labels": ["golang", "blue"], "jobs": 2})],
        usize::MAX / 2,
    );
    assert!(
        shown.contains("LABELS") && shown.contains("golang blue"),
        "{shown}"
    );
}

#[test]
fn a_schedule_shows_the_state_of_its_last_run_and_how_many_earlier_ones_wait() {
    let table = [
        (0, false, "unserved"),
        (3, false, "unserved 3"),
        (32, true, "unserved at least 32"),
    ];
    for (earlier, more, expected) in table {
        let row = json!({"id": 1, "last_end": "unserved", "earlier_waiting": earlier, "more_waiting": more});
        let shown = super::table(SCHEDULES, &[row], usize::MAX / 2);
        assert!(
            shown
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .ends_with(expected),
            "{shown}"
        );
    }
}

#[test]
fn a_job_shows_who_has_it() {
    let table = [
        (json!({"worker": "w", "connection": null}), "w"),
        (json!({"worker": null, "connection": 5}), "connection 5"),
        (json!({"worker": "w", "connection": 5}), "w, connection 5"),
        (Value::Null, ""),
    ];
    for (lease, text) in table {
        assert_eq!(holder(&lease), text);
    }
}

#[test]
fn one_job_shows_the_fields_that_it_has() {
    let value = json!({"id": 3, "queue": "q", "state": "ready", "why": {"text": "the queue q is paused"}, "body": "a\nb", "body_bytes": 3,
        "attempts": 0, "failures": 0, "losses": 0});
    let shown = job(&value);
    assert!(
        shown.contains("why           the queue q is paused\n"),
        "{shown}"
    );
    assert!(
        shown.contains("body          a\n              b\n") && !shown.contains("failure "),
        "{shown}"
    );
}

#[test]
fn retries_and_failures_are_in_words() {
    let never = [
        (-1, "none: its first failure makes it dead"),
        (0, "none: its first failure removes it"),
        (5, "5"),
    ];
    for (number, words) in never {
        assert_eq!(retries(&json!(number)), words);
    }
    let table = [
        (json!({"at": "T", "kind": "", "message": "boom"}), "T: boom"),
        (
            json!({"at": "T", "kind": "E", "message": "boom", "backtrace": ["a", "b"]}),
            "T: E: boom\na\nb",
        ),
        (Value::Null, ""),
    ];
    for (value, words) in table {
        assert_eq!(failure(&value), words);
    }
    let lost =
        json!({"number": 2, "began_at": "T", "ended_at": "U", "worker": null, "end": "lost"});
    assert_eq!(attempt(&lost), "2 T to U lost");
}

#[test]
fn a_queue_with_parts_names_them() {
    assert_eq!(
        notes(&json!({"kind": "work", "ready_by_protocol": {"gearman": 1, "http": 0}})),
        "ready by protocol: gearman 1, http 0"
    );
}

#[test]
fn rows_are_sorted_by_a_column_of_any_case() {
    let rows = [
        json!({"name": "b", "total": 9}),
        json!({"name": null, "total": 10}),
        json!({"name": "A", "total": null}),
    ];
    for (title, expected) in [("batch", [2, 0, 1]), ("JOBS", [1, 0, 2])] {
        let mut sorted = rows.clone();
        sort(BATCHES, &mut sorted, title).unwrap();
        assert_eq!(sorted, expected.map(|index| rows[index].clone()), "{title}");
    }
    let refused = sort(BATCHES, &mut rows.clone(), "size")
        .unwrap_err()
        .to_string();
    assert!(
        refused.starts_with("no column size; the columns are batch, jobs, pending, "),
        "{refused}"
    );
}
