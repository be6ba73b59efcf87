//! Several daemons as one broker.

use askama::Template;

use super::shell::{Rendered, Shell, page};
use crate::api::cluster::{self, Membership};
use crate::app::Shared;

#[derive(Debug, Template)]
#[template(path = "cluster.html")]
struct Cluster {
    shell: Shell,
    it: Membership,
}

pub(super) async fn show(shell: Shell, app: Shared) -> Rendered {
    page(&Cluster {
        shell,
        it: cluster::show(app).await?.0,
    })
}
