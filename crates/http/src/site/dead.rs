//! Dead letters by their error.

use askama::Template;
use axum::extract::RawQuery;

use super::shell::{Rendered, Shell, page};
use crate::api::dead::{self, DeadGroup, DeadGroups};
use crate::api::filter::Conditions;
use crate::app::Shared;
use crate::params::{Known, Params, names};

#[derive(Debug, Template)]
#[template(path = "dead.html")]
struct Dead {
    shell: Shell,
    found: DeadGroups,
    /// The conditions as they were given.
    given: Vec<(String, String)>,
}

pub(super) async fn show(
    shell: Shell,
    app: Shared,
    RawQuery(query): RawQuery,
    Known(conditions): Known<Conditions>,
) -> Rendered {
    let given = form_urlencoded::parse(query.as_deref().unwrap_or_default().as_bytes()).into_owned();
    let known = names::<Conditions>();
    let is_kept = |(name, value): &(String, String)| known.contains(name) && name != "state" && !value.is_empty();
    let given = given.filter(is_kept).collect();
    page(&Dead { shell, found: dead::groups(app, Params(conditions)).await?.0, given })
}

impl Dead {
    /// The jobs of a group, as a query with the conditions of the page.
    fn jobs_of(&self, group: &DeadGroup) -> String {
        let own = [("state", "dead"), ("error_group", group.error.as_str())];
        let given = self.given.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let given = given.filter(|(name, _)| *name != "error_group");
        form_urlencoded::Serializer::new(String::new()).extend_pairs(own.into_iter().chain(given)).finish()
    }
}
