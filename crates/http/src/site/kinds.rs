//! Figures by kind of job.

use std::time::Duration;

use askama::Template;

use super::shell::{Rendered, Shell, page};
use crate::api::kinds::{self, Durations, KindFigures, KindPage, Which};
use crate::app::Shared;
use crate::by_kind::Span;
use crate::params::{Known, Params};
use crate::time::Age;

/// The spans, by the value of the parameter.
const SPANS: [(Span, &str, &str); 4] = [
    (Span::Minutes, "minutes", "five minutes"),
    (Span::Hour, "hour", "hour"),
    (Span::Day, "day", "day"),
    (Span::Start, "start", "since the start"),
];

#[derive(Debug, Template)]
#[template(path = "kinds.html")]
struct Kinds {
    shell: Shell,
    list: KindPage,
    shown: Span,
}

pub(super) async fn show(mut shell: Shell, app: Shared, Known(which): Known<Which>) -> Rendered {
    let shown = which.span.unwrap_or_default();
    if shell.given("sort").is_empty() {
        shell.asked.insert("sort".to_owned(), "-taken".to_owned());
    }
    page(&Kinds {
        list: kinds::list(app, Params(which)).await?.0,
        shell,
        shown,
    })
}

impl Durations {
    /// The durations, as people read them.
    pub(super) fn shown(&self) -> [String; 3] {
        [self.p50, self.p95, self.p99].map(|ms| {
            ms.map_or_else(
                || "–".to_owned(),
                |ms| Age(Duration::from_millis(ms)).to_string(),
            )
        })
    }
}

impl KindFigures {
    /// The percentage of failures among finished jobs; `None` without finished jobs.
    fn failed_percent(&self) -> Option<u64> {
        let ends = self.done.saturating_add(self.failed);
        (self.failed > 0 && ends > 0).then(|| (self.failed.saturating_mul(100) / ends).max(1))
    }

    /// A query for the jobs of this kind.
    fn query(&self) -> String {
        let kind = self
            .kind
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        form_urlencoded::Serializer::new(String::new())
            .append_pair("exact_kind", &kind)
            .finish()
    }
}
