//! The history: jobs that have ended, what ended in each hour, and one end of a job.

use askama::Template;
use axum::response::{IntoResponse as _, Response};
use windlass_daemon::operator_port::history::Ends;
use windlass_engine::Ending;

use super::hours::Plot;
use super::shell::{Rendered, Shell, page};
use crate::api::ended::{
    self, Ended, EndedKindPage, EndedPage, HourTotal, Kept, Outcomes, Place, Which, WhichKinds,
};
use crate::app::{App, Shared};
use crate::params::{Known, Params, Segments};
use crate::prefix::to_path;
use crate::problem::{Outcome, Problem};

#[derive(Debug, Template)]
#[template(path = "history.html")]
struct History {
    shell: Shell,
    list: EndedPage,
    total: HourTotal,
    plots: Vec<Plot>,
}

#[derive(Debug, Template)]
#[template(path = "ended.html")]
struct OneEnd {
    shell: Shell,
    it: Ended,
    parts: Vec<Part>,
}

#[derive(Debug, Template)]
#[template(path = "history_kinds.html")]
struct KindsOfDays {
    shell: Shell,
    list: EndedKindPage,
}

/// Something of which the first bytes were kept.
#[derive(Debug)]
struct Part {
    title: &'static str,
    shown: String,
    bytes: u64,
    is_complete: bool,
    is_masked: bool,
}

pub(super) async fn show(shell: Shell, app: Shared, Known(which): Known<Which>) -> Rendered {
    let hours = hours(&app, &which).await?;
    page(&History {
        list: ended::list(app, shell.sight, Params(which)).await?.0,
        total: HourTotal::of(&hours),
        plots: Plot::all(&hours),
        shell,
    })
}

pub(super) async fn kinds(
    mut shell: Shell,
    app: Shared,
    Known(which): Known<WhichKinds>,
) -> Rendered {
    if shell.given("sort").is_empty() {
        shell.asked.insert("sort".to_owned(), "-ends".to_owned());
    }
    page(&KindsOfDays {
        list: ended::kinds(app, Params(which)).await?.0,
        shell,
    })
}

pub(super) async fn one(shell: Shell, app: Shared, place: Segments<Place>) -> Rendered {
    let it = ended::get(app, shell.sight, place).await?.0;
    let parts = [
        ("Body", &it.body),
        ("Result", &it.result),
        ("Output", &it.output),
    ];
    let parts = parts
        .into_iter()
        .filter_map(|(title, kept)| Some(Part::of(title, kept.as_ref()?)));
    page(&OneEnd {
        parts: parts.collect(),
        it,
        shell,
    })
}

/// The page of the last end of a job that is no more, if the history has one.
pub(super) async fn of_job(app: &Shared, shell: &Shell, job: u64) -> Option<Response> {
    let which = Which {
        job: Some(job),
        limit: Some(1),
        ..Which::default()
    };
    let found = ended::list(app.clone(), shell.sight, Params(which))
        .await
        .ok()?
        .0;
    let id = found.ended.first()?.id;
    Some(to_path(&shell.prefix, &format!("/history/{id}")).into_response())
}

/// What ended in the hours that are asked for: of the last day, if the question is open.
async fn hours(app: &App, which: &Which) -> Outcome<Ends> {
    match ended::of_hours(app, which.hours(app)?).await {
        // The plot is left out of a span that is too long for it.
        Err(Problem { status: 400, .. }) if !which.is_open() => Ok(Ends::default()),
        ends => ends,
    }
}

impl History {
    /// What the filter's outcomes are, in the order of the select.
    fn outcomes() -> [Ending; 7] {
        Ending::ALL
    }

    fn is_asked(&self, ending: Ending) -> bool {
        let asked: Outcomes = self.shell.given("outcome").parse().unwrap_or_default();
        asked.0 == [ending]
    }
}

impl Part {
    fn of(title: &'static str, kept: &Kept) -> Self {
        let base64 = || {
            kept.base64
                .as_ref()
                .map(|base64| format!("base64:{base64}"))
        };
        let shown = kept.text.clone().or_else(base64).unwrap_or_default();
        Self {
            title,
            shown,
            bytes: kept.bytes,
            is_complete: kept.is_complete,
            is_masked: kept.is_masked,
        }
    }
}

impl Ended {
    /// What it called.
    fn what(&self) -> String {
        self.kind.as_ref().unwrap_or(&self.queue).to_string()
    }

    /// How the badge of its outcome looks.
    fn badge(&self) -> &'static str {
        match self.outcome {
            "done" => "state-done",
            "failed" | "dead" => "state-dead",
            _ => "",
        }
    }

    /// Its error in one line.
    fn error(&self) -> String {
        let Some(failure) = &self.failure else {
            return String::new();
        };
        let parts = [
            failure.kind.as_deref().unwrap_or_default(),
            &failure.message,
        ];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(": ")
    }

    /// Whether it can be run again.
    fn is_whole(&self) -> bool {
        self.body.as_ref().is_some_and(|kept| kept.is_complete)
    }

    /// Whether a form can push a copy of it.
    fn has_body(&self) -> bool {
        let kept = self.body.as_ref();
        kept.is_some_and(|kept| kept.is_complete && kept.text.is_some())
    }

    /// Whether its last run is not among the attempts that did not succeed.
    fn shows_last_run(&self) -> bool {
        let last = self.history.last();
        last.is_none_or(|last| last.began_at != self.started_at)
    }

    /// Who ran it.
    fn ran_on(&self) -> String {
        let name = self.worker.as_ref().map(ToString::to_string);
        let address = self.worker_address.clone();
        let shown = address.map(|address| match &name {
            Some(name) => format!("{name} ({address})"),
            None => address,
        });
        shown.or(name).unwrap_or_default()
    }
}
