//! The topics of one subscriber: prefixes of messages, each with the number of times it was subscribed to.
//!
//! Spec: RFC 37, "The Publish-Subscribe Pattern": "Subscriptions SHALL be additive and SHALL NOT be idempotent".

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use bytes::Bytes;

/// The topics of one subscriber.
#[derive(Clone, Debug)]
pub struct Subscriptions {
    topics: BTreeMap<Bytes, u64>,
    bytes: usize,
    topics_max: usize,
    bytes_max: usize,
}

/// A subscriber has too many topics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}: {allowed} allowed")]
pub struct TooMany {
    /// The limit's name.
    pub what: &'static str,
    /// The limit.
    pub allowed: usize,
}

impl Subscriptions {
    /// No topics yet. At most `topics_max` topics, with at most `bytes_max` bytes together.
    pub const fn new(topics_max: usize, bytes_max: usize) -> Self {
        Self {
            topics: BTreeMap::new(),
            bytes: 0,
            topics_max,
            bytes_max,
        }
    }

    /// Adds one subscription.
    ///
    /// # Errors
    /// There are too many; nothing has changed.
    pub fn add(&mut self, topic: Bytes) -> Result<(), TooMany> {
        let (topics, bytes) = (self.topics.len(), self.bytes + topic.len());
        match self.topics.entry(topic) {
            Entry::Occupied(mut entry) => *entry.get_mut() += 1,
            Entry::Vacant(_) if topics >= self.topics_max => {
                return Err(TooMany {
                    what: "topics_max",
                    allowed: self.topics_max,
                });
            }
            Entry::Vacant(_) if bytes > self.bytes_max => {
                return Err(TooMany {
                    what: "topic_bytes_max",
                    allowed: self.bytes_max,
                });
            }
            Entry::Vacant(entry) => {
                entry.insert(1);
                self.bytes = bytes;
            }
        }
        Ok(())
    }

    /// Removes one subscription. A topic that was never subscribed to is not an error.
    pub fn cancel(&mut self, topic: &[u8]) {
        let Some(count) = self.topics.get_mut(topic) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.topics.remove(topic);
            self.bytes -= topic.len();
        }
    }

    /// Whether a message with this first part matches a topic.
    pub fn wants(&self, first_part: &[u8]) -> bool {
        // Let T be the greatest topic not after `text`. T is a prefix of `text`, or every topic that is one is also a
        // prefix of the common beginning of T and `text`. That beginning is shorter than T, so the search continues
        // with it.
        let mut text = first_part;
        loop {
            let range = (Bound::Unbounded, Bound::Included(text));
            let Some((topic, _)) = self.topics.range::<[u8], _>(range).next_back() else {
                return false;
            };
            let common = topic.iter().zip(text).take_while(|(a, b)| a == b).count();
            if common == topic.len() {
                return true;
            }
            text = text.get(..common).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn of(topics: &[&'static str]) -> Subscriptions {
        let mut subscriptions = Subscriptions::new(100, 1_000);
        topics.iter().for_each(|topic| {
            subscriptions
                .add(Bytes::from_static(topic.as_bytes()))
                .unwrap()
        });
        subscriptions
    }

    #[test]
    fn topics_match_as_prefixes() {
        let table: [(&[&str], &str, bool); 9] = [
            (&[], "", false),
            (&[], "a", false),
            (&[""], "", true),
            (&[""], "anything", true),
            (&["ab"], "a", false),
            (&["ab"], "abc", true),
            (&["ab", "abd", "abcx"], "abcd", true),
            (&["a", "abb", "abbb", "abc"], "abca", true),
            (&["b", "abb"], "abca", false),
        ];
        for (topics, text, wanted) in table {
            assert_eq!(
                of(topics).wants(text.as_bytes()),
                wanted,
                "{topics:?} {text}"
            );
        }
    }

    #[test]
    fn subscriptions_to_a_topic_are_counted() {
        let mut subscriptions = of(&["a", "a", "b"]);
        assert_eq!(subscriptions.topics.len(), 2);
        subscriptions.cancel(b"a");
        assert!(subscriptions.wants(b"a"));
        subscriptions.cancel(b"a");
        subscriptions.cancel(b"a");
        assert!(!subscriptions.wants(b"a"));
        subscriptions.cancel(b"b");
        assert!(subscriptions.topics.is_empty() && subscriptions.bytes == 0);
    }

    #[test]
    fn topics_are_limited() {
        let mut subscriptions = Subscriptions::new(2, 10);
        subscriptions.add("1234".into()).unwrap();
        assert_eq!(
            subscriptions.add("1234567".into()),
            Err(TooMany {
                what: "topic_bytes_max",
                allowed: 10
            })
        );
        subscriptions.add("123456".into()).unwrap();
        assert_eq!(
            subscriptions.add("".into()),
            Err(TooMany {
                what: "topics_max",
                allowed: 2
            })
        );
        subscriptions.add("1234".into()).unwrap();
        subscriptions.cancel(b"123456");
        subscriptions.add("654321".into()).unwrap();
    }

    proptest! {
        #[test]
        fn the_search_equals_a_linear_search(topics in vec("[ab]{0,4}", 0..6), text in "[ab]{0,6}") {
            let mut subscriptions = Subscriptions::new(100, 1_000);
            topics.iter().for_each(|topic| subscriptions.add(topic.clone().into()).unwrap());
            prop_assert_eq!(subscriptions.wants(text.as_bytes()), topics.iter().any(|topic| text.starts_with(topic.as_str())));
        }
    }
}
