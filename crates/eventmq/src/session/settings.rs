//! What all connections of EventMQ share: the section of the configuration, and the state of this daemon.

use std::sync::Arc;

use bytes::Bytes;
use windlass_bridge::Bridge;
use windlass_engine::{LeaseTerms, OnExpiry, Patterns};
use windlass_session::{ByNamespace, Question, Talk};
use windlass_zmtp::{Ready, Role};

use super::directory::Directory;
use crate::config::Eventmq;
use crate::elsewhere::Everywhere;
use crate::publish::Exchange;

/// The settings of a listener. The listeners of one daemon share [`Directory`] and [`Exchange`].
#[derive(Debug, Clone)]
pub struct Settings {
    /// `[eventmq]`. [`Eventmq::disconnect`] is set for administrators only.
    pub section: Eventmq,
    /// By queue: patterns ([`windlass_engine::matches`]) of results that count as failures. On the wire an exception
    /// looks like any result.
    pub failure_values: Patterns<Vec<Bytes>>,
    /// The transport, in the role of a ROUTER, or of a PUB for subscribers.
    pub zmtp: Arc<windlass_zmtp::Settings>,
    /// Workers and schedulers of the daemon.
    pub directory: Arc<Directory>,
    /// The destination of published messages.
    pub exchange: Arc<Exchange>,
    /// All protocols, for jobs that cross.
    pub bridge: Arc<Bridge>,
    /// The settings of namespaces with a name; `None` in these themselves.
    pub(crate) others: Option<Arc<Others>>,
}

/// The settings of the same listener in each namespace with a name.
#[derive(Debug)]
pub(crate) struct Others {
    everywhere: Arc<Everywhere>,
    made: ByNamespace<Settings>,
}

impl Others {
    pub(crate) fn new(everywhere: Arc<Everywhere>) -> Self {
        Self {
            everywhere,
            made: ByNamespace::default(),
        }
    }
}

impl Settings {
    /// The settings under this section, for a daemon's first listener.
    pub fn new(section: Eventmq) -> Self {
        Self {
            section,
            failure_values: Patterns::default(),
            zmtp: Arc::new(windlass_zmtp::Settings::new(Role::Router)),
            directory: Arc::default(),
            exchange: Arc::default(),
            bridge: Arc::default(),
            others: None,
        }
    }

    /// The settings of a peer whose handshake is complete, and which enters the namespace that its login has told.
    pub(crate) fn entered<Q: Question>(
        self: &Arc<Self>,
        ready: &Ready,
        talk: &mut Talk<'_, Q>,
    ) -> Arc<Self> {
        let namespace = self.zmtp.namespace_of(ready);
        talk.enter(namespace);
        self.within(namespace)
    }

    /// The settings in a namespace; `None`: in that without a name.
    pub(crate) fn within(self: &Arc<Self>, namespace: Option<&str>) -> Arc<Self> {
        let Some((name, others)) = namespace.zip(self.others.as_ref()) else {
            return Arc::clone(self);
        };
        others.made.get_or(name, || {
            let own = others.everywhere.within(namespace);
            Self {
                zmtp: Arc::new(self.zmtp.at(name)),
                directory: Arc::clone(&own.directory),
                exchange: Arc::clone(&own.exchange),
                others: None,
                ..Self::clone(self)
            }
        })
    }

    /// The terms of every lease.
    pub(super) fn lease(&self) -> LeaseTerms {
        LeaseTerms {
            lease_ms: Some(self.section.lease.as_ms()).filter(|ms| *ms > 0),
            wish: Some(OnExpiry::Fail),
            ..LeaseTerms::CONNECTION
        }
    }
}
