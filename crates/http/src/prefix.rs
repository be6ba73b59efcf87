//! Addresses of pages: the path prefix of a proxy, and redirects.

use axum::http::uri::PathAndQuery;
use axum::http::{Extensions, HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};

use crate::namespace;

/// The header in which a proxy sends the path below which it shows these pages.
const PREFIX_HEADER: &str = "x-script-name";
const PREFIX_BYTES_MAX: usize = 256;

/// The first names of all paths.
const OWN: &str = "api assets batches busy cluster connections dead debug health history in jobs kinds livez login logout metrics morgue namespaces push \
                   queues readyz retries scheduled schedules search stats throttles workers";

/// The path of the form.
pub(crate) const LOGIN: &str = "/login";

/// The path of the assets that pages load. It needs no login.
pub(crate) const ASSETS: &str = "/assets/";

/// The longest address to return to.
const RETURN_BYTES_MAX: usize = 2 << 10;

/// The path prefix of a proxy: empty, or `/` and names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefix(String);

impl Prefix {
    /// Removes a slash at the end; `None` if the text is not such a path.
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
    /// It is not a path, or starts like a path of this server.
    pub(crate) fn of_config(text: &str) -> Result<Self, windlass_config::Error> {
        let senseless = |reason| {
            Err(windlass_config::Error::senseless(
                "http.path_prefix",
                reason,
            ))
        };
        match Self::parse(text) {
            None => senseless(format!(
                "{} is not a path like /windlass",
                text.escape_debug()
            )),
            Some(Self(path)) if is_ours(&path) => senseless(format!(
                "{path} begins like one of the paths of the API and the pages"
            )),
            Some(prefix) => Ok(prefix),
        }
    }

    /// The prefix of a request. The request's header takes precedence over the configuration.
    fn of_request(headers: &HeaderMap, configured: &Self) -> Self {
        match headers.get(PREFIX_HEADER) {
            Some(value) => value
                .to_str()
                .ok()
                .and_then(Self::parse)
                .unwrap_or_default(),
            None => configured.clone(),
        }
    }

    /// An address without the prefix; `None` if it does not start with the prefix.
    fn remove_from(&self, uri: &Uri) -> Option<Uri> {
        let Self(prefix) = self;
        let given = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let rest = given
            .strip_prefix(prefix)
            .filter(|_| !prefix.is_empty() && !is_ours(prefix))?;
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
    pub(crate) fn of(extensions: &Extensions) -> &str {
        extensions.get().map_or("", |Self(path)| path)
    }
}

/// Removes the prefix from a request, which the proxy may already have done, and the namespace that follows it. The
/// request remembers both.
///
/// A prefix that starts like a path of this server is not removed, because the two cannot be distinguished.
pub(crate) fn below_prefix<B>(
    mut request: axum::http::Request<B>,
    configured: &Prefix,
) -> axum::http::Request<B> {
    let prefix = Prefix::of_request(request.headers(), configured);
    if let Some(uri) = prefix.remove_from(request.uri()) {
        *request.uri_mut() = uri;
    }
    if let Some((uri, namespace)) = namespace::without_segment(request.uri()) {
        *request.uri_mut() = uri;
        request.extensions_mut().insert(namespace);
    }
    request.extensions_mut().insert(prefix);
    request
}

/// Returns true if the first segment of a path is that of a path of this server.
fn is_ours(path: &str) -> bool {
    path.split('/')
        .nth(1)
        .is_some_and(|first| OWN.split(' ').any(|own| own == first))
}

/// Redirects a browser to the form, and afterwards to the requested page.
pub(crate) fn to_login(uri: &Uri, extensions: &Extensions) -> Response {
    let asked = uri.path_and_query().map_or("/", |asked| asked.as_str());
    let place: Option<&namespace::InPath> = extensions.get();
    let asked = &format!("{}{asked}", namespace::segment(place.map(|it| it.name())));
    let to: String = form_urlencoded::byte_serialize(local(asked).as_bytes()).collect();
    to_path(Prefix::of(extensions), &format!("{LOGIN}?to={to}"))
}

/// A path of these pages, or that of the overview: never another site.
pub(crate) fn local(to: &str) -> &str {
    let is_path = to.starts_with('/')
        && !to.starts_with("//")
        && to.bytes().all(|byte| byte.is_ascii_graphic());
    if is_path && !to.contains('\\') && to.len() <= RETURN_BYTES_MAX {
        to
    } else {
        "/"
    }
}

pub(crate) fn to_path(prefix: &str, path: &str) -> Response {
    (
        StatusCode::SEE_OTHER,
        [(header::LOCATION, format!("{prefix}{path}"))],
    )
        .into_response()
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
                assert_eq!(
                    received("/jobs", header, configured).1,
                    expected,
                    "{header:?} {configured}"
                );
            }
        }
        assert_eq!(
            received("/jobs", Some("/header"), "/configured").1,
            "/header"
        );
        assert_eq!(
            received("/jobs", Some(""), "/configured").1,
            "",
            "the proxy has said that there is none"
        );
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
                assert_eq!(
                    received(path, header, configured).0,
                    expected,
                    "{prefix} {path}"
                );
            }
        }
    }

    /// The address and the prefix of a request as the routes see it.
    fn received(path: &str, header: Option<&str>, configured: &str) -> (String, String) {
        let mut request = axum::http::Request::builder().uri(path).body(()).unwrap();
        if let Some(header) = header {
            request
                .headers_mut()
                .insert(PREFIX_HEADER, header.parse().unwrap());
        }
        let request = below_prefix(request, &Prefix::parse(configured).unwrap_or_default());
        (
            request.uri().to_string(),
            Prefix::of(request.extensions()).to_owned(),
        )
    }

    #[test]
    fn our_own_paths_are_known() {
        let document: serde_json::Value = serde_json::from_str(&crate::api::openapi()).unwrap();
        let described = document["paths"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str);
        let pages = include_str!("site/mod.rs")
            .split(".route(\"")
            .skip(1)
            .filter_map(|route| route.split('"').next());
        let faktorys = crate::site::FAKTORYS.map(|(path, _)| path);
        for path in described
            .chain(pages)
            .chain(faktorys)
            .chain(["/stats", "/health", "/login"])
            .filter(|path| *path != "/")
        {
            assert!(is_ours(path), "{path}");
        }
    }

    #[test]
    fn the_way_back_leads_to_no_other_site() {
        let table = [
            ("/queues", "/queues"),
            ("/jobs?state=dead&kind=a%20b", "/jobs?state=dead&kind=a%20b"),
            ("", "/"),
            ("//elsewhere.example", "/"),
            ("/\\elsewhere.example", "/"),
            ("https://elsewhere.example", "/"),
            ("/a b", "/"),
            ("/a\r\nSet-Cookie: x", "/"),
        ];
        for (given, expected) in table {
            assert_eq!(local(given), expected, "{given}");
        }
        assert_eq!(local(&format!("/{}", "x".repeat(RETURN_BYTES_MAX))), "/");
    }

    #[test]
    fn a_browser_comes_back_below_its_prefix() {
        let mut extensions = Extensions::new();
        extensions.insert(Prefix::of_config("/queue").unwrap());
        let response = to_login(&"/jobs?state=dead".parse().unwrap(), &extensions);
        assert_eq!(response.status(), StatusCode::SEE_OTHER);
        assert_eq!(
            response.headers()[header::LOCATION],
            "/queue/login?to=%2Fjobs%3Fstate%3Ddead"
        );
    }
}
