//! Refuses requests that a foreign web page makes through the browser of an operator.
//!
//! The addresses of this machine may be accessible without a login, and with a login, the browser repeats it
//! for any page. A page of another site can send requests here, but browsers identify it: with
//! `Sec-Fetch-Site`, older ones with `Origin` in every request that can modify something. A page that
//! resolves a host name to this machine (DNS rebinding) is detected by `Host`.

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, Uri, Version, header};

use crate::problem::{Outcome, Problem};

/// Paths that reveal and modify nothing: probes are accepted with any host name, and without a
/// login.
pub(crate) const OPEN: [&str; 3] = ["/livez", "/readyz", "/health"];

/// Paths that are served beyond the limit on connections.
pub(crate) const PROBES: [&str; 2] = ["/livez", "/readyz"];

/// Refuses a request if a proxy could interpret the host or the length differently (RFC 9112, 3.2
/// and 6.3).
pub(crate) fn check_form(version: Version, uri: &Uri, headers: &HeaderMap) -> Outcome<()> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host
            .to_str()
            .map_err(|_| Problem::bad_request("Host is not text"))?,
        (None, None) if version < Version::HTTP_11 => return Ok(()),
        (None, _) => return Err(Problem::bad_request("missing Host")),
        (Some(_), Some(_)) => return Err(Problem::bad_request("more than one Host")),
    };
    let is_host = host.is_empty()
        || host
            .parse()
            .is_ok_and(|host: Authority| !host.as_str().contains('@'));
    if !is_host {
        return Err(Problem::bad_request("Host is not a host and a port"));
    }
    if uri
        .authority()
        .is_some_and(|authority| !authority.as_str().eq_ignore_ascii_case(host))
    {
        return Err(Problem::bad_request("the target's host differs from Host"));
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = codings.next().is_none_or(|coding| {
        coding
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"chunked")
    });
    if !is_chunked || codings.next().is_some() {
        return Err(Problem::bad_request(
            "Transfer-Encoding must be chunked, once",
        ));
    }
    Ok(())
}

/// Refuses a request of a foreign page. `hosts` contains additional names of this machine; `None` allows any
/// name. `is_tcp` is false for a Unix socket, to which browsers cannot connect.
pub(crate) fn check(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    hosts: Option<&[String]>,
    is_tcp: bool,
) -> Outcome<()> {
    if !is_tcp || OPEN.contains(&uri.path()) {
        return Ok(());
    }
    let host = text(headers, &header::HOST)?
        .or_else(|| uri.authority().map(|authority| authority.as_str()));
    if let Some(host) = host.filter(|host| hosts.is_some_and(|hosts| !is_ours(host, hosts))) {
        let detail = format!(
            "host {} is not this machine: http.hosts lists its other names",
            host.escape_debug()
        );
        return Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "foreign_host",
            detail,
        ));
    }
    if *method == Method::GET || *method == Method::HEAD {
        return Ok(());
    }
    let site = text(headers, "sec-fetch-site")?;
    if site.is_some_and(|site| site != "same-origin" && site != "none") {
        return Err(foreign("Sec-Fetch-Site names another site"));
    }
    let origin = text(headers, &header::ORIGIN)?;
    let origin_host = origin.map(|origin| origin.split_once("://").map(|(_, host)| host));
    match origin_host {
        // Sec-Fetch-Site is the browser's judgement.
        Some(_) if site.is_some() => Ok(()),
        Some(origin) if origin.is_none() || origin != host => {
            Err(foreign("Origin is not this host"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses a change by a session without evidence of the origin: a browser sends the cookie automatically,
/// and every browser that supports `SameSite` sends such evidence.
pub(crate) fn check_session(method: &Method, headers: &HeaderMap) -> Outcome<()> {
    let is_shown = headers.contains_key("sec-fetch-site") || headers.contains_key(header::ORIGIN);
    let is_read = *method == Method::GET || *method == Method::HEAD;
    if is_read || is_shown {
        Ok(())
    } else {
        Err(foreign(
            "a change in a session requires Origin or Sec-Fetch-Site",
        ))
    }
}

fn foreign(detail: &str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "cross_site", detail)
}

fn text(headers: &HeaderMap, name: impl header::AsHeaderName) -> Outcome<Option<&str>> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    value
        .to_str()
        .map(Some)
        .map_err(|_| Problem::bad_request("a header is not text"))
}

/// Returns true if `Host` names this machine, with any port.
fn is_ours(host: &str, hosts: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let is_loopback = name
        .parse::<std::net::IpAddr>()
        .is_ok_and(|ip| ip.is_loopback());
    is_loopback
        || name.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(method: &Method, path: &str, headers: &[(&'static str, &str)], is_tcp: bool) -> u16 {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        let hosts = ["queue.example".to_owned()];
        check(
            method,
            &path.parse().unwrap(),
            &headers,
            Some(&hosts),
            is_tcp,
        )
        .map_or_else(|problem| problem.status, |()| 200)
    }

    #[test]
    fn hosts() {
        let own = [
            "localhost:7420",
            "127.0.0.1:7420",
            "127.0.0.1",
            "[::1]:7420",
            "[::1]",
            "LOCALHOST",
            "queue.example:80",
        ];
        for host in own {
            assert_eq!(
                status(&Method::GET, "/stats", &[("host", host)], true),
                200,
                "{host}"
            );
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:7420",
            "192.0.2.1",
            "[::2]",
            "",
        ] {
            assert_eq!(
                status(&Method::GET, "/stats", &[("host", host)], true),
                421,
                "{host}"
            );
            assert_eq!(
                status(&Method::GET, "/livez", &[("host", host)], true),
                200,
                "{host}"
            );
            assert_eq!(
                status(&Method::GET, "/stats", &[("host", host)], false),
                200,
                "{host}: a Unix socket"
            );
        }
        assert_eq!(
            status(&Method::GET, "/stats", &[], true),
            200,
            "a program of HTTP/1.0 is no browser"
        );
    }

    /// The target, the headers, and `true` if the request is accepted.
    type Form<'a> = (&'a str, &'a [(&'static str, &'a str)], bool);

    #[test]
    fn forms_that_can_be_read_in_two_ways() {
        let (host, other) = (("host", "localhost:7420"), ("host", "evil.example"));
        let (chunked, twice) = (
            ("transfer-encoding", "Chunked"),
            ("transfer-encoding", "chunked, chunked"),
        );
        let table: [Form<'_>; 14] = [
            ("/", &[host], true),
            ("/", &[("host", "[::1]:7420")], true),
            ("/", &[("host", "")], true),
            ("/", &[], false),
            ("/", &[host, other], false),
            ("/", &[host, host], false),
            ("/", &[("host", "localhost:7420@evil.example")], false),
            ("/", &[("host", "local host")], false),
            ("http://LOCALHOST:7420/", &[host], true),
            ("http://evil.example/", &[host], false),
            ("/", &[host, chunked], true),
            ("/", &[host, twice], false),
            ("/", &[host, chunked, chunked], false),
            ("/", &[host, ("transfer-encoding", "gzip, chunked")], false),
        ];
        for (target, pairs, is_fine) in table {
            let mut headers = HeaderMap::new();
            pairs
                .iter()
                .for_each(|(name, value)| _ = headers.append(*name, value.parse().unwrap()));
            let status = check_form(Version::HTTP_11, &target.parse().unwrap(), &headers)
                .map_err(|it| it.status);
            assert_eq!(
                status,
                if is_fine { Ok(()) } else { Err(400) },
                "{target} {pairs:?}"
            );
        }
        assert_eq!(
            check_form(Version::HTTP_10, &Uri::from_static("/"), &HeaderMap::new()),
            Ok(())
        );
    }

    #[test]
    fn changes_from_other_sites() {
        let host = ("host", "localhost:7420");
        let table: [(&[(&str, &str)], u16); 9] = [
            (&[], 200),
            (
                &[
                    ("sec-fetch-site", "same-origin"),
                    ("origin", "http://localhost:7420"),
                ],
                200,
            ),
            (&[("sec-fetch-site", "none")], 200),
            (&[("origin", "http://localhost:7420")], 200),
            (&[("origin", "http://localhost:7421")], 403),
            (&[("origin", "null")], 403),
            (&[("origin", "http://evil.example")], 403),
            (
                &[
                    ("sec-fetch-site", "cross-site"),
                    ("origin", "http://localhost:7420"),
                ],
                403,
            ),
            (&[("sec-fetch-site", "same-site")], 403),
        ];
        for (headers, expected) in table {
            let headers: Vec<_> = headers
                .iter()
                .map(|(name, value)| (*name, *value))
                .chain([host])
                .collect();
            for method in [Method::POST, Method::DELETE, Method::PUT] {
                assert_eq!(
                    status(&method, "/api/v1/queues/q/clear", &headers, true),
                    expected,
                    "{method} {headers:?}"
                );
            }
        }
        let reads = [host, ("sec-fetch-site", "cross-site")];
        assert_eq!(
            status(&Method::GET, "/stats", &reads, true),
            200,
            "its answer is not shown to the other site"
        );
    }
}
