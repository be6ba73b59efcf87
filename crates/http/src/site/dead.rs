//! Failures by error and kind: dead letters, and retrying jobs.

use askama::Template;

use super::shell::{Rendered, Shell, page};
use crate::api::dead::{self, ErrorGroup, ErrorGroups};
use crate::api::filter::Conditions;
use crate::app::Shared;
use crate::params::{Known, Params, names};

#[derive(Debug, Template)]
#[template(path = "dead.html")]
struct Failures {
    shell: Shell,
    found: ErrorGroups,
    /// True if the jobs are retried, and not dead.
    are_retried: bool,
}

pub(super) async fn show(
    mut shell: Shell,
    app: Shared,
    Known(conditions): Known<Conditions>,
) -> Rendered {
    let known = names::<Conditions>();
    shell.asked.retain(|name, _| known.contains(name));
    let are_retried = shell.given("state") == "retrying";
    page(&Failures {
        found: dead::groups(app, shell.sight, Params(conditions)).await?.0,
        shell,
        are_retried,
    })
}

impl Failures {
    const fn state(&self) -> &'static str {
        if self.are_retried { "retrying" } else { "dead" }
    }

    /// The jobs of a group, as a query with the conditions of the page.
    fn jobs_of(&self, group: &ErrorGroup) -> String {
        let own = [
            ("state", self.state()),
            ("error_group", &group.error),
            ("exact_kind", group.kind.as_deref().unwrap_or_default()),
        ];
        let others = self
            .shell
            .conditions()
            .filter(|(name, _)| own.iter().all(|(own, _)| name != own));
        form_urlencoded::Serializer::new(String::new())
            .extend_pairs(own)
            .extend_pairs(others)
            .finish()
    }
}
