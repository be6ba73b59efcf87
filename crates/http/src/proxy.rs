//! Requests from a trusted proxy are attributed to the address that the proxy names.
//!
//! A proxy appends the address of the peer to `X-Forwarded-For`. Any preceding addresses were sent by that
//! peer and are not reliable, so the last address that does not belong to a trusted proxy is used.

use std::net::IpAddr;

use axum::http::HeaderMap;

use crate::app::Peer;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// The peer of a request, if a trusted proxy has forwarded the request and names a peer.
pub(crate) fn passed_on(peer: &Peer, headers: &HeaderMap, trusted: &[IpAddr]) -> Option<Peer> {
    let is_trusted = |ip: IpAddr| {
        trusted
            .iter()
            .any(|proxy| proxy.to_canonical() == ip.to_canonical())
    };
    peer.ip.filter(|ip| is_trusted(*ip))?;
    let values = headers.get_all(FORWARDED_FOR).iter().rev();
    let addresses = values.flat_map(|value| value.to_str().unwrap_or_default().rsplit(','));
    let mut addresses = addresses.map_while(|address| address.trim().parse::<IpAddr>().ok());
    let ip = addresses.find(|ip| !is_trusted(*ip))?;
    Some(Peer {
        address: ip.to_string().into(),
        ip: Some(ip),
        owner: peer.owner.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_address_counts_that_no_trusted_proxy_has() {
        let trusted = ["127.0.0.1", "192.0.2.9"].map(|ip| ip.parse().unwrap());
        let table: [(&str, &[&str], Option<&str>); 9] = [
            ("127.0.0.1", &["203.0.113.7"], Some("203.0.113.7")),
            ("::ffff:127.0.0.1", &["2001:db8::7"], Some("2001:db8::7")),
            (
                "127.0.0.1",
                &["198.51.100.1, 203.0.113.7"],
                Some("203.0.113.7"),
            ),
            (
                "127.0.0.1",
                &["198.51.100.1", "203.0.113.7, 192.0.2.9"],
                Some("203.0.113.7"),
            ),
            ("127.0.0.1", &["203.0.113.7, unknown"], None),
            ("127.0.0.1", &["192.0.2.9"], None),
            ("127.0.0.1", &[], None),
            ("198.51.100.1", &["203.0.113.7"], None),
            ("127.0.0.2", &["203.0.113.7"], None),
        ];
        for (from, values, expected) in table {
            let ip = Some(from.parse().unwrap());
            let peer = Peer {
                address: from.into(),
                ip,
                owner: None,
            };
            let headers = values
                .iter()
                .map(|value| (FORWARDED_FOR.parse().unwrap(), value.parse().unwrap()));
            let found = passed_on(&peer, &headers.collect(), &trusted).and_then(|peer| peer.ip);
            assert_eq!(
                found,
                expected.map(|ip| ip.parse().unwrap()),
                "{from} {values:?}"
            );
        }
    }
}
