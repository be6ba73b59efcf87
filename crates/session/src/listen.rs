//! An address to listen on with what clients may do there and their namespace, as protocols have them in their sections.

use std::fmt;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use windlass_config::{AddressError, ListenAddress};
use windlass_engine::{Right, Rights};

/// An address of a protocol. Written as the address alone, or as a table with `address`, and `rights` and `namespace` if
/// they are not those of every address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address.
    pub address: ListenAddress,
    /// What clients may do there.
    pub rights: Rights,
    /// The namespace of all clients there. `None`: their logins tell it, or it is the one without a name.
    pub namespace: Option<Box<str>>,
}

/// The table.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    address: ListenAddress,
    #[serde(skip_serializing_if = "Option::is_none")]
    rights: Option<Vec<Name>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<Box<str>>,
}

/// The names of rights.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Name {
    Submit,
    Work,
    Administer,
}

impl Name {
    const ALL: [Self; 3] = [Self::Submit, Self::Work, Self::Administer];

    const fn right(self) -> Right {
        match self {
            Self::Submit => Right::Submit,
            Self::Work => Right::Work,
            Self::Administer => Right::Administer,
        }
    }
}

impl Listen {
    /// A port of this machine, for all clients.
    pub fn local(port: u16) -> Self {
        ListenAddress::Tcp {
            host: "localhost".to_owned(),
            port,
        }
        .into()
    }
}

impl From<ListenAddress> for Listen {
    fn from(address: ListenAddress) -> Self {
        Self {
            address,
            rights: Rights::ALL,
            namespace: None,
        }
    }
}

impl FromStr for Listen {
    type Err = AddressError;

    fn from_str(address: &str) -> Result<Self, AddressError> {
        address.parse::<ListenAddress>().map(Self::from)
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.rights == Rights::ALL && self.namespace.is_none() {
            return self.address.serialize(serializer);
        }
        let names = || {
            Name::ALL
                .into_iter()
                .filter(|name| self.rights.include(name.right()))
                .collect()
        };
        Table {
            address: self.address.clone(),
            rights: (self.rights != Rights::ALL).then(names),
            namespace: self.namespace.clone(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Form)
    }
}

/// Reads either form.
struct Form;

impl<'de> Visitor<'de> for Form {
    type Value = Listen;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address, or a table with address, rights and namespace")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Listen, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Listen, A::Error> {
        let Table {
            address,
            rights,
            namespace,
        } = Table::deserialize(MapAccessDeserializer::new(map))?;
        if rights.as_ref().is_some_and(Vec::is_empty) {
            return Err(A::Error::custom(
                "rights must name one of `submit`, `work` and `administer` at least",
            ));
        }
        let rights = rights.map_or(Rights::ALL, |rights| {
            rights.into_iter().map(Name::right).collect()
        });
        Ok(Listen {
            address,
            rights,
            namespace,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    struct Section {
        listen: Vec<Listen>,
    }

    #[test]
    fn addresses_are_read_and_written_with_their_rights() {
        let text = r#"listen = ["127.0.0.1:1", { address = "unix:/s", rights = ["work", "submit", "work"] }, { address = "[::1]:2", rights = ["administer"] }]"#;
        let section: Section = toml::from_str(text).unwrap();
        let found = section
            .listen
            .iter()
            .map(|it| format!("{} {}", it.address, it.rights))
            .collect::<Vec<_>>();
        assert_eq!(
            found,
            [
                "127.0.0.1:1 submit, work, administer",
                "unix:/s submit, work",
                "[::1]:2 administer"
            ]
        );
        let written = toml::to_string(&section).unwrap();
        assert_eq!(
            toml::from_str::<Section>(&written).unwrap().listen,
            section.listen,
            "{written}"
        );
        assert!(written.contains("\"127.0.0.1:1\""), "{written}");
    }

    #[test]
    fn an_address_is_read_and_written_with_its_namespace_in_either_form_of_a_list() {
        let inline = r#"listen = ["127.0.0.1:1", { address = "unix:/s", namespace = "shop" }, { address = "[::1]:2", rights = ["work"], namespace = "b" }, { address = "[::1]:3" }]"#;
        let tables = "[[listen]]\naddress = \"unix:/s\"\nnamespace = \"shop\"\n[[listen]]\naddress = \"[::1]:3\"\n";
        let read = |text: &str| toml::from_str::<Section>(text).unwrap();
        let shown = |section: &Section| -> Vec<String> {
            let listen = section.listen.iter();
            listen
                .map(|it| format!("{} {} {:?}", it.address, it.rights, it.namespace))
                .collect()
        };
        let shop = "unix:/s submit, work, administer Some(\"shop\")";
        let plain = "[::1]:3 submit, work, administer None";
        assert_eq!(
            shown(&read(inline)),
            [
                "127.0.0.1:1 submit, work, administer None",
                shop,
                "[::1]:2 work Some(\"b\")",
                plain
            ]
        );
        assert_eq!(shown(&read(tables)), [shop, plain]);
        for text in [inline, tables] {
            let written = toml::to_string(&read(text)).unwrap();
            assert_eq!(read(&written).listen, read(text).listen, "{written}");
            assert!(written.contains("\"[::1]:3\""), "{written}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let table = [
            (
                "7",
                "expected an address, or a table with address, rights and namespace",
            ),
            (
                "\"4730\"",
                "no port; host:port, [ipv6]:port or unix:/path expected",
            ),
            (
                "{ address = \"127.0.0.1:1\", namespace = 7 }",
                "invalid type: integer `7`, expected a string",
            ),
            ("{ rights = [\"work\"] }", "missing field `address`"),
            (
                "{ address = \"127.0.0.1:1\", rights = [] }",
                "rights must name one of",
            ),
            (
                "{ address = \"127.0.0.1:1\", rights = [\"admin\"] }",
                "unknown variant `admin`",
            ),
            (
                "{ address = \"127.0.0.1:1\", rights = [\"work\"], tls = true }",
                "unknown field `tls`",
            ),
        ];
        for (value, expected) in table {
            let said = toml::from_str::<Section>(&format!("listen = [{value}]"))
                .unwrap_err()
                .to_string();
            assert!(said.contains(expected), "{value}: {said}");
        }
    }
}
