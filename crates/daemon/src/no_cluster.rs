//! Replaces `cluster` in a build without that feature. No values of these types exist.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use windlass_config::{Error as ConfigError, Failure, Tls};
use windlass_hub::{Broker, Budget, Hub, View};
use windlass_session::protocol::Publications;

use crate::config::Config;
use crate::data::Store;

/// The version of the links between daemons, which do not exist.
pub const LINK_VERSION: u8 = 0;

pub(crate) const YIELD: Duration = Duration::ZERO;

pub(crate) type Listening = Infallible;

pub(crate) fn bind(_: &Config) -> Result<Listening, Failure> {
    Err(ConfigError::senseless("cluster.listen", ABSENT).into())
}

const ABSENT: &str = "this program was built without the feature `cluster`";

pub(crate) fn check_certificates(_: &Tls, _: &str) -> Result<(), ConfigError> {
    Err(ConfigError::senseless("cluster.listen", ABSENT))
}

/// Succeeds, because there are no other daemons.
///
/// # Errors
///
/// None.
pub fn check_certificates_today(_: &Config) -> Result<(), ConfigError> {
    Ok(())
}

pub(crate) struct Joining(Infallible);

impl Joining {
    pub(crate) fn new(
        never: Listening,
        _: &Arc<Budget>,
        _: impl Iterator<Item = Arc<dyn Publications>>,
    ) -> Self {
        Self(never)
    }

    pub(crate) fn broker(&self) -> Arc<dyn Broker> {
        match self.0 {}
    }

    pub(crate) fn start(self, _: &Config, _: Arc<View>) -> Result<Member, Failure> {
        match self.0 {}
    }
}

pub(crate) struct Member(Infallible);

impl Member {
    pub(crate) async fn stand_by(&self, _: &Config) -> Result<Store, Failure> {
        match self.0 {}
    }

    pub(crate) fn take_over(&self, _: &Arc<Hub>) {}

    pub(crate) fn accept(&self, _: &Arc<Hub>) {}

    pub(crate) fn follow(&self) {}

    pub(crate) fn finish(self) {}
}
