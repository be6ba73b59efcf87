//! Dead letters by their error.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Html;

use super::shell::{Shell, page};
use crate::api::dead::{self, DeadGroup, DeadGroups};
use crate::api::filter::Conditions;
use crate::app::App;
use crate::params::{Known, Params};
use crate::problem::Outcome;

#[derive(Debug, Template)]
#[template(path = "dead.html")]
struct Dead {
    shell: Shell,
    found: DeadGroups,
}

pub(super) async fn show(
    shell: Shell,
    app: State<Arc<App>>,
    Known(conditions): Known<Conditions>,
) -> Outcome<Html<String>> {
    page(&Dead { shell, found: dead::groups(app, Params(conditions)).await?.0 })
}

impl Dead {
    /// The jobs of a group, as a query.
    fn jobs_of(&self, group: &DeadGroup) -> String {
        // A pattern matches the whole error; a text without numbers is one, too.
        let error = if group.error.contains('*') { group.error.clone() } else { format!("{}*", group.error) };
        let pairs = [("state", "dead"), ("error", error.as_str())];
        let pairs = pairs.into_iter().filter(|(name, _)| *name == "state" || !group.error.is_empty());
        form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
    }
}
