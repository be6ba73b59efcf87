//! A form for a new job, empty or with the body of another one.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Html;
use serde::Deserialize;
use utoipa::IntoParams;

use super::shell::{Shell, page};
use crate::api::jobs;
use crate::app::App;
use crate::params::{Known, Segments};
use crate::problem::{Outcome, Problem};

#[derive(Debug, Deserialize, IntoParams)]
pub(super) struct From {
    /// The job whose body is the new one's at first.
    #[param(value_type = Option<u64>)]
    job: Option<u64>,
    /// The queue.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    queue: String,
}

#[derive(Debug, Template)]
#[template(path = "push.html")]
struct Push {
    shell: Shell,
    from: Option<u64>,
    protocol: Option<&'static str>,
    queue: String,
    body: String,
}

pub(super) async fn show(shell: Shell, app: State<Arc<App>>, Known(asked): Known<From>) -> Outcome<Html<String>> {
    let From { job, mut queue } = asked;
    let (mut protocol, mut body) = (None, String::new());
    if let Some(id) = job {
        let detail = jobs::get(app, Segments(id)).await?.0;
        queue = detail.job.queue.to_string();
        protocol = Some(detail.job.protocol).filter(|protocol| *protocol != "http");
        body = detail.body.ok_or_else(|| Problem::conflict("the body is no text: a form cannot change it"))?;
    }
    page(&Push { shell, from: job, protocol, queue, body })
}
