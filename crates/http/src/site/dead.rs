//! Dead letters by their error.

use askama::Template;

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
}

pub(super) async fn show(mut shell: Shell, app: Shared, Known(conditions): Known<Conditions>) -> Rendered {
    let known = names::<Conditions>();
    shell.asked.retain(|name, _| known.contains(name) && name != "state");
    page(&Dead { shell, found: dead::groups(app, Params(conditions)).await?.0 })
}

impl Dead {
    /// The jobs of a group, as a query with the conditions of the page.
    fn jobs_of(&self, group: &DeadGroup) -> String {
        let error: String = form_urlencoded::byte_serialize(group.error.as_bytes()).collect();
        format!("state=dead&error_group={error}&{}", self.shell.with("error_group", ""))
    }
}
