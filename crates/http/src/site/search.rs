//! The search box: the job or the queue that it names, or a choice.

use askama::Template;
use axum::response::{IntoResponse as _, Response};

use super::shell::{Shell, page};
use crate::api::search::{self, Found, Wanted};
use crate::app::Shared;
use crate::params::Params;
use crate::prefix::to_path;
use crate::problem::Outcome;

#[derive(Debug, Template)]
#[template(path = "search.html")]
struct Choice {
    shell: Shell,
    found: Found,
}

pub(super) async fn show(shell: Shell, app: Shared) -> Outcome<Response> {
    let found = search::search(
        app,
        Params(Wanted {
            q: shell.given("q").to_owned(),
        }),
    )
    .await?
    .0;
    match (found.jobs.as_slice(), &found.queue) {
        ([job], None) => Ok(to_path(&shell.prefix, &format!("/jobs/{job}"))),
        ([], Some(queue)) => {
            let queue: String =
                form_urlencoded::byte_serialize(queue.to_string().as_bytes()).collect();
            Ok(to_path(
                &shell.prefix,
                &format!("/queues/{}", queue.replace('+', "%20")),
            ))
        }
        (_, _) => page(&Choice { shell, found }).map(|page| page.into_response()),
    }
}
