//! Predicts the next turns for operators: the present keys, with the effects of predicted starts.
//! No key is modified.

use std::collections::{BTreeMap, BTreeSet, btree_map, btree_set};
use std::iter::Peekable;

use super::super::Policy;
use super::super::bucket::Bucket;
use super::super::key::{Head, Key, Place, Standing};
use super::{KeyNumber, Keys};
use crate::ids::Timestamp;
use crate::jobs::Slot;
use crate::queues::audience::{Class, View};

/// First jobs of the remaining keys, with the numbers of the keys.
type Heads<'a> = Peekable<btree_map::Iter<'a, Place, (KeyNumber, Slot)>>;

/// Predicts the next turns, assuming that no job of a key finishes.
#[derive(Debug)]
pub(in crate::queues::policy) struct Turns<'a> {
    keys: &'a Keys,
    policy: &'a Policy,
    view: View,
    /// The first jobs in the view of keys without predicted starts, and of some others.
    unmoved: Vec<(Class, Heads<'a>)>,
    /// When tokens are added for such keys.
    unmoved_due: Peekable<btree_set::Iter<'a, (Timestamp, KeyNumber)>>,
    /// Keys that have a predicted start, or that have become due.
    moved: BTreeMap<KeyNumber, Moved>,
    /// The first jobs of these in the view.
    heads: BTreeMap<Place, (Class, KeyNumber, Slot)>,
    /// When tokens are added for those of these keys that lack them.
    due: BTreeSet<(Timestamp, KeyNumber)>,
    /// The turn of the last start.
    turn: u64,
    /// Until when keys are blocked because of jobs that a killed daemon may have delivered.
    doubt_until: Timestamp,
}

/// A key after predicted starts.
#[derive(Debug)]
struct Moved {
    standing: Standing,
    heads: Vec<Head>,
}

impl<'a> Turns<'a> {
    pub(in crate::queues::policy) fn new(
        keys: &'a Keys,
        policy: &'a Policy,
        view: View,
        doubt_until: Timestamp,
    ) -> Self {
        let trees = keys.heads.iter().filter(|(class, _)| view.includes(*class));
        Self {
            keys,
            policy,
            view,
            unmoved: trees
                .map(|(class, tree)| (*class, tree.iter().peekable()))
                .collect(),
            unmoved_due: keys.due.iter().peekable(),
            moved: BTreeMap::new(),
            heads: BTreeMap::new(),
            due: BTreeSet::new(),
            turn: keys.turn,
            doubt_until,
        }
    }

    /// The next key and job to start.
    pub(in crate::queues::policy) fn first(&mut self) -> Option<(Place, Class, KeyNumber, Slot)> {
        let moved = &self.moved;
        let unmoved = self.unmoved.iter_mut().filter_map(|(class, heads)| {
            while heads
                .next_if(|(_, (number, _))| moved.contains_key(number))
                .is_some()
            {}
            heads
                .peek()
                .map(|(place, (number, slot))| (**place, *class, *number, *slot))
        });
        let moved = self
            .heads
            .first_key_value()
            .map(|(place, (class, number, slot))| (*place, *class, *number, *slot));
        unmoved.chain(moved).min_by_key(|(place, ..)| *place)
    }

    /// Predicts the start of this job of a key.
    pub(in crate::queues::policy) fn start(
        &mut self,
        place: Place,
        class: Class,
        number: KeyNumber,
        now: Timestamp,
    ) {
        let step = self
            .keys
            .at(number)
            .map_or(0, |key| self.policy.step_of(&key.text));
        let turn = self.turn.max(place.turn);
        self.turn = turn;
        self.move_on(number, |standing| {
            standing.turn = (standing.turn + step).max(turn);
            standing.held += 1;
            if let Some(bucket) = &mut standing.bucket {
                bucket.spend(now);
            }
            standing.started.retain(|(other, _)| *other != class);
            standing.started.push((class, place.sort_key()));
        });
    }

    /// When [`Self::come_due`] must be called next.
    pub(in crate::queues::policy) fn next_due(&mut self) -> Timestamp {
        while self
            .unmoved_due
            .next_if(|(_, number)| self.moved.contains_key(number))
            .is_some()
        {}
        let unmoved = self
            .unmoved_due
            .peek()
            .map_or(Timestamp::NEVER, |(at, _)| *at);
        let moved = self.due.first().map_or(Timestamp::NEVER, |(at, _)| *at);
        unmoved.min(moved).min(self.doubt_until)
    }

    /// Unblocks keys that are due.
    pub(in crate::queues::policy) fn come_due(&mut self, now: Timestamp) {
        let turn = self.turn;
        let mut come: BTreeSet<_> = self
            .due
            .iter()
            .take_while(|(at, _)| *at <= now)
            .map(|(_, number)| *number)
            .collect();
        while let Some((_, number)) = self.unmoved_due.next_if(|(at, _)| *at <= now) {
            come.extend(Some(*number).filter(|number| !self.moved.contains_key(number)));
        }
        let is_certain = self.doubt_until <= now;
        if is_certain {
            self.doubt_until = Timestamp::NEVER;
            come.extend(
                self.keys
                    .all_numbers()
                    .filter(|it| self.keys.at(*it).is_some_and(|it| it.is_in_doubt)),
            );
        }
        for number in come {
            self.move_on(number, |standing| {
                standing.is_in_doubt &= !is_certain;
                standing.turn = standing.turn.max(turn);
                if let Some(bucket) = &mut standing.bucket {
                    bucket.refill(now);
                }
            });
        }
    }

    fn move_on(&mut self, number: KeyNumber, change: impl FnOnce(&mut Standing)) {
        let Some(key) = self.keys.at(number) else {
            return;
        };
        let moved = self.moved.entry(number).or_insert_with(|| Moved {
            standing: key.standing(),
            heads: Vec::new(),
        });
        for (_, place, _) in moved.heads.drain(..) {
            self.heads.remove(&place);
        }
        self.due.remove(&(next_due(key, &moved.standing), number));
        change(&mut moved.standing);
        moved
            .heads
            .extend(key.heads_of(&moved.standing, self.policy, self.keys.bridged));
        let seen = moved
            .heads
            .iter()
            .filter(|(class, ..)| self.view.includes(*class));
        self.heads
            .extend(seen.map(|(class, place, slot)| (*place, (*class, number, *slot))));
        let at = next_due(key, &moved.standing);
        if at < Timestamp::NEVER {
            self.due.insert((at, number));
        }
    }
}

/// When a token is added that jobs of a key wait for.
fn next_due(key: &Key, standing: &Standing) -> Timestamp {
    let out = standing
        .bucket
        .as_ref()
        .filter(|bucket| bucket.tokens() == 0 && !key.ready.is_empty());
    out.map_or(Timestamp::NEVER, Bucket::next_at)
}
