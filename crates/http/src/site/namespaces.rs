//! What each namespace uses.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;

use super::shell::{Rendered, Shell, page};
use crate::access::Visitor;
use crate::api::listing::Page;
use crate::api::namespaces::{self, Namespace, NamespacePage};
use crate::app::App;
use crate::params::{Known, Params};

#[derive(Debug, Template)]
#[template(path = "namespaces.html")]
struct Namespaces {
    shell: Shell,
    list: NamespacePage,
}

pub(super) async fn show(
    shell: Shell,
    app: State<Arc<App>>,
    visitor: Extension<Visitor>,
    Known(which): Known<Page>,
) -> Rendered {
    let list = namespaces::list(app, visitor, Params(which)).await?.0;
    page(&Namespaces { shell, list })
}

impl Namespace {
    /// The name as a part of a path of the API and of pages.
    fn in_path(&self) -> String {
        let name = self.name.to_string();
        if name.is_empty() {
            "~".to_owned()
        } else {
            name
        }
    }
}
