//! The namespace of a request: named behind `?` or in the path, and what the login may do there.
//!
//! A request without one is about the whole daemon, or, of a login that is limited to a single namespace, about
//! that. `access` decides once, before any handler; everything behind it gets an [`crate::app::App`] that
//! reaches no further.

use std::borrow::Cow;
use std::collections::BTreeMap;

use axum::http::Uri;
use axum::http::uri::PathAndQuery;
use windlass_engine::is_valid_name;

use crate::login::{Grant, Role};
use crate::problem::{Outcome, Problem};

/// The parameter, for every address.
pub(crate) const PARAMETER: &str = "namespace";

/// In front of the paths of pages about one namespace: `/in/NAME/queues`. Every link and every form of a page
/// begins with the path of that page's namespace, so that none can fall back to the whole daemon, where the
/// same button would change the jobs of all.
pub(crate) const SEGMENT: &str = "/in/";

/// Stands in such a path for the namespace without a name.
pub(crate) const UNNAMED: &str = "~";

/// The value of the parameter for the whole daemon, as if it was not given.
pub(crate) const ALL: &str = "*";

/// The namespace that a path names: an extension of the request.
#[derive(Clone, Debug)]
pub(crate) struct InPath(Box<str>);

impl InPath {
    pub(crate) fn name(&self) -> &str {
        &self.0
    }
}

/// The part of the daemon that a request is about, and what the login may do there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The name, empty for the namespace without one; `None` for the whole daemon.
    pub(crate) namespace: Option<Box<str>>,
    pub(crate) role: Role,
}

impl Place {
    /// The place of a request of this login.
    ///
    /// # Errors
    ///
    /// The login is not for this namespace, or for several, of which the request must name one. It is refused
    /// alike whether there is such a namespace or not.
    pub(crate) fn of(grant: &Grant, asked: Option<Box<str>>) -> Outcome<Self> {
        let of = |namespace, role| Self { namespace, role };
        let roles = match grant {
            Grant::Everywhere(role) => return Ok(of(asked, *role)),
            Grant::In(roles) => roles,
        };
        let Some(name) = asked else {
            return only(roles);
        };
        let role = roles.get(&name).copied().ok_or_else(|| {
            Problem::forbidden(format!("this login is not for {}", in_words(&name)))
        })?;
        Ok(of(Some(name), role))
    }
}

/// The only namespace of a login.
fn only(roles: &BTreeMap<Box<str>, Role>) -> Outcome<Place> {
    let mut all = roles.iter();
    if let (Some((name, role)), None) = (all.next(), all.next()) {
        return Ok(Place {
            namespace: Some(name.clone()),
            role: *role,
        });
    }
    let names: Vec<_> = roles.keys().map(|name| format!("{name:?}")).collect();
    Err(Problem::bad_request(format!(
        "this login is for several namespaces: choose one with ?{PARAMETER}= of {}",
        names.join(", ")
    )))
}

/// A namespace in a sentence.
pub(crate) fn in_words(name: &str) -> String {
    if name.is_empty() {
        "the namespace without a name".to_owned()
    } else {
        format!("the namespace {}", name.escape_debug())
    }
}

/// The refusal of a name that no namespace has.
pub(crate) fn unknown(name: &str) -> Problem {
    Problem::not_found(format!("there is no namespace {}", name.escape_debug()))
}

/// Removes the namespace from an address, and returns it with the rest; `None` if the address has none.
pub(crate) fn without_segment(uri: &Uri) -> Option<(Uri, InPath)> {
    let given = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let rest = given.strip_prefix(SEGMENT)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (name, rest) = rest.split_at_checked(end)?;
    let name = if name == UNNAMED { "" } else { name };
    let rest = match rest.chars().next() {
        Some('/') => Cow::Borrowed(rest),
        Some(_) | None => Cow::Owned(format!("/{rest}")),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(rest.parse().ok()?);
    Some((Uri::from_parts(parts).ok()?, InPath(name.into())))
}

/// The namespace that the path of a change names: `/api/v1/namespaces/NAME/pause`. The path without a verb is about
/// the list of namespaces, in which NAME may be new.
pub(crate) fn of_change(path: &str) -> Option<InPath> {
    let (name, _) = path.strip_prefix("/api/v1/namespaces/")?.split_once('/')?;
    Some(InPath(if name == UNNAMED { "" } else { name }.into()))
}

/// The path of pages about a namespace, to put in front of theirs.
pub(crate) fn segment(namespace: Option<&str>) -> String {
    match namespace {
        None => String::new(),
        Some("") => format!("{SEGMENT}{UNNAMED}"),
        Some(name) => format!("{SEGMENT}{name}"),
    }
}

/// Removes the parameter from an address, whose handlers do not know it, and returns its value.
fn taken_from(uri: &mut Uri) -> Outcome<Option<String>> {
    let query = uri.query().unwrap_or_default();
    let value = |pair: &str| {
        let (name, value) = form_urlencoded::parse(pair.as_bytes()).next()?;
        (name == PARAMETER).then(|| value.into_owned())
    };
    let mut values = query.split('&').filter_map(value);
    let Some(found) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Problem::bad_request(format!("{PARAMETER} is given twice")));
    }
    let kept: Vec<&str> = query
        .split('&')
        .filter(|pair| value(pair).is_none())
        .collect();
    let rest = if kept.is_empty() {
        uri.path().to_owned()
    } else {
        format!("{}?{}", uri.path(), kept.join("&"))
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(rest.parse().map_err(Problem::bad_request)?);
    *uri = Uri::from_parts(parts).map_err(Problem::bad_request)?;
    Ok(Some(found))
}

/// The namespace that a request names; `None` if it names none. The parameter is removed.
///
/// # Errors
///
/// It names two, or what cannot be a name.
pub(crate) fn asked(uri: &mut Uri, path: Option<&InPath>) -> Outcome<Option<Box<str>>> {
    let parameter = taken_from(uri)?.filter(|name| name != ALL);
    let name = match (parameter, path) {
        (None, None) => return Ok(None),
        (Some(name), None) => name.into_boxed_str(),
        (None, Some(InPath(name))) => name.clone(),
        (Some(name), Some(InPath(other))) if *name == **other => other.clone(),
        (Some(_), Some(_)) => {
            return Err(Problem::bad_request(format!(
                "the path and {PARAMETER} name different namespaces"
            )));
        }
    };
    if name.is_empty() || is_valid_name(name.as_bytes()) {
        Ok(Some(name))
    } else {
        // What a peer has sent may be long.
        let begin: String = name.chars().take(64).collect();
        Err(unknown(&begin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(address: &str) -> Result<(String, Option<String>), u16> {
        let mut uri: Uri = address.parse().unwrap();
        let found = without_segment(&uri);
        let path = found.map(|(rest, path)| {
            uri = rest;
            path
        });
        let name = asked(&mut uri, path.as_ref()).map_err(|problem| problem.status)?;
        Ok((uri.to_string(), name.map(String::from)))
    }

    #[test]
    fn a_request_names_its_namespace_once() {
        let table = [
            ("/queues", "/queues", None),
            ("/queues?namespace=*&sort=name", "/queues?sort=name", None),
            ("/queues?namespace=shop", "/queues", Some("shop")),
            (
                "/jobs?a=b&namespace=shop&c=d",
                "/jobs?a=b&c=d",
                Some("shop"),
            ),
            ("/jobs?%6eamespace=%73hop", "/jobs", Some("shop")),
            ("/jobs?namespace=", "/jobs", Some("")),
            (
                "/in/shop/queues/x%2Fy?a=b",
                "/queues/x%2Fy?a=b",
                Some("shop"),
            ),
            ("/in/shop", "/", Some("shop")),
            ("/in/shop?a=b", "/?a=b", Some("shop")),
            ("/in/~/jobs", "/jobs", Some("")),
            ("/in/shop/jobs?namespace=shop", "/jobs", Some("shop")),
            ("/in/shop/in/mail/jobs", "/in/mail/jobs", Some("shop")),
            ("/inside", "/inside", None),
        ];
        for (address, rest, name) in table {
            let expected = (rest.to_owned(), name.map(str::to_owned));
            assert_eq!(read(address), Ok(expected), "{address}");
        }
        let wrong = [
            ("/jobs?namespace=a&namespace=a", 400),
            ("/in/shop/jobs?namespace=mail", 400),
            ("/jobs?namespace=a%2Fb", 404),
            ("/in/a%2Fb/jobs", 404),
        ];
        for (address, status) in wrong {
            assert_eq!(read(address), Err(status), "{address}");
        }
    }

    #[test]
    fn a_limited_login_has_no_other_place() {
        let grant = |text: &str| text.parse::<Grant>().unwrap();
        let place = |grant: &Grant, asked: Option<&str>| {
            let place = Place::of(grant, asked.map(Box::from));
            place
                .map(|it| (it.namespace.map(String::from), it.role))
                .map_err(|it| it.status)
        };
        let named = |name: &str| Some(name.to_owned());
        let all = grant("operate");
        assert_eq!(place(&all, None), Ok((None, Role::Operate)));
        assert_eq!(place(&all, Some("a")), Ok((named("a"), Role::Operate)));
        let one = grant("shop:read");
        assert_eq!(place(&one, None), Ok((named("shop"), Role::Read)));
        assert_eq!(place(&one, Some("shop")), Ok((named("shop"), Role::Read)));
        assert_eq!(place(&one, Some("mail")), Err(403));
        assert_eq!(place(&one, Some("")), Err(403));
        let two = grant("shop:read,mail:admin");
        assert_eq!(place(&two, None), Err(400));
        assert_eq!(place(&two, Some("mail")), Ok((named("mail"), Role::Admin)));
        let unnamed = grant(":operate");
        assert_eq!(place(&unnamed, None), Ok((named(""), Role::Operate)));
        assert_eq!(place(&unnamed, Some("shop")), Err(403));
    }
}
