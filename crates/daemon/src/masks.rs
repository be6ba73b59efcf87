//! What readers without the right to see it are not shown of the bodies of jobs: `queues.NAME.mask`.

use std::sync::Arc;

use arc_swap::ArcSwap;
use windlass_engine::{NAMESPACE_SEPARATOR, matches};

use crate::config::Config;

/// The masks of the configuration in force.
#[derive(Clone, Debug)]
pub struct Masks(Arc<ArcSwap<Config>>);

impl Masks {
    pub(crate) const fn new(in_force: Arc<ArcSwap<Config>>) -> Self {
        Self(in_force)
    }

    /// JSON pointers to what is hidden in a queue's jobs. Other rules of a queue come from one section, its most specific
    /// one. Masks come from all sections that fit: a section that is added for another rule must not uncover anything. For
    /// the same reason a pattern without a namespace hides in all of them. The namespace without a name is empty.
    pub fn of_queue(&self, namespace: &[u8], queue: &[u8]) -> Vec<String> {
        let config = self.0.load();
        let behind = [namespace, &[NAMESPACE_SEPARATOR], queue].concat();
        let fits =
            |name: &[u8]| matches(name, queue) || (!namespace.is_empty() && matches(name, &behind));
        let masking = config.queues.iter();
        let masking = masking.filter(|(_, section)| !section.mask.is_empty());
        let fitting = masking.filter(|(name, _)| fits(name.as_bytes()));
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
        let of = |masks: &Masks, namespace: &str, queue: &str| {
            masks.of_queue(namespace.as_bytes(), queue.as_bytes())
        };
        assert_eq!(of(&masks, "", "mail-urgent"), ["/0/card", "/1"]);
        assert_eq!(of(&masks, "", "mail-plain"), ["/0/card"]);
        assert!(of(&masks, "", "other").is_empty());
        let text = "[queues.\"shop/mail\"]\nmask = ['/0']\n[queues.\"*/plain\"]\nmask = ['/1']\n[queues.card]\nmask = ['/2']\n";
        let named = Masks::new(Arc::new(ArcSwap::from_pointee(config(text))));
        let table = [
            ("shop", "mail", &["/0"][..]),
            ("lab", "mail", &[]),
            ("", "mail", &[]),
            ("lab", "plain", &["/1"]),
            ("", "plain", &[]),
            ("lab", "card", &["/2"]),
            ("", "card", &["/2"]),
        ];
        for (namespace, queue, expected) in table {
            assert_eq!(
                of(&named, namespace, queue),
                expected,
                "{namespace} {queue}"
            );
        }
        assert!(masks.is_any());
        assert!(!Masks::new(Arc::new(ArcSwap::from_pointee(config("")))).is_any());
    }
}
