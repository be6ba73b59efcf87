//! What readers without the right to see it are not shown of the bodies of jobs: `queues.NAME.mask`.

use std::sync::Arc;

use arc_swap::ArcSwap;
use windlass_engine::matches;

use crate::config::Config;

/// The masks of the configuration in force.
#[derive(Clone, Debug)]
pub struct Masks(Arc<ArcSwap<Config>>);

impl Masks {
    pub(crate) const fn new(in_force: Arc<ArcSwap<Config>>) -> Self {
        Self(in_force)
    }

    /// JSON pointers to what is hidden in a queue's jobs. Other rules of a queue come from one section, its most specific
    /// one. Masks come from all sections that fit: a section that is added for another rule must not uncover anything.
    pub fn of_queue(&self, queue: &[u8]) -> Vec<String> {
        let config = self.0.load();
        let fitting = config
            .queues
            .iter()
            .filter(|(name, _)| matches(name.as_bytes(), queue));
        fitting
            .flat_map(|(_, section)| section.mask.iter().cloned())
            .collect()
    }

    /// Whether something is hidden in any queue.
    pub fn is_any(&self) -> bool {
        let config = self.0.load();
        config
            .queues
            .values()
            .any(|section| !section.mask.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixture::config;

    #[test]
    fn all_sections_that_fit_a_queue_hide() {
        let text = "[queues.\"mail-*\"]\nmask = ['/0/card']\n[queues.mail-urgent]\nmask = ['/1']\n[queues.mail-plain]\n";
        let masks = Masks::new(Arc::new(ArcSwap::from_pointee(config(text))));
        assert_eq!(masks.of_queue(b"mail-urgent"), ["/0/card", "/1"]);
        assert_eq!(masks.of_queue(b"mail-plain"), ["/0/card"]);
        assert!(masks.of_queue(b"other").is_empty());
        assert!(masks.is_any());
        assert!(!Masks::new(Arc::new(ArcSwap::from_pointee(config("")))).is_any());
    }
}
