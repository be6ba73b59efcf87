//! Several daemons as one broker.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Html;

use super::shell::{Shell, page};
use crate::api::cluster::{self, Membership};
use crate::app::App;
use crate::problem::Outcome;

#[derive(Debug, Template)]
#[template(path = "cluster.html")]
struct Cluster {
    shell: Shell,
    it: Membership,
}

pub(super) async fn show(shell: Shell, app: State<Arc<App>>) -> Outcome<Html<String>> {
    page(&Cluster { shell, it: cluster::show(app).await.0 })
}
