//! The protocols' names for log lines.

use windlass_engine::Protocol;

/// Each protocol with the name of its section and its common name.
#[derive(Clone, Debug, Default)]
pub struct ProtocolNames(Vec<(Protocol, &'static str, &'static str)>);

impl ProtocolNames {
    /// The protocols that this daemon serves.
    pub const fn new(names: Vec<(Protocol, &'static str, &'static str)>) -> Self {
        Self(names)
    }

    /// The name of a protocol's section.
    pub fn name(&self, protocol: Protocol) -> &'static str {
        self.of(protocol).map_or("?", |(_, name, _)| name)
    }

    /// A protocol's common name.
    pub fn title(&self, protocol: Protocol) -> &'static str {
        self.of(protocol).map_or("other", |(.., title)| title)
    }

    fn of(&self, protocol: Protocol) -> Option<&(Protocol, &'static str, &'static str)> {
        self.0.iter().find(|(id, ..)| *id == protocol)
    }
}
