//! Who may connect to the addresses of a section, and the namespace that a login tells.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::Mechanism;

/// The logins of a section, and those that tell a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guests {
    /// Of all clients that no other login is for.
    own: Mechanism,
    /// Of the clients of each namespace. The mechanism is that of `own`, unless `own` has none.
    named: BTreeMap<Box<str>, Mechanism>,
    /// Their users of PLAIN, or keys of CURVE as text, and the namespace of each.
    told: BTreeMap<Bytes, Box<str>>,
}

impl Guests {
    /// # Errors
    ///
    /// The namespace with a user or a key that also has another meaning.
    pub(crate) fn new(
        own: Mechanism,
        named: BTreeMap<Box<str>, Mechanism>,
    ) -> Result<Self, Box<str>> {
        let mut told = BTreeMap::new();
        let general = own.users();
        for (name, mechanism) in &named {
            for user in mechanism.users() {
                let is_general = general.contains(&user);
                let other = told.insert(user, name.clone());
                if is_general || other.is_some_and(|other| other != *name) {
                    return Err(name.clone());
                }
            }
        }
        Ok(Self { own, named, told })
    }

    /// The mechanism at an address. At that of a namespace its own logins are right, so that no other fleet's client gets
    /// in; those of all clients, if it has none.
    pub fn at(&self, namespace: Option<&str>) -> Mechanism {
        match namespace {
            None => self.named.values().fold(self.own.clone(), Mechanism::and),
            Some(name) => self.named.get(name).unwrap_or(&self.own).clone(),
        }
    }

    /// Whether logins tell namespaces.
    pub fn tell_namespaces(&self) -> bool {
        !self.named.is_empty()
    }

    /// The namespace of the client with this user of PLAIN, or key of CURVE.
    pub(crate) fn namespace_of(&self, user: &Bytes) -> Option<&str> {
        self.told.get(user).map(|name| &**name)
    }
}

impl Mechanism {
    /// This mechanism with the logins of another one, too.
    fn and(self, other: &Self) -> Self {
        match self {
            Self::Null => other.clone(),
            Self::Plain(mut logins) => {
                if let Self::Plain(more) = other {
                    logins.extend_from_slice(more);
                }
                Self::Plain(logins)
            }
            Self::Curve(server) => match other {
                Self::Curve(more) => Self::Curve(Arc::new(server.and_clients_of(more))),
                Self::Null | Self::Plain(_) => Self::Curve(server),
            },
        }
    }

    /// The users of PLAIN, or the keys of CURVE as text.
    fn users(&self) -> Vec<Bytes> {
        match self {
            Self::Null => Vec::new(),
            Self::Plain(logins) => logins.iter().map(|login| login.user.clone()).collect(),
            Self::Curve(server) => {
                let keys = server.clients().iter();
                keys.map(|key| key.to_string().into()).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Login;
    use crate::curve::{CurvePublicKey, CurveSecretKey, CurveServer};

    fn plain(users: &[&str]) -> Mechanism {
        let login = |user: &&str| Login {
            user: (*user).to_owned().into(),
            password: "p".into(),
        };
        match users {
            [] => Mechanism::Null,
            users => Mechanism::Plain(users.iter().map(login).collect()),
        }
    }

    fn curve(clients: &[u8]) -> Mechanism {
        let key = |client: &u8| CurvePublicKey::from([*client; 32]);
        let server = CurveServer::new(CurveSecretKey::new([9; 32]), Vec::new(), || 4);
        Mechanism::Curve(Arc::new(server.of(clients.iter().map(key).collect())))
    }

    fn guests<const N: usize>(
        own: Mechanism,
        named: [(&str, Mechanism); N],
    ) -> Result<Guests, Box<str>> {
        let named = named.map(|(name, mechanism)| (name.into(), mechanism));
        Guests::new(own, named.into())
    }

    #[test]
    fn an_address_without_a_namespace_is_for_all_and_that_of_one_for_its_own() {
        let at = |guests: &Guests| [None, Some("a"), Some("b")].map(|name| guests.at(name));
        let named = || [("a", plain(&["u"]))];
        let table = [
            (
                guests(plain(&[]), named()),
                [plain(&["u"]), plain(&["u"]), plain(&[])],
            ),
            (
                guests(plain(&["o"]), named()),
                [plain(&["o", "u"]), plain(&["u"]), plain(&["o"])],
            ),
            (
                guests(curve(&[1]), [("a", curve(&[2, 3]))]),
                [curve(&[1, 2, 3]), curve(&[2, 3]), curve(&[1])],
            ),
            // All clients with the server's key get in, and some of them into a namespace.
            (
                guests(curve(&[]), [("a", curve(&[2]))]),
                [curve(&[]), curve(&[2]), curve(&[])],
            ),
        ];
        for (guests, expected) in table {
            assert_eq!(at(&guests.unwrap()), expected);
        }
    }

    #[test]
    fn a_login_tells_one_namespace() {
        let all = guests(plain(&["o"]), [("a", plain(&["u"])), ("b", plain(&["v"]))]).unwrap();
        let of = |user: &'static str| all.namespace_of(&user.into());
        assert_eq!(
            [of("u"), of("v"), of("o"), of("x")],
            [Some("a"), Some("b"), None, None]
        );
        let keys = guests(curve(&[]), [("a", curve(&[2]))]);
        let text = CurvePublicKey::from([2; 32]).to_string();
        assert_eq!(keys.unwrap().namespace_of(&text.into()), Some("a"));
        let own = guests(plain(&["u"]), [("a", plain(&["u"]))]);
        let others = guests(plain(&[]), [("a", plain(&["u"])), ("b", plain(&["u"]))]);
        assert_eq!(
            [own.unwrap_err(), others.unwrap_err()],
            ["a".into(), "b".into()]
        );
    }
}
