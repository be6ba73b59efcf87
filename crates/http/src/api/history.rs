//! The counters of each day.

use std::collections::BTreeMap;

use axum::Json;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use windlass_engine::{Query, Reply, date};

use super::status::totals;
use crate::app::Shared;
use crate::params::Params;
use crate::problem::{Outcome, Problem};

/// The daemon stores at least this many days.
pub(crate) const DAYS_MAX: u32 = 180;

const DAYS: u32 = 30;
const DAY_MS: u64 = 86_400_000;

/// Which days.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// How many days, today included: 1 to 180; 30 if it is left out.
    pub(crate) days: Option<u32>,
}

/// Days, the newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct History {
    /// The days, without gaps. Today has only just begun.
    pub(crate) days: Vec<Day>,
}

/// One day, by the wall clock in UTC.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Day {
    /// Its date: year, month and day.
    date: String,
    /// The counters, as `totals` of the status has them. All are 0 on days before the first one that the data directory
    /// knows.
    counts: BTreeMap<String, u64>,
}

/// What was counted on each day
#[utoipa::path(get, path = "/api/v1/history", tag = "status", operation_id = "get_history", params(Which), responses(
    (status = 200, body = History), (status = 400, body = Problem)
))]
pub(crate) async fn history(app: Shared, Params(which): Params<Which>) -> Outcome<Json<History>> {
    let days = which.days.unwrap_or(DAYS);
    if !(1..=DAYS_MAX).contains(&days) {
        return Err(Problem::bad_request(format!(
            "days must be 1 to {DAYS_MAX}, not {days}"
        )));
    }
    let Reply::Days(counts) = app.ask(Query::Days).await? else {
        return Err(Problem::unexpected());
    };
    let today = app.now().wall.0 / DAY_MS;
    let newest_first = (0..days).map_while(|ago| today.checked_sub(ago.into()));
    let day = |day| Day {
        date: text(day),
        counts: totals(&counts.get(&day).copied().unwrap_or_default()),
    };
    Ok(Json(History {
        days: newest_first.map(day).collect(),
    }))
}

impl Day {
    /// A counter.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or_default()
    }
}

fn text(day: u64) -> String {
    let (year, month, day) = date::date(day);
    format!("{year:04}-{month:02}-{day:02}")
}
