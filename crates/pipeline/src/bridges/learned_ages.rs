//! The order in which a full table of learned entries evicts them: MAC addresses, multicast groups.
//!
//! The oldest entry of the port with the most entries goes first. So a port that forges addresses, or
//! reports many groups, evicts entries of its own, and the other ports keep their entries. Among
//! equal ports, a multicast group evicts one of its own port ([`LearnedAges::oldest_for`]).
//!
//! A packet refreshes its entry without an update of this index. So an entry may be listed with an
//! old time. The entry moves to its correct position when it becomes the oldest. Every operation is
//! logarithmic, and [`LearnedAges::oldest`] also moves up to [`MOVES_MAX`] entries that packets
//! refreshed. After that many moves, it returns the next entry, although a packet may have refreshed
//! this entry too.

use std::collections::{BTreeMap, BTreeSet};

use shunt_flow::PortNo;

use crate::time::Time;

/// Maximum number of refreshed entries that one search for the oldest entry moves.
///
/// The search has the lock of the tables, and all entries of a large table may be refreshed.
const MOVES_MAX: usize = 64;

/// The entries of a table, by port and age.
pub(crate) struct LearnedAges<K> {
    /// The port and time under which each entry is in `by_port`.
    by_key: BTreeMap<K, (PortNo, Time)>,
    /// The entries of each port, oldest first.
    by_port: BTreeMap<PortNo, BTreeSet<(Time, K)>>,
    /// Number of entries of each port.
    by_count: BTreeSet<(usize, PortNo)>,
    /// Number of entries that all searches have visited.
    visits: usize,
}

impl<K> Default for LearnedAges<K> {
    fn default() -> Self {
        Self {
            by_key: BTreeMap::new(),
            by_port: BTreeMap::new(),
            by_count: BTreeSet::new(),
            visits: 0,
        }
    }
}

impl<K: Copy + Ord> LearnedAges<K> {
    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns the number of entries that all searches for the oldest one have visited.
    ///
    /// A caller that evicts several entries under one lock bounds its work by this number.
    pub(crate) const fn visits(&self) -> usize {
        self.visits
    }

    /// Returns the keys of all learned entries.
    pub(crate) fn keys(&self) -> impl Iterator<Item = K> {
        self.by_key.keys().copied()
    }

    /// Returns the entries of a port.
    pub(crate) fn keys_of(&self, port: PortNo) -> impl Iterator<Item = K> {
        self.by_port.get(&port).into_iter().flatten().map(|(_, key)| *key)
    }

    /// Adds a new entry, seen on a port at this time.
    pub(crate) fn add(&mut self, key: K, port: PortNo, seen: Time) {
        debug_assert!(
            !self.by_key.contains_key(&key),
            "an entry is removed before it is added again"
        );
        self.by_key.insert(key, (port, seen));
        let ages = self.by_port.entry(port).or_default();
        self.by_count.remove(&(ages.len(), port));
        ages.insert((seen, key));
        self.by_count.insert((ages.len(), port));
    }

    /// Removes an entry, if it is listed.
    pub(crate) fn remove(&mut self, key: K) {
        let Some((port, seen)) = self.by_key.remove(&key) else { return };
        let Some(ages) = self.by_port.get_mut(&port) else { return };
        self.by_count.remove(&(ages.len(), port));
        ages.remove(&(seen, key));
        if ages.is_empty() {
            self.by_port.remove(&port);
        } else {
            self.by_count.insert((ages.len(), port));
        }
    }

    /// Returns the oldest entry of the port with the most entries.
    ///
    /// If several ports have the most entries, the port with the highest number is taken. `seen`
    /// returns the current time of an entry.
    pub(crate) fn oldest(&mut self, seen: impl Fn(K) -> Option<Time>) -> Option<K> {
        let (_, port) = *self.by_count.last()?;
        self.oldest_of(port, seen)
    }

    /// Returns the entry that must go before a port gets a new entry.
    ///
    /// The new entry is charged to its port. If no other port has more entries, this is the oldest
    /// entry of the port itself. Otherwise, or if the port has no entry yet, see [`Self::oldest`].
    pub(crate) fn oldest_for(
        &mut self,
        port: PortNo,
        seen: impl Fn(K) -> Option<Time>,
    ) -> Option<K> {
        let (most, _) = *self.by_count.last()?;
        let own = self.by_port.get(&port).map_or(0, BTreeSet::len);
        if own > 0 && own + 1 >= most { self.oldest_of(port, seen) } else { self.oldest(seen) }
    }

    /// Returns the oldest entry of a port.
    fn oldest_of(&mut self, port: PortNo, seen: impl Fn(K) -> Option<Time>) -> Option<K> {
        let ages = self.by_port.get_mut(&port)?;
        for _ in 0..MOVES_MAX {
            let (known, key) = *ages.first()?;
            self.visits += 1;
            let seen = seen(key).unwrap_or(known);
            if seen <= known {
                return Some(key);
            }
            ages.pop_first();
            ages.insert((seen, key));
            self.by_key.insert(key, (port, seen));
        }
        ages.first().map(|(_, key)| *key)
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Duration};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_search_moves_few_refreshed_entries() {
        let at = |second| Time::ZERO.after(Duration::from_secs(second));
        let (mut ages, visits) = (LearnedAges::default(), Cell::new(0));
        (0..1000_u16).for_each(|key| ages.add(key, PortNo::new(1), at(1)));
        let oldest = ages.oldest(|_| {
            visits.set(visits.get() + 1);
            Some(at(2))
        });
        assert_eq!((oldest, visits.get(), ages.len()), (Some(64), MOVES_MAX, 1000));
        assert_eq!(ages.oldest(|_| None), Some(64), "the others have moved");
    }

    /// An operation: an entry is learned, seen again or removed, or the table is full.
    #[derive(Clone, Debug)]
    enum AgesOp {
        Learn(u8, u32),
        See(u8),
        Remove(u8),
        Forget,
        ForgetFor(u32),
    }

    /// Generates an operation on learned ages.
    fn op() -> impl Strategy<Value = AgesOp> {
        prop_oneof![
            4 => (0..20u8, 1..4u32).prop_map(|(key, port)| AgesOp::Learn(key, port)),
            3 => (0..20u8).prop_map(AgesOp::See),
            1 => (0..20u8).prop_map(AgesOp::Remove),
            2 => Just(AgesOp::Forget),
            2 => (1..5u32).prop_map(AgesOp::ForgetFor),
        ]
    }

    /// Returns the entry that gives way, by a scan of all entries.
    ///
    /// `new` is the port of a new entry.
    fn slow_oldest(seen: &BTreeMap<u8, (u32, Time)>, new: Option<u32>) -> Option<u8> {
        let count = |port| seen.values().filter(|(own, _)| *own == port).count();
        let (most, largest) = seen.values().map(|(port, _)| (count(*port), *port)).max()?;
        let port = new.filter(|new| (1..=most).contains(&count(*new)) && count(*new) + 1 >= most);
        let port = port.unwrap_or(largest);
        let own = seen.iter().filter(|(_, (own, _))| *own == port);
        own.min_by_key(|(key, (_, seen))| (*seen, **key)).map(|(key, _)| *key)
    }

    proptest! {
        #[test]
        fn the_largest_port_loses_its_oldest_entry(
            ops in prop::collection::vec(op(), 1..100),
        ) {
            let mut ages = LearnedAges::default();
            let mut seen = BTreeMap::new();
            for (second, op) in (0..).zip(ops) {
                let now = Time::ZERO.after(Duration::from_secs(second));
                match op {
                    AgesOp::Learn(key, port) => {
                        ages.remove(key);
                        ages.add(key, PortNo::new(port), now);
                        seen.insert(key, (port, now));
                    }
                    AgesOp::See(key) => {
                        seen.entry(key).and_modify(|(_, seen)| *seen = now);
                    }
                    AgesOp::Remove(key) => {
                        ages.remove(key);
                        seen.remove(&key);
                    }
                    AgesOp::Forget | AgesOp::ForgetFor(_) => {
                        let by_key = |key: u8| seen.get(&key).map(|entry| entry.1);
                        let new = match op {
                            AgesOp::ForgetFor(port) => Some(port),
                            _ => None,
                        };
                        let oldest = match new {
                            Some(port) => ages.oldest_for(PortNo::new(port), by_key),
                            None => ages.oldest(by_key),
                        };
                        prop_assert_eq!(oldest, slow_oldest(&seen, new));
                        if let Some(oldest) = oldest {
                            ages.remove(oldest);
                            seen.remove(&oldest);
                        }
                    }
                }
                prop_assert_eq!(ages.len(), seen.len());
            }
        }
    }
}
