//! Common parts of all pages: the frame, the prefix of addresses, errors as pages.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use askama::Template;
use axum::body::to_bytes;
use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use windlass_config::{counted, grouped};
use windlass_engine::{JobStateKind, NamespaceRow, Stats};

use crate::access::Visitor;
use crate::app::{App, Shared};
use crate::login::{Grant, Role};
use crate::name::Name;
use crate::namespace::{self, UNNAMED};
use crate::prefix::Prefix;
use crate::problem::{Outcome, Problem};
use crate::refusing::{self, Refusing};
use crate::sight::Sight;

/// Loads only from this host, without inline scripts and styles, and without frames.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
);

/// Namespaces in the choice on each page. The page of namespaces has all.
const CHOICE_MAX: usize = 200;

/// The longest error that becomes a page.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// Parameters of a list besides its conditions. Each is valid only together with the present values of the
/// ones before it.
const LATER: [&str; 5] = ["limit", "order", "sort", "cursor", "page"];

/// The frame of a page.
#[derive(Clone, Debug, Default)]
pub(super) struct Shell {
    /// Before every address on the page: the path of a proxy, and that of the namespace. Empty, or `/` and names.
    pub(super) prefix: String,
    /// The part of it without the namespace.
    pub(super) base: String,
    /// The namespace that the page is about; `None`: the whole daemon.
    pub(super) namespace: Option<Box<str>>,
    /// The namespaces that the reader may choose from; empty if there is no choice.
    pub(super) namespaces: Arc<[Box<str>]>,
    /// The reader sees the whole daemon.
    pub(super) sees_all: bool,
    /// What the reader sees of bodies.
    pub(super) sight: Sight,
    /// The reader may do everything that loses no data.
    pub(super) may_operate: bool,
    /// The reader may do everything.
    pub(super) may_administer: bool,
    /// The page is one that needs a login, if there are any.
    pub(super) is_inside: bool,
    /// The reader's name and role, if there are logins.
    pub(super) login: Option<String>,
    /// The reader has logged in with the form, and may log out.
    pub(super) has_session: bool,
    /// The counts that are shown with the links.
    pub(super) counts: Option<Box<Stats>>,
    /// The present refusals of the daemon, shown at the top of each page.
    pub(super) refusing: Arc<[Refusing]>,
    /// The parameters of the request.
    pub(super) asked: BTreeMap<String, String>,
}

/// The namespace of a row, for links to its names.
#[derive(Debug)]
pub(super) struct At {
    /// As that of the shell.
    pub(super) prefix: String,
    /// Its name, if the page is not about this namespace only.
    pub(super) name: Option<String>,
}

/// An error as a page.
#[derive(Debug, Template)]
#[template(path = "error.html")]
struct ErrorPage {
    shell: Shell,
    status: u16,
    detail: String,
}

impl FromRequestParts<Arc<App>> for Shell {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        // The page of namespaces is also for a login that has not chosen one yet.
        let app = Shared::from_request_parts(parts, app).await.ok();
        let shell: Self = parts
            .extensions
            .get()
            .cloned()
            .ok_or_else(Problem::unexpected)?;
        // A page without the counts is better than an error.
        let app = app.filter(|_| shell.is_inside);
        let counts = match &app {
            Some(app) => app.stats().await.ok(),
            None => None,
        };
        let pairs =
            form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned();
        // A form also sends empty fields, which are ignored. These parameters are in no form, and select jobs
        // without a key or an error.
        let may_be_empty = ["policy_key", "error_group", "exact_kind"];
        let is_asked = |(name, value): &(String, String)| {
            !value.is_empty() || may_be_empty.contains(&name.as_str())
        };
        let (mut refusing, mut namespaces) = (Arc::default(), Arc::clone(&shell.namespaces));
        if let Some(app) = &app {
            let shown = if shell.sees_all { &app.whole() } else { &**app };
            let mut rows = shown.namespaces().await.unwrap_or_default();
            if shell.sees_all {
                namespaces = names(&rows).into();
            }
            rows.retain(|row| {
                shell
                    .namespace
                    .as_ref()
                    .is_none_or(|own| own.as_bytes() == row.name)
            });
            refusing = refusing::told(app, counts.as_deref(), &rows).into();
        }
        Ok(Self {
            counts,
            refusing,
            namespaces,
            asked: pairs.filter(is_asked).collect(),
            ..shell
        })
    }
}

impl Shell {
    fn of(extensions: &Extensions) -> Self {
        let visitor: Option<&Visitor> = extensions.get();
        let role = visitor.and_then(Visitor::role).unwrap_or(Role::Read);
        let named = visitor.filter(|visitor| visitor.is_named());
        let base = Prefix::of(extensions).to_owned();
        let place = visitor.and_then(|visitor| visitor.place.as_ref().ok());
        let namespace = place.and_then(|place| place.namespace.clone());
        let own: Vec<Box<str>> = match visitor.map(|visitor| &visitor.identity.grant) {
            Some(Grant::In(roles)) => roles.keys().cloned().collect(),
            Some(Grant::Everywhere(_)) | None => Vec::new(),
        };
        Self {
            prefix: format!("{base}{}", namespace::segment(namespace.as_deref())),
            base,
            namespace,
            sees_all: own.is_empty(),
            namespaces: own.into(),
            may_operate: role >= Role::Operate,
            may_administer: role >= Role::Admin,
            sight: Sight::of(role),
            is_inside: true,
            login: named.map(|visitor| format!("{} ({role})", visitor.identity.name)),
            has_session: visitor.is_some_and(|visitor| visitor.has_session),
            counts: None,
            refusing: Arc::default(),
            asked: BTreeMap::new(),
        }
    }

    /// The place of a row, given the name of its namespace if it has one.
    pub(super) fn at(&self, row: &Option<Name>) -> At {
        let elsewhere = row.as_ref().filter(|_| self.namespace.is_none());
        let name = elsewhere.map(ToString::to_string);
        let place = namespace::segment(name.as_deref());
        At {
            prefix: format!("{}{place}", self.prefix),
            name,
        }
    }

    /// The places that the reader may choose from: each address, title, and whether it is the present one.
    pub(super) fn places(&self) -> Vec<(String, String, bool)> {
        let all = self.sees_all.then_some(None);
        let named = self.namespaces.iter().map(|name| Some(&**name));
        let place = |name: Option<&str>| {
            let title = match name {
                None => "all namespaces",
                Some("") => "without a name",
                Some(name) => name,
            };
            let to = format!("{}{}/", self.base, namespace::segment(name));
            (to, title.to_owned(), name == self.namespace.as_deref())
        };
        all.into_iter().chain(named).map(place).collect()
    }

    /// The namespaces but that of the page: what a path calls each, and its title.
    pub(super) fn other_namespaces(&self) -> Vec<(String, String)> {
        let own = self.namespace.as_deref().unwrap_or_default();
        let names = self.namespaces.iter().map(|name| &**name);
        let others = names.filter(|name| *name != own);
        let place = |name: &str| match name {
            "" => (UNNAMED.to_owned(), "the one without a name".to_owned()),
            name => (name.to_owned(), name.to_owned()),
        };
        others.map(place).collect()
    }

    /// The query of this page with another value of a parameter, or without it. Parameters that are then
    /// invalid are omitted: for example, the position in a list with a different order.
    pub(super) fn with(&self, name: &str, value: &str) -> String {
        let place = |name: &str| {
            LATER
                .iter()
                .position(|it| *it == name)
                .map_or(0, |at| at + 1)
        };
        let kept = |(other, _): &(&str, &str)| *other != name && place(other) <= place(name);
        let given = self
            .asked
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let pairs = given
            .filter(kept)
            .chain([(name, value)].into_iter().filter(|_| !value.is_empty()));
        form_urlencoded::Serializer::new(String::new())
            .extend_pairs(pairs)
            .finish()
    }

    /// The query of this page for what happened between two times.
    pub(super) fn within(&self, from: &str, until: &str) -> String {
        let is_time = |name: &str| matches!(name, "day" | "since" | "from" | "until");
        let given = self.conditions().filter(|(name, _)| !is_time(name));
        let given = given.map(|(name, value)| (name.as_str(), value.as_str()));
        form_urlencoded::Serializer::new(String::new())
            .extend_pairs(given.chain([("from", from), ("until", until)]))
            .finish()
    }

    /// The conditions of a list, as requested.
    pub(super) fn conditions(&self) -> impl Iterator<Item = (&String, &String)> {
        self.asked
            .iter()
            .filter(|(name, _)| !LATER.contains(&name.as_str()))
    }

    /// The query of this page, sorted by a field; if it is sorted by it already, the other way round.
    pub(super) fn sorted(&self, field: &str) -> String {
        let opposite = field
            .strip_prefix('-')
            .map_or_else(|| format!("-{field}"), str::to_owned);
        self.with(
            "sort",
            if self.given("sort") == field {
                &opposite
            } else {
                field
            },
        )
    }

    /// How the page is sorted by a field, as a value of `aria-sort`; empty if it is not.
    pub(super) fn direction(&self, field: &str) -> &'static str {
        match self.given("sort") {
            sort if sort.trim_start_matches('-') != field.trim_start_matches('-') => "",
            sort if sort.starts_with('-') => "descending",
            _ => "ascending",
        }
    }

    /// The value of a parameter; empty without it.
    pub(super) fn given(&self, name: &str) -> &str {
        self.asked.get(name).map_or("", String::as_str)
    }

    /// The number of objects of this kind; empty if it is 0.
    pub(super) fn count(&self, what: &str) -> String {
        let Some(stats) = self.counts.as_deref() else {
            return String::new();
        };
        let dead = stats
            .places
            .get(JobStateKind::Dead as usize)
            .copied()
            .unwrap_or_default();
        let count = match what {
            "queues" => stats.queues.into(),
            "jobs" => stats.jobs,
            "dead" => dead,
            "workers" => stats.workers.into(),
            "schedules" => stats.schedules.into(),
            "batches" => stats.batches.into(),
            // One connection is that of this request.
            _ => stats.clients.saturating_sub(1).into(),
        };
        if count == 0 {
            String::new()
        } else {
            self.number(&count)
        }
    }

    /// An integer with separators.
    #[expect(
        clippy::unused_self,
        reason = "templates reach functions through what they show"
    )]
    pub(super) fn number<N: fmt::Display>(&self, number: &N) -> String {
        grouped(number)
    }

    /// A number with a noun in the right form.
    #[expect(
        clippy::unused_self,
        reason = "templates reach functions through what they show"
    )]
    pub(super) fn counted<N: Copy + Into<u64>>(&self, count: &N, thing: &str) -> String {
        counted((*count).into(), thing)
    }
}

/// The namespaces of the daemon to choose from; none if the one without a name is the only one.
fn names(rows: &[NamespaceRow]) -> Vec<Box<str>> {
    if rows.len() < 2 {
        return Vec::new();
    }
    let name = |row: &NamespaceRow| String::from_utf8_lossy(&row.name).into();
    rows.iter().take(CHOICE_MAX).map(name).collect()
}

/// A page, or an error.
pub(super) type Rendered = Outcome<Html<String>>;

/// Renders a template as a response.
pub(super) fn page(template: &impl Template) -> Rendered {
    let failed = |error| Problem::internal(format!("page: {error}"));
    template.render().map(Html).map_err(failed)
}

/// Adds the frame to the page, converts errors to pages, and restricts what a browser may load.
pub(super) async fn dress(mut request: Request, next: Next) -> Response {
    let shell = Shell::of(request.extensions());
    request.extensions_mut().insert(shell.clone());
    let response = next.run(request).await;
    as_page(shell, response).await
}

/// Converts an error to a page, and restricts what a browser may load.
async fn as_page(shell: Shell, response: Response) -> Response {
    let is_problem = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind == "application/problem+json");
    let mut response = if is_problem {
        error_page(shell, response).await
    } else {
        response
    };
    response
        .headers_mut()
        .insert(header::CONTENT_SECURITY_POLICY, POLICY);
    response
}

/// An address without a page: a page for a browser, a problem for a program.
pub(crate) async fn nowhere(request: Request) -> Response {
    let problem = Problem::not_found("there is no such page").into_response();
    let accepted = request
        .headers()
        .get(header::ACCEPT)
        .and_then(|kinds| kinds.to_str().ok());
    let is_browser = accepted.is_some_and(|kinds| kinds.contains("text/html"));
    match is_browser && !request.uri().path().starts_with("/api/") {
        true => as_page(Shell::of(request.extensions()), problem).await,
        false => problem,
    }
}

async fn error_page(shell: Shell, response: Response) -> Response {
    let status = response.status();
    let body = to_bytes(response.into_body(), ERROR_BYTES_MAX)
        .await
        .unwrap_or_default();
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let detail = problem
        .get("detail")
        .and_then(serde_json::Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let page = ErrorPage {
        shell,
        status: status.as_u16(),
        detail,
    };
    (
        status,
        page.render().map(Html).map_err(|error| error.to_string()),
    )
        .into_response()
}
