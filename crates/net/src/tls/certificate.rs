//! The validity period of a certificate, and the names of its subject. Nothing else is read here,
//! because rustls itself reads certificates to verify them.
//!
//! Spec: RFC 5280, 4.1 (`Certificate`, `Validity`, `Name`), 4.2.1.6; X.690, 8 and 10 (DER).

use jiff::civil::DateTime;
use jiff::tz::Offset;
use rustls::pki_types::CertificateDer;

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// The identifier of a common name, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// The tag of the version, which is omitted if it is 1.
const VERSION: u8 = 0xa0;

/// The validity period in seconds since 1970. `None`: the moment is before 1970, or not a valid
/// date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    not_before: Option<u64>,
    pub(super) not_after: Option<u64>,
}

impl Validity {
    /// Why the certificate is not valid at this time.
    pub(super) fn objection(self, now: u64) -> Option<&'static str> {
        if self.not_after.is_some_and(|end| end < now) {
            return Some("has expired");
        }
        self.not_before
            .is_some_and(|begin| now < begin)
            .then_some("is not valid yet")
    }
}

/// Parses `validity` of a certificate in DER. Returns `None` if the bytes are not a certificate.
pub(super) fn validity(certificate: &[u8]) -> Option<Validity> {
    let (certificate, _) = expect(SEQUENCE, certificate)?;
    let (tbs, _) = expect(SEQUENCE, certificate)?;
    let tbs = expect(VERSION, tbs).map_or(tbs, |(_, rest)| rest);
    let (_, rest) = expect(INTEGER, tbs)?; // serialNumber
    let (_, rest) = expect(SEQUENCE, rest)?; // signature
    let (_, rest) = expect(SEQUENCE, rest)?; // issuer
    let (validity, _) = expect(SEQUENCE, rest)?;
    let (begin_kind, begin, rest) = element(validity)?;
    let (end_kind, end, _) = element(rest)?;
    Some(Validity {
        not_before: seconds(begin_kind, begin),
        not_after: seconds(end_kind, end),
    })
}

/// The names of a certificate's subject: its common name, and its DNS names. Empty if the bytes are
/// not a certificate.
pub(super) fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else {
        return Vec::new();
    };
    let dns = parsed.valid_dns_names().map(str::to_owned);
    common_name(parsed.subject())
        .into_iter()
        .chain(dns)
        .collect()
}

/// The common name of a subject in DER, without the tag and length of the whole.
fn common_name(mut subject: &[u8]) -> Option<String> {
    while let Some((set, rest)) = expect(SET, subject) {
        subject = rest;
        let (pair, _) = expect(SEQUENCE, set)?;
        let (kind, value) = expect(OBJECT_IDENTIFIER, pair)?;
        if kind == COMMON_NAME {
            // A text of any kind: all are ASCII or UTF-8, but for kinds that nobody has used in years.
            let (_, text, _) = element(value)?;
            return String::from_utf8(text.to_vec()).ok();
        }
    }
    None
}

fn expect(kind: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    element(bytes)
        .filter(|(found, ..)| *found == kind)
        .map(|(_, content, rest)| (content, rest))
}

/// The first element: its tag, its content, and the remaining bytes.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[kind, length], rest) = bytes.split_first_chunk()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        // This many length bytes follow; no certificate needs more than 4.
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (
                digits
                    .iter()
                    .fold(0, |length, digit| length << 8 | usize::from(*digit)),
                rest,
            )
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((kind, content, rest))
}

/// `YYMMDDHHMMSSZ` with years from 1950 to 2049, or `YYYYMMDDHHMMSSZ` (RFC 5280, 4.1.2.5).
fn seconds(kind: u8, time: &[u8]) -> Option<u64> {
    let text = str::from_utf8(time).ok()?.strip_suffix('Z')?;
    let (year, rest) = match kind {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i16 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let mut fields = [0_i8; 5];
    for (at, field) in fields.iter_mut().enumerate() {
        *field = rest.get(2 * at..2 * at + 2)?.parse().ok()?;
    }
    let [month, day, hour, minute, second] = fields;
    let time = DateTime::new(year, month, day, hour, minute, second, 0)
        .ok()
        .filter(|_| rest.len() == 10)?;
    u64::try_from(Offset::UTC.to_timestamp(time).ok()?.as_second()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let table = [
            (UTC_TIME, "700101000001Z", Some(1)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "99991231235959Z", None), // beyond jiff's last day in UTC, but for offsets
            (UTC_TIME, "500101000000Z", None),
            (UTC_TIME, "700101000001", None),
            (UTC_TIME, "7001010000Z", None),
            (UTC_TIME, "701301000001Z", None),
            (GENERALIZED_TIME, "205001010000000Z", None),
            (INTEGER, "700101000001Z", None),
        ];
        for (kind, text, expected) in table {
            assert_eq!(seconds(kind, text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_certificate_names_its_subject() {
        let table: [(Option<&str>, &[&str], &[&str]); 4] = [
            (Some("worker 7"), &[], &["worker 7"]),
            (Some("a"), &["b.example", "c"], &["a", "b.example", "c"]),
            (None, &["b.example"], &["b.example"]),
            (None, &[], &[]),
        ];
        for (common, dns, expected) in table {
            let dns: Vec<_> = dns.iter().map(|name| (*name).to_owned()).collect();
            let mut params = rcgen::CertificateParams::new(dns).unwrap();
            params.distinguished_name = rcgen::DistinguishedName::new();
            let subject = &mut params.distinguished_name;
            subject.push(rcgen::DnType::OrganizationName, "shop");
            if let Some(common) = common {
                subject.push(rcgen::DnType::CommonName, common);
            }
            let key = rcgen::KeyPair::generate().unwrap();
            let made = params.self_signed(&key).unwrap();
            assert_eq!(names(made.der()), expected);
            for end in 0..made.der().len() {
                assert!(names(&made.der()[..end].into()).is_empty(), "{end}");
            }
        }
    }

    #[test]
    fn a_certificate_cut_anywhere_has_no_validity() {
        let made = rcgen::generate_simple_self_signed(["h".to_owned()]).unwrap();
        let der = made.cert.der();
        assert!(validity(der).is_some_and(|it| it.not_after.is_some()));
        for end in 0..der.len() {
            assert_eq!(validity(&der[..end]), None, "{end}");
        }
    }

    #[test]
    fn a_certificate_is_valid_from_its_begin_to_its_end() {
        let mut params = rcgen::CertificateParams::new(["h".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (
            rcgen::date_time_ymd(2001, 1, 1),
            rcgen::date_time_ymd(2002, 1, 1),
        );
        let made = params
            .self_signed(&rcgen::KeyPair::generate().unwrap())
            .unwrap();
        let validity = validity(made.der()).unwrap();
        let objections = [978_307_199, 978_307_200, 1_009_843_200, 1_009_843_201]
            .map(|now| validity.objection(now));
        assert_eq!(
            objections,
            [Some("is not valid yet"), None, None, Some("has expired")]
        );
        assert_eq!(
            Validity {
                not_before: None,
                not_after: None
            }
            .objection(7),
            None
        );
    }
}
