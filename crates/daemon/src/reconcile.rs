//! The result of reconciling the engine with the configuration.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use windlass_engine::{Command, Cursor, Query, QueueRow, Refusal, Reply};

use windlass_hub::Broker;

/// Reconciles existing entries with the required ones, by name. `set` sets an entry, or removes it.
pub(crate) fn agree<O, N>(
    key: &'static str,
    broker: &dyn Broker,
    mut there: BTreeMap<Bytes, O>,
    wanted: impl IntoIterator<Item = (Bytes, N)>,
    is_same: impl Fn(&O, &N) -> bool,
    set: impl Fn(Bytes, Option<N>) -> Command,
) -> Reconciliation {
    let mut done = Reconciliation::new(key);
    let mut to_set = Vec::new();
    for (name, new) in wanted {
        match there.remove(&name) {
            Some(old) if is_same(&old, &new) => done.same += 1,
            old => to_set.push((name, new, old.is_some())),
        }
    }
    // Removals come first, because the new entries may not fit before.
    for name in there.into_keys() {
        let _ = broker.ask(set(name, None));
        done.removed += 1;
    }
    for (name, new, is_change) in to_set {
        match (broker.ask(set(name.clone(), Some(new))), is_change) {
            (Err(why), _) => done
                .refused
                .push((String::from_utf8_lossy(&name).into_owned(), why)),
            (Ok(_), true) => done.changed += 1,
            (Ok(_), false) => done.new += 1,
        }
    }
    done
}

/// The queues with this setting.
pub(crate) fn configured<T>(
    broker: &dyn Broker,
    of: impl Fn(&QueueRow) -> Option<T>,
) -> BTreeMap<Bytes, T> {
    let query = |after| Query::Configured {
        after,
        limit: u32::MAX,
    };
    let rows = listed(broker, query, |reply| {
        let Reply::Queues { rows, next } = reply else {
            return None;
        };
        Some((rows, next))
    });
    // The configuration sets those of other namespaces by pattern.
    rows.iter()
        .filter(|row| row.namespace.is_empty())
        .filter_map(|row| Some((row.name.clone(), of(row)?)))
        .collect()
}

/// The rows of all pages of a list; `page` takes them out of the reply to `query`.
pub(crate) fn listed<R>(
    broker: &dyn Broker,
    query: impl Fn(Cursor) -> Query,
    page: impl Fn(Reply) -> Option<(Vec<R>, Option<Cursor>)>,
) -> Vec<R> {
    let (mut found, mut after) = (Vec::new(), Some(Cursor::default()));
    while let Some(cursor) = after {
        let Some((rows, next)) = broker.ask(query(cursor).into()).ok().and_then(&page) else {
            break;
        };
        found.extend(rows);
        after = next;
    }
    found
}

/// The result of a reconciliation for one key, as counts of entries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reconciliation {
    pub(crate) key: &'static str,
    pub(crate) new: usize,
    pub(crate) changed: usize,
    pub(crate) removed: usize,
    pub(crate) same: usize,
    /// Names of entries that the engine refused, with the reasons.
    pub(crate) refused: Vec<(String, Refusal)>,
}

impl fmt::Display for Reconciliation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            new,
            changed,
            removed,
            same,
            ..
        } = self;
        write!(
            f,
            "{key}: {new} new, {changed} changed, {removed} removed, {same} unchanged"
        )
    }
}

impl Reconciliation {
    /// How many entries are new, changed, removed and unchanged, if none was refused.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize, usize, usize) {
        assert_eq!(self.refused, []);
        (self.new, self.changed, self.removed, self.same)
    }

    /// An empty result.
    pub(crate) fn new(key: &'static str) -> Self {
        Self {
            key,
            ..Self::default()
        }
    }

    /// Whether there were no entries before and after.
    pub(crate) fn is_of_nothing(&self) -> bool {
        *self == Self::new(self.key)
    }

    /// Logs the result, unless it is empty.
    pub(crate) fn report(&self) {
        for (name, why) in &self.refused {
            tracing::error!("{}: {name}: {why}", self.key);
        }
        if !self.is_of_nothing() {
            tracing::info!("{self}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Log;
    use crate::logging::tests::captured;

    #[test]
    fn a_result_has_its_lines_unless_it_is_of_nothing() {
        let said = |done: Reconciliation| captured(&Log::default(), || done.report());
        let new = || Reconciliation::new("queues");
        assert_eq!(said(new()), "");
        let counts = said(Reconciliation {
            new: 1,
            changed: 2,
            removed: 3,
            same: 4,
            ..new()
        });
        assert!(
            counts.ends_with("queues: 1 new, 2 changed, 3 removed, 4 unchanged\n"),
            "{counts}"
        );
        assert_eq!(said(Reconciliation { same: 1, ..new() }).lines().count(), 1);
        let refused = said(Reconciliation {
            refused: vec![("q".to_owned(), Refusal::InUse)],
            ..new()
        });
        assert_eq!(refused.lines().count(), 2, "{refused}");
    }
}
