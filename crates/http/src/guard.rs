//! Requests that a foreign web page makes through the browser of an operator are refused.
//!
//! There may be no login on this machine's own addresses, so the browser must not be a way in; with a login, the
//! browser repeats it. A page of another site can send requests here, but it cannot hide itself: browsers send
//! `Sec-Fetch-Site`, older ones `Origin` with everything that can change something. And a page that makes its own host
//! name point here (DNS rebinding) shows in `Host`.

use axum::http::{HeaderMap, Method, StatusCode, Uri, header};

use crate::problem::{Outcome, Problem};

/// Paths that show nothing and change nothing: probes come under any host name, without a login.
pub(crate) const OPEN: [&str; 3] = ["/livez", "/readyz", "/health"];

/// Refuses a request of a foreign page. `is_tcp`: no browser reaches a Unix socket.
pub(crate) fn check(
    (method, uri, headers): (&Method, &Uri, &HeaderMap),
    hosts: &[String],
    is_tcp: bool,
) -> Outcome<()> {
    if !is_tcp || OPEN.contains(&uri.path()) {
        return Ok(());
    }
    let host = text(headers, &header::HOST)?.or_else(|| uri.authority().map(|authority| authority.as_str()));
    if let Some(host) = host.filter(|host| !is_ours(host, hosts)) {
        let detail = format!("host {} is not this machine: http.hosts lists its other names", host.escape_debug());
        return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "foreign_host", detail));
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
        // Sec-Fetch-Site is the browser's own judgement.
        Some(_) if site.is_some() => Ok(()),
        Some(origin) if origin.is_none() || origin != host => Err(foreign("Origin is not this host")),
        Some(_) | None => Ok(()),
    }
}

/// Refuses a change by a session that does not show where it comes from: a browser sends the cookie by itself, and
/// every browser that knows `SameSite` shows it.
pub(crate) fn check_session(method: &Method, headers: &HeaderMap) -> Outcome<()> {
    let is_shown = headers.contains_key("sec-fetch-site") || headers.contains_key(header::ORIGIN);
    let is_read = *method == Method::GET || *method == Method::HEAD;
    if is_read || is_shown { Ok(()) } else { Err(foreign("a session's change needs Origin or Sec-Fetch-Site")) }
}

fn foreign(detail: &str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "cross_site", detail)
}

fn text(headers: &HeaderMap, name: impl header::AsHeaderName) -> Outcome<Option<&str>> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    value.to_str().map(Some).map_err(|_| Problem::bad_request("a header is not text"))
}

/// Whether `Host` names this machine, whatever the port.
fn is_ours(host: &str, hosts: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let is_loopback = name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    is_loopback || name.eq_ignore_ascii_case("localhost") || hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(method: &Method, path: &str, headers: &[(&'static str, &str)], is_tcp: bool) -> u16 {
        let headers: HeaderMap =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let hosts = ["queue.example".to_owned()];
        check((method, &path.parse().unwrap(), &headers), &hosts, is_tcp)
            .map_or_else(|problem| problem.status, |()| 200)
    }

    #[test]
    fn hosts() {
        let own =
            ["localhost:7420", "127.0.0.1:7420", "127.0.0.1", "[::1]:7420", "[::1]", "LOCALHOST", "queue.example:80"];
        for host in own {
            assert_eq!(status(&Method::GET, "/stats", &[("host", host)], true), 200, "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:7420", "192.0.2.1", "[::2]", ""]
        {
            assert_eq!(status(&Method::GET, "/stats", &[("host", host)], true), 421, "{host}");
            assert_eq!(status(&Method::GET, "/livez", &[("host", host)], true), 200, "{host}");
            assert_eq!(status(&Method::GET, "/stats", &[("host", host)], false), 200, "{host}: a Unix socket");
        }
        assert_eq!(status(&Method::GET, "/stats", &[], true), 200, "a program without Host is no browser");
    }

    #[test]
    fn changes_from_other_sites() {
        let host = ("host", "localhost:7420");
        let table: [(&[(&str, &str)], u16); 9] = [
            (&[], 200),
            (&[("sec-fetch-site", "same-origin"), ("origin", "http://localhost:7420")], 200),
            (&[("sec-fetch-site", "none")], 200),
            (&[("origin", "http://localhost:7420")], 200),
            (&[("origin", "http://localhost:7421")], 403),
            (&[("origin", "null")], 403),
            (&[("origin", "http://evil.example")], 403),
            (&[("sec-fetch-site", "cross-site"), ("origin", "http://localhost:7420")], 403),
            (&[("sec-fetch-site", "same-site")], 403),
        ];
        for (headers, expected) in table {
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, *value)).chain([host]).collect();
            for method in [Method::POST, Method::DELETE, Method::PUT] {
                assert_eq!(status(&method, "/api/v1/queues/q/clear", &headers, true), expected, "{method} {headers:?}");
            }
        }
        let reads = [host, ("sec-fetch-site", "cross-site")];
        assert_eq!(status(&Method::GET, "/stats", &reads, true), 200, "its answer is not shown to the other site");
    }
}
