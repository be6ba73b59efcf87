//! Jobs: by filter, with changes of a selection or of all matching jobs; and a single job with timeline and
//! body.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use askama::Template;
use axum::Json;
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use windlass_config::counted;
use windlass_engine::Protocol;

use super::ended;
use super::shell::{Rendered, Shell, page};
use super::timeline::Moment;
use crate::api::detail::JobDetail;
use crate::api::filter::Conditions;
use crate::api::jobs::{self, JobPage, Which};
use crate::api::views::{Job, STATES};
use crate::app::Shared;
use crate::params::{Segments, TwoParams, names};
use crate::problem::{Outcome, Problem};
use crate::sight::Sight;

/// Bytes of a body that are shown in hexadecimal.
const HEX_BYTES_MAX: usize = 4 << 10;
const HEX_COLUMNS: usize = 16;

/// The limit of lines of JSON that are shown as folds, because a browser displays more of them
/// slowly.
const LINES_MAX: usize = 5_000;

/// Folds nested at this depth or deeper are closed at first.
const DEPTH_OPEN: usize = 4;

#[derive(Debug, Template)]
#[template(path = "jobs.html")]
struct JobsPage {
    shell: Shell,
    list: JobPage,
}

#[derive(Debug, Template)]
#[template(path = "job.html")]
struct OneJob {
    shell: Shell,
    detail: JobDetail,
    body: Shown,
    timeline: Vec<Moment>,
}

/// A body in three forms.
#[derive(Debug, Default)]
struct Shown {
    text: Option<String>,
    /// As JSON, in HTML.
    tree: Option<String>,
    hex: Option<String>,
}

/// The time limit for the search of the first row.
const SEARCH_MAX: Duration = Duration::from_secs(1);

pub(super) async fn list(mut shell: Shell, app: Shared) -> Rendered {
    let known = [names::<Conditions>(), names::<Which>()].concat();
    shell.asked.retain(|name, _| known.contains(name));
    let asked: Uri = format!("/?{}", shell.with("page", ""))
        .parse()
        .map_err(Problem::bad_request)?;
    let TwoParams(conditions, which): TwoParams<Conditions, Which> = TwoParams::of(&asked)?;
    page(&JobsPage {
        list: search(&app, shell.sight, &conditions, which).await?,
        shell,
    })
}

/// A page of jobs; empty if the first match is not found in time.
pub(super) async fn search(
    app: &Shared,
    sight: Sight,
    conditions: &Conditions,
    mut which: Which,
) -> Outcome<JobPage> {
    let (begun, limit, order) = (Instant::now(), which.limit, which.order);
    loop {
        let list = jobs::list(app.clone(), sight, TwoParams(conditions.clone(), which))
            .await?
            .0;
        if !list.jobs.is_empty() || list.next.is_none() || begun.elapsed() > SEARCH_MAX {
            return Ok(list);
        }
        which = Which {
            cursor: list.next,
            limit,
            order,
            sort: None,
        };
    }
}

impl JobsPage {
    /// The possible orders of these jobs: each with a title, and `true` for the present one.
    fn orders(&self) -> Vec<(&'static str, &'static str, bool)> {
        let [state, order, batch, queue] =
            ["state", "order", "batch", "queue"].map(|name| self.shell.given(name));
        let next = match state {
            "scheduled" | "retrying" => Some("due next first"),
            "" | "ready" if !queue.is_empty() => Some("next to run first"),
            _ => None,
        };
        let (newest, oldest) = match state {
            "dead" | "done" => ("last ended first", "first ended first"),
            _ => ("newest first", "oldest first"),
        };
        let first = match (next, batch) {
            (_, batch) if !batch.is_empty() => "oldest",
            (Some(_), _) if !state.is_empty() => "next",
            (..) => "newest",
        };
        let present = if order.is_empty() { first } else { order };
        let known = [
            ("newest", Some(newest)),
            ("oldest", Some(oldest)),
            ("next", next),
        ];
        known
            .into_iter()
            .filter_map(|(order, title)| Some((order, title?, order == present)))
            .collect()
    }
}

pub(super) async fn show(
    shell: Shell,
    app: Shared,
    id: Segments<u64>,
) -> Result<Response, Problem> {
    let detail = match jobs::get(app.clone(), shell.sight, Segments(id.0)).await {
        Ok(Json(detail)) => detail,
        // The link to a job goes on working when the job has ended.
        Err(problem) if problem.status == 404 => {
            let ended = ended::of_job(&app, &shell, id.0).await;
            return ended.ok_or(problem);
        }
        Err(problem) => return Err(problem),
    };
    let body = Shown::of(&detail);
    let timeline = Moment::all(&detail);
    let page = page(&OneJob {
        shell,
        detail,
        body,
        timeline,
    })?;
    Ok(page.into_response())
}

impl OneJob {
    /// Returns true if a change is possible in the job's state.
    fn may(&self, change: &str) -> bool {
        let state = self.detail.job.state;
        match change {
            "retry" => matches!(state, "dead" | "scheduled" | "retrying"),
            "kill" => matches!(state, "ready" | "scheduled" | "retrying"),
            "requeue" => state == "leased",
            _ => state != "leased",
        }
    }
}

impl Job {
    /// Since when the job is in the present state, if known.
    pub(super) fn since(&self) -> Option<&String> {
        let taken = self.lease.as_ref().and_then(|lease| lease.since.as_ref());
        let died = self
            .failure
            .as_ref()
            .and_then(|failure| failure.at.as_ref())
            .filter(|_| self.state == "dead");
        taken.or(died).or(self.ready_at.as_ref())
    }
}

impl Shown {
    fn of(detail: &JobDetail) -> Self {
        let decoded = detail
            .body_base64
            .as_ref()
            .and_then(|text| STANDARD.decode(text).ok());
        let bytes = detail
            .body
            .as_deref()
            .map(str::as_bytes)
            .or(decoded.as_deref());
        Self {
            text: detail.body.clone(),
            tree: detail.body.as_deref().and_then(tree),
            hex: bytes.map(hex),
        }
    }
}

/// JSON as HTML: nested folds with the lines of the text, unmodified. `None` if the text is not JSON, or has
/// too many lines.
fn tree(text: &str) -> Option<String> {
    serde_json::from_str::<serde::de::IgnoredAny>(text).ok()?;
    let (mut tree, mut in_text, mut is_escaped) = (Tree::default(), false, false);
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        if in_text {
            tree.push(char);
            in_text = is_escaped || char != '"';
            is_escaped = char == '\\' && !is_escaped;
            continue;
        }
        match char {
            ' ' | '\t' | '\r' | '\n' => {}
            '{' | '[' => {
                tree.push(char);
                while chars.next_if(|next| next.is_ascii_whitespace()).is_some() {}
                match chars.next_if(|next| *next == '}' || *next == ']') {
                    Some(end) => tree.push(end),
                    None => tree.open(),
                }
            }
            '}' | ']' => tree.close(char),
            ',' => {
                tree.push(char);
                tree.end_line();
            }
            ':' => tree.line.push_str(": "),
            other => {
                in_text = other == '"';
                tree.push(other);
            }
        }
        if tree.lines > LINES_MAX {
            return None;
        }
    }
    tree.end_line();
    Some(tree.out)
}

/// The folds so far.
#[derive(Debug, Default)]
struct Tree {
    out: String,
    line: String,
    lines: usize,
    depth: usize,
}

impl Tree {
    fn push(&mut self, char: char) {
        match char {
            '<' => self.line.push_str("&lt;"),
            '&' => self.line.push_str("&amp;"),
            char => self.line.push(char),
        }
    }

    fn end_line(&mut self) {
        if !self.line.is_empty() {
            self.lines += 1;
            let _ = write!(self.out, "<div>{}</div>", std::mem::take(&mut self.line));
        }
    }

    fn open(&mut self) {
        self.lines += 1;
        let open = if self.depth < DEPTH_OPEN { " open" } else { "" };
        self.depth += 1;
        let _ = write!(
            self.out,
            "<details{open}><summary>{}</summary>",
            std::mem::take(&mut self.line)
        );
    }

    fn close(&mut self, end: char) {
        self.end_line();
        self.depth = self.depth.saturating_sub(1);
        self.out.push_str("</details>");
        self.line.push(end);
    }
}

/// Bytes in lines of offset, hexadecimal, and ASCII.
fn hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (line, offset) in bytes
        .chunks(HEX_COLUMNS)
        .zip((0..HEX_BYTES_MAX).step_by(HEX_COLUMNS))
    {
        let _ = write!(out, "{offset:06x} ");
        for index in 0..HEX_COLUMNS {
            let _ = match line.get(index) {
                Some(byte) => write!(out, " {byte:02x}"),
                None => write!(out, "   "),
            };
        }
        out.push_str("  ");
        out.extend(line.iter().map(|byte| {
            if byte.is_ascii_graphic() {
                char::from(*byte)
            } else {
                '.'
            }
        }));
        out.push('\n');
    }
    if bytes.len() > HEX_BYTES_MAX {
        let _ = writeln!(
            out,
            "… {}",
            counted((bytes.len() - HEX_BYTES_MAX) as u64, "more byte")
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_folds_and_not_rewritten() {
        let table = [
            (
                r#"{"a":1.0,"b":[12345678901234567890,"x<&, \"{y}\""],"c":{},"d":[ ]}"#,
                Some(
                    "<details open><summary>{</summary><div>\"a\": 1.0,</div><details open><summary>\"b\": [</summary>\
                     <div>12345678901234567890,</div><div>\"x&lt;&amp;, \\\"{y}\\\"\"</div></details><div>],</div>\
                     <div>\"c\": {},</div><div>\"d\": []</div></details><div>}</div>",
                ),
            ),
            (r#" "\\" "#, Some(r#"<div>"\\"</div>"#)),
            (
                "[[[[[1]]]]]",
                Some(&*format!(
                    "{}<details><summary>[</summary><div>1</div></details>{}<div>]</div>",
                    "<details open><summary>[</summary>".repeat(4),
                    "<div>]</div></details>".repeat(4)
                )),
            ),
            ("[1,]", None),
            ("text", None),
        ];
        for (text, expected) in table {
            assert_eq!(tree(text).as_deref(), expected, "{text}");
        }
        let long = |lines: usize| format!("[{}1]", "1,".repeat(lines));
        assert!(tree(&long(4_990)).is_some() && tree(&long(5_000)).is_none());
        assert!(tree(&"[".repeat(200_000)).is_none(), "too deep to be read");
    }

    #[test]
    fn hex_shows_offset_bytes_and_letters() {
        let shown = hex(b"0123456789abcdef<\n");
        assert_eq!(
            shown,
            "000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef\n\
             000010  3c 0a                                            <.\n"
        );
        assert!(hex(&vec![0; 5_000]).ends_with("\n… 904 more bytes\n"));
    }
}
