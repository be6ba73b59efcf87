//! What a reader sees of the bodies of jobs. Readers without the role `operate` do not see what the configuration hides
//! (`queues.NAME.mask`). Others can take a job, so there is nothing to hide from them.

use std::borrow::Cow;
use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use windlass_bridge::json::HIDDEN;
use windlass_engine::{BODY_READ_MAX, JobView, Protocol};

use crate::access::Visitor;
use crate::app::App;
use crate::login::Role;
use crate::name::Name;
use crate::problem::{Outcome, Problem};

/// A reader's sight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Everything.
    Whole,
    /// What is not hidden.
    #[default]
    Masked,
}

/// Where a job is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home<'a> {
    /// The name of the namespace; empty for that without a name.
    pub(crate) namespace: &'a [u8],
    pub(crate) queue: &'a [u8],
    pub(crate) protocol: Protocol,
}

impl<'a> From<&'a JobView> for Home<'a> {
    fn from(view: &'a JobView) -> Self {
        Self {
            namespace: &view.namespace,
            queue: &view.queue,
            protocol: view.job.protocol,
        }
    }
}

impl Sight {
    pub(crate) fn of(role: Role) -> Self {
        if role >= Role::Operate {
            Self::Whole
        } else {
            Self::Masked
        }
    }

    fn of_visitor(extensions: &Extensions) -> Self {
        let visitor = extensions.get::<Visitor>();
        visitor
            .and_then(Visitor::role)
            .map_or_else(Self::default, Self::of)
    }

    /// A body, or its beginning, as the reader sees it: a copy if the queue's mask hides something. A body that is no JSON is
    /// hidden as a whole, and so is one that takes long to read.
    pub(crate) fn body<'a>(self, app: &App, home: Home<'_>, body: &'a [u8]) -> Cow<'a, [u8]> {
        let pointers = match self {
            Self::Whole => Vec::new(),
            Self::Masked => app.masks.of_queue(home.namespace, home.queue),
        };
        if pointers.is_empty() {
            return Cow::Borrowed(body);
        }
        let pointers: Vec<&str> = pointers.iter().map(String::as_str).collect();
        let shown = (body.len() <= BODY_READ_MAX)
            .then(|| app.daemon.bridge.hidden(home.protocol, body, &pointers))
            .flatten();
        Cow::Owned(shown.unwrap_or_else(|| HIDDEN.to_owned()).into_bytes())
    }

    /// Whether something is hidden in the jobs of a queue.
    fn is_masked(self, app: &App, namespace: &[u8], queue: &[u8]) -> bool {
        self == Self::Masked && !app.masks.of_queue(namespace, queue).is_empty()
    }

    /// The key of a job, unless that is its body: for Gearman's unique id `-` it is a NUL, and the body or a hash of it.
    pub(crate) fn key(self, app: &App, home: Home<'_>, key: &[u8]) -> Option<Name> {
        let is_body = home.protocol == Protocol::GEARMAN && key.first() == Some(&0);
        Name::of(key).filter(|_| !(is_body && self.is_masked(app, home.namespace, home.queue)))
    }

    /// Refuses to search for a text in bodies that are hidden: what is found would tell what is in them.
    pub(crate) async fn check_search(self, app: &App, queue: Option<&Name>) -> Outcome<()> {
        if self == Self::Whole {
            return Ok(());
        }
        let is_hidden = match queue {
            Some(Name(queue)) => {
                let mut all = app.namespaces().await?.into_iter();
                all.any(|row| self.is_masked(app, &row.name, queue))
            }
            None => app.masks.is_any(),
        };
        if is_hidden {
            return Err(Problem::forbidden(
                "text is searched in bodies, of which a part is hidden from this login (mask): name a queue without a mask",
            ));
        }
        Ok(())
    }
}

impl<S: Sync> FromRequestParts<S> for Sight {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _app: &S) -> Result<Self, Infallible> {
        Ok(Self::of_visitor(&parts.extensions))
    }
}
