//! Batches: list, get.

use axum::Json;
use windlass_engine::{BatchView, CallbackState, Query, Reply};

use super::listing::listing;
use crate::app::{App, Now};
use crate::name::Name;
use crate::problem::Problem;
use crate::time::moment_text;
use crate::view::{of_one, view};

view! {
    /// Jobs that belong together, and the callbacks that follow them.
    Batch(view: &BatchView, app: &App, _now: Now) {
        /// Its name.
        name: Name = Name(view.name.clone()),
        /// Its number, which rows of the history have.
        id: u64 = view.id.0,
        /// The protocol of its producer.
        protocol: &'static str = app.protocol_name(view.protocol),
        /// The batch that it is in.
        parent: Option<Name> = view.parent.clone().map(Name),
        /// What its producer wrote about it.
        description: String = String::from_utf8_lossy(&view.about).into_owned(),
        /// When it was created.
        created_at: Option<String> = moment_text(view.created_at),
        /// Whether no more jobs are announced, so that its callbacks may be pushed.
        committed: bool = view.committed,
        /// Jobs that have joined it.
        total: u64 = view.total,
        /// Of these, those that have not succeeded.
        pending: u64 = view.pending,
        /// Of the pending ones, those that ran, or can no longer run.
        failed: u64 = view.failed,
        /// The callback for when all jobs have run: `none`, `pushed` or `succeeded`.
        complete: &'static str = state_name(view.complete),
        /// The callback for when all jobs have succeeded: `none`, `pushed` or `succeeded`.
        success: &'static str = state_name(view.success),
        /// The namespace, if it has a name.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<Name> = Name::of(&view.namespace),
    }
}

listing! {
    /// Batches, the oldest first
    "/api/v1/batches", "batches", "list_batches";
    /// A page of batches.
    BatchPage { batches: Vec<Batch> } = Batches {}
}

of_one! {
    /// One batch
    get "/api/v1/batches/{batch}" "batches" "get_batch" 200 Batch, 404;
    pub(crate) fn get(app, batch: Name) -> Json<Batch> {
        let Reply::Batch(view) = app.ask(Query::Batch { batch: batch.0 }).await? else { return Err(Problem::unexpected()) };
        Ok(Json(Batch::of(&view, &app, app.now())))
    }
}

const fn state_name(state: CallbackState) -> &'static str {
    match state {
        CallbackState::None => "none",
        CallbackState::Enqueued => "pushed",
        CallbackState::Ok => "succeeded",
    }
}
