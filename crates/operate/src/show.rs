//! Output for people: tables, and one job. Scripts use `--json`.

use std::cmp::Ordering;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::Value;
use windlass_config::{Failure, counted, grouped};

use self::layout::{GAP, Layout};
use crate::client;
use crate::terminal::now;

pub(crate) mod layout;

/// A column: its title, the format of its value, and the path of the value in the row (RFC 6901).
/// Numbers are right-aligned.
pub(super) struct Column(
    pub(super) &'static str,
    pub(super) fn(&Value) -> String,
    pub(super) &'static str,
);

/// Columns: the title, the format of the value, and its path in the row (RFC 6901).
macro_rules! columns {
    ($($title:literal $form:ident $place:literal),+) => { &[$(Column($title, |row| $form(at(row, $place)), $place)),+] };
}

pub(super) const QUEUES: &[Column] = columns![
    "QUEUE" text "/name", "READY" number "/states/ready", "LEASED" number "/states/leased",
    "SCHEDULED" number "/states/scheduled", "RETRYING" number "/states/retrying", "DEAD" number "/states/dead",
    "IN/S" rate "/rates/pushed", "OUT/S" rate "/rates/done", "OLDEST" age "/oldest_ready_seconds",
    "WORKERS" number "/workers", "WAITING" number "/waiting", "NOTES" notes ""
];

pub(super) const JOBS: &[Column] = columns![
    "ID" text "/id", "STATE" text "/state", "QUEUE" text "/queue", "KIND" text "/kind", "PROTOCOL" text "/protocol",
    "ATTEMPTS" text "/attempts", "READY AT" text "/ready_at", "NAME" text "/name",
    "LAST FAILURE" first_line "/failure/message", "SUMMARY" text "/summary"
];

pub(super) const DEAD: &[Column] = columns![
    "JOBS" number "/jobs", "FIRST" text "/first_at", "LAST" text "/last_at", "QUEUE" queues "", "KIND" text "/kind",
    "LAST JOB" text "/example", "ERROR" text "/error"
];

pub(super) const RETRYING: &[Column] = columns![
    "JOBS" number "/jobs", "FIRST" text "/first_at", "LAST" text "/last_at", "NEXT RETRY" text "/next_at",
    "QUEUE" queues "", "KIND" text "/kind", "LAST JOB" text "/example", "ERROR" text "/error"
];

pub(super) const KINDS: &[Column] = columns![
    "KIND" kind "", "TAKEN" number "/taken", "DONE" number "/done", "FAILED" number "/failed", "LOST" number "/lost",
    "WAITED P50" milliseconds "/waited/p50", "WAITED P95" milliseconds "/waited/p95",
    "WAITED P99" milliseconds "/waited/p99",
    "RAN P50" milliseconds "/ran/p50", "RAN P95" milliseconds "/ran/p95", "RAN P99" milliseconds "/ran/p99",
    "PROTOCOL" text "/protocol"
];

pub(super) const ENDED_KINDS: &[Column] = columns![
    "KIND" kind_or_queue "", "QUEUE" text "/queue", "DONE" number "/done", "FAILED" number "/failed", "OTHER" number "/other",
    "WAITED P50" milliseconds "/waited/p50", "WAITED P95" milliseconds "/waited/p95",
    "WAITED P99" milliseconds "/waited/p99",
    "RAN P50" milliseconds "/ran/p50", "RAN P95" milliseconds "/ran/p95", "RAN P99" milliseconds "/ran/p99"
];

pub(super) const ENDED: &[Column] = columns![
    "JOB" text "/job", "OUTCOME" text "/outcome", "ENDED" text "/ended_at", "QUEUE" text "/queue", "KIND" text "/kind",
    "WAITED" milliseconds "/waited_ms", "RAN" milliseconds "/ran_ms", "TRIES" number "/attempts", "WORKER" ran_on "",
    "NAME" text "/name", "ERROR" first_line "/failure/message", "PROTOCOL" text "/protocol"
];

pub(super) const WORKERS: &[Column] = columns![
    "WORKER" text "/name", "STATE" text "/state", "PROTOCOL" text "/protocol", "HOST" text "/host", "PID" text "/pid",
    "LABELS" words "/labels", "MEMORY" bytes "/memory_bytes", "JOBS" number "/jobs", "CONNECTIONS" text "/connections",
    "WAITING" number "/waiting", "WORKS ON" doing "", "LAST SIGN" text "/beat_at"
];

pub(super) const SCHEDULES: &[Column] = columns![
    "ID" text "/id", "NAME" text "/name", "QUEUE" text "/queue", "PROTOCOL" text "/protocol", "WHEN" text "/in_words",
    "NEXT RUN" next_run "", "LAST RUN" text "/last_run", "LAST JOB" text "/last_job", "ITS STATE" text "/last_end",
    "STILL WAITING" earlier "",
    "RUNS LEFT" text "/runs_left", "CRONTAB" text "/when"
];

pub(super) const BATCHES: &[Column] = columns![
    "BATCH" text "/name", "JOBS" number "/total", "PENDING" number "/pending", "FAILED" number "/failed",
    "COMMITTED" text "/committed", "COMPLETE" text "/complete", "SUCCESS" text "/success", "CREATED" text "/created_at",
    "DESCRIPTION" first_line "/description"
];

pub(super) const CONNECTIONS: &[Column] = columns![
    "ID" text "/id", "PROTOCOL" text "/protocol", "ADDRESS" text "/address", "NAME" text "/name", "JOBS" number "/jobs",
    "WAITS" text "/waits", "QUEUES" names "/queues"
];

pub(super) const NAMESPACES: &[Column] = columns![
    "NAMESPACE" text "/name", "JOBS" number "/jobs", "JOBS MAX" number "/limits/jobs_max", "BYTES" number "/bytes",
    "BYTES MAX" number "/limits/job_bytes_max", "QUEUES" number "/queues", "QUEUES MAX" number "/limits/queues_max",
    "CONNECTIONS" number "/connections", "CONNECTIONS MAX" number "/limits/connections_max", "PUSHES MAX" pushes "/limits",
    "REFUSED" number "/refused", "LAST REFUSAL" text "/refused_last/at", "AT ITS LIMIT OF" text "/refused_last/limit"
];

/// The limit of pushes of a namespace.
fn pushes(limits: &Value) -> String {
    let per = at(limits, "/pushes_per").as_str();
    per.map_or_else(String::new, |per| {
        format!("{} in {per}", number(at(limits, "/pushes_max")))
    })
}

/// Shown beside the first column if any row has one.
const NAMESPACE: Column = Column("NAMESPACE", |row| text(at(row, "/namespace")), "/namespace");

/// Special properties of a queue.
fn notes(row: &Value) -> String {
    let since = at(row, "/paused_at")
        .as_str()
        .map_or_else(String::new, |at| format!(" since {at}"));
    let parts = at(row, "/ready_by_protocol").as_object();
    let parts: Vec<String> = parts
        .into_iter()
        .flatten()
        .map(|(name, ready)| format!("{name} {ready}"))
        .collect();
    let notes = [
        (
            *at(row, "/paused") == true,
            format!("paused{}{since}", of_protocols(row)),
        ),
        (*at(row, "/bridged") == true, "bridged".to_owned()),
        (!at(row, "/throttle").is_null(), "throttled".to_owned()),
        (
            !at(row, "/policy").is_null(),
            format!("policy: {}", text(at(row, "/policy/in_words"))),
        ),
        (
            at(row, "/jobs_max")
                .as_object()
                .is_some_and(|it| !it.is_empty()),
            "limited".to_owned(),
        ),
        (*at(row, "/kind") == "cycle", "cycle".to_owned()),
        (
            parts.len() > 1,
            format!("ready by protocol: {}", parts.join(", ")),
        ),
    ];
    notes
        .into_iter()
        .filter_map(|(is_so, note)| is_so.then_some(note))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The number of waiting jobs from earlier runs of a schedule; empty if there are none.
fn earlier(row: &Value) -> String {
    let least = if *at(row, "/more_waiting") == true {
        "at least "
    } else {
        ""
    };
    at(row, "/earlier_waiting")
        .as_u64()
        .filter(|it| *it > 0)
        .map_or_else(String::new, |it| format!("{least}{it}"))
}

/// The queue of failed jobs, and the number of other queues.
fn queues(row: &Value) -> String {
    let more = at(row, "/queues")
        .as_u64()
        .filter(|queues| *queues > 1)
        .map(|queues| format!(" and {} more", queues - 1));
    text(at(row, "/queue")) + &more.unwrap_or_default()
}

/// The call made by jobs of a kind.
fn kind(row: &Value) -> String {
    match (at(row, "/kind"), at(row, "/protocol")) {
        (Value::Null, Value::Null) => "(all others)".to_owned(),
        (Value::Null, _) => "(not shown by the body)".to_owned(),
        (kind, _) => text(kind),
    }
}

/// A duration in a suitable unit; `–` without one.
fn milliseconds(value: &Value) -> String {
    match value.as_u64() {
        None => "–".to_owned(),
        Some(ms @ ..1_000) => format!("{ms}ms"),
        Some(ms @ 1_000..60_000) => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        Some(ms) => age(&Value::from(ms / 1_000)),
    }
}

/// The call made by ended jobs.
fn kind_or_queue(row: &Value) -> String {
    let place = if at(row, "/kind").is_null() {
        "/queue"
    } else {
        "/kind"
    };
    text(at(row, place))
}

/// The worker that ran an ended job last.
fn ran_on(row: &Value) -> String {
    let place = if at(row, "/worker").is_null() {
        "/worker_address"
    } else {
        "/worker"
    };
    text(at(row, place))
}

/// How a job ended.
pub(super) fn ended(row: &Value) -> String {
    let kept = |path: &str| {
        let kept = at(row, path);
        let more = if *at(kept, "/is_complete") == false {
            format!("\n({} in all)", many(at(kept, "/bytes"), "byte"))
        } else {
            String::new()
        };
        if let Value::String(base64) = at(kept, "/base64") {
            format!("in base64: {base64}{more}")
        } else {
            text(at(kept, "/text")) + &more
        }
    };
    fields(&[
        (
            "job",
            format!("{} in {}", text(at(row, "/job")), text(at(row, "/queue"))),
        ),
        ("outcome", text(at(row, "/outcome"))),
        ("ended at", text(at(row, "/ended_at"))),
        ("protocol", text(at(row, "/protocol"))),
        ("kind", text(at(row, "/kind"))),
        ("name", text(at(row, "/name"))),
        ("unique id", text(at(row, "/unique"))),
        ("key", text(at(row, "/key"))),
        ("pushed at", text(at(row, "/pushed_at"))),
        ("pushed by", text(at(row, "/producer"))),
        ("due at", text(at(row, "/due_at"))),
        ("ready at", text(at(row, "/ready_at"))),
        ("started at", text(at(row, "/started_at"))),
        ("waited", milliseconds(at(row, "/waited_ms"))),
        ("ran", milliseconds(at(row, "/ran_ms"))),
        ("worker", text(at(row, "/worker"))),
        ("at", text(at(row, "/worker_address"))),
        (
            "attempts",
            format!(
                "{}, of these {} failed",
                text(at(row, "/attempts")),
                text(at(row, "/failures"))
            ),
        ),
        ("schedule", text(at(row, "/schedule"))),
        ("run again from job", text(at(row, "/again_of"))),
        ("batch", text(at(row, "/batch"))),
        ("failure", failure(at(row, "/failure"))),
        ("history", list(row, "/history", attempt).join("\n")),
        ("body", kept("/body")),
        ("result", kept("/result")),
        ("output", kept("/output")),
    ])
}

/// The jobs of a worker.
fn doing(row: &Value) -> String {
    list(row, "/doing", |it| {
        format!("{} in {}", text(at(it, "/job")), text(at(it, "/queue")))
    })
    .join(", ")
}

fn next_run(row: &Value) -> String {
    if *at(row, "/paused") == true {
        "paused".to_owned()
    } else {
        text(at(row, "/next_at"))
    }
}

fn words(value: &Value) -> String {
    list(value, "", text).join(" ")
}

fn names(value: &Value) -> String {
    first_line(&Value::from(list(value, "", text).join(", ")))
}

fn bytes(value: &Value) -> String {
    value.as_u64().map_or_else(String::new, size)
}

/// ` for` and the names of the paused protocols; empty if there are none.
fn of_protocols(row: &Value) -> String {
    let names = list(row, "/paused_protocols", text);
    if names.is_empty() {
        String::new()
    } else {
        format!(" for {}", names.join(", "))
    }
}

/// The texts of a list's values.
pub(crate) fn list(value: &Value, path: &str, form: impl Fn(&Value) -> String) -> Vec<String> {
    at(value, path)
        .as_array()
        .into_iter()
        .flatten()
        .map(form)
        .collect()
}

/// A table with a title for each column, at most as wide as the terminal ([`Layout::fitting`]).
pub(super) fn table(columns: &[Column], rows: &[Value], width_max: usize) -> String {
    let mut columns: Vec<&Column> = columns.iter().collect();
    if rows.iter().any(|row| at(row, "/namespace").is_string()) {
        columns.insert(columns.len().min(1), &NAMESPACE);
    }
    let titles = columns
        .iter()
        .map(|Column(title, ..)| (*title).to_owned())
        .collect();
    let cells = |row| {
        columns
            .iter()
            .map(|Column(_, value, _)| printable(&value(row)))
            .collect()
    };
    let layout = Layout::new(titles, rows.iter().map(cells).collect());
    let layout = layout
        .without_void(width_max, now())
        .fitting(width_max, now());
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(&layout.titles);
    table.add_rows(&layout.rows);
    for index in 0..layout.titles.len() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, u16::try_from(GAP).unwrap_or_default()));
            if layout.is_of_numbers(index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table
        .lines()
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

/// Sorts rows by a column: numbers in descending order, texts alphabetically. Rows without a value
/// come last.
pub(super) fn sort(columns: &[Column], rows: &mut [Value], title: &str) -> Result<(), Failure> {
    let titles = || {
        columns
            .iter()
            .map(|it| it.0.to_lowercase())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let unknown = || client::failure(format!("no column {title}; the columns are {}", titles()));
    let Column(.., place) = columns
        .iter()
        .find(|it| it.0.eq_ignore_ascii_case(title))
        .ok_or_else(unknown)?;
    let key = |row: &Value| {
        let value = at(row, place);
        (
            value.is_null(),
            -value.as_f64().unwrap_or_default(),
            text(value).to_lowercase(),
        )
    };
    rows.sort_by(|one, other| key(one).partial_cmp(&key(other)).unwrap_or(Ordering::Equal));
    Ok(())
}

/// The summary of the daemon.
pub(super) fn status(status: &Value) -> String {
    let things = |all: [(&str, &str); 2]| {
        all.map(|(path, thing)| many(at(status, path), thing))
            .join(", ")
    };
    let mut lines = vec![
        (
            "windlass",
            format!(
                "{}, {}",
                text(at(status, "/version")),
                text(at(status, "/state"))
            ),
        ),
        ("refuses", list(status, "/refusing", refusing).join("\n")),
        ("look at", list(status, "/attention", text).join("\n")),
        (
            "drain",
            if at(status, "/drain").is_null() {
                String::new()
            } else {
                drain(at(status, "/drain"))
            },
        ),
        ("started", text(at(status, "/started_at"))),
        ("jobs", counts(at(status, "/states"))),
        ("memory", memory(at(status, "/memory"))),
        ("queues", number(at(status, "/queues"))),
        (
            "clients",
            things([("/connections", "connection"), ("/workers", "named worker")]),
        ),
        (
            "kept",
            things([("/schedules", "schedule"), ("/batches", "batch")]),
        ),
        ("so far", counts(at(status, "/totals"))),
    ];
    let names = list(status, "/protocols", |it| text(at(it, "/protocol")));
    let states = list(status, "/protocols", |it| counts(at(it, "/states")));
    lines.extend(names.iter().map(String::as_str).zip(states));
    fields(&lines)
}

/// The memory of jobs, and the bodies on disk only; empty if another daemon has them.
fn memory(memory: &Value) -> String {
    let bytes = |path: &str| size(at(memory, path).as_u64().unwrap_or_default());
    if memory.is_null() {
        return String::new();
    }
    let here = format!(
        "{} of {} that limits.memory leaves for jobs",
        bytes("/used_bytes"),
        bytes("/limit_bytes")
    );
    match at(memory, "/stored_jobs").as_u64() {
        Some(jobs @ 1..) => format!(
            "{here}; {} of {} on the disk only",
            bytes("/stored_bytes"),
            counted(jobs, "body")
        ),
        _ => here,
    }
}

/// A kind of refusal, and since when.
fn refusing(it: &Value) -> String {
    let since = at(it, "/since")
        .as_str()
        .map_or_else(String::new, |since| format!(", since {since}"));
    text(at(it, "/text")) + &since
}

/// Counts other than 0.
pub(super) fn counts(part: &Value) -> String {
    let counts = part
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, count)| **count != 0);
    let counts: Vec<String> = counts
        .map(|(name, count)| format!("{} {name}", number(count)))
        .collect();
    if counts.is_empty() {
        "none".to_owned()
    } else {
        counts.join(", ")
    }
}

/// The jobs that a drain waits for.
pub(super) fn drain(drain: &Value) -> String {
    let until = text(at(drain, "/until"));
    let until = if until.is_empty() {
        until
    } else {
        format!(" until {until}")
    };
    let held = |it: &Value| {
        format!(
            "{} of {} workers",
            many(at(it, "/jobs"), "job"),
            text(at(it, "/protocol"))
        )
    };
    let held = list(drain, "/held", held);
    if held.is_empty() {
        "stopping\n".to_owned()
    } else {
        format!("waiting{until} for {}\n", held.join(", "))
    }
}

/// The role of a daemon in a cluster.
pub(super) fn cluster(cluster: &Value) -> String {
    let ahead = at(cluster, "/clock_ahead_ms").as_i64();
    let ahead = ahead.map_or_else(String::new, |ms| format!("{ms} ms ahead of the database's"));
    let noted = |note: &str, it: &Value, path: &str| {
        let text = text(at(it, path));
        if text.is_empty() {
            text
        } else {
            format!("{note}{text}")
        }
    };
    let edge = |it: &Value| {
        let notes = [
            noted(", version ", it, "/version"),
            noted(", cannot lead: ", it, "/cannot_lead"),
        ]
        .concat();
        format!(
            "{} since {}{notes}",
            text(at(it, "/link")),
            text(at(it, "/since"))
        )
    };
    let refused = |it: &Value| {
        format!(
            "{} at {}: {}",
            text(at(it, "/from")),
            text(at(it, "/at")),
            text(at(it, "/reason"))
        )
    };
    fields(&[
        ("this daemon", text(at(cluster, "/role"))),
        ("since", text(at(cluster, "/since"))),
        ("epoch", text(at(cluster, "/epoch"))),
        (
            "leader",
            text(at(cluster, "/leader")) + &noted(", version ", cluster, "/leader_version"),
        ),
        ("version", text(at(cluster, "/version"))),
        ("cannot lead", text(at(cluster, "/cannot_lead"))),
        ("no link", text(at(cluster, "/cannot_follow"))),
        ("wall clock", ahead),
        ("edges", list(cluster, "/edges", edge).join("\n")),
        ("refused", list(cluster, "/refused", refused).join("\n")),
    ])
}

/// The keys changed by a reload.
pub(super) fn reloaded(changes: &Value) -> String {
    let keys =
        |which: &str, what: &str| list(changes, which, |key| format!("{}: {what}\n", text(key)));
    let all = [
        keys("/applied", "applied"),
        keys("/needs_restart", "needs a restart"),
        keys("/taken_back", "taken back"),
    ];
    let lines = all.concat();
    if lines.is_empty() {
        "nothing has changed\n".to_owned()
    } else {
        lines.concat()
    }
}

/// A setting of a queue in the form in which it can be set, if it has one.
pub(super) fn rule(queue: &str, what: &str, rule: Option<Value>) -> String {
    rule.map_or_else(
        || format!("{queue} has no {what}\n"),
        |rule| format!("{rule}\n"),
    )
}

/// The policy of a queue in the form in which it can be set. Its origin goes to standard error, so
/// that the output can be reused as input.
pub(super) fn policy(queue: &str, policy: &Value) -> String {
    let origin = text(at(policy, "/origin"));
    eprintln!("the policy of {queue}, {origin}:");
    format!("{:#}\n", at(policy, "/policy"))
}

/// The policy of a queue, and a line for each of its first keys.
pub(super) fn keys(policy: &Value) -> String {
    let mut lines = vec![
        ("policy", text(at(policy, "/in_words"))),
        ("keys", text(at(policy, "/count"))),
    ];
    let key = |row: &Value| {
        let (waiting, running) = (text(at(row, "/waiting")), text(at(row, "/running")));
        let paused = if *at(row, "/paused") == true {
            ", paused"
        } else {
            ""
        };
        format!(
            "{:?}: {waiting} waiting, {running} running{paused}",
            text(at(row, "/key"))
        )
    };
    lines.push(("longest", list(policy, "/keys", key).join("\n")));
    fields(&lines)
}

/// All details of one job.
pub(super) fn job(job: &Value) -> String {
    let lease = at(job, "/lease");
    let mut lines = vec![
        (
            "job",
            format!("{} in {}", text(at(job, "/id")), text(at(job, "/queue"))),
        ),
        ("state", text(at(job, "/state"))),
        ("why", text(at(job, "/why/text"))),
        (
            "held by",
            list(job, "/why/held_by", |id| format!("job {}", text(id))).join(", "),
        ),
        ("protocol", text(at(job, "/protocol"))),
        ("kind", text(at(job, "/kind"))),
        ("name", text(at(job, "/name"))),
        ("key", text(at(job, "/key"))),
        ("priority", text(at(job, "/priority"))),
        (
            if *at(job, "/state") == "scheduled" {
                "created at"
            } else {
                "ready at"
            },
            text(at(job, "/ready_at")),
        ),
        ("until", text(at(job, "/until"))),
        (
            "attempts",
            format!(
                "{}, of these {} failed and {} lost",
                text(at(job, "/attempts")),
                text(at(job, "/failures")),
                text(at(job, "/losses"))
            ),
        ),
        ("retries", retries(at(job, "/retries"))),
        ("leased to", holder(lease)),
        ("leased since", text(at(lease, "/since"))),
        ("progress", progress(at(job, "/progress"))),
        ("failure", failure(at(job, "/failure"))),
        ("history", list(job, "/history", attempt).join("\n")),
        ("result", text(at(job, "/result"))),
        ("trace", text(at(job, "/traceparent"))),
    ];
    let bytes = many(at(job, "/body_bytes"), "byte");
    match (at(job, "/body"), at(job, "/body_base64")) {
        (Value::String(body), _) => lines.push(("body", body.clone())),
        (_, Value::String(body)) => lines.push(("body", format!("{bytes}, in base64: {body}"))),
        _ => lines.push(("body", bytes)),
    }
    fields(&lines)
}

/// The holder of a job: the name of the worker, the number of its connection, or both.
fn holder(lease: &Value) -> String {
    let (worker, connection) = (text(at(lease, "/worker")), text(at(lease, "/connection")));
    match (worker.is_empty(), connection.is_empty()) {
        (_, true) => worker,
        (true, false) => format!("connection {connection}"),
        (false, false) => format!("{worker}, connection {connection}"),
    }
}

/// A job that this worker has taken.
pub(super) fn taken(job: &Value) -> String {
    let body = match (at(job, "/body"), at(job, "/body_base64")) {
        (Value::String(body), _) => body.clone(),
        (_, body) => format!("in base64: {}", text(body)),
    };
    fields(&[
        ("lease", text(at(job, "/lease"))),
        ("until", text(at(job, "/until"))),
        ("job", text(at(job, "/id"))),
        ("protocol", text(at(job, "/protocol"))),
        ("attempts", text(at(job, "/attempts"))),
        ("body", body),
    ])
}

fn progress(progress: &Value) -> String {
    if progress.is_null() {
        return String::new();
    }
    format!(
        "{} of {} {}",
        at(progress, "/done"),
        at(progress, "/of"),
        text(at(progress, "/text"))
    )
}

fn failure(failure: &Value) -> String {
    if failure.is_null() {
        return String::new();
    }
    let head = text(at(failure, "/at")) + &error(failure);
    let head = head.trim_start_matches(": ").to_owned();
    [vec![head], list(failure, "/backtrace", text)]
        .concat()
        .join("\n")
}

/// An unsuccessful delivery, in one line.
fn attempt(attempt: &Value) -> String {
    let [number, began, ended, worker, end] =
        ["/number", "/began_at", "/ended_at", "/worker", "/end"].map(|it| text(at(attempt, it)));
    let error = error(attempt).lines().next().unwrap_or_default().to_owned();
    let parts = [number, began, "to".to_owned(), ended, worker, end]
        .into_iter()
        .filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(" ") + &error
}

/// The class and the message of an error, each after a colon, if known.
fn error(of: &Value) -> String {
    let parts = ["/kind", "/message"].map(|it| text(at(of, it)));
    parts
        .iter()
        .filter(|it| !it.is_empty())
        .map(|it| format!(": {it}"))
        .collect()
}

/// The number of retries; FWP's special values are words.
fn retries(retries: &Value) -> String {
    match retries.as_i64() {
        Some(-1) => "none: its first failure makes it dead".to_owned(),
        Some(0) => "none: its first failure removes it".to_owned(),
        _ => text(retries),
    }
}

/// One line for each field with a value; continuation lines are indented.
fn fields(lines: &[(&str, String)]) -> String {
    let width = lines
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    let shown = lines.iter().filter(|(_, value)| !value.is_empty());
    let indent = format!("\n{}", " ".repeat(width + 2));
    shown
        .map(|(name, value)| {
            format!(
                "{name:width$}  {}\n",
                multi_line(value).replace('\n', &indent)
            )
        })
        .collect()
}

/// The value at a path (RFC 6901); null if there is none.
pub(super) fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    value.pointer(path).unwrap_or(&Value::Null)
}

/// A value as text; empty for null.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// A whole number with separators; other values unchanged.
pub(super) fn number(value: &Value) -> String {
    value.as_u64().map_or_else(|| text(value), grouped)
}

/// A count with the name of the thing.
pub(super) fn many(count: &Value, thing: &str) -> String {
    counted(count.as_u64().unwrap_or_default(), thing)
}

/// Bytes in the largest unit that fits.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [
        ("TiB", 1 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
    ];
    let unit = UNITS.into_iter().find(|(_, unit)| bytes >= *unit);
    unit.map_or_else(
        || counted(bytes, "byte"),
        |(name, unit)| {
            let tenths = u128::from(bytes) * 10 / u128::from(unit);
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        },
    )
}

/// A rate with one decimal place.
fn rate(value: &Value) -> String {
    value
        .as_f64()
        .map_or_else(String::new, |rate| format!("{rate:.1}"))
}

fn first_line(value: &Value) -> String {
    const CHARS_MAX: usize = 60;
    let text = text(value);
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or(line)),
        None => line.to_owned(),
    }
}

/// Seconds in the largest unit that fits.
fn age(seconds: &Value) -> String {
    const UNITS: [(&str, f64); 4] = [("d", 86_400.0), ("h", 3_600.0), ("m", 60.0), ("s", 1.0)];
    let seconds = seconds.as_f64().unwrap_or_default();
    if seconds == 0.0 {
        return String::new();
    }
    let unit = UNITS.iter().find(|(_, unit)| seconds >= *unit);
    unit.map_or_else(
        || "<1s".to_owned(),
        |(name, unit)| format!("{:.0}{name}", (seconds / unit).floor()),
    )
}

/// Text without control characters, because names and bodies must not control the terminal.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|char| if char.is_control() { '\u{fffd}' } else { char })
        .collect()
}

fn multi_line(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
