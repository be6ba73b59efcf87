//! What all pages share: the frame, the prefix of their addresses, errors as pages.

use std::fmt;
use std::time::Duration;

use askama::Template;
use axum::body::to_bytes;
use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{Extensions, HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};

use super::POLICY;
use crate::api::access::Visitor;
use crate::login::Role;
use crate::problem::{Outcome, Problem};

/// The header in which a proxy sends the path below which it shows these pages.
const PREFIX_HEADER: &str = "x-script-name";
const PREFIX_BYTES_MAX: usize = 256;

/// The first names of all paths.
const OWN: [&str; 21] = [
    "api",
    "assets",
    "batches",
    "busy",
    "connections",
    "debug",
    "health",
    "jobs",
    "livez",
    "login",
    "logout",
    "metrics",
    "morgue",
    "queues",
    "readyz",
    "retries",
    "scheduled",
    "schedules",
    "stats",
    "throttles",
    "workers",
];

/// The longest error that becomes a page.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// The frame of a page.
#[derive(Clone, Debug, Default)]
pub(super) struct Shell {
    /// Before every address on the page; empty, or `/` and names.
    pub(super) prefix: String,
    /// The reader may do what loses nothing.
    pub(super) may_operate: bool,
    /// The reader may do everything.
    pub(super) may_administer: bool,
    /// The page is one that needs a login, if there are any.
    pub(super) is_inside: bool,
    /// The reader's name and role, if there are logins.
    pub(super) login: Option<String>,
    /// The reader has logged in with the form, and may log out.
    pub(super) has_session: bool,
}

/// An error as a page.
#[derive(Debug, Template)]
#[template(path = "error.html")]
struct ErrorPage {
    shell: Shell,
    status: u16,
    detail: String,
}

impl<S: Sync> FromRequestParts<S> for Shell {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get().cloned().ok_or_else(Problem::unexpected)
    }
}

impl Shell {
    fn of(extensions: &Extensions) -> Self {
        let visitor: Option<&Visitor> = extensions.get();
        let role = visitor.map_or(Role::Read, |visitor| visitor.identity.role);
        let named = visitor.filter(|visitor| visitor.is_named());
        Self {
            prefix: Prefix::of(extensions).to_owned(),
            may_operate: role >= Role::Operate,
            may_administer: role >= Role::Admin,
            is_inside: true,
            login: named.map(|visitor| format!("{} ({role})", visitor.identity.name)),
            has_session: visitor.is_some_and(|visitor| visitor.has_session),
        }
    }
}

/// What a proxy puts before every path: empty, or `/` and names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefix(String);

impl Prefix {
    /// Without a slash at its end; `None` if the text is not such a path.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim_end_matches('/');
        let is_plain = |char: char| char.is_ascii_alphanumeric() || "/-_.~".contains(char);
        let is_path = text.starts_with('/') && !text.contains("//") && text.chars().all(is_plain);
        let is_prefix = text.is_empty() || is_path && text.len() <= PREFIX_BYTES_MAX;
        is_prefix.then(|| Self(text.to_owned()))
    }

    /// The value of `http.path_prefix`.
    ///
    /// # Errors
    ///
    /// It is not a path, or begins like one of our own.
    pub(crate) fn of_config(text: &str) -> Result<Self, windlass_config::Error> {
        let senseless = |reason| Err(windlass_config::Error::senseless("http.path_prefix", reason));
        match Self::parse(text) {
            None => senseless(format!("{} is not a path like /windlass", text.escape_debug())),
            Some(Self(path)) if is_ours(&path) => {
                senseless(format!("{path} begins like one of the paths of the API and the pages"))
            }
            Some(prefix) => Ok(prefix),
        }
    }

    /// The prefix of one request: its header has precedence over the configuration.
    fn of_request(headers: &HeaderMap, configured: &Self) -> Self {
        match headers.get(PREFIX_HEADER) {
            Some(value) => value.to_str().ok().and_then(Self::parse).unwrap_or_default(),
            None => configured.clone(),
        }
    }

    /// An address without the prefix; `None` if it has none.
    fn remove_from(&self, uri: &Uri) -> Option<Uri> {
        let Self(prefix) = self;
        let given = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let rest = given.strip_prefix(prefix).filter(|_| !prefix.is_empty() && !is_ours(prefix))?;
        let rest = match rest.chars().next() {
            Some('/') => rest.parse().ok()?,
            None | Some('?') => format!("/{rest}").parse().ok()?,
            Some(_) => return None,
        };
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(rest);
        Uri::from_parts(parts).ok()
    }

    /// The prefix that a request was sent with.
    pub(super) fn of(extensions: &Extensions) -> &str {
        extensions.get().map_or("", |Self(path)| path)
    }
}

/// A request as it would be without the path of the proxy, which may or may not have removed it. The request remembers
/// the prefix.
///
/// A prefix that begins like one of our own paths stays: the two cannot be distinguished.
pub(crate) fn below_prefix<B>(mut request: axum::http::Request<B>, configured: &Prefix) -> axum::http::Request<B> {
    let prefix = Prefix::of_request(request.headers(), configured);
    if let Some(uri) = prefix.remove_from(request.uri()) {
        *request.uri_mut() = uri;
    }
    request.extensions_mut().insert(prefix);
    request
}

/// Whether a path begins with the first name of one of our own.
fn is_ours(path: &str) -> bool {
    path.split('/').nth(1).is_some_and(|first| OWN.contains(&first))
}

/// A template as an answer.
pub(super) fn page(template: &impl Template) -> Outcome<Html<String>> {
    let failed = |error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", format!("page: {error}"));
    template.render().map(Html).map_err(failed)
}

/// Gives the page its frame, makes pages of errors, and restricts what a browser may load.
pub(super) async fn dress(mut request: Request, next: Next) -> Response {
    let shell = Shell::of(request.extensions());
    request.extensions_mut().insert(shell.clone());
    let response = next.run(request).await;
    let is_problem =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/problem+json");
    let mut response = if is_problem { error_page(shell, response).await } else { response };
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, POLICY);
    response
}

async fn error_page(shell: Shell, response: Response) -> Response {
    let status = response.status();
    let body = to_bytes(response.into_body(), ERROR_BYTES_MAX).await.unwrap_or_default();
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let detail = problem.get("detail").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    let page = ErrorPage { shell, status: status.as_u16(), detail };
    (status, page.render().map(Html).map_err(|error| error.to_string())).into_response()
}

/// A duration for people: two units at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age(pub(super) Duration);

impl Age {
    pub(super) fn of_seconds(seconds: f64) -> Self {
        Self(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, ms) = (self.0.as_secs(), self.0.as_millis());
        match s {
            0 => write!(f, "{ms} ms"),
            1..60 => write!(f, "{s} s"),
            60..3_600 => write!(f, "{} min {} s", s / 60, s % 60),
            3_600..86_400 => write!(f, "{} h {} min", s / 3_600, s % 3_600 / 60),
            _ => write!(f, "{} d {} h", s / 86_400, s % 86_400 / 3_600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_path_and_nothing_else() {
        let table = [
            ("", ""),
            ("/queue", "/queue"),
            ("/a/b-c_1.2/", "/a/b-c_1.2"),
            ("//elsewhere.example", ""),
            ("https://elsewhere.example", ""),
            ("/a\"><script>", ""),
            ("queue", ""),
        ];
        for (given, expected) in table {
            for (header, configured) in [(Some(given), ""), (None, given)] {
                assert_eq!(received("/jobs", header, configured).1, expected, "{header:?} {configured}");
            }
        }
        assert_eq!(received("/jobs", Some("/header"), "/configured").1, "/header");
        assert_eq!(received("/jobs", Some(""), "/configured").1, "", "the proxy has said that there is none");
    }

    #[test]
    fn a_proxy_may_leave_the_prefix_in_the_path() {
        let table = [
            ("/q", "/q/jobs?state=dead", "/jobs?state=dead"),
            ("/q/", "/q/", "/"),
            ("/q", "/q", "/"),
            ("/q", "/q?span=day", "/?span=day"),
            ("/a/b", "/a/b/queues/x%2Fy", "/queues/x%2Fy"),
            ("/q", "/jobs", "/jobs"),
            ("/q", "/queues", "/queues"),
            ("", "/q/jobs", "/q/jobs"),
            ("/jobs", "/jobs/17", "/jobs/17"),
            ("//evil", "//evil/jobs", "//evil/jobs"),
            ("/q", "http://a.example/q/jobs?x", "http://a.example/jobs?x"),
        ];
        for (prefix, path, expected) in table {
            for (header, configured) in [(Some(prefix), ""), (None, prefix)] {
                assert_eq!(received(path, header, configured).0, expected, "{prefix} {path}");
            }
        }
    }

    /// The address and the prefix of a request as the routes see it.
    fn received(path: &str, header: Option<&str>, configured: &str) -> (String, String) {
        let mut request = axum::http::Request::builder().uri(path).body(()).unwrap();
        if let Some(header) = header {
            request.headers_mut().insert(PREFIX_HEADER, header.parse().unwrap());
        }
        let request = below_prefix(request, &Prefix::parse(configured).unwrap_or_default());
        (request.uri().to_string(), Shell::of(request.extensions()).prefix)
    }

    #[test]
    fn our_own_paths_are_known() {
        let document: serde_json::Value = serde_json::from_str(&crate::api::openapi()).unwrap();
        let described = document["paths"].as_object().unwrap().keys().map(String::as_str);
        let pages = include_str!("mod.rs").split(".route(\"").skip(1).filter_map(|route| route.split('"').next());
        let faktorys = crate::site::FAKTORYS.map(|(path, _)| path);
        for path in
            described.chain(pages).chain(faktorys).chain(["/stats", "/health", "/login"]).filter(|path| *path != "/")
        {
            assert!(is_ours(path), "{path}");
        }
    }

    #[test]
    fn ages_have_two_units() {
        let table =
            [(0.25, "250 ms"), (59.9, "59 s"), (61.0, "1 min 1 s"), (7_300.0, "2 h 1 min"), (90_000.0, "1 d 1 h")];
        for (seconds, expected) in table {
            assert_eq!(Age::of_seconds(seconds).to_string(), expected);
        }
    }
}
