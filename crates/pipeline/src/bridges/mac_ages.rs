//! Which address a full MAC table forgets: of the port that has most, the one that was not seen for
//! the longest time.
//!
//! So a port that makes up addresses forgets its own, and the others keep theirs. Hits refresh
//! entries without a lock and without a word to this index: a place may stand in it by a time that
//! is over, and is put where it belongs when it comes to be the oldest. Every operation is
//! logarithmic, but for a move of that kind for each address that was seen again meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use shunt_flow::PortNo;

use super::mac_table::Place;
use crate::time::Time;

/// The addresses of a table by port and age.
#[derive(Default)]
pub(crate) struct Ages {
    /// Where each stands in `by_port`.
    places: BTreeMap<Place, (PortNo, Time)>,
    by_port: BTreeMap<PortNo, BTreeSet<(Time, Place)>>,
    /// How many each port has.
    by_count: BTreeSet<(usize, PortNo)>,
}

impl Ages {
    /// Number of addresses.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Adds an address that is not there, seen at a port at this time.
    pub(crate) fn add(&mut self, place: Place, port: PortNo, seen: Time) {
        debug_assert!(!self.places.contains_key(&place), "removed before");
        self.places.insert(place, (port, seen));
        let ages = self.by_port.entry(port).or_default();
        self.by_count.remove(&(ages.len(), port));
        ages.insert((seen, place));
        self.by_count.insert((ages.len(), port));
    }

    /// Removes an address, if it is there.
    pub(crate) fn remove(&mut self, place: Place) {
        let Some((port, seen)) = self.places.remove(&place) else { return };
        let Some(ages) = self.by_port.get_mut(&port) else { return };
        self.by_count.remove(&(ages.len(), port));
        ages.remove(&(seen, place));
        if ages.is_empty() {
            self.by_port.remove(&port);
        } else {
            self.by_count.insert((ages.len(), port));
        }
    }

    /// Of the port that has most, the address seen least lately; `seen` knows better when that was.
    pub(crate) fn oldest(&mut self, seen: impl Fn(Place) -> Option<Time>) -> Option<Place> {
        let (_, port) = *self.by_count.last()?;
        let ages = self.by_port.get_mut(&port)?;
        loop {
            let (known, place) = *ages.first()?;
            let seen = seen(place).unwrap_or(known);
            if seen <= known {
                return Some(place);
            }
            ages.pop_first();
            ages.insert((seen, place));
            self.places.insert(place, (port, seen));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// Learned at a port; seen again; gone; or room is made.
    #[derive(Clone, Debug)]
    enum Op {
        Learn(u8, u32),
        See(u8),
        Remove(u8),
        Forget,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0..20u8, 1..4u32).prop_map(|(mac, port)| Op::Learn(mac, port)),
            3 => (0..20u8).prop_map(Op::See),
            1 => (0..20u8).prop_map(Op::Remove),
            2 => Just(Op::Forget),
        ]
    }

    const fn place(mac: u8) -> Place {
        (0, [0, 0, 0, 0, 0, mac])
    }

    /// By counting and comparing all of them.
    fn slow_oldest(seen: &BTreeMap<u8, (u32, Time)>) -> Option<u8> {
        let count = |port| seen.values().filter(|(own, _)| *own == port).count();
        let port = seen.values().map(|(port, _)| (count(*port), *port)).max()?.1;
        let own = seen.iter().filter(|(_, (own, _))| *own == port);
        own.min_by_key(|(mac, (_, seen))| (*seen, **mac)).map(|(mac, _)| *mac)
    }

    proptest! {
        #[test]
        fn what_is_forgotten_is_the_oldest_of_the_port_with_most(
            ops in prop::collection::vec(op(), 1..100),
        ) {
            let mut ages = Ages::default();
            let mut seen = BTreeMap::new();
            for (second, op) in (0..).zip(ops) {
                let now = Time::ZERO.after(Duration::from_secs(second));
                match op {
                    Op::Learn(mac, port) => {
                        ages.remove(place(mac));
                        ages.add(place(mac), PortNo::new(port), now);
                        seen.insert(mac, (port, now));
                    }
                    Op::See(mac) => {
                        seen.entry(mac).and_modify(|(_, seen)| *seen = now);
                    }
                    Op::Remove(mac) => {
                        ages.remove(place(mac));
                        seen.remove(&mac);
                    }
                    Op::Forget => {
                        let by_place = |place: Place| seen.get(&place.1[5]).map(|entry| entry.1);
                        let oldest = ages.oldest(by_place);
                        prop_assert_eq!(oldest, slow_oldest(&seen).map(place));
                        if let Some(oldest) = oldest {
                            ages.remove(oldest);
                            seen.remove(&oldest.1[5]);
                        }
                    }
                }
                prop_assert_eq!(ages.len(), seen.len());
            }
        }
    }
}
