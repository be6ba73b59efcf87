//! Figures of each kind of job: counts, outcomes, and durations of waits and executions.

use axum::Json;
use serde::Deserialize;
use utoipa::IntoParams;
use windlass_engine::{Histogram, Protocol, QueueFigures};

use super::listing::{Rows, sorted};
use crate::app::{App, Shared};
use crate::by_kind::{Kind, Span};
use crate::cursor::CursorText;
use crate::name::Name;
use crate::params::{Params, rows};
use crate::problem::{Outcome, Problem};
use crate::time::moment_text;
use crate::view::view;

/// Which kinds, and over how long.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Over how long; the last five minutes if it is left out.
    #[param(inline)]
    pub(crate) span: Option<Span>,
    /// Only this kind.
    pub(crate) kind: Option<Name>,
    /// `next` of the page before; nothing for the first one.
    pub(crate) cursor: Option<CursorText>,
    /// The most rows, 1 to 1000; 100 if it is left out.
    pub(crate) limit: Option<u32>,
    /// A field by which the rows are sorted, as `failed` or `ran.p95`; with a `-` in front the largest comes first. Those with
    /// the most deliveries come first if it is left out.
    pub(crate) sort: Option<String>,
}

/// A page of kinds.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
pub(crate) struct KindPage {
    /// The rows.
    pub(crate) kinds: Vec<KindFigures>,
    /// Since when they are; null with `span=start`.
    pub(crate) since: Option<String>,
    /// The cursor of the next page; null at the end.
    pub(crate) next: Option<CursorText>,
}

view! {
    /// What happened to the jobs of a kind.
    KindFigures(row: &(Kind, QueueFigures), app: &App) with {
        let (kind, figures) = row;
        let (protocol, namespace, name) = match kind {
            Kind::Of(protocol, namespace, name) => (Some(*protocol), Name::of(namespace), Name::of(name)),
            Kind::Others => (None, None, None),
        };
        let totals = figures.total();
    } {
        /// What the jobs call: a job type, a function, a callable. Null if their bodies do not show it.
        kind: Option<Name> = name,
        /// The protocol of their producers. Null: all kinds that have no row of their own, together.
        protocol: Option<&'static str> = protocol.map(|protocol: Protocol| app.protocol_name(protocol)),
        /// Deliveries.
        taken: u64 = totals.taken,
        /// Jobs that succeeded.
        done: u64 = totals.succeeded,
        /// Failures, those that are retried included.
        failed: u64 = totals.failed,
        /// Deliveries lost with their worker.
        lost: u64 = totals.lost,
        /// How long the jobs waited, from ready to taken.
        waited: Durations = Durations::of(&figures.waited),
        /// How long they ran, from taken to the worker's report.
        ran: Durations = Durations::of(&figures.ran),
        /// The namespace, if it has a name.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<Name> = namespace,
    }
}

view! {
    /// What a half, 95 % and 99 % of the durations did not exceed, in milliseconds; null without any.
    Durations(all: &Histogram) with {
        let of = |share: u64| (all.count() > 0).then(|| all.quantile_ms(share));
    } {
        /// A half.
        p50: Option<u64> = of(500),
        /// 95 %.
        p95: Option<u64> = of(950),
        /// 99 %.
        p99: Option<u64> = of(990),
    }
}

/// Figures of each kind
///
/// The 1,000 kinds with the most deliveries, and all others as one. Counted since this daemon has started, and, of queues that
/// several protocols share, without durations where a queue is what a job calls.
#[utoipa::path(get, path = "/api/v1/kinds", tag = "jobs", operation_id = "list_kinds", params(Which), responses(
    (status = 200, body = KindPage), (status = 400, body = Problem)
))]
pub(crate) async fn list(app: Shared, Params(which): Params<Which>) -> Outcome<Json<KindPage>> {
    let Which {
        span,
        kind,
        cursor,
        limit,
        sort,
    } = which;
    // What is kept is of all namespaces, whoever asks.
    let whole = app.whole();
    app.by_kind
        .add(&whole, &whole.figures().await?, whole.kinds().await?);
    let (since, all) = app.by_kind.over(span.unwrap_or_default());
    let is_seen = |(kind, _): &&(Kind, QueueFigures)| match (kind, app.namespace()) {
        (_, None) => true,
        (Kind::Of(_, namespace, _), Some(own)) => namespace == own.as_bytes(),
        (Kind::Others, Some(_)) => false,
    };
    let of = all
        .iter()
        .filter(is_seen)
        .map(|row| KindFigures::of(row, &app));
    let all = of
        .filter(|row| kind.is_none() || row.kind == kind)
        .collect();
    let sort = sort
        .filter(|sort| !sort.is_empty())
        .unwrap_or_else(|| "-taken".to_owned());
    let Rows { rows, next, .. } = sorted(all, &sort, cursor.unwrap_or_default().0.0, rows(limit)?)?;
    Ok(Json(KindPage {
        kinds: rows,
        since: since.and_then(moment_text),
        next,
    }))
}
