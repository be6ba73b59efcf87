//! Pages that are one listing of the API: workers, schedules, batches, throttles, connections; and one batch.

use std::time::Duration;

use askama::Template;
use windlass_config::counted;

use super::jobs::search;
use super::shell::{Rendered, Shell, page};
use crate::api::batches::Batch;
use crate::api::filter::Conditions;
use crate::api::jobs::{JobPage, Which};
use crate::api::listing::Page;
use crate::api::schedules::Schedule;
use crate::api::throttles::Throttled;
use crate::api::views::Throttle;
use crate::api::{batches, connections, schedules, throttles, workers};
use crate::app::Shared;
use crate::name::Name;
use crate::params::{Known, Params, Segments};
use crate::time::Age;

/// The pages: the listing, the rows, and the template.
macro_rules! lists {
    ($($name:ident: $Rows:ident, $template:literal;)+) => {$(
        pub(super) async fn $name(
            shell: Shell,
            app: Shared,
            Known(which): Known<Page>,
        ) -> Rendered {
            #[derive(Debug, Template)]
            #[template(path = $template)]
            struct List {
                shell: Shell,
                list: $name::$Rows,
            }
            page(&List { shell, list: $name::list(app, Params(which)).await?.0 })
        }
    )+};
}

lists! {
    workers: WorkerPage, "workers.html";
    schedules: SchedulePage, "schedules.html";
    batches: BatchPage, "batches.html";
    throttles: ThrottlePage, "throttles.html";
    connections: ConnectionPage, "connections.html";
}

#[derive(Debug, Template)]
#[template(path = "batch.html")]
struct OneBatch {
    shell: Shell,
    batch: Batch,
    list: JobPage,
    /// The jobs' condition as a query.
    query: String,
}

/// A batch with jobs.
pub(super) async fn batch(
    shell: Shell,
    app: Shared,
    Segments(name): Segments<Name>,
    Known(which): Known<Which>,
) -> Rendered {
    let batch = batches::get(app.clone(), Segments(name.clone())).await?.0;
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("batch", &name.to_string())
        .finish();
    let list = search(&app, shell.sight, &Conditions::of_batch(name), which).await?;
    page(&OneBatch {
        shell,
        batch,
        list,
        query,
    })
}

impl Batch {
    /// Jobs that have succeeded.
    const fn done(&self) -> u64 {
        self.total.saturating_sub(self.pending)
    }
}

impl Schedule {
    /// The number of previous jobs that are still waiting.
    fn earlier(&self) -> String {
        let least = if self.more_waiting { "at least " } else { "" };
        let wait = if self.earlier_waiting == 1 {
            "waits"
        } else {
            "wait"
        };
        format!(
            "{least}{} still {wait}",
            counted(self.earlier_waiting as u64, "earlier run")
        )
    }
}

impl Throttled {
    /// The number of occupied slots beyond the listed ones.
    fn more(&self) -> u32 {
        self.throttle
            .held
            .saturating_sub(u32::try_from(self.holders.len()).unwrap_or(u32::MAX))
    }
}

impl Throttle {
    /// How long a job occupies a slot; empty if unlimited.
    fn timeout(&self) -> String {
        self.timeout_ms
            .map_or_else(String::new, |ms| Age(Duration::from_millis(ms)).to_string())
    }
}
